"""Scripts and clients that try to fill the log."""

import base64
import contextlib
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from support.dashboard import Dashboard
from support.fastcgi import STDERR, FakeServer, answer, fastcgi_application, record
from support.http.client import ProtocolError
from support.http.tls import Authority, Client, put
from support.http_applications import configuration, http_application, pids
from support.machine import free_port
from support.waiting import wait_for

BAD = "for ($n = 0; $n < 900; $n++) { header(\"Bad Name $n: value\"); } echo 'body';"
# The lines of one kind that are written in ten seconds, and some others.
MOST = 40


@pytest.fixture
def server(folder, application, run):
    folder.php("bad.php", BAD)
    folder.php("status.php", "http_response_code(101); echo 'x';")
    routes = [
        {"match": {"uri": "/proxy*"}, "action": {"proxy": f"http://127.0.0.1:{free_port()}"}},
        {"action": {"pass": "applications/app"}},
    ]
    return run({"applications": {"app": application}, "routes": routes})


def lines(server) -> list[str]:
    return server.stderr.splitlines()


def test_a_response_has_one_line_about_its_wrong_headers(server):
    assert server.get("/bad.php").text == "body"
    found = wait_for(lambda: [line for line in lines(server) if "HTTP does not allow" in line], "the line")
    assert len(found) == 1 and "Bad Name 0" in found[0] and "900" in found[0], found


@pytest.mark.parametrize("target, expected", [("/bad.php", 200), ("/status.php", 502), ("/proxy", 502)])
def test_many_requests_write_few_lines(server, target, expected):
    began = time.monotonic()
    with server.connect() as connection:
        for _ in range(300):
            assert connection.request("GET", target).status == expected
    # A slow machine needs several windows.
    windows = 1 + int((time.monotonic() - began) / 10)
    assert len(lines(server)) < MOST * windows, server.stderr[-2000:]
    summary = wait_for(lambda: [line for line in lines(server) if "similar lines" in line], "the number of the others")
    assert "were suppressed" in summary[0]


def test_the_lines_of_another_application_are_written(folder, run):
    folder.php("bad.php", BAD)
    app = {"type": "php", "root": str(folder.root), "processes": 1}
    routes = [
        {"match": {"uri": "/other/*"}, "action": {"pass": "applications/other", "rewrite": "/bad.php"}},
        {"action": {"pass": "applications/app"}},
    ]
    server = run({"applications": {"app": app, "other": app}, "routes": routes})
    with server.connect() as connection:
        for _ in range(100):
            assert connection.request("GET", "/bad.php").status == 200
        assert connection.request("GET", "/other/").status == 200
    server.wait_for_log_line("HTTP does not allow", '"other"')


def test_missing_scripts_of_one_site_silence_no_line_about_another(folder, application, run):
    """Each name has a line once a minute, and 256 names are remembered."""
    routes = [{"match": {"uri": f"/{name}/*"}, "action": {"pass": f"applications/{name}"}} for name in ("one", "two")]
    server = run({"applications": {"one": application, "two": application}, "routes": routes})
    with server.connect() as connection:
        for number in range(300):
            assert connection.request("GET", f"/one/{number}.php").status == 404
    assert server.get("/two/missing.php").status == 404
    server.wait_for_log_line("/two/missing.php", 'application="two"')
    wait_for(lambda: any("similar lines" in line for line in lines(server)), "the number of the others")


def test_an_application_hides_no_file_that_another_one_cannot_send(folder, run):
    folder.php("index.php", "header('X-Accel-Redirect: /protected/report.pdf');")
    app = {"type": "php", "root": str(folder.root), "processes": 1, "send_file": {"/protected/": str(folder.scratch)}}
    routes = [{"match": {"uri": f"/{name}/*"}, "action": {"rewrite": "/index.php", "pass": f"applications/{name}"}} for name in ("one", "two")]
    server = run({"applications": {"one": app, "two": app}, "routes": routes})
    for name in ("one", "one", "two"):
        assert server.get(f"/{name}/").status == 404
    server.wait_for_log_line("cannot send the file", 'application="two"')
    assert server.stderr.count("cannot send the file") == 2


def test_folders_of_an_application_write_few_short_lines(folder, application, run):
    """Their names may look like the name of an application in a message, or have lines."""
    deep = folder.root / "/".join(["d"] * 64)
    deep.mkdir(parents=True)
    server = run({"applications": {"app": {**application, "reload": "on-change"}}})
    # The folders are watched from then on.
    folder.php("first.php", "echo 'first';")
    server.wait_for_log_line("was reloaded in")
    for name in [f'"{number}"' for number in range(100)] + ["\n" * 200]:
        (deep / name).mkdir()
        (deep / name).rmdir()
    folder.php("new.php", "echo 'new';")
    wait_for(lambda: any("was reloaded in" in line and "new.php" in line for line in lines(server)), "the reload")
    found = [line for line in lines(server) if "levels deep" in line]
    assert len(found) == 1 and '"app"' in found[0], found
    assert len(lines(server)) < MOST


def test_each_client_with_wrong_passwords_is_logged(run):
    """As fail2ban needs it, also while others guess, each from several addresses."""
    basic_auth = {"realm": "x", "users": {"ann": "$apr1$8sFt66rZ$CwW5jnBTcCMb9M9VZMRdm/"}}
    server = run({"routes": [{"action": {"return": 200, "basic_auth": basic_auth}}]})
    for client, count in [(f"127.9.0.{n}", 1) for n in range(1, 65)] + [("127.0.0.2", 40), ("127.0.0.3", 5)]:
        with socket.create_connection(("127.0.0.1", server.port), source_address=(client, 0)) as guesses:
            for number in range(count):
                credentials = base64.b64encode(f"ann:{client}{number}".encode()).decode()
                guesses.sendall(f"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Basic {credentials}\r\n\r\n".encode())
                assert b" 401 " in guesses.recv(65536)
    found = lambda client: [line for line in lines(server) if "wrong user or password" in line and line.endswith(f'client="{client}"')]
    wait_for(lambda: len(found("127.0.0.3")) == 5, "a line for each guess of the second one")
    assert 20 <= len(found("127.0.0.2")) < 40


def test_a_request_cannot_begin_a_line_or_control_a_terminal(server):
    line = "2026-01-01T00:00:00Z WARN forged"
    for target in (f"/a%0a{line.replace(' ', '%20')}%1b[31m.php", "/b%0d%0ax%c2%9b31m/c.php/d", "/e" + "%0a" * 15_000 + ".php"):
        assert server.get(target).status == 404
    found = wait_for(lambda: len(all := [one for one in lines(server) if "no such script" in one]) == 3 and all, "the lines")
    assert f"\\n{line}\\u{{1b}}[31m.php" in found[0]
    assert len(lines(server)) < MOST and not any(one.startswith(line) for one in lines(server))
    assert not any(c in server.stderr for c in "\x1b\r\x9b")


def test_a_path_adds_no_field_to_a_line(server):
    """Programs such as fail2ban look for the client of a line."""
    assert server.get("/a%22%20client=%226.6.6.6%22%20.php").status == 404
    [found] = wait_for(lambda: [one for one in lines(server) if "no such script" in one], "the line")
    assert '/a\\" client=\\"6.6.6.6\\" .php" ' in found and ' client="6' not in found, found


def raw(server, target: str) -> None:
    """Sends a request with quotes in its target, which clients would escape."""
    with socket.create_connection(("127.0.0.1", server.port), 30) as client:
        client.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        assert client.makefile("rb").readline().startswith(b"HTTP/1.1 50"), target


def has_false_field(lines: list[str]) -> bool:
    return any('client="6' in line for line in lines)


def test_a_request_in_a_message_adds_no_field(folder, application, run):
    """Its worker dies, or takes too long, or PHP reports an error."""
    folder.php("die.php", "posix_kill(getmypid(), 9);")
    folder.php("sleep.php", "sleep(20);")
    folder.php("error.php", "throw new Exception($_SERVER['PATH_INFO']);")
    application["limits"] = {"timeout": 1}
    server = run({"applications": {"app": application}, "settings": {"http": {"log_route": True}}})
    for name in ("die", "sleep", "error"):
        raw(server, f'/{name}.php/"client="6.6.6.6"')
    for parts in (["a worker died", ', GET /die.php/"client=', 'application="app"'], ["ends a request: GET /sleep.php"], ["PHP Fatal", "Exception"]):
        found = wait_for(lambda parts=parts: [line for line in lines(server) if all(part in line for part in parts)], str(parts))
        assert all('"client=\\"6.6.6.6"' in line for line in found), found
    assert not has_false_field(lines(server)), server.stderr


def test_a_message_of_a_fastcgi_server_adds_no_field(folder, run, socket_path):
    """The script logs what a client has sent."""
    folder.php("x.php", "")
    message = b'PHP message: login failed for a" application="x" client="6.6.6.6" method="'
    fake = FakeServer(socket_path, lambda _: record(STDERR, message) + answer())
    try:
        server = run(configuration(fastcgi_application(folder, fake.address)))
        assert server.get("/x.php").status == 200
        [found] = wait_for(lambda: [line for line in lines(server) if "login failed" in line], "the line")
    finally:
        fake.close()
    assert 'login failed for a" application=\\"x" client=\\"6.6.6.6" method=\\" ' in found, found
    assert found.count('client="') == 1 and 'client="127.0.0.1"' in found, found


FORGED = "2026-01-01T00:00:00.000000Z  WARN forged"


def test_a_value_of_a_client_in_a_message_of_php_cannot_begin_a_line(folder, application, run):
    folder.php("warn.php", "trigger_error($_GET['x'], E_USER_WARNING); throw new Exception($_GET['x']);")
    server = run({"applications": {"app": application}})
    for line_break in ("%0a", "%0d%0a"):
        target = f"/warn.php?x=a{line_break}{FORGED.replace(' ', '%20')}%1b[31m"
        assert server.get(target).status == 500
    found = wait_for(lambda: len(all := [one for one in lines(server) if "forged" in one]) >= 4 and all, "the lines")
    assert not any(one.startswith("2026-01-01") for one in found), found
    # A stack trace has its lines, too.
    assert any("Stack trace:" in one for one in lines(server)) and "\x1b" not in server.stderr


def test_output_of_a_background_process_does_not_take_the_supervisors_time(folder, application, run):
    """A process that the preload script left behind keeps the pipe of the prototype."""
    command = "exec setsid sh -c \"yes $(printf %0100d) >&2\" > /dev/null &"
    folder.php("preload.php", f"proc_open({command!r}, [], $pipes);")
    application["options"] = {"admin": {"opcache.preload": str(folder.root / "preload.php")}}
    application["stderr"] = str(folder.scratch / "stderr")
    server = run({"applications": {"app": application}})
    assert server.get("/").text == "here"
    log = folder.scratch / "stderr"
    wait_for(lambda: log.stat().st_size > 1 << 20, "its output")
    began, before = time.monotonic(), log.stat().st_size
    time.sleep(1)
    written, seconds = log.stat().st_size - before, time.monotonic() - began
    # 256 KiB in 100 ms, and one read.
    assert written < (seconds + 0.3) * 10 * (272 << 10), written
    assert server.api("GET", "/status").status == 200


def test_a_long_target_makes_no_long_line(server):
    for _ in range(5):
        assert server.get("/proxy" + "x" * 60_000).status == 502
    wait_for(lambda: server.stderr.count("cannot forward") == 5, "the lines")
    assert max(map(len, lines(server))) < 4000 and "xxx..." in server.stderr


def test_requests_of_connections_without_access_write_few_lines(folder, run, tmp_path):
    """A client keeps connections from before `client_ca`: each has one more request, which is refused, and has a line."""
    folder.write("index.html", "here")
    authority = Authority(tmp_path)
    pass_ = {"pass": "routes"}
    server = run({"listeners": {"127.0.0.1:{port}": pass_}, "routes": [{"action": {"share": f"{folder.root}$uri"}}]})
    put(server, "shop", authority.bundle("shop.example"))
    put(server, "staff", (tmp_path / "root.pem").read_text())
    path = f"/config/listeners/127.0.0.1:{server.port}/tls"
    assert server.api("PUT", path, {"certificate": "shop"}).status == 200
    client = Client(authority, server)
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(client.connect()) for _ in range(100)]
        assert server.api("PUT", path, {"certificate": "shop", "client_ca": "staff"}).status == 200
        for connection in connections:
            assert connection.request("GET", "/").status == 421
    windows = 1 + int((time.monotonic() - began) / 10)
    found = wait_for(lambda: [line for line in lines(server) if "access of this client was withdrawn" in line], "a line")
    assert len(found) <= 21 * windows, len(found)


def test_wrong_tokens_of_the_dashboard_write_few_lines():
    """Any user of the machine can send them."""
    with Dashboard("--control", "unix:/no/such/socket") as dashboard:
        origin = f"http://127.0.0.1:{dashboard.port}"
        began = time.monotonic()
        for _ in range(300):
            assert dashboard.request("POST", "/api/login", [("Host", origin[7:]), ("Origin", origin)], "guessed").status == 401
        windows = 1 + int((time.monotonic() - began) / 10)
        wait_for(lambda: "a wrong token" in dashboard.text, "a line")
        assert dashboard.text.count("a wrong token") <= 21 * windows, dashboard.text[-1000:]


def test_processes_that_die_with_a_full_log_leave_no_threads(folder, run):
    """A named pipe in the place of the application's log, which is not read. The processes leave lines there, and die, again and
    again: each had a thread of the supervisor that waited without end, and made it wait."""
    log = folder.scratch / "log"
    os.mkfifo(log)
    reader = os.open(log, os.O_RDWR)
    server = run({"applications": {"app": http_application(folder, processes=4, stderr=str(log))}})
    try:
        for _ in range(10):
            for pid in wait_for(lambda: pids(server), "a process"):
                with contextlib.suppress(ProtocolError, ConnectionError):
                    server.get("/flood?lines=1000")
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        assert server.api("GET", "/status").status == 200
        threads = [path.read_text() for path in Path(f"/proc/{server.pid}/task").glob("*/comm")]
        assert threads.count("log writer\n") <= 2, threads
    finally:
        os.close(reader)
