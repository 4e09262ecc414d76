"""Signals to the supervisor, and shutdowns."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.http.client import ProtocolError
from support.http.held_request import HeldRequest
from support.server import Howdah
from support.waiting import wait_for


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
    """A request on a new connection is answered, unless its connection was refused or closed before."""
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


def test_every_log_is_reopened(folder, run, tmp_path):
    """howdah's own log with lines of each process, and the log of an application."""
    folder.php("index.php", "header('A name: x'); error_log('of PHP ' . $_SERVER['QUERY_STRING']); echo 'ok';")
    application = {"type": "php", "root": str(folder.root), "index": "index.php", "processes": 1, "reload": "never"}
    own = tmp_path / "own.log"
    log = tmp_path / "howdah.log"
    config = {
        "listeners": {"127.0.0.1:{port}": {"pass": "routes"}},
        "routes": [
            {"match": {"query": "own*"}, "action": {"pass": "applications/own"}},
            {"action": {"pass": "applications/shared"}},
        ],
        "applications": {"shared": application, "own": {**application, "stderr": str(own)}},
    }
    server = run(config, "--log", str(log))
    assert server.get("/?shared-1").text == "ok" and server.get("/?own-1").text == "ok"
    wait_for(lambda: "of PHP shared-1" in log.read_text() and "of PHP own-1" in own.read_text(), "the first lines")
    renamed = log.rename(tmp_path / "howdah.log.1"), own.rename(tmp_path / "own.log.1")
    server.send_signal(signal.SIGUSR1)
    wait_for(lambda: log.exists() and log.read_text().count("because its logs are opened again") == 2, "the reloads")
    before = [path.read_text() for path in renamed]
    assert server.get("/?shared-2").text == "ok" and server.get("/?own-2").text == "ok"
    wait_for(lambda: "of PHP shared-2" in log.read_text() and "of PHP own-2" in own.read_text(), "the new lines")
    # The router's lines, and not only PHP's.
    for path in (log, own):
        wait_for(lambda: path.read_text().count("a header that HTTP does not allow") == 1, f"the router's line in {path}")
    assert [path.read_text() for path in renamed] == before


def test_other_signals_have_no_effect(scripts, serve):
    server = serve(processes=1)
    before = {process.pid for process in server.processes()}
    for number in (signal.SIGHUP, signal.SIGUSR2, signal.SIGWINCH, signal.SIGPIPE):
        server.send_signal(number)
        assert server.get("/pid.php").status == 200
    assert server.process.poll() is None
    assert {process.pid for process in server.processes()} == before
