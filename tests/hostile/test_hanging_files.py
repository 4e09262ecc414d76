"""File systems that hang below a share, a root, a log or a file of the configuration.

Each server has one event loop: a request of another application would wait for one that stops it.
"""

import base64
import contextlib
import itertools
import os
import select
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest

from support.background import Background
from support.fastcgi import FakeServer, answer, fastcgi_application
from support.faults.file_systems import PausableFileSystem, dead_file_system, pausable_file_system, silent_file_system
from support.folders import readable
from support.http.client import Connection, ProtocolError
from support.http.upstream import Upstream, answers, ok


from support.machine import needs_root
from support.processes import thread_states
from support.roadrunner_applications import PYTHON
from support.server import Howdah
from support.waiting import longest_wait, wait_for

ONE_LOOP = {"listen_threads": 1}
# The timeout of a file operation: 30 s become 2 s.
DIVIDER = 15


@pytest.fixture
def hanging(folder):
    """A file system that is not paused yet."""
    with pausable_file_system(folder.scratch, "hanging") as hanging:
        yield hanging


@pytest.fixture
def place_of_sockets(socket_path):
    """The same, with a short path."""
    with pausable_file_system(socket_path.parent, "hanging") as hanging:
        yield hanging


@pytest.fixture
def start(application, folder, run):
    """Starts a server: `/other` is a share outside, and all else is for the application."""
    folder.write("file.txt", "local")

    def start(*steps: dict, applications: dict = {}, **rest) -> Howdah:
        local = {"match": {"uri": "/file.txt"}, "action": {"share": f"{folder.root}$uri"}}
        routes = [*steps, local, {"action": {"pass": "applications/app"}}]
        settings = {**ONE_LOOP, **rest.pop("settings", {})}
        config = {"applications": {"app": application, **applications}, "routes": routes, "settings": settings, **rest}
        return run(config, time_divider=DIVIDER)

    return start


def assert_others_are_served(server: Howdah) -> None:
    for _ in range(10):
        assert server.get("/").text == "here"
        assert server.get("/file.txt").text == "local"
    assert server.api("GET", "/status").status == 200


def share(uri: str, path) -> dict:
    return {"match": {"uri": uri}, "action": {"share": str(path)}}


@pytest.mark.parametrize("kind", [dead_file_system, silent_file_system])
def test_a_share_that_hangs_stops_no_other_requests(start, folder, kind):
    """Also if it is mounted while howdah runs. In a silent file system, the thread of the look-up cannot be killed."""
    server = start(share("/dead/*", f"{folder.scratch}$uri"), share("/silent/*", f"{folder.scratch}$uri"))
    router = server.router()
    threads = len(thread_states(router.pid))
    with kind(folder.scratch) as point:
        requests = [Background(server.get, f"/{point.name}/{number}") for number in range(40)]
        # One was there before.
        wait_for(lambda: len(thread_states(router.pid)) >= threads + 15, "the threads that wait")
        assert_others_are_served(server)
        statuses = sorted(request.result().status for request in requests)
        # Each thread of the share waits for one; the others get no thread.
        assert statuses == [503] * 24 + [504] * 16
        busy = Background(server.get, f"/{point.name}/again")
        assert busy.result().status == 503 and busy.seconds < 1, "it fails at once"
        server.wait_for_log_line("no answer from", str(folder.scratch), "Answering 504")
        assert_others_are_served(server)
    assert server.router() == router
    wait_for(lambda: server.get(f"/{point.name}/file").status == 404, "an answer, once the file system fails")


def test_a_root_that_hangs_stops_no_other_applications(start, hanging: PausableFileSystem, application):
    (hanging.source / "index.php").write_text("<?php echo 'slow';")
    readable(hanging.source)
    slow = {**application, "root": str(hanging.point)}
    server = start({"match": {"uri": "/slow/"}, "action": {"rewrite": "/", "pass": "applications/slow"}}, applications={"slow": slow})
    router = server.router()
    assert server.get("/slow/").text == "slow"
    hanging.pause()
    requests = [Background(server.get, "/slow/") for _ in range(4)]
    assert_others_are_served(server)
    assert {request.result().status for request in requests} == {504}
    hanging.resume()
    assert server.get("/slow/").text == "slow"
    assert server.router() == router


def test_a_root_that_hangs_delays_no_reload_of_other_applications(run, hanging: PausableFileSystem, folder):
    (hanging.source / "index.php").write_text("<?php echo 'slow';")
    readable(hanging.source)
    folder.php("index.php", "echo 'before';")
    # Timestamps are not checked: the new code needs a reload.
    options = {"admin": {"opcache.validate_timestamps": "0"}}
    common = {"type": "php", "processes": 1, "reload": "on-change", "options": options}
    slow, app = {**common, "root": str(hanging.point)}, {**common, "root": str(folder.root)}
    routes = [{"action": {"pass": "applications/app"}}]
    server = run({"applications": {"slow": slow, "app": app}, "routes": routes})
    assert server.get("/").text == "before"
    hanging.pause()
    # The folders are looked at twice a second.
    time.sleep(1.5)
    folder.php("index.php", "echo 'after';")
    wait_for(lambda: server.get("/").text == "after", "the reload", 10)
    hanging.resume()


def test_a_folder_that_hangs_while_it_is_listed_delays_no_reload_of_other_applications(run, folder, tmp_path):
    common = {"type": "php", "processes": 1, "script": "index.php", "reload": "on-change"}
    slow_root = tmp_path / "slow"
    slow_root.mkdir()
    (slow_root / "index.php").write_text("<?php echo 'slow';")
    readable(slow_root)
    folder.php("index.php", "echo 'one';")
    with pausable_file_system(slow_root, "listed") as listed:
        listed.pause()
        slow, app = {**common, "root": str(slow_root)}, {**common, "root": str(folder.root)}
        routes = [{"match": {"uri": "/slow"}, "action": {"pass": "applications/slow"}}, {"action": {"pass": "applications/app"}}]
        server = run({"applications": {"slow": slow, "app": app}, "routes": routes})
        for text in ("two", "three"):
            folder.php("index.php", f"echo '{text}';")
            wait_for(lambda: server.get("/").text == text, text)
            assert server.get("/slow").text == "slow" and server.api("GET", "/status").status == 200


def test_a_healthy_share_of_such_a_file_system_is_served(start, hanging: PausableFileSystem):
    """Small and large files, ranges, folders, missing files: all from another thread."""
    large = bytes(range(256)) * 4096 * 12
    (hanging.source / "large").write_bytes(large)
    (hanging.source / "small.css").write_text("a {}")
    (hanging.source / "folder").mkdir()
    (hanging.source / "folder" / "index.html").write_text("index")
    readable(hanging.source)
    server = start(share("/hanging/*", f"{hanging.point.parent}$uri"), share("/hanging", f"{hanging.point.parent}$uri"))
    for _ in range(3):
        assert server.get("/hanging/large").body == large
        assert server.get("/hanging/large", {"Range": "bytes=5000000-5000009"}).body == large[5000000:5000010]
        small = server.get("/hanging/small.css")
        assert (small.text, small.header("Content-Type")) == ("a {}", "text/css")
        assert server.get("/hanging/small.css", {"If-None-Match": small.header("ETag")}).status == 304
        assert server.get("/hanging/folder/").text == "index"
        assert server.get("/hanging/folder").status == 301
        assert server.get("/hanging/missing").status == 404


def test_a_link_that_is_swapped_while_a_file_is_opened_stops_no_other_requests(start, folder):
    """Between its look-up and its open, the path leads into another file system."""
    base = folder.scratch / "swapped"
    (base / "local").mkdir(parents=True)
    with pausable_file_system(base, "hanging") as hanging, ThreadPoolExecutor(5) as pool:
        for parent in (base / "local", hanging.source):
            # Too large for the cache: it is opened for each request.
            with open(parent / "large", "wb") as file:
                file.truncate(4 << 20)
        readable(base)
        server = start(share("/current/*", f"{base}$uri"))
        router = server.router()
        links = itertools.cycle(["local", "hanging"])

        def swap() -> None:
            (base / "new").symlink_to(next(links))
            (base / "new").rename(base / "current")

        swap()
        assert len(server.get("/current/large").body) == 4 << 20
        hanging.pause()
        until = time.monotonic() + 4

        def look() -> None:
            while time.monotonic() < until:
                with contextlib.suppress(OSError), server.connect() as client:
                    client.send_request("GET", "/current/large", {"Range": "bytes=0-0"})
                    select.select([client.socket], [], [], 0.01)

        def swap_and_swap() -> None:
            while time.monotonic() < until:
                swap()
                time.sleep(0.0003)

        running = [pool.submit(act) for act in (swap_and_swap, look, look, look, look)]
        longest = longest_wait(server, "/file.txt", seconds=4)
        hanging.resume()
        for each in running:
            each.result()
        assert longest < 1 and server.router() == router, longest


def test_a_file_that_hangs_while_it_is_sent_stops_no_other_requests(start, hanging: PausableFileSystem):
    size = 64 << 20
    with open(hanging.source / "large", "wb") as file:
        file.truncate(size)
    readable(hanging.source)
    server = start(share("/large", f"{hanging.point}$uri"))
    router = server.router()
    with server.connect() as client:
        client.send_request("GET", "/large")
        response, body = client.stream()
        assert response.status == 200 and next(body)
        hanging.pause()
        rest = Background(lambda: sum(map(len, body)))
        assert_others_are_served(server)
        with pytest.raises(ProtocolError):
            rest.result()
        server.wait_for_log_line("no answer from a file on the device")
    # The end of the connection closes the file, which the file system must answer, too.
    assert_others_are_served(server)
    hanging.resume()
    assert len(server.get("/large").body) == size
    assert server.router() == router


def test_a_script_that_names_a_file_that_hangs_stops_no_other_requests(start, hanging: PausableFileSystem, application, folder):
    folder.php("send.php", "header('X-Sendfile: ' . $_GET['file']);")
    (hanging.source / "file").write_text("sent")
    readable(hanging.source)
    sending = {**application, "send_file": {"/": str(hanging.point)}}
    server = start({"match": {"uri": "/send.php"}, "action": {"pass": "applications/sending"}}, applications={"sending": sending})
    uri = f"/send.php?file={hanging.point}/file"
    assert server.get(uri).text == "sent"
    hanging.pause()
    waiting = [Background(server.get, f"/send.php?file={hanging.point}/other-{number}") for number in range(3)]
    assert_others_are_served(server)
    assert {request.result().status for request in waiting} == {504}
    hanging.resume()
    assert server.get(uri).text == "sent"


def test_an_access_log_that_hangs_stops_no_requests(start, hanging: PausableFileSystem):
    server = start(access_log=str(hanging.point / "access.log"))
    assert server.get("/").text == "here"
    hanging.pause()
    assert_others_are_served(server)
    # The supervisor opens it again.
    server.process.send_signal(signal.SIGUSR1)
    server.wait_for_log_line("cannot reopen the access log", "no answer from its file system")
    assert_others_are_served(server)
    hanging.resume()
    log = hanging.source / "access.log"
    wait_for(lambda: log.read_text().count('"GET / HTTP/1.1" 200') == 21, "the lines, once the file system answers")


def test_a_user_file_that_hangs_stops_no_other_requests(start, hanging: PausableFileSystem):
    (hanging.source / "users").write_text("ann:$apr1$8sFt66rZ$CwW5jnBTcCMb9M9VZMRdm/\n")
    readable(hanging.source)
    in_file = {"return": 200, "basic_auth": {"realm": "x", "user_file": str(hanging.point / "users")}}
    in_configuration = {"return": 200, "basic_auth": {"realm": "x", "users": {"ann": "$apr1$8sFt66rZ$CwW5jnBTcCMb9M9VZMRdm/"}}}
    server = start(
        {"match": {"uri": "/file"}, "action": in_file},
        {"match": {"uri": "/configuration"}, "action": in_configuration},
    )

    def get(uri: str, password: str):
        credentials = base64.b64encode(f"ann:{password}".encode()).decode()
        return server.get(uri, {"Authorization": f"Basic {credentials}"})

    assert get("/file", "password").status == 200
    hanging.pause()
    # More than the verifications that run at a time.
    waiting = [Background(get, "/file", f"wrong {number}") for number in range(8)]
    assert_others_are_served(server)
    assert get("/configuration", "password").status == 200 and get("/configuration", "wrong").status == 401
    assert {request.result().status for request in waiting} == {504}
    hanging.resume()
    assert get("/file", "wrong").status == 401


def test_a_user_file_that_hangs_does_not_stop_the_supervisor(start, hanging: PausableFileSystem):
    (hanging.source / "users").write_text("ann:x")
    readable(hanging.source)
    in_file = {"return": 200, "basic_auth": {"realm": "x", "user_file": str(hanging.point / "users")}}
    server = start({"match": {"uri": "/file/*"}, "action": in_file})
    hanging.pause()
    other = {"realm": "x", "user_file": str(hanging.point / "others")}
    change = Background(server.api, "PUT", "/config/routes/0/action/basic_auth", other)
    time.sleep(0.5)
    began = time.monotonic()
    assert_others_are_served(server)
    assert time.monotonic() - began < 2, "the supervisor answers meanwhile"
    refused = change.result()
    assert refused.status == 400 or refused.status == 500, refused.text
    assert "cannot check the files of error_pages, user_file and body_temp_path within 4 s" in refused.text
    # A file that was active before prevents no change of others, although the router cannot read it.
    for method, path, body in (("POST", "/control/applications/app/restart", None), ("PUT", "/config/settings/http", {"idle_timeout": 10})):
        change = Background(server.api, method, path, body)
        assert change.result().status == 200, change.result().text
        assert change.seconds < 4
        assert_others_are_served(server)
    assert server.stderr.count("basic_auth/user_file: the file system has not answered") == 2
    hanging.resume()


def test_a_router_starts_while_files_of_its_configuration_hang(start, hanging: PausableFileSystem):
    (hanging.source / "404.html").write_text("missing")
    (hanging.source / "users").write_text("ann:$apr1$8sFt66rZ$CwW5jnBTcCMb9M9VZMRdm/\n")
    readable(hanging.source)
    basic_auth = {"realm": "x", "user_file": str(hanging.point / "users")}
    server = start(
        {"match": {"uri": "/private"}, "action": {"return": 200, "basic_auth": basic_auth}},
        {"match": {"uri": "/missing"}, "action": {"return": 404}},
        settings={"http": {"error_pages": {"404": str(hanging.point / "404.html")}}},
    )
    assert server.get("/missing").text == "missing"
    router = server.router()
    hanging.pause()
    router.kill(signal.SIGKILL)
    wait_for(lambda: not router.alive(), "its end")
    assert_others_are_served(server)
    assert "404 Not Found" in server.get("/missing").text
    server.wait_for_log_line("settings/http/error_pages: the file system has not answered", "howdah's own pages")
    server.wait_for_log_line("basic_auth/user_file: the file system has not answered")
    hanging.resume()
    assert server.get("/private", {"Authorization": "Basic YW5uOnBhc3N3b3Jk"}).status == 200


def stuck_application(kind: str, application: dict, folder, point: Path) -> dict:
    """An application that waits at its start for a file system that accepts each request and answers none: its process cannot be
    killed."""
    wait = f"file_exists('{point}/x');"
    match kind:
        case "preload":
            return {**application, "options": {"admin": {"opcache.preload": str(folder.php("preload.php", wait))}}}
        case "worker":
            folder.php("worker.php", f"{wait} while (howdah\\handle_request(fn () => print('never'))) {{ }}")
            return {**application, "processes": 1, "worker": {"script": "worker.php"}}
        case "http":
            return {"type": "http", "command": [PYTHON, "-c", f"import os; os.stat('{point}/x')"]}


@pytest.mark.parametrize("kind", ["preload", "worker", "http"])
def test_an_application_that_cannot_be_killed_stops_no_change(start, application, folder, kind):
    server = start()
    with silent_file_system(folder.scratch) as point:
        stuck = stuck_application(kind, application, folder, point)
        change = Background(server.api, "PUT", "/config/applications/stuck", stuck)
        assert_others_are_served(server)
        refused = change.result()
        assert refused.status == 500 and "has not exited" in refused.text, refused.text
        assert change.seconds < 15, "60 and 5 s, divided"
        assert server.api("PUT", "/config/settings/http", {"idle_timeout": 10}).status == 200
        assert server.api("POST", "/control/applications/app/restart").status == 200
        assert_others_are_served(server)


def test_a_stored_application_that_cannot_be_killed_does_not_prevent_the_start(run, application, folder, tmp_path):
    listeners = {"127.0.0.1:{port}": {"pass": "applications/app"}}
    options = ["--state-dir", str(tmp_path / "state"), "--control", f"unix:{tmp_path}/control"]
    with silent_file_system(folder.scratch) as point:
        stuck = stuck_application("http", application, folder, point)
        server = run({"applications": {"app": application, "stuck": stuck}, "listeners": listeners}, *options, time_divider=60)
        assert server.get("/").text == "here"
        server.control = tmp_path / "control"
        assert "has not exited" in server.api("GET", "/status/applications/stuck").json()["failure"]
        # One attempt leaves one process behind. There are few attempts.
        wait_for(lambda: '"stuck" is not started again' in server.stderr, "the last attempt", timeout=60)
        assert "has not exited" in server.api("GET", "/status/applications/stuck").json()["failure"]
        assert server.api("PUT", "/config/settings/http", {"idle_timeout": 10}).status == 200
        assert server.get("/").text == "here"


WRITER = """
import http.server, os, sys, threading, time

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

threading.Thread(target=http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever).start()
while True:
    print("x" * 4000, file=sys.stderr, flush=True)
    time.sleep(0.01)
"""


def test_a_log_of_an_application_that_hangs_does_not_stop_the_supervisor(hanging: PausableFileSystem, folder, run):
    script = folder.write("server.py", WRITER)
    log = hanging.point / "stderr.log"
    other = {"type": "http", "command": [PYTHON, str(script)], "address": "port", "stderr": str(log)}
    server = run({"applications": {"other": other}})
    written = hanging.source / "stderr.log"
    wait_for(lambda: written.stat().st_size > 0, "its output")
    hanging.pause()
    # Longer than the queue of the writer, which drops the rest, has room.
    for _ in range(20):
        with Connection(str(server.control), timeout=5) as connection:
            assert connection.request("GET", "/status", (), None).status == 200
        time.sleep(0.1)
    assert server.get("/").text == "ok"
    before = written.stat().st_size
    hanging.resume()
    wait_for(lambda: written.stat().st_size > before, "more output, once the file system answers")


@needs_root
def test_a_slow_log_on_a_slow_disk_stops_no_rotation_of_others(folder, run, application, tmp_path):
    folder.php("index.php", "echo 'here';")

    def writer(log: Path, content: Path) -> dict:
        """An application whose log is long already."""
        content.write_bytes(b"x" * (17 << 20))
        return {**application, "slow_log": {"threshold": 1, "path": str(log)}}

    # It takes hours to copy the log.
    with pausable_file_system(tmp_path, "slow", "allow_other,read-rate=1000") as slow:
        applications = {"app": writer(slow.point / "log", slow.source / "log")}
        server = run({"applications": applications})
        wait_for((slow.source / "log.1.new").exists, "the beginning of the copy")
        log = tmp_path / "log"
        assert server.api("PUT", "/config/applications/other", writer(log, log)).status == 200
        wait_for(lambda: log.stat().st_size == 0, "the rotation of the other log")
        assert (tmp_path / "log.1").stat().st_size == 17 << 20
        assert not (slow.source / "log.1").exists() and server.get("/").text == "here"


def test_a_slow_log_that_hangs_leaves_few_threads_that_read_it(run, application, hanging: PausableFileSystem):
    log = {"threshold": 1, "path": str(hanging.point / "slow.log")}
    server = run({"applications": {"app": {**application, "slow_log": log}}}, time_divider=DIVIDER)
    read = lambda: server.api("GET", "/status/applications/app/slow")
    assert read().status == 200
    hanging.pause()
    for _ in range(6):
        answer = read()
        assert answer.status == 503 and "its file system does not answer" in answer.text, answer
    threads = [name.read_text() for name in Path(f"/proc/{server.process.pid}/task").glob("*/comm")]
    assert threads.count("slow log\n") == 4, threads
    hanging.resume()
    wait_for(lambda: read().status == 200, "the log, once the file system answers")


def test_a_state_directory_that_is_slow_costs_no_router(application, socket_path, run, hanging):
    """A router has four seconds for a configuration, at this divider: the disk's time is not the router's."""
    options = ["--state-dir", f"{hanging.point}/state", "--control", f"unix:{socket_path}"]
    server = run({"applications": {"app": application}}, *options, time_divider=DIVIDER)
    server.control = socket_path
    router = server.router()
    hanging.pause()
    change = Background(server.api, "PUT", "/config/access_log", '"/dev/null"')
    time.sleep(6)
    assert not change.done()
    hanging.resume()
    assert change.result().status == 200
    assert server.get("/").text == "here"
    assert server.router() == router and "did not apply its configuration" not in server.stderr


def test_a_log_that_hangs_does_not_stop_the_supervisor(run, application, hanging: PausableFileSystem):
    log = hanging.point / "howdah.log"
    server = run({"applications": {"app": application}}, "--log", str(log))
    hanging.pause()
    for idle_timeout in range(10, 15):
        change = Background(server.api, "PUT", "/config/settings/http", {"idle_timeout": idle_timeout})
        assert change.result().status == 200 and change.seconds < 3
        assert server.get("/").text == "here"
    # It is opened again.
    server.process.send_signal(signal.SIGUSR1)
    for _ in range(5):
        assert server.api("GET", "/status").status == 200
        assert server.get("/").text == "here"
    hanging.resume()
    written = hanging.source / "howdah.log"
    wait_for(lambda: written.read_text().count("the configuration is active (PUT") == 5, "the lines, once the file system answers")
    assert f'the log "{log}" cannot be opened: no answer from its file system' in written.read_text()


def test_a_socket_of_a_listener_that_hangs_does_not_stop_the_supervisor(start, place_of_sockets: PausableFileSystem):
    hanging = place_of_sockets
    first, second = (f"unix:{hanging.point}/{name}" for name in ("first", "second"))
    server = start(listeners={"127.0.0.1:{port}": {"pass": "routes"}, first: {"pass": "routes"}})
    hanging.pause()
    refused = Background(server.api, "PUT", f"/config/listeners/{quote(second, safe='')}", {"pass": "routes"})
    assert refused.result().status == 500 and "no answer from its file system" in refused.result().text
    removed = Background(server.api, "DELETE", f"/config/listeners/{quote(first, safe='')}")
    assert removed.result().status == 200, removed.result().text
    assert refused.seconds < 4 and removed.seconds < 4
    assert_others_are_served(server)
    hanging.resume()
    wait_for(lambda: not list(hanging.source.iterdir()), "the removal of both, once the file system answers")


def test_a_pid_file_and_a_socket_that_hang_do_not_stop_the_end(run, application, place_of_sockets: PausableFileSystem):
    hanging = place_of_sockets
    socket = f"unix:{hanging.point}/socket"
    listeners = {"127.0.0.1:{port}": {"pass": "applications/app"}, socket: {"pass": "applications/app"}}
    server = run({"applications": {"app": application}, "listeners": listeners}, "--pid", str(hanging.point / "pid"))
    assert server.get("/").text == "here"
    hanging.pause()
    server.stop(timeout=8)
    hanging.resume()


def test_an_application_that_hangs_at_the_start_does_not_delay_the_others(run, application, hanging: PausableFileSystem, tmp_path):
    slow = {**application, "stderr": str(hanging.point / "stderr.log")}
    listeners = {"127.0.0.1:{port}": {"pass": "applications/app"}}
    config = {"applications": {"app": application, "slow": slow}, "listeners": listeners}
    options = ["--state-dir", str(tmp_path / "state"), "--control", f"unix:{tmp_path}/control"]
    # A stored configuration, as after a restart of the machine.
    run(config, *options).stop()
    hanging.pause()
    began = time.monotonic()
    server = run({**config, "listeners": {"127.0.0.1:{port}": listeners["127.0.0.1:{port}"]}}, *options, time_divider=5)
    assert time.monotonic() - began < 8, "plans of others have 12 s"
    server.control = tmp_path / "control"
    assert server.get("/").text == "here"
    change = Background(server.api, "PUT", "/config/settings/http", {"idle_timeout": 10})
    assert change.result().status == 200 and change.seconds < 8
    hanging.resume()
    wait_for(lambda: "failure" not in server.api("GET", "/status/applications/slow").json(), "its start")


LINKER = """
import contextlib, os, signal, socket

path, target = os.environ["HOWDAH_SOCKET"], os.environ["TARGET"]
if os.path.exists(os.environ["LINKS_AT_ITS_START"]):
    os.symlink(target, path)
    signal.pause()
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen(50)
while True:
    client, _ = listener.accept()
    # A check of the socket is closed at once.
    with client, contextlib.suppress(OSError):
        request = client.recv(1 << 16)
        if b"/swap" in request:
            os.unlink(path)
            os.symlink(target, path)
        body = os.path.dirname(path).encode() if b"/folder" in request else b"ok"
        client.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\nConnection: close\\r\\n\\r\\n%s" % (len(body), body))
"""


@pytest.fixture
def linker(folder, hanging: PausableFileSystem) -> dict:
    """An HTTP application that puts a link to a file system that hangs in the place of its socket: for a request for `/swap`,
    or at its start if the file exists that `LINKS_AT_ITS_START` names."""
    script = folder.write("linker.py", LINKER)
    environment = {"TARGET": str(hanging.point / "socket"), "LINKS_AT_ITS_START": str(folder.scratch / "links")}
    return {"type": "http", "command": [PYTHON, str(script)], "environment": environment, "connect_timeout": 1}


@pytest.mark.parametrize("options", [{}, {"health_check": {"path": "/", "interval": 0.1, "timeout": 1, "fails": 2}}], ids=["unchecked", "checked"])
def test_a_link_in_place_of_the_socket_of_an_application_stops_nothing(start, hanging: PausableFileSystem, linker, options):
    step = {"match": {"uri": ["/linker", "/swap"]}, "action": {"pass": "applications/linker"}}
    server = start(step, applications={"linker": {**linker, **options}})
    router = server.router()
    assert server.get("/linker").text == "ok"
    hanging.pause()
    assert server.get("/swap").text == "ok"
    refused = [Background(server.get, "/linker") for _ in range(4)]
    assert_others_are_served(server)
    # With checks, the process is started again, and has a socket.
    assert {request.result().status for request in refused} <= ({200, 502, 503} if options else {502})
    assert "it is a symbolic link, not a socket" in server.stderr
    assert_others_are_served(server)
    assert server.router() == router
    if options:
        wait_for(lambda: server.get("/linker").status == 200, "the next process")
    server.stop(timeout=8)


def test_a_process_that_links_at_its_start_stops_nothing(start, folder, hanging: PausableFileSystem, linker):
    server = start(applications={"linker": linker})
    hanging.pause()
    (folder.scratch / "links").touch()
    restart = Background(server.api, "POST", "/control/applications/linker/restart")
    time.sleep(0.5)
    assert_others_are_served(server)
    refused = restart.result()
    assert refused.status == 500 and "it is a symbolic link, not a socket" in refused.text
    assert_others_are_served(server)
    server.stop(timeout=8)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: mounts below /run")
def test_a_file_system_over_the_sockets_of_an_application_stops_nothing(start, linker):
    """The user of the application owns the folder, and may mount one there with fusermount3."""
    step = {"match": {"uri": ["/linker", "/folder"]}, "action": {"pass": "applications/linker"}}
    server = start(step, applications={"linker": linker})
    sockets = Path(server.get("/folder").text)
    with pausable_file_system(sockets.parent, sockets.name, "allow_other,nonempty,attr_timeout=0,entry_timeout=0") as over:
        over.pause()
        try:
            refused = Background(server.get, "/linker")
            assert_others_are_served(server)
            assert refused.result().status == 502
            server.wait_for_log_line("cannot forward a request", "a file system is mounted in its place")
            process, = [each for each in server.processes() if "linker.py" in Path(f"/proc/{each.pid}/cmdline").read_text()]
            process.kill(signal.SIGKILL)
            wait_for(lambda: not process.alive(), "its end")
            assert_others_are_served(server)
            server.stop(timeout=8)
            # The folder is left. The next howdah would remove it.
            next_one = start(step, applications={"linker": linker})
            assert_others_are_served(next_one)
            assert next_one.get("/linker").text == "ok"
        finally:
            over.resume()
            over.source.rmdir()
    # The howdah of another test may have removed it.
    with contextlib.suppress(FileNotFoundError):
        sockets.rmdir()


NO_ANSWER = "no answer from the file system of its socket"


def upstream(uri: str, name: str) -> dict:
    return {"match": {"uri": uri}, "action": {"pass": f"upstreams/{name}"}}


def test_a_unix_upstream_that_hangs_stops_no_other_requests(start, place_of_sockets: PausableFileSystem):
    hanging = place_of_sockets
    local, link = hanging.point.parent / "local", hanging.point.parent / "links" / "link"
    link.parent.mkdir()
    link.symlink_to(local)
    answer = answers(ok(b"up", b"Connection: close"))
    with Upstream(answer, f"unix:{hanging.point}/s"), Upstream(answer, f"unix:{local}"):
        upstreams = {
            "hanging": {"servers": {f"unix:{hanging.point}/s": {}}},
            "missing": {"servers": {f"unix:{hanging.point}/missing": {}}},
            "local": {"servers": {f"unix:{link}": {}}},
        }
        server = start(*(upstream(f"/{name}", name) for name in upstreams), upstreams=upstreams)
        router = server.router()
        assert server.get("/hanging").text == "up" and server.get("/missing").status == 502
        hanging.pause()
        requests = [Background(server.get, "/hanging") for _ in range(40)]
        assert_others_are_served(server)
        assert server.get("/local").text == "up"
        # Each thread of the path waits for one; the others get no thread.
        assert sorted(request.result().status for request in requests) == [503] * 24 + [504] * 16
        assert NO_ANSWER in server.stderr
        busy = Background(server.get, "/hanging")
        assert busy.result().status == 503 and busy.seconds < 1, "it fails at once"
        assert_others_are_served(server)
        hanging.resume()
        wait_for(lambda: server.get("/hanging").status == 200, "the server, once the file system answers")
        assert server.router() == router


def test_a_short_connect_timeout_limits_the_wait_for_the_file_system(start, place_of_sockets: PausableFileSystem):
    hanging = place_of_sockets
    upstreams = {"u": {"servers": {f"unix:{hanging.point}/s": {}}, "connect_timeout": 0.5}}
    server = start(upstream("/u", "u"), upstreams=upstreams)
    hanging.pause()
    request = Background(server.get, "/u")
    assert request.result().status == 504 and request.seconds < 1.5
    server.wait_for_log_line("cannot forward a request", NO_ANSWER, "status=504")


def test_a_health_check_that_hangs_stops_no_requests(start, place_of_sockets: PausableFileSystem):
    hanging = place_of_sockets
    check = {"path": "/", "interval": 0.1, "timeout": 0.5, "fails": 2, "passes": 1}
    with Upstream(answers(ok(b"up", b"Connection: close")), f"unix:{hanging.point}/s"):
        upstreams = {"u": {"servers": {f"unix:{hanging.point}/s": {}}, "health_check": check}}
        server = start(upstream("/u", "u"), upstreams=upstreams)
        wait_for(lambda: server.get("/u").status == 200, "the server")
        hanging.pause()
        for _ in range(5):
            assert_others_are_served(server)
            time.sleep(0.3)
        assert NO_ANSWER in server.stderr
        hanging.resume()
        wait_for(lambda: server.get("/u").status == 200, "the server, once the file system answers")


def test_a_unix_fastcgi_server_that_hangs_stops_no_other_requests(start, folder, place_of_sockets: PausableFileSystem):
    hanging = place_of_sockets
    fake = FakeServer(hanging.point / "s", lambda _: answer())
    folder.php("fastcgi.php", "")
    application = fastcgi_application(folder, fake.address, limits={"queue_timeout": 4}, keep_alive=0)
    step = {"match": {"uri": "/fastcgi.php"}, "action": {"pass": "applications/fastcgi"}}
    server = start(step, applications={"fastcgi": application})
    router = server.router()
    assert server.get("/fastcgi.php").text == "hello"
    hanging.pause()
    requests = [Background(server.get, "/fastcgi.php") for _ in range(4)]
    assert_others_are_served(server)
    assert {request.result().status for request in requests} == {503}
    server.wait_for_log_line("cannot connect to a FastCGI server", NO_ANSWER)
    # A file system that does not answer is no full backlog.
    time.sleep(5)
    assert "can be reached again" not in server.stderr
    assert_others_are_served(server)
    hanging.resume()
    assert server.get("/fastcgi.php").text == "hello"
    assert server.router() == router
    fake.close()
