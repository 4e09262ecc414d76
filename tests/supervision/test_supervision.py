"""The supervisor under faults: logs, routers that die, shutdowns during changes."""

import contextlib
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.background import Background
from support.folders import Folder
from support.http.client import Connection
from support.machine import free_port
from support.processes import each_new_child, frozen, open_files
from support.server import Howdah
from support.waiting import wait_for

OK = {"success": "Reconfiguration done."}
NO_CONTENT = [{"action": {"return": 204}}]


def routes(**more) -> dict:
    return {"listeners": {"127.0.0.1:{port}": {"pass": "routes"}}, "routes": NO_CONTENT, "applications": {}, **more}


def application(folder: Folder, **options) -> dict:
    return {"type": "php", "root": str(folder.root), "processes": 1, **options}


def booting(folder: Folder) -> dict:
    """An application whose preload waits until the file `go` is there."""
    folder.php("preload.php", "touch(SCRATCH . '/booting'); await(SCRATCH . '/go');")
    options = {"admin": {"opcache.preload": str(folder.root / "preload.php"), "opcache.preload_user": "www-data"}}
    return application(folder, options=options)


def queue(server: Howdah, method: str, path: str, body: object) -> Connection:
    """Sends a request to the control API that waits for another change."""
    connection = Connection(str(server.control))
    connection.send_request(method, path, body=json.dumps(body))
    # The request has arrived when a later one that does not wait has been answered.
    server.api("GET", "/config")
    return connection


def stored(server: Howdah) -> dict:
    return json.loads((server.directory / "state/conf.json").read_text())


# --- Logs


@pytest.mark.parametrize("option", ["access_log", "stdout", "stderr"])
def test_a_log_pipe_without_a_reader_is_rejected_without_blocking(folder, run, option):
    server = run(routes())
    pipe = folder.scratch / "pipe"
    os.mkfifo(pipe)
    if option == "access_log":
        answer = server.api("PUT", "/config/access_log", json.dumps(str(pipe)))
    else:
        answer = server.api("PUT", "/config/applications/app", application(folder, **{option: str(pipe)}))
    assert answer.status == 500 and "without a reader" in answer.json()["detail"], answer
    assert server.get("/").status == 204


def test_a_pipe_with_a_reader_is_a_log(folder, run):
    server = run(routes())
    pipe = folder.scratch / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert server.api("PUT", "/config/access_log", json.dumps(str(pipe))).json() == OK
        assert server.get("/logged").status == 204

        def line() -> bytes:
            try:
                return os.read(reader, 65536)
            except BlockingIOError:
                return b""

        assert b"/logged" in wait_for(line, "a line")
    finally:
        os.close(reader)


def test_a_new_router_keeps_an_open_log_whose_folder_is_gone(tmp_path, run):
    folder = tmp_path / "logs"
    folder.mkdir()
    server = run(routes(access_log=str(folder / "access.log")))
    log = os.open(folder / "access.log", os.O_RDONLY)
    try:
        (folder / "access.log").unlink()
        folder.rmdir()
        router = server.router()
        router.kill()
        assert server.get("/after").status == 204
        assert server.router() != router
        wait_for(lambda: b"/after" in os.pread(log, 65536, 0), "its line")
        assert server.api("PUT", "/config/routes", [{"action": {"return": 205}}]).json() == OK
        assert server.get("/").status == 205
        assert server.api("DELETE", "/config/access_log").json() == OK
        assert server.get("/").status == 205
    finally:
        os.close(log)


# --- Changes and shutdown


def test_a_shutdown_during_a_switch_keeps_the_new_configuration(folder, run):
    folder.php("slow.php", "touch(SCRATCH . '/started'); await(SCRATCH . '/go'); echo 'done';")
    server = run({"applications": {"app": application(folder)}})
    with ThreadPoolExecutor(3) as pool:
        before = pool.submit(server.get, "/slow.php")
        wait_for((folder.scratch / "started").exists)
        with frozen(server.router()):
            change = pool.submit(
                server.api, "PUT", "/config/applications/app", application(folder, environment={"X": "new"})
            )
            wait_for(lambda: stored(server)["applications"]["app"].get("environment"), "the switch")
            with queue(server, "PUT", "/config/applications/app/environment", {"X": "queued"}) as queued:
                server.send_signal(signal.SIGTERM)
                assert queued.response("PUT").status == 503
        (folder.scratch / "go").touch()
        assert change.result().json() == OK
        assert before.result().text == "done"
    assert server.exit_code() == 0
    assert stored(server)["applications"]["app"]["environment"] == {"X": "new"}
    assert "SIGKILL" not in server.stderr and "signal 9" not in server.stderr


def test_queued_changes_are_rejected_at_shutdown(folder, run):
    server = run(routes())
    app = booting(folder)
    with ThreadPoolExecutor(1) as pool, contextlib.ExitStack() as connections:
        first = pool.submit(server.api, "PUT", "/config/applications/app", app)
        wait_for((folder.scratch / "booting").exists)
        waiting = [connections.enter_context(queue(server, "PUT", "/config/routes", NO_CONTENT)) for _ in range(3)]
        server.send_signal(signal.SIGTERM)
        assert first.result().status == 500
        assert {connection.response("PUT").status for connection in waiting} == {503}
    assert server.exit_code() == 0


def test_a_long_queue_of_failing_changes_is_answered(folder, run):
    server = run(routes())
    app = booting(folder)
    wrong = {"type": "php", "root": "/no/such/folder"}
    answers = []
    with ThreadPoolExecutor(1) as first:
        booted = first.submit(server.api, "PUT", "/config/applications/app", app)
        wait_for((folder.scratch / "booting").exists)
        with ThreadPoolExecutor(300) as pool:
            waiting = [pool.submit(server.api, "PUT", "/config/applications/wrong", wrong) for _ in range(300)]
            wait_for(lambda: sum(answer.done() for answer in waiting) >= 300 - 128, "the queue to be full")
            (folder.scratch / "go").touch()
            answers = [answer.result().status for answer in waiting]
        assert booted.result().status == 200
    assert answers.count(503) == 300 - 128 and answers.count(500) == 128
    assert server.get("/").status == 204


def test_a_router_that_dies_during_a_change_loses_no_new_sockets(folder, run):
    server = run(routes())
    old, port = server.router(), free_port()
    config = {**server.api("GET", "/config").json(), "applications": {"app": booting(folder)}}
    config["listeners"][f"127.0.0.1:{port}"] = {"pass": "routes"}
    with ThreadPoolExecutor(1) as pool:
        change = pool.submit(server.api, "PUT", "/config", config)
        wait_for((folder.scratch / "booting").exists)
        old.kill()
        assert server.get("/").status == 204, "another router serves"
        (folder.scratch / "go").touch()
        assert change.result().json() == OK
    with Connection(("127.0.0.1", port)) as client:
        assert client.request("GET", "/").status == 204


def test_a_configuration_that_kills_routers_is_rolled_back(folder, run):
    folder.php("who.php", "echo getenv('X') ?: 'old', ' ', getmypid();")
    # A router needs some time to read these, so that it is killed in time.
    listeners = {"127.0.0.1:{port}": {"pass": "applications/app"}}
    long = [{"match": {"uri": f"/{number}/*"}, **NO_CONTENT[0]} for number in range(10_000)]
    server = run({"listeners": listeners, "routes": long, "applications": {"app": application(folder)}})
    old = server.get("/who.php").text
    with frozen(server.router()):
        change = Background(server.api, "PUT", "/config/applications/app/environment", {"X": "new"})
        wait_for(lambda: stored(server)["applications"]["app"].get("environment"), "the switch")
        with each_new_child(server.pid, "howdah: router", signal.SIGKILL):
            answer = change.result()
    assert answer.status == 500 and "the router exited 3 times" in answer.json()["detail"], answer
    assert "environment" not in stored(server)["applications"]["app"]
    assert server.get("/who.php").text == old, "its processes were kept"
    assert server.api("PUT", "/config/applications/app/environment", {"X": "new"}).json() == OK
    assert server.get("/who.php").text.startswith("new")


def test_draining_workers_are_shown_until_they_exit(folder, run):
    folder.php("endless.php", "ignore_user_abort(true); touch(SCRATCH . '/runs'); await(SCRATCH . '/go');")
    server = run({"applications": {"app": application(folder)}})
    with server.connect() as connection:
        connection.send_request("GET", "/endless.php")
        wait_for((folder.scratch / "runs").exists)
    assert server.api("GET", "/status/draining").json() == {}
    assert server.api("GET", "/control/applications/app/restart").status == 200
    expected = {"app": {"generations": 1, "processes": 1}}
    wait_for(lambda: server.api("GET", "/status/draining").json() == expected)
    (folder.scratch / "go").touch()
    wait_for(lambda: server.api("GET", "/status/draining").json() == {})


# --- Boot


def test_ports_open_after_the_applications_booted_and_the_api_answers(folder):
    config = {**routes(), "applications": {"app": booting(folder)}}
    started = lambda server: (folder.scratch / "booting").exists()  # noqa: E731
    with Howdah.run(config, ready=started) as server:
        with pytest.raises(ConnectionRefusedError):
            server.get("/")
        assert "app" in server.api("GET", "/config/applications").json()
        assert server.api("GET", "/status/applications/app/processes").json()["running"] == 0
        assert server.api("PUT", "/config/routes", NO_CONTENT).status == 503
        (folder.scratch / "go").touch()
        wait_for(lambda: "http://" in server.stdout, "the first lines")
        assert server.get("/").status == 204


def test_a_new_listener_listens_when_its_application_has_booted(folder, run):
    server = run(routes())
    port = free_port()
    config = {
        "listeners": {f"127.0.0.1:{server.port}": {"pass": "routes"}, f"127.0.0.1:{port}": {"pass": "routes"}},
        "routes": NO_CONTENT,
        "applications": {"app": booting(folder)},
    }
    with ThreadPoolExecutor(1) as pool:
        change = pool.submit(server.api, "PUT", "/config", config)
        wait_for((folder.scratch / "booting").exists)
        old, server.port = server.port, port
        with pytest.raises(ConnectionRefusedError):
            server.get("/")
        (folder.scratch / "go").touch()
        assert change.result().json() == OK
    assert server.get("/").status == 204
    server.port = old
    assert server.get("/").status == 204


# --- Messages to children, and inherited descriptors


def test_settings_of_any_length_reach_php(folder, run):
    folder.php("length.php", "echo strlen(ini_get('error_prepend_string')), ' ', strlen(getenv('LONG'));")
    server = run(routes())
    options = {"admin": {"error_prepend_string": "x" * 70_000}}
    app = application(folder, options=options, environment={"LONG": "y" * 100_000})
    assert server.api("PUT", "/config/applications/app", app).json() == OK
    assert server.api("PUT", "/config/routes", [{"action": {"pass": "applications/app"}}]).json() == OK
    assert server.get("/length.php").text == "70000 100000"


def test_names_of_any_length_reach_the_router(folder, run):
    folder.php("hello.php", "echo 'hello';")
    server = run(routes())
    name = "a" * 70_000
    config = {
        "listeners": {f"127.0.0.1:{server.port}": {"pass": f"applications/{name}"}},
        "applications": {name: application(folder)},
    }
    assert server.api("PUT", "/config", config).json() == OK
    assert server.get("/hello.php").text == "hello"


def test_descriptors_of_the_parent_are_not_inherited(folder, tmp_path):
    folder.php("open.php", "foreach (glob('/proc/self/fd/*') as $fd) echo @readlink($fd), \"\\n\";")
    secret = tmp_path / "secret"
    secret.write_text("secret")
    prefix = ["sh", "-c", f'exec 9<{secret}; exec "$@"', "sh"]
    with Howdah.serve(folder, processes=1, prefix=prefix) as server:
        seen = server.get("/open.php").text
        assert "secret" not in seen and seen, seen
        for process in server.processes():
            if process.pid != server.pid:
                assert str(secret) not in open_files(process.pid).values()


def test_an_unread_standard_error_pipe_blocks_no_change(folder):
    code = "for ($i = 0; $i < 270; $i++) fwrite(fopen('php://stderr', 'w'), str_repeat('x', 999) . \"\\n\");"
    folder.php("preload.php", code)
    options = {"admin": {"opcache.preload": str(folder.root / "preload.php"), "opcache.preload_user": "www-data"}}
    pipe = folder.scratch / "pipe"
    os.mkfifo(pipe)
    # Open at both ends, and never read.
    descriptor = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        prefix = ["sh", "-c", f'exec 2>{pipe}; exec "$@"', "sh"]
        with Howdah.run(routes(), prefix=prefix) as server:
            answer = server.api("PUT", "/config/applications/app", application(folder, options=options))
            assert answer.json() == OK
            assert server.api("GET", "/status").status == 200
    finally:
        os.close(descriptor)


def test_a_second_start_keeps_the_pid_file_of_the_first(tmp_path):
    pid_file = tmp_path / "howdah.pid"
    with Howdah.run(routes(), "--pid", str(pid_file)) as server:
        with pytest.raises(AssertionError, match="another howdah that is running"):
            Howdah.run(routes(), "--pid", str(pid_file))
        assert pid_file.read_text() == f"{server.pid}\n"
    assert not pid_file.exists()


def test_an_application_without_opcache_logs_a_warning(folder, run):
    server = run(routes())
    assert server.api("PUT", "/config/applications/app", application(folder)).json() == OK
    assert "without opcache" not in server.stderr
    app = application(folder, options={"admin": {"opcache.enable": "0"}})
    assert server.api("PUT", "/config/applications/app", app).json() == OK
    wait_for(lambda: "without opcache" in server.stderr, "the warning")
