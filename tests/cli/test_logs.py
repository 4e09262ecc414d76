"""Logs without a reader: full pipes block no request, and a shutdown loses no line."""

import os
import re
import signal

import pytest

from support.pipes import Fifo
from support.server import Howdah
from support.waiting import wait_for


@pytest.fixture
def fifo(folder) -> Fifo:
    folder.write("hello.txt", "hello")
    fifo = Fifo(folder.scratch / "log")
    yield fifo
    fifo.close()


def answers(server: Howdah) -> bool:
    try:
        server.connect().close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("place", ["a pipe", "standard output"])
def test_an_unread_access_log_pipe_blocks_no_request(folder, fifo, serve, place):
    if place == "a pipe":
        server = serve("--access-log", str(fifo.path), processes=1)
    else:
        server = serve(prefix=["sh", "-c", 'exec "$@" >"$0"', str(fifo.path)], ready=answers, processes=1)
    requests = 500
    with server.connect() as connection:
        for n in range(requests):
            assert connection.request("GET", f"/hello.txt?{n}-{'x' * 6000}").status == 200
    fifo.read()
    wait_for(lambda: "was not read in time" in server.stderr, "the lost lines to be logged")
    assert server.get("/hello.txt?after").status == 200
    wait_for(lambda: re.search(r"/hello\.txt\?after.*\n", fifo.text), "the log to go on")

    def counts():
        logged = [line for line in fifo.text.splitlines() if "/hello.txt" in line]
        return logged, sum(map(int, re.findall(r"the access log was not read in time.* lines=(\d+)", server.stderr)))

    # The lines that are lost last may be counted later.
    wait_for(lambda: len(counts()[0]) + counts()[1] == requests + 1, "each line to be logged or counted")
    logged, lost = counts()
    assert lost > 0 and all(line.endswith('"-" "-"') for line in logged)


def test_a_shutdown_flushes_the_access_log(fifo, serve):
    server = serve("--access-log", str(fifo.path), processes=1)
    for n in range(100):
        assert server.get(f"/hello.txt?{n}-{'x' * 6000}").status == 200
    server.send_signal(signal.SIGTERM)
    fifo.read()
    server.exit_code()
    wait_for(lambda: fifo.text.count("/hello.txt") == 100, "all lines")


def test_a_shutdown_does_not_wait_indefinitely_for_the_access_log(fifo, serve):
    server = serve("--access-log", str(fifo.path), processes=1)
    fifo.fill()
    assert server.get("/hello.txt").status == 200
    server.stop(timeout=10)


def test_an_unread_standard_error_pipe_blocks_no_request(folder, fifo, serve):
    folder.php("bad-header.php", "header('A name: with a space'); echo 'hello';")
    server = serve(prefix=["sh", "-c", 'exec "$@" 2>"$0"', str(fifo.path)], processes=1)
    assert server.get("/bad-header.php").text == "hello"
    fifo.fill()
    for _ in range(100):
        assert server.get("/bad-header.php").text == "hello"
    fifo.read()
    # 20 lines of one kind are written in ten seconds, and then the number of the others.
    wait_for(lambda: "similar lines about app were suppressed" in fifo.text, "the number of the others")
    assert fifo.text.count("a header that HTTP does not allow") >= 20


@pytest.mark.parametrize("path", ["/dev/stderr", "/proc/self/fd/2"])
def test_standard_error_is_opened_by_its_path_even_if_it_is_a_pipe(folder, anonymous_pipe, path):
    """As in configurations for Docker."""
    folder.php("log.php", "error_log('a line of PHP'); echo 'logged';")
    config = {
        "access_log": path,
        "applications": {"app": {"type": "php", "root": str(folder.root), "processes": 1, "stderr": path, "stdout": path}},
    }
    anonymous_pipe.read()
    redirected = ["sh", "-c", 'exec "$@" 2>"$0"', str(anonymous_pipe.path)]
    with Howdah.run(config, "--log", path, prefix=redirected) as server:
        for turn in (1, 2):
            assert server.get(f"/log.php?{turn}").text == "logged"
            wait_for(lambda: f"/log.php?{turn} HTTP" in anonymous_pipe.text, "the line of the access log")
            wait_for(lambda: anonymous_pipe.text.count("a line of PHP") == turn, "PHP's line")
            if turn == 1:
                server.send_signal(signal.SIGUSR1)
                wait_for(lambda: "because its logs are opened again" in anonymous_pipe.text, "howdah's line")
        assert "cannot" not in anonymous_pipe.text


# --- Clients that disconnect early


def test_a_client_that_disconnected_early_is_logged_as_499(folder, tmp_path):
    folder.php("wait.php", "touch(SCRATCH . '/began'); await(SCRATCH . '/go'); echo 'late';")
    log = tmp_path / "access.log"
    config = {
        "access_log": {"path": str(log), "format": "$request_line $status $body_bytes_sent"},
        "applications": {"app": {"type": "php", "root": str(folder.root), "processes": 1}},
    }
    with Howdah.run(config) as server:
        with server.connect() as running:
            running.send_request("GET", "/wait.php?runs")
            wait_for((folder.scratch / "began").exists, "it runs")
            with server.connect() as queued:
                queued.send_request("GET", "/wait.php?waits")
                wait_for(lambda: server.api("GET", "/status/applications/app/requests/waiting").json() == 1, "it waits")
            wait_for(lambda: "GET /wait.php?waits HTTP/1.1 499 0" in log.read_text(), "the line")
            assert server.api("GET", "/status/applications/app/requests/waiting").json() == 0, "no request is left"
        wait_for(lambda: "GET /wait.php?runs HTTP/1.1 499 0" in log.read_text(), "the line")
        (folder.scratch / "go").touch()
        assert server.get("/wait.php?stays").text == "late"
        wait_for(lambda: log.read_text().count("\n") == 3, "one line each")
