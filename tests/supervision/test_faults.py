"""Processes that die or hang, clocks that jump, and what clients and the log see of them: see docs/faults.md."""

import os
import re
import signal
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from support.deadly_scripts import DEATHS
from support.faults.clock import WallClock
from support.http.client import ProtocolError
from support.machine import needs_ffi, needs_root
from support.server import Howdah
from support.waiting import wait_for

# --- Workers


@pytest.mark.parametrize("death", [name for name in DEATHS if name != "closes"])
def test_a_worker_that_dies_fails_only_its_own_request(shop, death):
    server = shop()
    needs_ffi(server)
    server.workers("shop", count=2)
    with ThreadPoolExecutor(8) as pool:
        deaths = [pool.submit(server.get, f"/{death}.php") for _ in range(2)]
        others = [pool.submit(server.get, "/pid.php") for _ in range(50)]
    assert {answer.result().status for answer in deaths} == {502}
    assert {answer.result().status for answer in others} == {200}
    server.workers("shop", count=2)
    wait_for(lambda: f"its request, GET /{death}.php, is answered 502" in server.stderr, "the line of the router")


def test_a_worker_without_descriptors_answers_its_request_and_exits(shop):
    server = shop(processes=1)
    needs_ffi(server)
    for _ in range(5):
        before = server.get("/pid.php").text
        began = time.monotonic()
        assert server.get("/closes.php").status in (200, 502)
        wait_for(lambda: server.get("/pid.php").text != before, "another worker")
        assert time.monotonic() - began < 5
    wait_for(lambda: "exited with code 74 because a script closed its descriptors" in server.stderr, "the line")
    assert "replaced" not in server.stderr, "the prototype broke no rule"


def test_an_alarm_of_a_script_does_not_reach_the_next_request(shop, folder):
    folder.php("alarm.php", "$closure = pcntl_alarm(...); echo $closure(1) ?: getmypid();")
    server = shop(processes=1)
    armed = server.get("/alarm.php").text
    for _ in range(15):
        assert server.get("/pid.php").text == armed, "it has not died"
        time.sleep(0.1)


def test_a_worker_that_makes_the_shared_eventfd_blocking_delays_no_request(shop, folder):
    folder.php(
        "block.php",
        "$libc = FFI::cdef('int fcntl(int, int, int);'); foreach (scandir('/proc/self/fd') as $fd)"
        " if (@readlink(\"/proc/self/fd/$fd\") === 'anon_inode:[eventfd]') { $libc->fcntl((int) $fd, 4, 0); echo 'done '; }",
    )
    server = shop()
    needs_ffi(server)
    assert "done" in server.get("/block.php").text
    for _ in range(200):
        assert server.get("/pid.php", timeout=5).status == 200


def test_a_stopped_prototype_whose_workers_die_is_replaced(shop):
    server = shop(processes=1, how={"time_divider": 5})
    before = server.get("/pid.php").text
    server.prototype("shop").kill(signal.SIGSTOP)
    assert server.get("/pid.php").text == before
    time.sleep(2.5)  # Longer than a prototype may take to fork a worker.
    assert server.get("/pid.php").text == before, "a stopped prototype whose workers live is left alone"
    os.kill(int(before), signal.SIGKILL)
    wait_for(lambda: "does not report that a worker has died" in server.stderr, "the line", 40)
    wait_for(lambda: server.get("/pid.php").status == 200, "another worker")
    assert server.get("/pid.php").text != before


def test_a_stopped_worker_and_a_stopped_prototype_are_warned_of(shop):
    server = shop(processes=1, how={"time_divider": 5})
    worker, prototype = server.workers("shop", 1)[0], server.prototype("shop")
    for kind, process in (("worker", worker), ("prototype", prototype)):
        process.kill(signal.SIGSTOP)
        server.wait_for_log_line(f'the {kind} of "shop" (pid {process.pid}) is stopped by a signal', f"kill -CONT {process.pid}")
        process.kill(signal.SIGCONT)
    assert server.get("/pid.php").text == str(worker.pid)


@pytest.mark.parametrize("limits", [{}, {"requests": 1000}])
def test_a_script_that_kills_each_worker_does_not_starve_the_others(shop, limits):
    server = shop(limits=limits)
    needs_ffi(server)
    paths = [path for _ in range(10) for death in DEATHS for path in (f"/{death}.php", "/pid.php")]
    taken = []

    def ask(path):
        began = time.monotonic()
        answer = server.get(path)
        taken.append((path, time.monotonic() - began))
        return path, answer.status

    with ThreadPoolExecutor(6) as pool:
        statuses = list(pool.map(ask, paths))
    assert {status for path, status in statuses if path == "/pid.php"} == {200}
    # 503: by then howdah knows which pages kill workers.
    assert {status for path, status in statuses if path not in ("/pid.php", "/closes.php")} <= {502, 503}
    assert max(seconds for path, seconds in taken if path == "/pid.php") < 5, sorted(taken, key=lambda it: it[1])[-5:]
    server.workers("shop", count=2)
    assert server.get("/pid.php").status == 200


@pytest.mark.parametrize("killer, good", [("/killed.php", "/pid.php"), ("/page.php?x=bad", "/page.php?x=good")])
def test_many_clients_of_a_script_that_kills_workers_do_not_starve_the_others(shop, folder, killer, good):
    folder.php("page.php", "if ($_GET['x'] === 'bad') { posix_kill(getmypid(), SIGKILL); sleep(60); } echo 'fine';")
    server = shop()
    seconds, until = 4, time.monotonic() + 4
    answers = {killer: [], good: []}

    def ask(path):
        while time.monotonic() < until:
            began = time.monotonic()
            answer = server.get(path)
            answers[path].append((answer.status, time.monotonic() - began))
            if answer.status == 503:
                assert answer.header("Retry-After") == "1"
                time.sleep(0.01)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, list(answers) * 4))
    kills, others = (Counter(status for status, _ in answers[path]) for path in answers)
    assert set(kills) <= {502, 503} and set(others) == {200}, (kills, others)
    # Ten at once and twenty per second run; on a slow machine fewer, so that none is rejected.
    assert kills[502] <= 20 * (seconds + 1) + 10 + 8, kills
    assert others[200] > 10 * seconds, others
    slowest = sorted(seconds for _, seconds in answers[good])
    # Without the limit they would queue for longer than that.
    assert slowest[len(slowest) * 9 // 10] < 2, slowest[-20:]
    path = killer.partition("?")[0]
    line = f"requests for {path} kill the workers that run them: 20 per second are run"
    assert server.stderr.count(line) == (1 if kills[503] else 0)
    server.workers("shop", count=2)
    assert server.get("/pid.php").status == 200


def test_pages_of_one_front_controller_are_contained_separately(folder):
    folder.php("index.php", "if ($_SERVER['REQUEST_URI'] === '/bad') posix_kill(getmypid(), SIGKILL); echo 'fine';")
    app = {"type": "php", "root": str(folder.root), "processes": 2}
    routes = [{"action": {"rewrite": "/index.php", "pass": "applications/app"}}]
    with Howdah.run({"routes": routes, "applications": {"app": app}}) as server:
        began = time.monotonic()
        with ThreadPoolExecutor(8) as pool:
            bad = Counter(answer.status for answer in pool.map(server.get, ["/bad"] * 60))
            seconds = time.monotonic() - began
            good = Counter(answer.status for answer in pool.map(server.get, ["/good"] * 60))
        assert set(bad) <= {502, 503} and good == {200: 60}, (bad, good)
        # A slow machine may not reach the rate at which requests are rejected.
        assert bad[503] or bad[502] <= 10 + 20 * seconds, (bad, seconds)


def test_deaths_after_the_response_are_contained(shop, folder):
    folder.php("after.php", "echo 'answered'; fastcgi_finish_request(); posix_kill(getmypid(), SIGKILL); sleep(60);")
    server = shop()
    statuses = Counter()
    began = time.monotonic()
    # The report of a death may arrive after the next requests.
    for _ in range(4):
        with ThreadPoolExecutor(8) as pool:
            statuses.update(answer.status for answer in pool.map(server.get, ["/after.php"] * 20))
    assert statuses[200] > 0 and set(statuses) <= {200, 503}, statuses
    # A slow machine may not reach the rate at which requests are rejected.
    assert statuses[503] or statuses[200] <= 10 + 20 * (time.monotonic() - began), statuses
    assert server.get("/pid.php").status == 200


def test_workers_killed_by_their_timeout_are_not_contained(shop, folder):
    folder.php("slow.php", "register_shutdown_function(fn() => sleep(60)); while (true);")
    server = shop(processes=12, limits={"timeout": 1})
    # All of them are killed because they take too long. That is no reason to reject the next requests.
    with ThreadPoolExecutor(12) as pool:
        for _ in range(2):
            statuses = Counter(answer.status for answer in pool.map(server.get, ["/slow.php"] * 12))
            assert statuses == {504: 12}
    assert server.stderr.count("was killed by signal 9") + server.stderr.count("is killed") >= 12, server.stderr


def test_an_idempotent_request_is_retried_once(shop, folder):
    folder.php("once.php", "if (!file_exists(SCRATCH . '/died')) { touch(SCRATCH . '/died'); posix_kill(getmypid(), SIGKILL); } echo 'alive';")
    server = shop(retry="idempotent")
    again = lambda: (folder.scratch / "died").unlink()
    assert server.get("/once.php?secret").text == "alive"
    wait_for(lambda: "its request, GET /once.php, is run once more" in server.stderr, "the line")
    assert "answered 502" not in server.stderr.replace("if any, is answered 502", "")
    again()
    assert server.request("HEAD", "/once.php").status == 200
    again()
    assert server.post("/once.php", "x=1").status == 502, "a POST may have had effects"
    again()
    assert server.request("GET", "/once.php", body="x=1").status == 502, "its body is gone"
    # A request is retried once only.
    deaths = server.stderr.count("another worker is started")
    assert server.get("/segfault.php").status == 502
    wait_for(lambda: server.stderr.count("another worker is started") == deaths + 2, "two deaths")
    assert "its request, GET /segfault.php, is answered 502" in server.stderr


def test_a_request_that_has_sent_output_is_not_retried(shop, folder):
    folder.php(
        "begun.php",
        "file_put_contents(SCRATCH . '/runs', 'x', FILE_APPEND); echo 'a'; ob_flush(); flush(); "
        "while (!file_exists(SCRATCH . '/go')) { usleep(2000); } posix_kill(getmypid(), SIGKILL);",
    )
    server = shop(retry="idempotent")
    with server.connect() as connection:
        connection.send_request("GET", "/begun.php")
        _, body = connection.stream()
        assert next(body) == b"a"
        (folder.scratch / "go").touch()
        with pytest.raises((ProtocolError, ConnectionError)):
            next(body)
            pytest.fail("the response ended as if it were whole")
    assert (folder.scratch / "runs").read_text() == "x"
    wait_for(lambda: re.search(r"a worker died; its request, GET /\S+, is cut off", server.stderr), "the line")


def test_without_the_option_no_request_is_retried(shop, folder):
    folder.php("count.php", "file_put_contents(SCRATCH . '/runs', 'x', FILE_APPEND); posix_kill(getmypid(), SIGKILL);")
    server = shop()
    assert server.get("/count.php").status == 502
    assert (folder.scratch / "runs").read_text() == "x"


# --- Prototype and router


def test_a_prototype_that_hangs_is_replaced(shop, folder):
    server = shop(processes="auto", how={"time_divider": 5})
    server.workers("shop", count=2)
    hangs = server.prototype("shop")
    hangs.kill(signal.SIGSTOP)
    with ThreadPoolExecutor(6) as pool:
        answers = [pool.submit(server.get, "/slow.php") for _ in range(6)]
        wait_for(lambda: "has not forked a worker within" in server.stderr, "the line", timeout=40)
        wait_for(lambda: not hangs.alive(), "its end")
        (folder.scratch / "go").touch()
        assert {answer.result().status for answer in answers} <= {200, 503}
    assert server.stderr.count("has not forked a worker within") == 1
    wait_for(lambda: server.get("/pid.php").status == 200, "another one")
    assert server.prototype("shop").pid != hangs.pid


def test_worker_prototype_and_router_may_die_at_the_same_time(shop):
    server = shop()
    for _ in range(3):
        doomed = [server.router(), server.prototype("shop"), *server.workers("shop", count=2)]
        for process in doomed:
            # An idle worker exits as soon as its prototype is dead.
            with suppress(ProcessLookupError):
                process.kill()
        assert server.get("/pid.php").status == 200
        assert not [process for process in doomed if process.alive()]
    wait_for(lambda: "another one is started" in server.stderr, "the line about the router")
    wait_for(lambda: 'the prototype of "shop" is started again' in server.stderr, "the line about the prototype")
    server.router(), server.prototype("shop"), server.workers("shop", count=2)
    wait_for(lambda: server.zombies() == [])


# --- Clocks


def test_a_jump_of_the_wall_clock_has_no_effect(shop, folder, tmp_path):
    """Seconds before 1970, and years ahead, for all processes of howdah and PHP, while requests run."""
    clock = WallClock(tmp_path)
    folder.php("time.php", "usleep(50000); echo time();")
    server = shop(how={"environ": clock.environ}, limits={"timeout": 5}, inherit_environment=True)
    before = {process.pid for process in server.processes()}
    day = 86400
    with server.connect() as client, ThreadPoolExecutor(2) as pool:
        for jump in (0, day, -day, 3650 * day, -3650 * day, 0):
            requests = [pool.submit(server.get, "/time.php") for _ in range(4)]
            clock.set_off(jump)
            seen = int(client.request("GET", "/time.php").text)
            assert abs(seen - (time.time() + jump)) < 60, "the clock has the time that the test set"
            assert client.request("GET", "/file.txt").status == 200
            assert {request.result().status for request in requests} == {200}
    assert {process.pid for process in server.processes()} == before, "no process was killed because of it"
    assert "WARN" not in server.stderr and "ERROR" not in server.stderr


@needs_root
def test_a_monotonic_clock_of_another_namespace_works(shop):
    prefix = ("unshare", "--time", "--monotonic", "100000000", "--boottime", "100000000")
    if subprocess.run([*prefix, "true"], capture_output=True).returncode:
        pytest.skip("no namespaces of time here")
    server = shop(how={"prefix": prefix}, limits={"requests": 20, "timeout": 5})
    assert {server.get("/pid.php").status for _ in range(100)} == {200}
    server.prototype("shop").kill()
    assert server.get("/pid.php").status == 200
