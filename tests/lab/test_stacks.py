"""The lab's stacks, each started for real: howdah's ways, the servers of Debian, and those of scripts/build-peers.

RoadRunner and FrankenPHP cannot be built here: a fake program records how the lab calls it, and answers.
"""

import json
import os
from pathlib import Path

import pytest

from support.labs import assert_all_answered, run_lab, shortened
from support.server import DISTRIBUTION_PHP

pytestmark = pytest.mark.usefixtures("place")

JSON_LOAD = [{"name": "json", "connections": 4, "duration": "200ms", "targets": ["/index.php"]}]
# An HTTP server in PHP without a library, as an HTTP application of howdah.
HTTP_SERVER = r"""<?php
$server = stream_socket_server('unix://' . getenv('HOWDAH_SOCKET'));
while ($client = stream_socket_accept($server, -1)) {
    $first = $line = fgets($client);
    while ($line !== false && trim($line) !== '') {
        $line = fgets($client);
    }
    if ($first !== false) {
        $body = json_encode(['code' => 0, 'message' => 'success']);
        $length = strlen($body);
        fwrite($client, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: $length\r\nConnection: close\r\n\r\n$body");
    }
    fclose($client);
}
"""


def resident(examples: Path, stacks: list, **changes) -> Path:
    """The JSON page of the lab resident-or-fpm for these stacks, without its database."""
    return shortened(examples / "labs/resident-or-fpm/lab.json", stacks=stacks, services=[], workers=2, loads=JSON_LOAD, **changes)


def environment_free(lab: Path) -> Path:
    """Without the address of a database."""
    content = json.loads(lab.read_text())
    content["application"].pop("environment", None)
    lab.write_text(json.dumps(content))
    return lab


def test_howdah_in_all_its_ways(examples):
    (examples / "labs/resident-or-fpm/scripts/server.php").write_text(HTTP_SERVER)
    stacks = [
        "howdah", "howdah-worker", "howdah-async", "howdah-roadrunner", "howdah-fastcgi", "nginx-howdah",
        {"name": "howdah-fastcgi-tcp", "stack": "howdah-fastcgi", "settings": {"socket": "tcp", "pm": "ondemand"}},
        {"name": "howdah-http", "settings": {"server": "php"}, "script": "scripts/server.php"},
    ]  # fmt: skip
    results, _ = run_lab(environment_free(resident(examples, stacks)))
    assert results["skipped"] == []
    assert_all_answered(results)
    by_name = {stack["name"]: stack for stack in results["stacks"]}
    assert {name: stack["workers"]["count"] for name, stack in by_name.items()} == {
        "howdah": None, "howdah-worker": None, "howdah-async": 2, "howdah-roadrunner": 2, "howdah-fastcgi": 2,
        "nginx-howdah": None, "howdah-fastcgi-tcp": 2, "howdah-http": 2,
    }  # fmt: skip
    written = {name: {file["path"]: file["content"] for file in stack["files"]} for name, stack in by_name.items()}
    types = {name: json.loads(files["howdah.json"])["applications"]["lab"]["type"].split()[0] for name, files in written.items()}
    assert types == {
        "howdah": "php", "howdah-worker": "php", "howdah-async": "php", "howdah-roadrunner": "roadrunner",
        "howdah-fastcgi": "fastcgi", "howdah-fastcgi-tcp": "fastcgi", "howdah-http": "http", "nginx-howdah": "php",
    }  # fmt: skip
    # Each has processes that read connections and processes that run PHP, and each of them used CPU.
    for run in results["runs"]:
        assert set(run["usage"]["roles"]) == {"front", "php"}, (run["stack"], run["usage"])
    # The worker's script is not below the document root.
    worker = json.loads(written["howdah-worker"]["howdah.json"])["applications"]["lab"]
    assert (worker["root"], worker["worker"]) == (f"{examples}/labs/resident-or-fpm/scripts", {"script": "worker.php"})


def test_the_servers_of_debian(examples):
    results, _ = run_lab(environment_free(resident(examples, ["nginx-fpm", "apache-mod-php", "apache-fpm", "caddy-fpm", "php-s"])))
    assert results["skipped"] == []
    assert_all_answered(results)
    assert [check["state"] for check in results["checks"] if check["name"] == "the same response"] == ["passed"]
    roles = {run["stack"]: set(run["usage"]["roles"]) for run in results["runs"]}
    both = {"front", "php"}
    assert roles == {"nginx-fpm": both, "apache-mod-php": {"php"}, "apache-fpm": both, "caddy-fpm": both, "php-s": {"php"}}


SYMFONY = "labs/seven-servers/lab.json"
RESIDENT = "labs/resident-or-fpm/lab.json"
PEERS = [
    ("UNIT_PREFIX", RESIDENT, "unit", {}),
    ("SWOOLE", RESIDENT, "swoole", {"mode": "base"}),
    ("SWOOLE", RESIDENT, "swoole", {"mode": "process"}),
    ("SWOOLE", RESIDENT, "nginx-swoole", {"mode": "base"}),
    ("SWOOLE", RESIDENT, "nginx-swoole", {"mode": "process"}),
    ("SWOOLE", RESIDENT, "howdah-http", {"server": "swoole"}),
    ("REACTPHP", RESIDENT, "reactphp", {}),
    ("REACTPHP", SYMFONY, "reactphp", {"reboot": "yes"}),
    ("REACTPHP", SYMFONY, "howdah-http", {"reboot": "yes"}),
    ("PHP_PM", SYMFONY, "php-pm", {}),
]


@pytest.mark.parametrize("variable, lab, stack, settings", PEERS, ids=[f"{p[2]}-{'-'.join(p[3].values()) or 'plain'}" for p in PEERS])
def test_the_servers_of_build_peers(examples, variable, lab, stack, settings):
    if not os.environ.get(variable):
        pytest.skip(f"{stack} is not built, and {variable} not set: scripts/build-peers")
    one = {"name": stack, "settings": settings}
    if stack == "php-pm":
        one["environment"] = {"COMPOSER_VENDOR_DIR": "../labs/seven-servers/php-pm"}
    if lab == RESIDENT:
        path = environment_free(resident(examples, [one, "php-s"]))
    else:
        path = shortened(examples / lab, stacks=[one, "php-s"])
    results, _ = run_lab(path)
    assert results["skipped"] == []
    assert_all_answered(results)


FAKE = r"""#!/usr/bin/env python3
import http.server, json, os, re, sys
if sys.argv[1:2] in (["--version"], ["version"]):
    print("rr version 2025.1.2 (build time: x), FrankenPHP v1.9.1 PHP 8.4.12 Caddy v2.10.2")
    sys.exit()
config = open(sys.argv[sys.argv.index("-c" if "-c" in sys.argv else "--config") + 1]).read()
with open(os.path.dirname(sys.argv[0]) + "/calls", "a") as calls:
    print(json.dumps({"arguments": sys.argv[1:], "environment": dict(os.environ), "config": config, "user": os.geteuid()}), file=calls)
port = int(re.search(r"^(?:  address: |http://)127\.0\.0\.1:([0-9]+)", config, re.M)[1])
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = b'{"code":0,"message":"success"}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def calls_of_fake(examples: Path, place: Path, variable: str, stack: dict) -> dict:
    """The first call of a fake program that stands for a server, while the lab races it."""
    folder = place.parent / f"{place.name}-fake"
    folder.mkdir()
    folder.chmod(0o777)
    fake = folder / "fake"
    fake.write_text(FAKE)
    fake.chmod(0o755)
    try:
        results, _ = run_lab(environment_free(resident(examples, [stack])), env={variable: str(fake)})
        assert_all_answered(results)
        calls = [json.loads(line) for line in (folder / "calls").read_text().splitlines()]
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    # Once before the race, and once for its only round.
    assert len(calls) == 2
    (stack,) = results["stacks"]
    assert {version["version"] for version in stack["versions"]} & {"2025.1.2", "1.9.1"}
    return calls[1]


@pytest.mark.parametrize("reboot", ["no", "yes"])
def test_how_roadrunner_is_called(examples, place, reboot):
    call = calls_of_fake(examples, place, "ROADRUNNER", {"name": "roadrunner", "settings": {"reboot": reboot}})
    folder = call["arguments"][2]
    assert call["arguments"] == ["serve", "-w", folder, "-c", f"{folder}/rr.yaml"]
    assert call["environment"].get("REBOOT") == ("1" if reboot == "yes" else None)
    assert call["environment"]["PHP_INI_SCAN_DIR"].endswith("/fpm/conf.d")
    script = f"{examples}/labs/resident-or-fpm/scripts/roadrunner.php"
    # rr.yaml, as https://docs.roadrunner.dev describes version 3.
    expected = f"""\
version: "3"
server:
  command: ["/usr/bin/php{DISTRIBUTION_PHP}", "-c", "{folder}-php.ini", "{script}"]
"""
    assert call["config"].startswith(expected), call["config"]
    assert "\n  pool:\n    num_workers: 2\n" in call["config"]
    assert call["user"] != 0, "the application's code does not run as root"


@pytest.mark.parametrize("mode", ["classic", "worker"])
def test_how_frankenphp_is_called(examples, place, mode):
    stack = {"name": "frankenphp", "settings": {"mode": mode}, "script": "scripts/worker.php"}
    call = calls_of_fake(examples, place, "FRANKENPHP", stack)
    config = call["arguments"][2]
    assert call["arguments"] == ["run", "--config", config, "--adapter", "caddyfile"] and config.endswith("/Caddyfile")
    assert call["environment"]["PHPRC"].endswith("-php.ini") and call["user"] != 0
    lab = f"{examples}/labs/resident-or-fpm"
    assert "\n        num_threads 3\n" in call["config"] and f'\n    root * "{lab}/public"\n' in call["config"]
    worker = f"        worker {{\n            file {lab}/scripts/worker.php\n            num 2\n        }}\n"
    assert (worker in call["config"]) == (mode == "worker"), call["config"]
    assert call["config"].count("{") == call["config"].count("}")
