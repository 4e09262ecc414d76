"""Changes while requests run: unchanged parts keep running, failed changes have no effect, no request is lost."""

import contextlib
import os
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.background import Background
from support.folders import Folder
from support.http.client import Connection
from support.http.held_request import HeldRequest, held_page
from support.http.load import Load
from support.machine import free_port, needs_root
from support.processes import Process, open_descriptors
from support.server import Howdah
from support.waiting import wait_for

NOT_APPLIED = "Failed to apply new configuration."


@pytest.fixture
def scripts(folder) -> Folder:
    folder.php("pid.php", "echo getmypid();")
    folder.php("colour.php", "echo getenv('COLOUR') ?: 'none';")
    folder.php("echo.php", "echo 'echo ', $_GET['x'];")
    held_page(folder)
    folder.write("file.txt", "file")
    return folder


def application(folder: Folder, **options) -> dict:
    return {"type": "php", "root": str(folder.root), "processes": 2, **options}


def two_applications(folder: Folder) -> dict:
    """`shop` and `blog`, chosen by the Host header; `shop` if it is something else."""
    return {
        "listeners": {"127.0.0.1:{port}": {"pass": "routes"}},
        "routes": [
            {"match": {"host": "blog"}, "action": {"pass": "applications/blog"}},
            {"action": {"pass": "applications/shop"}},
        ],
        "applications": {"shop": application(folder), "blog": application(folder)},
    }


def change(server: Howdah, method: str, path: str, body=None) -> None:
    answer = server.api(method, path, body)
    assert (answer.status, answer.json()) == (200, {"success": "Reconfiguration done."})


def refusal(server: Howdah, method: str, path: str, body=None) -> str:
    """The detail of a change that cannot be applied."""
    before = server.api("GET", "/config")
    answer = server.api(method, path, body)
    assert (answer.status, answer.json()["error"]) == (500, NOT_APPLIED), answer
    after = server.api("GET", "/config")
    assert after.json() == before.json() and after.header("ETag") == before.header("ETag")
    return answer.json()["detail"]


def only_these(server: Howdah, expected: list[Process]) -> None:
    """Waits until exactly these prototypes and workers run."""

    def php() -> set[tuple[int, int]]:
        return {(p.pid, p.started) for p in server.processes() if p.title.endswith(("worker", "prototype"))}

    wanted = {(p.pid, p.started) for p in expected}
    wait_for(lambda: php() == wanted, f"{wanted} alone")


def php_processes(server: Howdah, *names: str) -> list[Process]:
    return [p for name in names for p in [server.prototype(name), *server.workers(name, 2)]]


# --- Unchanged parts keep running


def test_a_new_route_keeps_every_process(scripts, run):
    server = run(two_applications(scripts))
    before, router = php_processes(server, "shop", "blog"), server.router()
    change(server, "PUT", "/config/routes/0/match/host", '"other"')
    change(server, "POST", "/config/routes", {"action": {"return": 404}})
    change(server, "PUT", "/config/settings", {"http": {"max_body_size": 1000}})
    only_these(server, before)
    assert server.router() == router


def test_a_changed_application_restarts_only_itself(scripts, run):
    server = run(two_applications(scripts))
    shop, blog = php_processes(server, "shop"), php_processes(server, "blog")
    change(server, "PUT", "/config/applications/blog/environment", {"COLOUR": "blue"})
    assert server.get("/colour.php", {"Host": "blog"}).text == "blue"
    assert server.get("/colour.php", {"Host": "shop"}).text == "none"
    wait_for(lambda: not any(process.alive() for process in blog), "the old ones to go")
    only_these(server, shop + php_processes(server, "blog"))


def test_an_application_is_added_and_removed(scripts, run):
    server = run(two_applications(scripts))
    shop = php_processes(server, "shop")
    change(server, "PUT", "/config/applications/third", application(scripts))
    third = php_processes(server, "third")
    change(server, "DELETE", "/config/applications/third")
    wait_for(lambda: not any(process.alive() for process in third), "it to go")
    answer = server.api("DELETE", "/config/applications/shop")
    assert answer.status == 400 and "shop" in answer.json()["detail"], "a route passes to it"
    change(server, "DELETE", "/config/routes/1")
    change(server, "DELETE", "/config/applications/shop")
    wait_for(lambda: not any(process.alive() for process in shop), "it to go")
    assert server.get("/pid.php").status == 404
    only_these(server, php_processes(server, "blog"))


def test_a_restart_is_for_one_application(scripts, run):
    server = run(two_applications(scripts))
    etag = server.api("GET", "/config").header("ETag")
    for method in ("GET", "POST"):
        shop, blog = php_processes(server, "shop"), php_processes(server, "blog")
        answer = server.api(method, "/control/applications/blog/restart")
        assert (answer.status, answer.json()) == (200, {"success": "Ok"})
        wait_for(lambda: not any(process.alive() for process in blog), "the old ones to go")
        only_these(server, shop + php_processes(server, "blog"))
    assert server.api("GET", "/config").header("ETag") == etag


def test_a_restart_loads_new_code_without_interrupting_requests(scripts, run):
    """With opcache.validate_timestamps=0 only a restart sees a deploy."""
    options = {"admin": {"opcache.validate_timestamps": "0"}}
    server = run({"applications": {"app": application(scripts, options=options)}})
    scripts.php("version.php", "echo 1;")
    with server.connect() as connection:
        held = HeldRequest(server, scripts, "old", connection)
        assert {server.get("/version.php").text for _ in range(4)} == {"1"}
        scripts.php("version.php", "echo 2;")
        assert {server.get("/version.php").text for _ in range(4)} == {"1"}
        assert server.api("GET", "/control/applications/app/restart").status == 200
        assert {server.get("/version.php").text for _ in range(4)} == {"2"}
        assert held.response().text == "released"


# --- Connections and listeners


def test_a_connection_survives_changes(scripts, run):
    server = run(two_applications(scripts))
    with server.connect() as connection:
        for number, colour in enumerate(("red", "green", "blue")):
            assert connection.request("GET", f"/echo.php?x={number}").text == f"echo {number}"
            change(server, "PUT", "/config/applications/shop/environment", {"COLOUR": colour})
            assert connection.request("GET", "/colour.php").text == colour
            change(server, "POST", "/config/routes", {"action": {"return": 404}})


def test_a_change_is_active_when_it_is_answered(scripts, run):
    server = run(two_applications(scripts))
    with server.connect() as connection:
        for status in range(400, 440):
            change(server, "PUT", "/config/routes", [{"action": {"return": status}}])
            assert connection.request("GET", "/").status == status
            assert server.get("/").status == status


def test_a_listener_is_added_and_removed(scripts, run):
    server = run(two_applications(scripts))
    port = free_port()
    change(server, "PUT", f"/config/listeners/127.0.0.1:{port}", {"pass": "applications/blog"})
    with Connection(("127.0.0.1", port)) as connection:
        assert connection.request("GET", "/echo.php?x=1").text == "echo 1"
    change(server, "DELETE", f"/config/listeners/127.0.0.1:{port}")
    with pytest.raises(ConnectionRefusedError):
        Connection(("127.0.0.1", port))
    assert server.get("/echo.php?x=2").text == "echo 2"


@needs_root  # Not all kernels show the supervisor's filter to other processes.
def test_connections_to_a_removed_listener_are_answered(scripts, run):
    """A refused connection is correct; a reset one is not."""
    server = run(two_applications(scripts))
    port = free_port()
    ends, stopped = Counter(), threading.Event()

    def visit():
        while not stopped.is_set():
            try:
                with Connection(("127.0.0.1", port)) as connection:
                    ends[connection.request("GET", "/echo.php?x=1", {"Connection": "close"}).text] += 1
            except ConnectionRefusedError:
                time.sleep(0.002)
            except Exception as error:
                ends[repr(error)] += 1

    with ThreadPoolExecutor(3) as pool:
        visitors = [pool.submit(visit) for _ in range(3)]
        try:
            for _ in range(6):
                answered = ends["echo 1"]
                change(server, "PUT", f"/config/listeners/127.0.0.1:{port}", {"pass": "applications/blog"})
                wait_for(lambda: ends["echo 1"] > answered + 5, "visitors")
                change(server, "DELETE", f"/config/listeners/127.0.0.1:{port}")
        finally:
            stopped.set()
        for visitor in visitors:
            visitor.result()
    assert set(ends) == {"echo 1"}, ends


def test_a_removed_listener_finishes_its_request(scripts, run):
    server = run(two_applications(scripts))
    port = free_port()
    change(server, "PUT", f"/config/listeners/127.0.0.1:{port}", {"pass": "applications/blog"})
    with Connection(("127.0.0.1", port)) as busy, Connection(("127.0.0.1", port)) as idle:
        assert idle.request("GET", "/echo.php?x=1").status == 200
        held = HeldRequest(server, scripts, "removed", busy)
        change(server, "DELETE", f"/config/listeners/127.0.0.1:{port}")
        with pytest.raises(ConnectionRefusedError):
            Connection(("127.0.0.1", port))
        response = held.response()
        assert (response.status, response.text) == (200, "released")
        assert busy.is_closed(), "the listener is closed"
        assert idle.is_closed()


@pytest.mark.parametrize("used", [False, True], ids=["its first request", "a later one"])
def test_a_removed_listener_waits_for_an_incomplete_head(scripts, run, used):
    server = run(two_applications(scripts))
    port = free_port()
    change(server, "PUT", f"/config/listeners/127.0.0.1:{port}", {"pass": "applications/blog"})
    with Connection(("127.0.0.1", port)) as connection:
        if used:
            assert connection.request("GET", "/echo.php?x=1").status == 200
        connection.send(b"GET /echo.php?x=2 HTTP/1.1\r\nHo")
        # Longer than the timeout of a connection without a first request.
        time.sleep(0 if used else 1.1)
        change(server, "DELETE", f"/config/listeners/127.0.0.1:{port}")
        time.sleep(0.3)
        connection.send(b"st: x\r\n\r\n")
        response = connection.response()
        assert (response.status, response.header("connection")) == (200, "close")
        assert connection.is_closed()


def test_a_removed_application_finishes_its_request(scripts, run):
    server = run(two_applications(scripts))
    blog = php_processes(server, "blog")
    with server.connect() as connection:
        connection.host = "blog"
        held = HeldRequest(server, scripts, "removed", connection)
        change(server, "PUT", "/config/routes", [{"action": {"pass": "applications/shop"}}])
        change(server, "DELETE", "/config/applications/blog")
        response = held.response()
        assert (response.status, response.text) == (200, "released")
        assert connection.request("GET", "/echo.php?x=1").text == "echo 1"
    wait_for(lambda: not any(process.alive() for process in blog), "it to go")


def test_a_listener_can_change_its_port_and_come_back(scripts, run):
    server = run(two_applications(scripts))
    first, second = server.port, free_port()
    for port in (second, first, second, first):
        change(server, "PUT", "/config/listeners", {f"127.0.0.1:{port}": {"pass": "routes"}})
        with Connection(("127.0.0.1", port)) as connection:
            assert connection.request("GET", "/echo.php?x=1").text == "echo 1"


# --- Failed changes have no effect


@pytest.fixture
def stable(scripts, run):
    """A server that has the same processes at the end of the test as at its beginning."""
    server = run(two_applications(scripts))
    before, router = php_processes(server, "shop", "blog"), server.router()
    yield server
    only_these(server, before)
    assert server.router() == router
    assert server.get("/echo.php?x=1").text == server.get("/echo.php?x=1", {"Host": "blog"}).text == "echo 1"


@pytest.mark.parametrize(
    "options, named",
    [
        ({"root": "/no/such/root"}, ['applications/new/root: "/no/such/root" does not exist']),
        ({"root": "/etc/passwd"}, ["applications/new/root", "is not a folder"]),
        ({"working_directory": "/no/such/folder"}, ['applications/new/working_directory: "/no/such/folder"']),
        ({"options": {"file": "/no/such/php.ini"}}, ['applications/new/options/file: "/no/such/php.ini"']),
        ({"type": "php 5.3"}, ["applications/new/type", "PHP 5.3 was not found"]),
        ({"user": "no-such-user"}, ["applications/new/user", "no-such-user"]),
    ],
)
def test_an_application_that_cannot_run_here_is_rejected(scripts, stable, options, named):
    detail = refusal(stable, "PUT", "/config/applications/new", application(scripts, **options))
    assert all(words in detail for words in named), detail
    detail = refusal(stable, "PUT", "/config/applications/blog", application(scripts, **options))
    assert named[0].replace("/new", "/blog") in detail


@pytest.mark.parametrize(
    "code, output",
    [
        ("throw new Exception('preloading failed');", "Uncaught Exception: preloading failed in "),
        ("function broken(", "PHP Parse error: "),
        ("posix_kill(getmypid(), 11);", "was killed by signal 11 (SIGSEGV)"),
        ("fwrite(STDERR, \"first\\nl\u00e4st\\e[31m words\\n\"); exit(3);", "first\nl\u00e4st [31m words"),
        ("fwrite(STDERR, str_repeat(\"noise\\n\", 100_000)); throw new Exception('the end');", "Exception: the end"),
    ],
)
def test_an_application_that_does_not_boot_is_rejected(scripts, stable, code, output):
    """The response contains its last output."""
    preload = scripts.php("preload.php", f"defined('STDERR') || define('STDERR', fopen('php://stderr', 'w')); {code}")
    options = {"admin": {"opcache.preload": str(preload), "display_errors": "0", "log_errors": "1"}}
    for name, path, body in (
        ("new", "/config/applications/new", application(scripts, options=options)),
        ("blog", "/config/applications/blog/options", options),
    ):
        detail = refusal(stable, "PUT", path, body)
        first, *lines = detail.splitlines()
        assert first.startswith(f'the application "{name}" does not start: ')
        assert output in detail and len(lines) <= 40 and len(detail) < 9000
        for line in lines:
            assert line.replace(" [31m", "\x1b[31m") in stable.stderr, "the log has the output, too"
    (logged, _) = [line for line in stable.stderr.splitlines() if "the configuration change failed" in line]
    assert output not in logged or not lines, "the log has the line once"


def test_output_of_an_application_after_its_boot_goes_to_the_log(scripts, run):
    preload = scripts.php("preload.php", "error_log('while it starts');")
    scripts.php("later.php", "error_log('and later'); echo 1;")
    options = {"admin": {"opcache.preload": str(preload), "log_errors": "1", "error_log": ""}}
    server = run({"applications": {"app": application(scripts, options=options)}})
    assert server.get("/later.php").text == "1"
    wait_for(lambda: "while it starts" in server.stderr and "and later" in server.stderr)
    before = os.readlink(f"/proc/{server.pid}/fd/2")
    for process in php_processes(server, "app"):
        assert os.readlink(f"/proc/{process.pid}/fd/2") == before, process


def test_a_failed_restart_keeps_the_old_generation(scripts, run):
    preload = scripts.php("preload.php", "")
    server = run({"applications": {"app": application(scripts, options={"admin": {"opcache.preload": str(preload)}})}})
    before = php_processes(server, "app")
    preload.write_text("<?php throw new Exception('preloading failed');")
    answer = server.api("POST", "/control/applications/app/restart")
    assert (answer.status, answer.json()["error"]) == (500, "Failed to restart app.")
    assert answer.json()["detail"].startswith('the application "app" does not start: ')
    only_these(server, before)
    assert server.get("/echo.php?x=1").text == "echo 1"


def test_a_port_in_use_is_rejected(scripts, stable):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        detail = refusal(stable, "PUT", f"/config/listeners/127.0.0.1:{port}", {"pass": "routes"})
        assert f"port {port} is in use" in detail
        # The other listeners and applications of such a change do not exist, either.
        other = free_port()
        config = stable.api("GET", "/config").json()
        config["listeners"] = {f"127.0.0.1:{other}": {"pass": "routes"}, f"127.0.0.1:{port}": {"pass": "routes"}}
        config["applications"]["new"] = application(scripts)
        assert f"port {port} is in use" in refusal(stable, "PUT", "/config", config)
        with pytest.raises(ConnectionRefusedError):
            Connection(("127.0.0.1", other))
    change(stable, "PUT", f"/config/listeners/127.0.0.1:{port}", {"pass": "routes"})


def test_a_change_of_the_access_to_a_socket_is_applied_whole_or_not_at_all(scripts, run, socket_path):
    """Two sockets get another mode. The file of the second one is not howdah's any more, so the first one keeps its mode."""
    first, second = socket_path, socket_path.with_name("second")
    listeners = {f"unix:{path}": {"pass": "applications/shop"} for path in (first, second)}
    config = {"applications": {"shop": application(scripts)}, "listeners": {"127.0.0.1:{port}": {"pass": "applications/shop"}, **listeners}}
    server = run(config)

    def mode(path) -> str:
        return f"{path.stat().st_mode & 0o777:o}"

    changed = server.api("GET", "/config/listeners").json()
    for address in listeners:
        changed[address]["socket"] = {"mode": "600"}
    change(server, "PUT", "/config/listeners", changed)
    assert (mode(first), mode(second)) == ("600", "600")
    second.unlink()
    second.write_text("not a socket")
    for address in listeners:
        changed[address]["socket"] = {"mode": "666"}
    assert "another program has replaced its file" in refusal(server, "PUT", "/config/listeners", changed)
    assert mode(first) == "600"
    # Changes of other options do not need the file.
    change(server, "PUT", "/config/settings", {"http": {"server_version": False}})
    second.unlink()


@pytest.mark.parametrize("address", ["192.0.2.1:80", "unix:/no/such/folder/s", "unix:/etc/passwd"])
def test_an_unusable_address_is_rejected(stable, address):
    detail = refusal(stable, "PUT", "/config/listeners/" + address.replace("/", "%2F"), {"pass": "routes"})
    assert address in detail


def test_an_access_log_that_cannot_be_opened_is_rejected(stable):
    assert "/no/such/folder/log" in refusal(stable, "PUT", "/config/access_log", '"/no/such/folder/log"')


def test_a_change_after_a_failed_one_is_applied(scripts, stable):
    """After any failure, the next change is applied."""
    for number in range(5):
        refusal(stable, "PUT", "/config/applications/new", application(scripts, root="/no/such/root"))
        change(stable, "POST", "/config/routes", {"action": {"return": 200 + number}})
    assert len(stable.api("GET", "/config/routes").json()) == 7


def test_changes_that_boot_applications_are_serialized(scripts, stable):
    """Some of them fail; each client gets the response to its own change."""

    def put(number: int) -> tuple[int, str]:
        root = str(scripts.root) if number % 2 else f"/no/such/root{number}"
        answer = stable.api("PUT", f"/config/applications/new{number}", application(scripts, processes=1, root=root))
        return answer.status, answer.json().get("detail", "")

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(put, range(10)))
    for number, (status, detail) in enumerate(answers):
        assert status == (200 if number % 2 else 500)
        assert number % 2 or f"/no/such/root{number}" in detail
    for number in (1, 3, 5, 7, 9):
        stable.workers(f"new{number}", 1)
        change(stable, "DELETE", f"/config/applications/new{number}")


def test_requests_are_answered_while_a_change_boots(scripts, run):
    server = run(two_applications(scripts))
    preload = scripts.php("preload.php", "touch(SCRATCH . '/booting'); await(SCRATCH . '/go');")
    options = {"admin": {"opcache.preload": str(preload)}}
    with ThreadPoolExecutor(3) as pool:
        slow = pool.submit(server.api, "PUT", "/config/applications/new", application(scripts, options=options))
        wait_for((scripts.scratch / "booting").exists)
        next_one = pool.submit(server.api, "POST", "/config/routes", {"action": {"return": 200}})
        before = server.api("GET", "/config").json()
        assert "new" not in before["applications"] and len(before["routes"]) == 2
        assert server.api("GET", "/status").json()["applications"].keys() == {"shop", "blog"}
        assert server.get("/echo.php?x=1").text == "echo 1"
        assert not slow.done() and not next_one.done()
        (scripts.scratch / "go").touch()
        assert (slow.result().status, next_one.result().status) == (200, 200)
    assert len(server.api("GET", "/config/routes").json()) == 3
    server.workers("new", 2)


def test_a_shutdown_does_not_wait_for_a_change(scripts, run):
    """SIGTERM while an application boots: the client of the change gets a response."""
    server = run(two_applications(scripts))
    preload = scripts.php("preload.php", "touch(SCRATCH . '/booting'); await(SCRATCH . '/never');")
    options = {"admin": {"opcache.preload": str(preload)}}
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(server.api, "PUT", "/config/applications/new", application(scripts, options=options))
        wait_for((scripts.scratch / "booting").exists)
        server.stop(timeout=10)
        assert slow.result().status in (500, 503)


# --- The status


def test_the_status_counts_connections_requests_and_processes(scripts, run):
    server = run({"applications": {"app": application(scripts)}})
    server.workers(count=2)

    def status() -> dict:
        return server.api("GET", "/status").json()

    assert status()["requests"] == {"total": 0}, "connections to the control API are not counted"
    with server.connect() as idle, server.connect() as busy:
        for number in range(3):
            assert idle.request("GET", f"/echo.php?x={number}").status == 200
        held = HeldRequest(server, scripts, "counted", busy)
        now = status()
        assert now["connections"] == {"accepted": 2, "active": 1, "idle": 1, "closed": 0}
        counted = now["applications"]["app"]
        assert counted.pop("generation")["release"][str(scripts.root)] == str(scripts.root)
        assert counted == {"processes": {"running": 2, "starting": 0, "idle": 1}, "requests": {"active": 1, "waiting": 0, "refused": 0}}
        assert held.response().status == 200
        assert status()["requests"] == {"total": 4}
    wait_for(lambda: status()["connections"] == {"accepted": 2, "active": 0, "idle": 0, "closed": 2})


# --- No request is lost


def verified(client, turn: int):
    """Requests a page or a file of either application: twice over the kept connection, then over a new one."""
    host = ("shop", "blog")[turn % 2]
    target, expected = [(f"/echo.php?x={turn}", f"echo {turn}"), ("/file.txt", "file")][turn % 7 == 0]
    get = client.get if turn % 3 else client.server.get
    answer = get(target, {"Host": host})
    if (answer.status, answer.text) != (200, expected):
        return turn, answer.status, answer.text[:200]


def test_a_hundred_changes_under_load_lose_no_request(scripts, run):
    config = two_applications(scripts)
    config["routes"].insert(0, {"match": {"uri": "*.txt"}, "action": {"share": f"{scripts.root}$uri"}})
    server = run(config)
    other = free_port()
    answered, expected = [], []

    def ask(status: int, *request):
        answered.append(server.api(*request).status)
        expected.append(status)

    descriptors = None
    with Load(server, verified, turns_per_second=200) as load:
        for number in range(10):
            colour = {"COLOUR": str(number)}
            ask(200, "PUT", "/config/applications/shop/environment", colour)
            ask(200, "POST", "/config/routes", {"action": {"return": 404}})
            ask(200, "PUT", f"/config/listeners/127.0.0.1:{other}", {"pass": "routes"})
            ask(200, "POST", "/control/applications/blog/restart")
            ask(500, "PUT", "/config/applications/new", application(scripts, root="/no/such/root"))
            ask(200, "PUT", "/config/applications/new", application(scripts))
            ask(200, "PUT", "/config/applications/shop/processes", str(1 + number % 3))
            ask(200, "DELETE", f"/config/listeners/127.0.0.1:{other}")
            ask(200, "DELETE", "/config/applications/new")
            ask(200, "PUT", "/config/settings", {"http": {"max_body_size": 1000 + number}})
            if number == 1:
                descriptors = descriptors_of(server)
    assert answered == expected
    load.assert_flawless()
    assert load.correct > 200
    assert load.clients[0].connections == 1, "the kept connection was never closed"
    wait_for(lambda: len(server.processes()) == 2 + 2 + 2 + len(server.workers("shop")), "the old ones to go")
    wait_for(lambda: descriptors_of(server) <= descriptors, f"{descriptors} descriptors", timeout=10)


def descriptors_of(server: Howdah) -> int:
    return sum(open_descriptors(pid) for pid in (server.pid, server.router().pid))


def test_an_event_loop_that_is_late_gets_no_connections_of_a_new_listener(run):
    """One of two event loops applies each configuration later than the other one, which has connections to give away."""
    config = {
        "listeners": {"127.0.0.1:{port}": {"pass": "routes"}},
        "routes": [{"action": {"return": 204}}],
        "settings": {"listen_threads": 2},
    }
    server = run(config, environ={"HOWDAH_TEST_FAULT": "delay=event loop 1"})
    address = ("127.0.0.1", free_port())
    added = Background(change, server, "PUT", f"/config/listeners/127.0.0.1:{address[1]}", {"pass": "routes"})
    wait_for(lambda: socket.socket().connect_ex(address) == 0, "the listener")
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(Connection(address)) for _ in range(100)]
        for connection in connections:
            connection.send_request("GET", "/")
        statuses = Counter(connection.response().status for connection in connections)
    added.result()
    assert statuses == {204: 100}


def test_a_new_router_has_the_active_configuration(scripts, run):
    server = run(two_applications(scripts))
    change(server, "PUT", "/config/routes", [{"action": {"return": 418}}])
    router = server.router()
    router.kill()
    wait_for(lambda: not router.alive())
    assert server.get("/").status == 418
    change(server, "PUT", "/config/routes", [{"action": {"pass": "applications/blog"}}])
    assert server.get("/echo.php?x=1").text == "echo 1"


def test_changes_survive_the_death_of_the_router(scripts, run):
    """Each change is answered; afterwards the running configuration is the one that the API returns."""
    server = run(two_applications(scripts))
    with ThreadPoolExecutor(4) as pool:
        asked = [
            pool.submit(server.api, "PUT", "/config/applications/blog/environment", {"COLOUR": str(number)})
            for number in range(8)
        ]
        for _ in range(2):
            server.router().kill()
            time.sleep(0.1)
        statuses = [answer.result().status for answer in asked]
    assert set(statuses) <= {200, 500}, statuses
    change(server, "POST", "/config/routes", {"action": {"return": 404}})
    colour = server.api("GET", "/config/applications/blog/environment/COLOUR").json()
    assert colour in {str(number) for number, status in enumerate(statuses) if status == 200}
    assert server.get("/colour.php", {"Host": "blog"}).text == colour
    only_these(server, php_processes(server, "shop", "blog"))
