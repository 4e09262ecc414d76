"""Before anything is measured: do all servers run the same PHP, and give the same answers?"""

import json
import urllib.error
import urllib.request

from lib.pages import PROBE_PATH
from lib.ports import end_of
from lib.process_tree import BenchError

# A SAPI's own: nothing that a page could be slower or faster by. Debian compiles pcntl into libphp, not into FPM.
SAPI_EXTENSIONS = {"cgi-fcgi", "howdah", "embed", "pcntl"}
SAPI_INI_PREFIXES = ("cgi.", "fastcgi.", "fpm.", "howdah.")
# Settings that may differ, since no page can see them.
INI_MAY_DIFFER = {"error_log"}


def servers_alike(bench):
    """Raises if something differs. Returns {"php": version, "body_bytes": {page: {server: bytes}}}."""
    version = _same_php(bench)
    return {"php": version, "body_bytes": {page.name: _same_answer(bench, page) for page in bench.pages}}


def _same_php(bench):
    probes = {}
    for server in bench.servers:
        _, _, body = _fetch(server, f"http://127.0.0.1:{server.ports['pages']}{PROBE_PATH}")
        probe = probes[server.name] = json.loads(body)
        if not probe["opcache"]:
            raise BenchError(f"{server.name}: opcache is off")
    (first, expected), *others = probes.items()
    for name, probe in others:
        if probe["version"] != expected["version"]:
            raise BenchError(f"{first} runs PHP {expected['version']}, {name} {probe['version']}")
        differing = (set(probe["extensions"]) ^ set(expected["extensions"])) - SAPI_EXTENSIONS
        if differing:
            raise BenchError(f"{first} and {name} do not have the same extensions: {sorted(differing)}")
        settings = {key: (expected["ini"].get(key), probe["ini"].get(key))
                    for key in set(expected["ini"]) | set(probe["ini"])
                    if expected["ini"].get(key) != probe["ini"].get(key)
                    and key not in INI_MAY_DIFFER and not key.startswith(SAPI_INI_PREFIXES)}
        if settings:
            raise BenchError(f"{first} and {name} do not have the same php.ini settings: {settings}")
    return expected["version"]


def _same_answer(bench, page):
    answers = {server.name: _fetch(server, bench.url(server, page)) for server in bench.servers}
    (first, expected), *others = answers.items()
    for name, answer in others:
        if answer[1] != expected[1]:
            raise BenchError(f"{page.name}: Content-Type {expected[1]!r} by {first}, {answer[1]!r} by {name}")
        if page.essence(answer[2]) != page.essence(expected[2]):
            raise BenchError(f"{page.name}: {first} and {name} give different bodies: "
                             f"{page.essence(expected[2])!r:.400} and {page.essence(answer[2])!r:.400}")
    return {name: len(body) for name, (_, _, body) in answers.items()}


def _fetch(server, url):
    """(status, Content-Type, body) of an answer 200; all else raises with the end of the server's logs."""
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            answer = response.status, response.headers.get("Content-Type"), response.read()
            problem = None if answer[0] == 200 else f"status {answer[0]}"
    except urllib.error.HTTPError as error:
        problem = f"status {error.code}: {error.read()[:300]!r}"
    except OSError as error:
        problem = str(error)
    if problem:
        logs = "\n".join(f"{log}:\n{end_of(log)}" for log in server.logs)
        raise BenchError(f"{server.name}: {url}: {problem}\n{logs}")
    return answer
