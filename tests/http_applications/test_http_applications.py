"""Applications of the type `http`: how their processes start, get requests, and are replaced."""

import contextlib
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.http.client import ClosedWithoutResponse
from support.http.load import Load
from support.http.upstream import Upstream, answers, ok
from support.http_applications import (
    assert_changes_lose_no_request,
    change,
    configuration,
    http_application,
    is_gone,
    pids,
    wait_until_gone,
)
from support.processes import Process, children
from support.waiting import wait_for

CHECK = {"path": "/health", "interval": 0.1, "timeout": 2, "fails": 2}
WEBSOCKET = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "x", "Sec-WebSocket-Version": "13"}


# --- Start


@pytest.mark.parametrize(
    "options", [{"address": "unix"}, {"address": "port"}, {"address": "listen_fds", "health_check": CHECK}], ids=str
)
def test_a_process_listens_where_howdah_wants_it(run, folder, options):
    server = run(configuration(http_application(folder, **options)))
    page = server.get("/").json()
    assert page["cwd"] == str(folder.root) and page["version"] == "1" and page["home"] is False
    if options["address"] == "port":
        assert page["address"] == f"127.0.0.1:{page['port']}"
    else:
        assert page["address"].startswith("unix:/") and page["port"] is False
    if os.geteuid() == 0:
        assert page["uid"] != 0
    assert pids(server) == [page["pid"]]
    status = server.api("GET", "/status/applications/app").json()
    assert status["processes"] == {"running": 1, "starting": 0, "idle": 1}


def test_php_s_is_an_application(run, folder):
    folder.write("index.php", "<?php echo 'page ', getenv('PORT') === $_SERVER['SERVER_PORT'] ? 'yes' : 'no';")
    command = ["php", "-S", "127.0.0.1:$PORT", "-t", str(folder.root)]
    server = run(configuration({"type": "http", "command": command, "address": "port"}))
    assert server.get("/").text == "page yes"
    assert server.post("/", b"x" * 100_000).text == "page yes"


def test_processes_share_the_requests(run, folder):
    server = run(configuration(http_application(folder, processes=3)))
    assert len(pids(server)) == 3
    end = folder.scratch / "end"
    started = [folder.scratch / f"started-{number}" for number in range(3)]
    with ThreadPoolExecutor() as pool:
        # A process handles one request at a time: if two of them had the same one, the second would not start.
        waiting = [pool.submit(server.get, f"/wait?started={file}&for={end}") for file in started]
        wait_for(lambda: all(file.exists() for file in started), "three requests")
        end.touch()
        assert len({request.result().text for request in waiting}) == 3


def test_a_websocket_passes_through(run, folder):
    server = run(configuration(http_application(folder)))
    with server.connect() as connection:
        connection.send_request("GET", "/chat", WEBSOCKET)
        response, _ = connection.stream()
        assert response.status == 101
        connection.send(b"hello")
        assert connection._exactly(5) == b"HELLO"


@pytest.mark.parametrize(
    "environment, options, expected",
    [
        ({"BOOT_FAILS": "1"}, {}, ["its process 1 exited with code 78 before it was ready at unix:/", "no database\nat boot"]),
        ({"NEVER_LISTENS": "1"}, {}, ["its process 1 was not ready within", "it does not accept a connection at unix:/"]),
        ({"UNHEALTHY": "/"}, {"health_check": CHECK}, ["was not ready within", "GET /health: it answered 503"]),
        ({}, {"command": "no-such-program"}, ['code 127', 'cannot start "no-such-program": there is no such program']),
    ],
    ids=["exit", "silence", "health", "program"],
)
def test_a_process_that_does_not_boot_is_the_answer_to_the_change(run, folder, environment, options, expected):
    server = run(configuration(http_application(folder)), time_divider=10)
    before = pids(server)
    application = http_application(folder, environment, **options)
    response = server.api("PUT", "/config/applications/app", application)
    assert response.status == 500, response.text
    for text in expected:
        assert text in response.json()["detail"], response.text
    assert server.get("/").status == 200 and pids(server) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: two users")
def test_a_link_to_the_socket_of_another_user_is_not_followed(run, folder, socket_path):
    server = run(configuration(http_application(folder)), time_divider=10)
    with Upstream(answers(ok(b"secret")), f"unix:{socket_path}"):
        socket_path.chmod(0o777)
        command = ["sh", "-c", f"ln -s {socket_path} $HOWDAH_SOCKET; exec sleep 1000"]
        response = server.api("PUT", "/config/applications/app", {"type": "http", "command": command})
    assert "it is a symbolic link, not a socket" in response.json()["detail"], response.text


def test_an_unknown_folder_and_user_are_named(run, folder):
    server = run(configuration(http_application(folder)))
    for option, value in [("working_directory", "/nowhere"), ("user", "no-such-user")]:
        response = server.api("PUT", f"/config/applications/app/{option}", json.dumps(value))
        assert f"applications/app/{option}: " in response.json()["detail"], response.text


# --- Changes


def test_changes_and_restarts_under_load_lose_no_request(run, folder):
    assert_changes_lose_no_request(run(configuration(http_application(folder, processes=2))), "/slow?ms=20")


def test_a_request_in_progress_is_finished_by_the_old_process(run, folder):
    server = run(configuration(http_application(folder)))
    [old] = pids(server)
    started, end = folder.scratch / "started", folder.scratch / "end"
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(server.get, f"/wait?started={started}&for={end}")
        wait_for(started.exists, "the request")
        assert change(server, {"VERSION": "2"}).status == 200
        assert server.get("/").json()["version"] == "2" and not is_gone(old)
        end.touch()
        assert waiting.result().text == f"1 {old}"
    wait_until_gone(old)


def test_old_processes_have_a_limited_time_for_their_responses(run, folder):
    server = run(configuration(http_application(folder, drain_timeout=0.5)))
    [old] = pids(server)
    started = folder.scratch / "started"
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(server.post, f"/wait?started={started}&for=/nowhere", b"")
        wait_for(started.exists, "the request")
        assert change(server, {"VERSION": "2"}).status == 200
        assert server.get("/").json()["version"] == "2"
        wait_until_gone(old)
        assert waiting.result().status == 502
    server.wait_for_log_line('old processes of "app" still send responses after "drain_timeout"; stopping them')
    assert server.get("/").json()["version"] == "2" and len(pids(server)) == 1


def test_processes_without_a_request_do_not_wait_for_drain_timeout(run, folder):
    server = run(configuration(http_application(folder, drain_timeout=600)))
    [old] = pids(server)
    assert change(server, {"VERSION": "2"}).status == 200
    wait_until_gone(old)
    assert "drain_timeout" not in server.stderr


def test_a_websocket_does_not_keep_an_old_process(run, folder):
    server = run(configuration(http_application(folder)))
    [old] = pids(server)
    with server.connect() as connection:
        connection.send_request("GET", "/chat", WEBSOCKET)
        assert connection.stream()[0].status == 101
        assert change(server, {"VERSION": "2"}).status == 200
        wait_until_gone(old)
        assert connection.rest() == b""


def test_a_process_that_ignores_sigterm_is_killed(run, folder):
    application = http_application(folder, {"IGNORES_SIGTERM": "1"}, stop_timeout=0.5)
    server = run(configuration(application))
    [old] = pids(server)
    assert change(server, {"VERSION": "2"}).status == 200
    wait_until_gone(old)
    server.wait_for_log_line("did not exit within 0.5 s after SIGTERM; killing it", str(old))


# --- Deaths


def test_a_process_that_dies_costs_its_request_and_is_replaced(run, folder):
    server = run(configuration(http_application(folder)))
    [before] = pids(server)
    response = server.post("/die", b"")
    assert response.status == 502
    # The next request waits for the next process.
    assert server.get("/").json()["pid"] != before
    server.wait_for_log_line('process 1 of "app"', f"pid {before}", "SIGKILL", "starting another one in 0 ms")
    server.wait_for_log_line("cannot forward a request", "502", 'application="app"')


def test_an_idempotent_request_is_sent_to_another_process(run, folder):
    server = run(configuration(http_application(folder, processes=2)))
    before = pids(server)
    # Both processes die of it, and no other one.
    assert server.get("/die").status == 502
    wait_for(lambda: len(pids(server)) == 2 and not set(pids(server)) & set(before), "two new processes")


@pytest.mark.parametrize("death", [signal.SIGTERM, signal.SIGKILL])
def test_deaths_cost_no_other_request(run, folder, death):
    server = run(configuration(http_application(folder, processes=2)))

    def check(client, _):
        response = client.get("/")
        return response.status != 200 and response.status

    with Load(server, check, clients=2) as load:
        for _ in range(3):
            victims = wait_for(lambda: len(pids(server)) == 2 and pids(server), "two processes")
            os.kill(victims[0], death)
            wait_until_gone(victims[0])
    # A request that the process had is sent to the other process.
    load.assert_flawless()


def test_a_process_that_hangs_is_replaced(run, folder):
    marker = folder.scratch / "unhealthy"
    application = http_application(folder, {"UNHEALTHY": str(marker)}, health_check=CHECK, stop_timeout=1)
    server = run(configuration(application))
    [before] = pids(server)
    os.kill(before, signal.SIGSTOP)
    server.wait_for_log_line("failed 2 health checks (no response within 2 s); replacing it", f"pid {before}")
    wait_until_gone(before)
    [second] = wait_for(lambda: pids(server), "another process")
    marker.touch()
    server.wait_for_log_line("failed 2 health checks (GET /health: it answered 503)", f"pid {second}")
    marker.unlink()
    assert server.get("/").json()["pid"] not in (before, second)


def test_children_of_a_dead_process_are_killed(run, folder):
    server = run(configuration(http_application(folder)))
    [pid] = pids(server)
    child = int(server.get("/child").text)
    assert children(pid) == [child]
    Process.of(pid).kill()
    wait_until_gone(child)
    assert server.get("/").status == 200


def test_a_process_that_left_the_group_gets_no_requests(run, folder):
    server = run(configuration(http_application(folder, address="port")))
    [before] = pids(server)
    port = server.get("/").json()["port"]
    escaped = int(server.get("/escape").text)
    Process.of(before).kill()
    # It still has the port, and a connection to it would be accepted: the next process gets another port.
    server.wait_for_log_line(f"another program uses port {port}, which process 1 of", "it gets port")
    page = server.get("/").json()
    assert page["pid"] not in (before, escaped) and page["port"] != port
    Process.of(escaped).kill()


# --- Output


def test_output_goes_to_the_log_of_the_application(run, folder):
    log = folder.scratch / "app.log"
    server = run(configuration(http_application(folder, stderr=str(log))))
    assert server.get("/flood?lines=100").text == "flooded"
    wait_for(lambda: "the last line" in log.read_text(), "the log")
    assert log.read_text().count("x" * 99) == 100
    assert "xxx" not in server.stderr


def test_a_process_that_floods_its_log_disturbs_no_other(run, folder):
    flooding = http_application(folder)
    config = {
        "applications": {"app": flooding, "other": flooding},
        "listeners": {"127.0.0.1:{port}": {"pass": "routes"}},
        "routes": [
            {"match": {"uri": "/flood"}, "action": {"pass": "applications/app"}},
            {"action": {"pass": "applications/other"}},
        ],
    }
    server = run(config)
    with ThreadPoolExecutor() as pool:
        flood = pool.submit(server.get, "/flood?lines=50000")
        while not flood.done():
            assert server.get("/").status == 200
            assert server.api("GET", "/status").status == 200
        assert flood.result().text == "flooded"
    server.wait_for_log_line("the last line")


# --- The other processes


def test_a_router_that_is_killed_knows_the_processes_again(run, folder):
    server = run(configuration(http_application(folder, processes=2)))
    before = pids(server)
    router = server.router()
    router.kill()
    wait_for(lambda: server.router() not in (None, router), "another router")

    def answer():
        with contextlib.suppress(ClosedWithoutResponse, OSError):
            return server.get("/")

    assert wait_for(answer, "an answer").json()["pid"] in before
    assert pids(server) == before


def test_a_stop_leaves_no_process(run, folder):
    server = run(configuration(http_application(folder, processes=2)))
    before = pids(server)
    child = int(server.get("/child").text)
    socket = Path(server.get("/").json()["address"].removeprefix("unix:"))
    server.stop()
    assert all(map(is_gone, [*before, child])) and not socket.parent.exists()


def test_a_supervisor_that_is_killed_takes_the_processes_with_it(run, folder):
    server = run(configuration(http_application(folder, processes=2)))
    before = pids(server)
    socket = Path(server.get("/").json()["address"].removeprefix("unix:"))
    server.send_signal(signal.SIGKILL)
    server.exit_code()
    wait_until_gone(*before)
    # Another test's howdah may have removed the folder already.
    other = run(configuration(http_application(folder)))
    assert not socket.parent.exists()
    third = run(configuration(http_application(folder)))
    assert third.get("/").status == 200
    # The folder of a howdah that runs stays.
    assert other.get("/").status == 200
