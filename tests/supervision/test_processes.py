"""The process tree: titles, and which processes survive which deaths."""

import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.http.client import Connection, ProtocolError
from support.http.held_request import HeldRequest
from support.processes import Process, frozen
from support.server import Howdah
from support.waiting import wait_for

# --- The tree


def test_process_titles_and_tree_are_those_of_the_documentation(scripts, serve):
    server = serve(processes=3)
    server.workers(count=3)
    supervisor = Process.of(server.pid)
    router, prototype = server.router(), server.prototype()
    assert supervisor.title == "howdah (supervisor)"
    assert router.parent == supervisor.pid and prototype.parent == supervisor.pid
    assert {worker.parent for worker in server.workers()} == {prototype.pid}
    assert len(server.processes()) == 6
    assert server.zombies() == []


def test_the_default_is_one_worker_per_core_and_at_least_two(scripts, serve):
    server = serve()
    expected = max(2, len(os.sched_getaffinity(0)))
    server.workers(count=expected)
    assert str(expected) in server.stdout


def test_each_application_has_its_own_prototype_and_workers(scripts, run):
    app = {"type": "php", "root": str(scripts.root), "processes": 1}
    config = {
        "listeners": {"127.0.0.1:{port}": {"pass": "routes"}},
        "routes": [
            {"match": {"host": "blog"}, "action": {"pass": "applications/blog"}},
            {"action": {"pass": "applications/shop"}},
        ],
        "applications": {"shop": app, "blog": {**app, "processes": 2}},
    }
    server = run(config)
    (shop,), blog = server.workers("shop", 1), server.workers("blog", 2)
    assert shop.parent == server.prototype("shop").pid
    assert {worker.parent for worker in blog} == {server.prototype("blog").pid}
    assert server.get("/pid.php").text == str(shop.pid)
    assert int(server.get("/pid.php", {"Host": "blog"}).text) in {worker.pid for worker in blog}


def test_the_router_has_few_threads_and_the_prototype_one(scripts, serve):
    server = serve()
    cores = len(os.sched_getaffinity(0))
    for _ in range(50):
        server.get("/hello.txt"), server.get("/pid.php")
    assert int(server.prototype().status("Threads")) == 1
    # The control thread, event loops, at most one per core, the threads of logs, and those that block: one of each of three kinds
    # is always there, and more read files.
    assert int(server.router().status("Threads")) <= 2 * cores + 7
    # The thread of PHP and the sampler.
    assert all(int(worker.status("Threads")) == 2 for worker in server.workers())


# --- Deaths of workers


def test_a_worker_that_is_killed_is_replaced(scripts, serve):
    server = serve(processes=2)
    before = server.workers(count=2)
    for worker in before:
        worker.kill()
    after = wait_for(lambda: (w := server.workers(count=2)) and not {p.pid for p in w} & {p.pid for p in before} and w)
    assert int(server.get("/pid.php").text) in {worker.pid for worker in after}
    wait_for(lambda: server.zombies() == [], "the dead to be reaped")


def test_only_the_request_of_a_killed_worker_fails(scripts, serve):
    server = serve(processes=2)
    doomed, neighbour = HeldRequest(server, scripts, "doomed"), HeldRequest(server, scripts, "neighbour")
    queued = [server.connect() for _ in range(10)]
    for connection in queued:
        connection.send_request("GET", "/pid.php")
    first, second = server.workers(count=2)
    # The failed response shows which of the two ran on the killed worker.
    first.kill()
    answers = []
    for held in (doomed, neighbour):
        held.release()
    for held in (doomed, neighbour):
        answers.append(held.response().status)
    assert sorted(answers) == [200, 502]
    for connection in queued:
        response = connection.response()
        assert response.status == 200 and int(response.text) != first.pid
        connection.close()
    server.workers(count=2)


def test_under_load_only_the_requests_of_killed_workers_fail(scripts, serve):
    server = serve(processes=4)
    stop = threading.Event()
    statuses: list[int] = []

    def load():
        with server.connect() as connection:
            while not stop.is_set():
                statuses.append(connection.request("GET", "/pid.php").status)

    with ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(load) for _ in range(8)]
        killed = 0
        while killed < 20:
            workers = server.workers()
            if len(workers) == 4:
                workers[killed % 4].kill()
                killed += 1
                wait_for(lambda: not workers[(killed - 1) % 4].alive())
        seen = len(statuses)
        wait_for(lambda: len(statuses) > seen + 200, "requests after the last death")
        stop.set()
        for client in clients:
            client.result()
    assert set(statuses) <= {200, 502}
    assert statuses.count(502) <= killed
    server.workers(count=4)
    wait_for(lambda: server.zombies() == [])


def test_workers_that_die_in_requests_are_replaced_without_a_fork_storm(scripts, serve):
    """Constant requests for a page that kills its worker cause no storm of forks; the slowdown ends with them."""
    server = serve(processes=1)
    stop = threading.Event()
    statuses = []

    def hammer():
        while not stop.is_set():
            statuses.append(server.get("/die.php", timeout=60).status)

    pids = set()
    with ThreadPoolExecutor(2) as pool:
        clients = [pool.submit(hammer) for _ in range(2)]
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            pids |= {worker.pid for worker in server.workers()}
            time.sleep(0.005)  # This sets the interval of the samples; it is not a wait.
        cpu = sum(map(int, Path(f"/proc/{server.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
        stop.set()
        for client in clients:
            client.result()
    assert set(statuses) <= {502, 503}
    assert len(pids) < 110, f"{len(pids)} workers in four seconds: ten at once, then twenty a second"
    assert cpu < 2 * os.sysconf("SC_CLK_TCK"), "the supervisor spends its time on starting workers"
    assert server.get("/pid.php", timeout=60).status == 200
    server.workers(count=1)


# --- Deaths of the prototype


def test_a_prototype_that_is_killed_is_replaced_and_no_request_fails(scripts, serve):
    server = serve(processes=2)
    before, workers = server.prototype(), server.workers(count=2)
    running = HeldRequest(server, scripts, "running")
    stop = threading.Event()
    statuses = []

    def load():
        while not stop.is_set():
            with server.connect() as connection:
                statuses.append(connection.request("GET", "/pid.php").status)

    with ThreadPoolExecutor(4) as pool:
        clients = [pool.submit(load) for _ in range(4)]
        before.kill()
        wait_for(
            lambda: any(p.pid != before.pid for p in server.titled('howdah: "app" prototype')), "another prototype"
        )
        assert running.response().status == 200, "the worker finishes its request"
        wait_for(lambda: not any(worker.alive() for worker in workers), "the old workers to go")
        fresh = server.workers(count=2)
        seen = len(statuses)
        wait_for(lambda: len(statuses) > seen + 100, "requests to the new workers")
        stop.set()
        for client in clients:
            client.result()
    assert set(statuses) == {200}
    assert {worker.parent for worker in fresh} == {server.prototype().pid}
    wait_for(lambda: server.zombies() == [])


def test_requests_queued_at_the_death_of_the_prototype_are_answered(scripts, serve):
    server = serve(processes=1)
    running = HeldRequest(server, scripts, "running")
    queued = [server.connect() for _ in range(10)]
    for connection in queued:
        connection.send_request("GET", "/pid.php")
    server.prototype().kill()
    assert running.response().status == 200
    for connection in queued:
        assert connection.response().status == 200
        connection.close()


# --- Deaths of the router


def test_a_router_killed_under_load_is_replaced_without_a_refused_connection(scripts, serve):
    server = serve(processes=2)
    stop = threading.Event()
    refused, served, broken = [], [], []

    def load():
        while not stop.is_set():
            try:
                connection = server.connect()
            except OSError as error:
                refused.append(error)
                continue
            with connection:
                try:
                    served.append(connection.request("GET", "/pid.php").status)
                except (ProtocolError, OSError) as error:
                    broken.append(error)

    with ThreadPoolExecutor(6) as pool:
        clients = [pool.submit(load) for _ in range(6)]
        for _ in range(5):
            router = server.router()
            router.kill()
            wait_for(lambda: (r := server.titled("howdah: router")) and r[0].pid != router.pid, "another router")
            seen = len(served)
            wait_for(lambda: len(served) > seen + 100, "requests to the new router")
        stop.set()
        for client in clients:
            client.result()
    assert refused == []
    assert set(served) == {200}
    assert len(broken) <= 5 * 6, "more requests failed than were in flight"
    assert server.get("/hello.txt").text == "hello"
    wait_for(lambda: server.zombies() == [])


def test_a_connection_without_a_router_waits_in_the_backlog(scripts, serve):
    server = serve(processes=1)
    router = server.router()
    with frozen(router):
        connection = server.connect()
        connection.send_request("GET", "/pid.php")
        router.kill()
    with connection:
        assert connection.response().status == 200


def test_the_workers_serve_the_next_router(scripts, serve):
    """Requests of the old router are abandoned; none of their output reaches a client of the new router."""
    server = serve(processes=1)
    running = HeldRequest(server, scripts, "running")
    server.router().kill()
    with pytest.raises((ProtocolError, OSError)):
        running.response()
    for _ in range(10):
        assert server.get("/pid.php").text.isdigit()


# --- The death of the supervisor


def test_no_process_is_left_when_the_supervisor_is_killed(scripts):
    with Howdah.serve(scripts, processes=2) as server:
        running = HeldRequest(server, scripts, "running")
        tree = server.processes()
        os.kill(server.pid, signal.SIGKILL)
        server.exit_code()
        wait_for(lambda: not any(process.alive() for process in tree), "everything to go")
        wait_for(lambda: server.leftovers() == [], "nothing to be left")
        running.connection.close()
        # A process is a zombie while the last of its threads exits, which still has the sockets.
        wait_for(lambda: not accepts_connections(server), "the end of its listener")


def accepts_connections(server) -> bool:
    try:
        server.connect().close()
    except OSError:
        return False
    return True


def test_no_process_is_left_when_the_supervisor_is_killed_while_it_starts(scripts):
    """At any moment of its start, also when its threads exit slowly on a busy machine."""
    for moment in range(0, 200, 5):
        server = Howdah.serve(scripts, processes=2, ready=lambda _: True)
        try:
            end = time.monotonic() + moment / 1000
            wait_for(lambda: time.monotonic() > end)
            os.kill(server.pid, signal.SIGKILL)
            server.exit_code()
            wait_for(lambda: server.leftovers() == [], f"nothing to be left after {moment} ms")
        finally:
            server.kill()


# --- Children of PHP


def test_processes_left_by_php_are_reaped(scripts, serve):
    scripts.php("leave.php", "exec('(sleep 0.2; exit 3) > /dev/null 2>&1 &'); echo 'left';")
    scripts.php("die-with-child.php", "$p = proc_open(['sleep', '0.2'], [], $pipes); posix_kill(getmypid(), 9);")
    server = serve(processes=2)
    for _ in range(5):
        assert server.get("/leave.php").text == "left"
        assert server.get("/die-with-child.php").status == 502
    wait_for(lambda: not [p for p in server.leftovers() if p.title.startswith("sleep")], "the children to end")
    wait_for(
        lambda: server.zombies() == [] and not [p for p in server.leftovers() if p.state == "Z"], "them to be reaped"
    )
    server.workers(count=2)


def test_a_child_that_php_does_not_wait_for_is_reaped(scripts, serve):
    """proc_open() without proc_close(): PHP checks once and forgets a child that still runs."""
    scripts.php("forget.php", "$p = proc_open(['sleep', '0.1'], [], $pipes); unset($p); echo getmypid();")
    server = serve(processes=1)
    pids = {server.get("/forget.php").text for _ in range(5)}
    wait_for(lambda: not [p for p in server.processes() if p.title.startswith("sleep")], "the children to end")
    wait_for(lambda: {server.get("/pid.php").text} == pids and server.zombies() == [], "them to be reaped")


def test_a_busy_worker_reaps_children(scripts, serve):
    scripts.php("forget.php", "$p = proc_open(['true'], [], $pipes); unset($p);")
    server = serve(processes=1)
    (worker,) = server.workers(count=1)
    stop = threading.Event()

    def load():
        with server.connect() as connection:
            while not stop.is_set():
                assert connection.request("GET", "/pid.php").text == str(worker.pid)

    with ThreadPoolExecutor(4) as pool:
        clients = [pool.submit(load) for _ in range(4)]
        try:
            for _ in range(10):
                server.get("/forget.php")
            wait_for(lambda: not [p for p in server.processes() if p.parent == worker.pid], "all children to be reaped")
        finally:
            stop.set()
        for client in clients:
            client.result()


def test_howdah_does_not_reap_children_that_php_waits_for(scripts, serve):
    """PHP gets the status of the children that it waits for, although the worker reaps others."""
    scripts.php(
        "wait-for.php",
        """$p = proc_open(['sh', '-c', 'sleep 0.05; exit 7'], [], $pipes); exec('sleep 0.1 &'); usleep(150000);
        echo json_encode([proc_close($p), exec('exit 3', $_, $status), $status]);""",
    )
    server = serve(processes=1)
    for _ in range(3):
        assert server.get("/wait-for.php").json() == [7, "", 3]


# --- Listeners


def test_a_unix_socket_is_removed_at_the_end(scripts, socket_path):
    path = socket_path
    with Howdah.serve(scripts, listen=[f"unix:{path}"], ready=lambda server: str(path) in server.stdout) as server:
        with Connection(str(path)) as connection:
            assert connection.request("GET", "/pid.php").status == 200
        assert path.is_socket()
        server.stop()
    assert not path.exists()


def test_a_stale_unix_socket_is_replaced(scripts, socket_path):
    path = socket_path
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    with Howdah.serve(scripts, listen=[f"unix:{path}"], ready=lambda server: str(path) in server.stdout):
        with Connection(str(path)) as connection:
            assert connection.request("GET", "/pid.php").status == 200
