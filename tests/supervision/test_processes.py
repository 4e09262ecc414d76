"""The process tree: titles, deaths, signals, privileges, and which processes survive which deaths."""

import os
import pwd
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.client import Connection, ProtocolError
from support.folders import Folder
from support.held_request import HeldRequest, held_page
from support.processes import Process
from support.requires import needs_root
from support.server import Howdah
from support.users import NOBODY, WWW_DATA
from support.waiting import wait_for


@pytest.fixture
def scripts(folder) -> Folder:
    folder.php("pid.php", "echo getmypid();")
    folder.php("die.php", "posix_kill(getmypid(), 9);")
    held_page(folder)
    folder.write("hello.txt", "hello")
    return folder


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
    # Event loops, at most one per core, and threads that read files.
    assert int(server.router().status("Threads")) <= 2 * cores + 4
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
    """Constant requests for a page that kills its worker do not cause a storm of forks, and the slowdown ends with them."""
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
    router.kill(signal.SIGSTOP)
    stats = [entry / "stat" for entry in Path(f"/proc/{router.pid}/task").iterdir()]
    wait_for(lambda: all(") T " in stat.read_text() for stat in stats), "each thread to have stopped")
    with server.connect() as connection:
        connection.send_request("GET", "/pid.php")
        router.kill()
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
        wait_for(lambda: not any(process.alive() for process in tree), "everything to go", timeout=2)
        wait_for(lambda: server.leftovers() == [], "nothing to be left", timeout=2)
        running.connection.close()
        with pytest.raises(OSError):
            server.connect().close()


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


# --- Signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_a_running_request_is_finished(scripts, number):
    server = Howdah.serve(scripts, processes=1)
    try:
        running = HeldRequest(server, scripts, "running")
        queued = server.connect()
        queued.send_request("GET", "/pid.php")
        assert server.get("/hello.txt").text == "hello"  # The requests that were sent before have been read.
        server.send_signal(number)
        wait_for(lambda: refuses(server), "new connections to be refused")
        assert server.process.poll() is None
        assert running.response().status == 200
        assert queued.response().status == 200
        assert server.exit_code() == 0
        assert server.leftovers() == []
    finally:
        server.kill()


def refuses(server: Howdah) -> bool:
    try:
        server.connect().close()
    except OSError:
        return True
    return False


def test_idle_connections_do_not_delay_a_shutdown(scripts):
    server = Howdah.serve(scripts, processes=1)
    with server, server.connect() as used, server.connect() as fresh:
        assert used.request("GET", "/pid.php").status == 200
        started = time.monotonic()
        server.stop(timeout=10)
        assert time.monotonic() - started < 5
        assert used.is_closed() and fresh.is_closed()


def test_a_response_during_a_drain_has_connection_close(scripts):
    server = Howdah.serve(scripts, processes=1)
    try:
        running = HeldRequest(server, scripts, "running")
        server.send_signal(signal.SIGTERM)
        wait_for(lambda: refuses(server))
        running.release()
        response = running.connection.response()
        assert response.status == 200 and response.header("Connection").lower() == "close"
        assert running.connection.is_closed()
        assert server.exit_code() == 0
    finally:
        server.kill()


def test_sigint_stops_without_a_drain(scripts):
    server = Howdah.serve(scripts, processes=2)
    try:
        running = HeldRequest(server, scripts, "running")
        started = time.monotonic()
        server.send_signal(signal.SIGINT)
        assert server.exit_code(10) == 0
        assert time.monotonic() - started < 5
        assert server.leftovers() == []
        running.connection.close()
    finally:
        server.kill()


def test_a_second_signal_ends_a_drain(scripts):
    server = Howdah.serve(scripts, processes=1)
    try:
        running = HeldRequest(server, scripts, "running")
        server.send_signal(signal.SIGTERM)
        wait_for(lambda: refuses(server))
        server.send_signal(signal.SIGINT)
        server.exit_code(10)
        assert server.leftovers() == []
        running.connection.close()
    finally:
        server.kill()


def test_no_request_is_lost_in_a_drain_under_load(scripts):
    """A request on a new connection is answered, or its connection was refused or closed before the request was sent."""
    server = Howdah.serve(scripts, processes=2)
    wrong: list[object] = []
    served: list[int] = []

    def load():
        while True:
            try:
                connection = server.connect()
            except OSError:
                return
            with connection:
                try:
                    response = connection.request("GET", "/pid.php")
                    served.append(response.status)
                    if response.status != 200:
                        wrong.append(response)
                except (ProtocolError, OSError):
                    if not refuses(server):
                        wrong.append("a request was cut although the server still listens")

    try:
        with ThreadPoolExecutor(6) as pool:
            clients = [pool.submit(load) for _ in range(6)]
            wait_for(lambda: len(served) > 500)
            server.send_signal(signal.SIGTERM)
            for client in clients:
                client.result()
        assert server.exit_code() == 0
        assert wrong == []
        assert server.leftovers() == []
    finally:
        server.kill()


def test_the_access_log_is_reopened(scripts, serve):
    log, moved = scripts.scratch / "access.log", scripts.scratch / "access.log.1"
    server = serve("--access-log", str(log))
    server.get("/hello.txt?first")
    wait_for(lambda: log.exists() and "first" in log.read_text())
    log.rename(moved)
    server.get("/hello.txt?second")
    wait_for(lambda: "second" in moved.read_text())
    server.send_signal(signal.SIGUSR1)
    wait_for(log.exists, "the log to be opened again")
    # The router's threads switch to the new file shortly after it exists; until then they write to the old one.
    with server.connect() as of_one_thread:
        asked = [of_one_thread.request("GET", "/hello.txt?third")]
        again = lambda: asked.append(of_one_thread.request("GET", "/hello.txt?third"))
        wait_for(lambda: "third" in log.read_text() or again())
        of_one_thread.request("GET", "/hello.txt?fourth")
    wait_for(lambda: "fourth" in log.read_text())
    assert (moved.read_text() + log.read_text()).count("third") == len(asked), "none is lost"
    assert "fourth" not in moved.read_text() and "second" not in log.read_text()


def test_other_signals_have_no_effect(scripts, serve):
    server = serve(processes=1)
    before = {process.pid for process in server.processes()}
    for number in (signal.SIGHUP, signal.SIGUSR2, signal.SIGWINCH, signal.SIGPIPE):
        server.send_signal(number)
        assert server.get("/pid.php").status == 200
    assert server.process.poll() is None
    assert {process.pid for process in server.processes()} == before


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
    wait_for(lambda: {server.get("/pid.php").text} == pids and server.zombies() == [], "them to be reaped", timeout=5)


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


# --- Privileges


def ids(process: Process) -> tuple[set[int], set[int]]:
    return set(map(int, process.status("Uid").split())), set(map(int, process.status("Gid").split()))


@needs_root
@pytest.mark.parametrize("options, user", [((), "www-data"), (("--user", NOBODY), NOBODY)])
def test_privileges_are_dropped(scripts, serve, options, user):
    scripts.php(
        "who.php",
        "echo json_encode([posix_getuid(), posix_geteuid(), posix_getgid(), posix_getegid(), posix_getgroups(), @posix_setuid(0)]);",
    )
    server = serve(*options)
    entry = pwd.getpwnam(user)
    uid, gid = entry.pw_uid, entry.pw_gid
    *got, groups, regained = server.get("/who.php").json()
    assert got == [uid, uid, gid, gid] and not regained
    assert 0 not in groups
    assert ids(Process.of(server.pid))[0] == {0}
    for process in [server.prototype(), *server.workers()]:
        assert ids(process) == ({uid}, {gid})
    router = server.router()
    assert 0 not in ids(router)[0] | ids(router)[1]
    for process in [router, server.prototype(), *server.workers()]:
        assert int(process.status("CapEff"), 16) == 0 and int(process.status("CapPrm"), 16) == 0
        assert "0" not in process.status("Groups").split()


@needs_root
def test_the_owner_of_the_folder_is_the_default_user(scripts, serve):
    uid = pwd.getpwnam(NOBODY).pw_uid
    os.chown(scripts.root, uid, -1)
    scripts.php("who.php", "echo posix_geteuid();")
    assert serve().get("/who.php").text == str(uid)


@needs_root
def test_the_user_of_an_application(scripts, run):
    scripts.php("who.php", "echo posix_geteuid(), ' ', posix_getegid();")
    app = {"type": "php", "root": str(scripts.root), "user": NOBODY, "group": "www-data"}
    server = run({"applications": {"app": app}})
    uid, gid = pwd.getpwnam(NOBODY).pw_uid, pwd.getpwnam("www-data").pw_gid
    assert server.get("/who.php").text == f"{uid} {gid}"


@needs_root
@pytest.mark.parametrize("command", ["serve", "run"])
def test_no_php_runs_as_root_by_default(scripts, tmp_path, command):
    """A machine or a container without either default user."""
    users = tmp_path / "passwd"
    users.write_text("root:x:0:0:root:/root:/bin/sh\n")
    # systemd's NSS module would define the second one.
    lookups = tmp_path / "nsswitch.conf"
    lookups.write_text("passwd: files\ngroup: files\n")
    mounts = f"mount --bind {users} /etc/passwd && mount --bind {lookups} /etc/nsswitch.conf"
    hide = ["unshare", "--mount", "sh", "-c", mounts + ' && exec "$@"', "sh"]
    with pytest.raises(AssertionError, match="exit code 1") as failure:
        if command == "serve":
            Howdah.serve(scripts, prefix=hide)
        else:
            Howdah.run({"applications": {"app": {"type": "php", "root": str(scripts.root)}}}, prefix=hide)
    assert f"no user {WWW_DATA} and no user {NOBODY}" in str(failure.value) and "--user" in str(failure.value)
    with Howdah.serve(scripts, "--user", "root", prefix=hide) as server:
        assert server.get("/pid.php").status == 200


@needs_root
def test_php_cannot_reach_what_belongs_to_root(scripts, serve):
    scripts.write("../secret.txt", "secret").chmod(0o600)
    scripts.php(
        "reach.php",
        """echo json_encode([@file_get_contents(__DIR__ . '/../secret.txt'), @posix_kill(posix_getppid(), 0),
            @posix_kill((int) $_GET['supervisor'], 0), @file_put_contents('/proc/' . $_GET['supervisor'] . '/oom_score_adj', '0')]);""",
    )
    server = serve()
    secret, prototype, supervisor, written = server.get(f"/reach.php?supervisor={server.pid}").json()
    assert (secret, supervisor, written) == (False, False, False)


@needs_root
def test_howdah_runs_without_root(scripts):
    """Without root, howdah runs everything as its own user."""
    scripts.php("who.php", "echo posix_geteuid();")
    user = pwd.getpwnam(NOBODY)
    prefix = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    with Howdah.serve(scripts, prefix=prefix) as server:
        assert server.get("/who.php").text == str(user.pw_uid)
        assert {uid for process in server.processes() for uid in ids(process)[0]} == {user.pw_uid}
        server.workers()[0].kill()
        wait_for(lambda: server.get("/who.php").status == 200)


def test_a_worker_holds_no_socket_of_a_client_or_listener(scripts, serve):
    """A compromised worker must not be able to accept connections or to read those of others."""
    server = serve(processes=1)
    with server.connect() as connection:
        connection.request("GET", "/hello.txt")
        inodes = {
            line.split()[9]
            for table in ("tcp", "tcp6")
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
            if int(line.split()[1].split(":")[1], 16) == server.port
        }
        assert inodes
        for process in [server.prototype(), *server.workers()]:
            links = [os.readlink(entry) for entry in Path(f"/proc/{process.pid}/fd").iterdir()]
            assert not [link for link in links if link[8:-1] in inodes], f"{process.title}: {links}"


def test_a_worker_holds_no_socket_at_all(scripts, serve):
    """A worker has no socket to the supervisor, unlike the prototype."""
    server = serve(processes=2)
    for _ in range(10):
        server.get("/pid.php")
    for process in server.workers(count=2):
        links = [os.readlink(entry) for entry in Path(f"/proc/{process.pid}/fd").iterdir()]
        assert links and not [link for link in links if link.startswith("socket:")], links
    prototype = server.prototype()
    links = [os.readlink(entry) for entry in Path(f"/proc/{prototype.pid}/fd").iterdir()]
    assert len([link for link in links if link.startswith("socket:")]) == 1, "the prototype has one socket"


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
