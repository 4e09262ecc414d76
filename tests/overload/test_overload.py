"""Overload: the automatic number of workers, queue timeouts, rejected requests."""

import contextlib
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.background import Background
from support.http.load import load_at_rates
from support.server import Howdah
from support.waiting import wait_for


@pytest.fixture
def site(folder):
    folder.php("sleep.php", "usleep(50000); echo 'slept';")
    folder.php("cpu.php", "$x = 0; for ($i = 0; $i < 200000; $i++) { $x = ($x * 31 + $i) % 1000003; } echo 'computed';")
    folder.php("ten.php", "usleep(10000); echo 'slept';")
    folder.php(
        "timed.php",
        "$begun = hrtime(true); usleep(10000); echo 'slept';"
        "file_put_contents(SCRATCH . '/busy-' . getmypid(), $begun . ' ' . hrtime(true) . PHP_EOL, FILE_APPEND);",
    )
    folder.php("wait.php", "await(SCRATCH . '/go'); echo 'let go';")
    folder.php("hello.php", "echo 'hello';")
    folder.php("count.php", "file_put_contents(SCRATCH . '/ran', '.', FILE_APPEND); echo 'counted';")
    folder.write("static.txt", "static")
    return folder


def application(folder, **options):
    return {"type": "php", "root": str(folder.root), **options}


def run(folder, **options):
    return Howdah.run({"applications": {"app": application(folder, **options)}})


def status(server, name="app"):
    return server.api("GET", f"/status/applications/{name}").json()


def url(server, path):
    return f"http://127.0.0.1:{server.port}{path}"


# --- The number of workers


@pytest.mark.load
def test_waiting_code_gets_many_workers(site):
    with run(site) as server:
        assert status(server)["processes"]["running"] == max(2, os.cpu_count())
        report = load_at_rates(url(server, "/sleep.php"), "400:4", expect="slept")
        assert report["outcomes"] == {"200": 1600}
        now = status(server)["processes"]
        # Twenty are busy at a time.
        assert now["running"] >= 16, now
        assert "waiting" in now["auto"]["why"] and now["auto"]["waiting_share"] > 0.8, now
        assert now["auto"]["memory_allows"] > now["running"], now


@pytest.mark.load
def test_computing_code_gets_few_workers(site):
    with run(site) as server:
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda _: server.get("/cpu.php"), range(16 * 60)))
        now = status(server)["processes"]
        # Stolen processor time on a noisy machine counts as waiting.
        assert now["running"] <= 4 * max(2, os.cpu_count()) + 2, now


def test_automatic_sizing_keeps_its_limits(site):
    for bounds, most in [({"max": 3}, 3), ({"memory": 1 << 20}, 1), ({"max": 1}, 1)]:
        with run(site, processes={"auto": bounds}) as server:
            load_at_rates(url(server, "/ten.php"), "400:0.6")
            # The first workers exist before the first measurement.
            wait_for(lambda: status(server)["processes"]["running"] <= most, f"{bounds}")


# --- Queue timeouts


def test_a_request_that_waits_too_long_is_answered_503(site):
    with run(site, processes=1, limits={"queue_timeout": 0.5}) as server:
        running = Background(server.get, "/wait.php")
        wait_for(lambda: status(server)["processes"]["idle"] == 0, "it runs")
        late = Background(server.get, "/count.php")
        answer = late.result()
        assert answer.status == 503 and int(answer.header("Retry-After")) >= 1
        assert 0.4 < late.seconds < 5
        (site.scratch / "go").touch()
        assert running.result().status == 200
        assert server.get("/hello.php").text == "hello"
        assert not (site.scratch / "ran").exists(), "a request that was answered 503 must not run"
        assert status(server)["requests"]["refused"] == 1
        wait_for(lambda: "no worker takes a request in time" in server.stderr, "a line in the log")


@pytest.mark.load
def test_a_slow_body_during_overload_blocks_no_request(site):
    """howdah predicts the rejection before the body has arrived."""
    with run(site, processes=2, limits={"queue_timeout": 1}) as server:
        until = time.monotonic() + 4
        statuses = []

        def ask():
            while time.monotonic() < until:
                statuses.append(server.get("/sleep.php").status)
                time.sleep(0.05 if statuses[-1] == 503 else 0)

        with ThreadPoolExecutor(200) as pool:
            asking = [pool.submit(ask) for _ in range(200)]
            wait_for(lambda: status(server)["requests"]["refused"] > 0, "the overload")
            for _ in range(10):
                with server.connect() as client:
                    client.send_request("POST", "/hello.php", [("Content-Length", "100000")])
                    client.send(b"x" * 1000)
                    time.sleep(0.05)
                    with contextlib.suppress(OSError):
                        client.send(b"x" * 99000)
                    assert client.response().status in (200, 503)
            [it.result() for it in asking]
        assert set(statuses) <= {200, 503} and statuses.count(200) > 50
        assert server.get("/hello.php", timeout=5).status == 200


# --- Lasting overload


def busy_seconds(site, begin, end):
    """How long the workers ran timed.php between two times of the monotonic clock, in seconds, added over the workers."""
    lines = [line for file in site.scratch.glob("busy-*") for line in file.read_text().splitlines()]
    runs = [[int(nanoseconds) / 1e9 for nanoseconds in line.split()] for line in lines]
    return sum(max(0, min(ended, end) - max(begun, begin)) for begun, ended in runs)


@pytest.mark.load
def test_under_lasting_overload_capacity_is_used_and_the_excess_is_rejected_quickly(site):
    # Two workers at 10 ms per request complete at most 200 requests/s on any machine. The load is three times that.
    with run(site, processes=2, limits={"queue_timeout": 5}) as server:
        alone = load_at_rates(url(server, "/timed.php"), "150:2", expect="slept")
        assert alone["outcomes"] == {"200": 300}
        seconds, settled = 14, 7
        begun = time.monotonic()
        overload = Background(
            load_at_rates, url(server, "/timed.php"), f"600:{seconds}", "100:3", connections=6000, expect="slept"
        )
        wait_for(lambda: "overloaded: completing" in server.stderr, "the overload")
        # The requests that have waited in vain have been rejected then, and so have those that were held for a second.
        time.sleep(5)
        excess = load_at_rates(url(server, "/ten.php"), "60:3")["others"]
        report = overload.result()
        assert set(report["outcomes"]) == {"200", "503"}, report["outcomes"]
        # The share of the workers' time is compared, not requests per second: on a busy machine each request takes longer.
        for since in (1, settled):
            busy = busy_seconds(site, begun + since, begun + seconds) / (2 * (seconds - since))
            assert busy > 0.8, (since, busy, [second["ok"] for second in report["seconds"]])
        # The limit of the standing delay is a tenth of queue_timeout.
        slowest = sorted(second["p99"] for second in report["seconds"][settled : seconds - 1])
        assert slowest[len(slowest) // 2] < 2 * 500, report["seconds"]
        assert excess["p50"] < 20, excess
        after = report["seconds"][-1]
        assert after["ok"] == 100 and after["p99"] < 200, report["seconds"]
        assert server.stderr.count("overloaded: completing") == 1
        assert "the overload is over" in server.stderr


@pytest.mark.load
def test_the_overload_of_one_application_does_not_affect_others(site):
    config = {
        "routes": [
            {"match": {"uri": "/ten.php"}, "action": {"pass": "applications/app"}},
            {"match": {"uri": "/hello.php"}, "action": {"pass": "applications/other"}},
            {"action": {"share": f"{site.root}$uri"}},
        ],
        "applications": {
            "app": application(site, processes=2, limits={"queue_timeout": 2}),
            "other": application(site, processes=1),
        },
    }
    with Howdah.run(config) as server:
        overload = Background(load_at_rates, url(server, "/ten.php"), "600:3")
        time.sleep(1)
        slowest = 0
        for _ in range(50):
            for path in ("/hello.php", "/static.txt"):
                began = time.monotonic()
                assert server.get(path).status == 200
                slowest = max(slowest, time.monotonic() - began)
            began = time.monotonic()
            assert server.api("GET", "/status").status == 200
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < 0.5, slowest
        overload.result()


@pytest.mark.load
def test_fifteen_hundred_clients_see_no_error(site):
    with run(site) as server:
        report = load_at_rates(url(server, "/hello.php"), "15000:0.1", "100:2", "15000:0.1", expect="hello")
        assert report["outcomes"] == {"200": 3200}


def over_a_unix_socket(folder, socket, **options):
    return {
        "listeners": {f"unix:{socket}": {"pass": "applications/app"}, "127.0.0.1:{port}": {"pass": "applications/app"}},
        "applications": {"app": application(folder, **options)},
    }


@pytest.mark.load
def test_fifteen_hundred_clients_of_a_unix_socket_see_no_error(site, tmp_path):
    socket = tmp_path / "socket"
    # On a slow machine, too, no request may be rejected because of the queue timeout.
    with Howdah.run(over_a_unix_socket(site, socket, limits={"queue_timeout": 30})):
        report = load_at_rates("http://localhost/hello.php", "15000:1", expect="hello", socket=socket)
        assert report["outcomes"] == {"200": 15000}
        report = load_at_rates("http://localhost/hello.php", "15000:0.1", "100:2", "15000:0.1", expect="hello", socket=socket)
        assert report["outcomes"] == {"200": 3200}


@pytest.mark.load
def test_overload_over_a_unix_socket_is_answered(site, tmp_path):
    socket = tmp_path / "socket"
    with Howdah.run(over_a_unix_socket(site, socket, processes=2, limits={"queue_timeout": 2})):
        report = load_at_rates("http://localhost/ten.php", "600:3", "100:2", expect="slept", socket=socket)
        assert set(report["outcomes"]) == {"200", "503"}, report["outcomes"]
        assert report["seconds"][-1]["ok"] == 100, report["seconds"]
