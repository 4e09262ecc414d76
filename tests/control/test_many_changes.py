"""A thousand random changes of the configuration under load: no request fails, and nothing is left over."""

import os
import random
import subprocess
import time

import pytest

from support.http.load import Load
from support.machine import free_port
from support.processes import open_descriptors
from support.server import Howdah
from support.waiting import wait_for

CHANGES = int(os.environ.get("HOWDAH_TEST_CHANGES", "1000"))
REQUESTS_PER_SECOND = 200
SEED = int(os.environ.get("HOWDAH_TEST_SEED", "20261121"))


def requesting(path: str, expected: str, keep: bool):
    """Requests a path, over a kept connection or over a new one each time."""

    def ask(client, _):
        answer = client.get(path)
        if not keep:
            client.close()
        if answer.status != 200 or expected not in answer.text:
            return path, answer.status, answer.text[:200]

    return ask


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Two bundles for localhost."""
    bundles = []
    for name in ("one", "two"):
        folder = tmp_path_factory.mktemp(name)
        command = f"openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN={name}"
        subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
        bundles.append((folder / "cert.pem").read_text() + (folder / "key.pem").read_text())
    return bundles


def descriptors(server):
    return {pid: open_descriptors(pid) for pid in (server.pid, server.router().pid)}


def prototypes(server):
    return [process for process in server.processes() if process.title.endswith(" prototype")]


def test_a_thousand_changes_under_load_lose_no_request(folder, certificates):
    folder.php("stable.php", "echo 'stable';")
    folder.php("touched.php", "echo 'touched ', getenv('VERSION');")
    folder.write("file.txt", "a file")
    root = str(folder.root)
    stable = {"type": "php", "root": root, "processes": 1}
    touched = lambda version: {
        "type": "php",
        "root": root,
        "processes": 1,
        "environment": {"VERSION": str(version)},
        "warm_up": ["/touched.php"] * (version % 3),
    }
    step = lambda uri, target: {"match": {"uri": uri}, "action": {"pass": target}}
    config = {
        "routes": [
            step("/stable.php", "applications/stable"),
            step("/touched.php", "applications/touched"),
            {"action": {"share": root + "$uri"}},
        ],
        "applications": {"stable": stable, "touched": touched(0)},
    }
    chance = random.Random(SEED)
    ports = [free_port() for _ in range(4)]
    with Howdah.run(config) as server:
        for name, bundle in zip(("one", "two"), certificates):
            assert server.api("PUT", f"/certificates/{name}", bundle).status == 200
        main = f"127.0.0.1:{server.port}"
        checks = [
            requesting("/stable.php", "stable", keep=True),
            requesting("/stable.php", "stable", keep=False),
            requesting("/touched.php", "touched", keep=True),
            requesting("/touched.php", "touched", keep=False),
            requesting("/file.txt", "a file", keep=True),
        ]

        def change(n):
            """One change that must succeed."""
            # The kinds that start PHP, which takes most of the time, come less often.
            (kind,) = chance.choices(range(8), weights=(3, 1, 1, 3, 3, 3, 1, 3))
            port = chance.choice(ports)
            if kind == 0:
                step = {"match": {"uri": f"/never/{n}"}, "action": {"return": 404}}
                routes = [step, *config["routes"]] if chance.random() < 0.5 else config["routes"]
                return "PUT", "/config/routes", routes
            if kind == 1:
                return "PUT", "/config/applications/touched", touched(n)
            if kind == 2:
                return "PUT", "/config/applications/touched/processes", chance.choice([1, 2, {"max": 3, "spare": 1}])
            if kind == 3:
                return "PUT", f"/config/listeners/127.0.0.1:{port}", {"pass": "routes"}
            if kind == 4:
                tls = {"certificate": chance.choice(["one", "two", ["one", "two"]])}
                return "PUT", f"/config/listeners/127.0.0.1:{port}", {"pass": "routes", "tls": tls}
            if kind == 5:
                return "DELETE", f"/config/listeners/127.0.0.1:{port}", None
            if kind == 6:
                return "GET", "/control/applications/touched/restart", None
            return "PUT", "/config/settings", {"http": {"max_body_size": chance.randrange(1 << 20, 1 << 23)}}

        def carry_out(n):
            method, path, body = change(n)
            answer = server.api(method, path, body)
            # Only the deletion of a missing listener may fail.
            assert answer.status == 200 or (method == "DELETE" and answer.status == 404), (n, path, answer.text)

        before_pids = [worker.pid for worker in server.workers("stable", 1)]
        for n in range(20):
            carry_out(n)
        load = Load(server, *checks, turns_per_second=REQUESTS_PER_SECOND)
        began = time.monotonic()
        try:
            for n in range(20, CHANGES + 20):
                carry_out(n)
                load.assert_flawless()
        finally:
            seconds = time.monotonic() - began
            load.stop()
        print(f"{CHANGES} changes in {seconds:.1f} s, {load.correct} requests")
        load.assert_flawless()
        assert load.correct > 50 * seconds, "the load must be considerable"
        # After a return to the first configuration, nothing of the others is left.
        assert server.api("PUT", "/config", {**config, "listeners": {main: {"pass": "routes"}}}).status == 200
        # An application that did not change keeps its processes.
        warnings = [line for line in server.stderr.splitlines() if " WARN " in line or " ERROR " in line]
        assert [worker.pid for worker in server.workers("stable", 1)] == before_pids, warnings
        wait_for(lambda: len(prototypes(server)) == 2, "only two applications have processes")
        # A second round of the same kind must need no more descriptors than the first has left.
        wait_for(lambda: descriptors(server)[server.pid] < 60, "the supervisor's descriptors")
        first = descriptors(server)
        for n in range(100):
            carry_out(n)
        assert server.api("PUT", "/config", {**config, "listeners": {main: {"pass": "routes"}}}).status == 200
        wait_for(lambda: len(prototypes(server)) == 2, "only two applications have processes")

        def has_not_grown():
            now = descriptors(server)
            return all(now[pid] <= count + 3 for pid, count in first.items())

        wait_for(has_not_grown, "descriptors do not grow")
