"""The load generators: how they are started, and their figures.

wrk and ab keep a number of connections busy (`run`); howdah-load sends at constant rates (`at_constant_rates`). Tools
are `wrk` (keep-alive), `ab-k` (keep-alive, HTTP/1.0) and `ab` (a new connection for each request). ab with 1,500
connections makes exactly 15,000 requests; everything else runs for a time.
"""

import json
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from lib import process_tree
from lib.howdah import load_generator
from lib.php_config import executable

TOOLS = ["wrk", "ab-k", "ab"]
WRK_REPORT = Path(__file__).with_name("wrk_report.lua")
MANY_CONNECTIONS, MANY_REQUESTS = 1500, 15000
# ab allocates a record for each possible request; a round does not make more requests than this.
AB_MOST_REQUESTS = 2_000_000


@dataclass(frozen=True)
class Figures:
    requests: int  # answered, whatever the status
    seconds: float
    p50_ms: float | None  # None: the load generator gave up
    p90_ms: float | None
    p99_ms: float | None
    non_2xx: int
    socket_errors: int  # connect, read, write, and answers later than 30 s

    @property
    def good(self):
        return max(0, self.requests - self.non_2xx)


def run(tool, url, connections, seconds, *, cores=None, requests=None, during=None):
    """One run. `during` is called once the load generator has been started, while it works."""
    if tool == "wrk":
        command, parse = _wrk(url, connections, seconds), _parse_wrk
    else:
        if tool.startswith("ab") and connections == MANY_CONNECTIONS:
            requests = requests or MANY_REQUESTS
        command, parse = _ab(url, connections, seconds, requests, keep_alive=tool == "ab-k"), _parse_ab
    started = time.monotonic()
    process = process_tree.start(command, cores=cores, stdout=subprocess.PIPE)
    try:
        if during:
            during()
        output = process.communicate()[0].decode(errors="replace")
    finally:
        process_tree.stop(process)
    if gave_up := re.search(r"^Test aborted after (\d+) failures", output, re.M):
        return _given_up(output, time.monotonic() - started, requests, int(gave_up.group(1)))
    try:
        return parse(output)
    except (AttributeError, KeyError, ValueError) as error:
        raise process_tree.BenchError(
            f"{' '.join(map(str, command))}: no figures (exit {process.returncode}, {error!r}):\n{output[-800:]}")


def _wrk(url, connections, seconds):
    return [executable("wrk", "wrk"), "--latency", "-t", "2", "-c", connections, "-d", f"{seconds}s",
            "--timeout", "30s", "-s", WRK_REPORT, url]


def _parse_wrk(output):
    report = json.loads(re.search(r"^RESULT (.*)$", output, re.M).group(1))
    return Figures(
        requests=report["requests"],
        seconds=report["microseconds"] / 1e6,
        p50_ms=report["p50"] / 1e3,
        p90_ms=report["p90"] / 1e3,
        p99_ms=report["p99"] / 1e3,
        non_2xx=report["bad_status"],
        socket_errors=sum(report[kind] for kind in ("connect", "read", "write", "timeout")),
    )


def _ab(url, connections, seconds, requests, keep_alive):
    # -l: responses may differ in length. -r: continue after a reset. -e: percentiles finer than a millisecond.
    amount = ["-n", requests] if requests else ["-t", seconds, "-n", AB_MOST_REQUESTS]
    return [executable("ab", "apache2-utils"), "-q", "-d", "-l", "-r", "-s", "30", *amount, "-c", connections,
            "-e", "/dev/stdout", *(["-k"] if keep_alive else []), url]


def _given_up(output, seconds, requests, failures):
    """ab stops after ten connections that were refused or reset. The requests that it did not send count as failed."""
    done = re.search(r"^Total of (\d+) requests completed", output, re.M)
    completed = int(done.group(1)) if done else 0
    return Figures(completed, seconds, None, None, None, 0, requests - completed if requests else failures)


def _parse_ab(output):
    def number(pattern, absent=None):
        found = re.search(pattern, output, re.M)
        if not found and absent is not None:
            return absent
        return float(found.group(1))

    def percentile(percent):
        return number(rf"^{percent},([\d.]+)$")

    return Figures(
        requests=int(number(r"^Complete requests:\s+(\d+)")),
        seconds=number(r"^Time taken for tests:\s+([\d.]+)"),
        p50_ms=percentile(50),
        p90_ms=percentile(90),
        p99_ms=percentile(99),
        non_2xx=int(number(r"^Non-2xx responses:\s+(\d+)", 0)),
        socket_errors=int(number(r"^Failed requests:\s+(\d+)")),
    )


def throughput(url, connections, seconds, *, cores=None, may_fail=False):
    """Requests per second of a server that is always busy (wrk). Raises on an error unless requests `may_fail`."""
    figures = run("wrk", url, connections, seconds, cores=cores)
    if not may_fail and (figures.non_2xx or figures.socket_errors):
        raise process_tree.BenchError(
            f"{url}: {figures.non_2xx} responses are not 2xx, {figures.socket_errors} socket errors")
    return figures.requests / figures.seconds


def at_constant_rates(urls, steps, *, connections, expect=None, cores=None):
    """The JSON report of howdah-load.

    It sends requests at the rates of `steps`, ["RATE:SECONDS", …], whatever the server does. `urls` may have weights, as
    in "9=http://…". A response 200 without the text `expect` counts as wrong.
    """
    command = [load_generator(), "--connections", connections, *(["--expect", expect] if expect else []),
               "--steps", ",".join(steps), *urls]
    return json.loads(process_tree.output(command, cores=cores))
