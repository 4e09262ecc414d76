"""FastCGI listeners and bytes that no web server should send: each connection gets an answer or an end, and costs little."""

import contextlib
import os
import random
import socket
import time

import pytest

from support.fastcgi import ABORT, BEGIN, PARAMS, STDIN, WebServer, begin, body, pair, record, variables
from support.waiting import wait_for


@pytest.fixture
def listen(run, folder):
    folder.php("a.php", "echo 'hello';")

    def start(time_divider=1, **config):
        listeners = {"127.0.0.1:{port}": {"pass": "applications/app", "protocol": "fastcgi"}}
        # On a busy machine, hundreds of large responses take more than ten seconds.
        app = {"type": "php", "root": str(folder.root), "processes": 1, "limits": {"queue_timeout": 60}}
        return run({"listeners": listeners, "applications": {"app": app}, **config}, time_divider=time_divider)

    return start


@pytest.fixture
def connect(folder):
    opened = []

    def open_connection(server) -> WebServer:
        opened.append(WebServer(("127.0.0.1", server.port), folder.root))
        return opened[-1]

    yield open_connection
    for each in opened:
        each.close()


VIOLATIONS = {
    "HTTP": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", r"beginning with \"GET / HTTP/1.1"),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01", "not FastCGI"),
    "version 0": (record(BEGIN, bytes(8), version=0), "not FastCGI"),
    "request 0": (begin(0), "the number 0"),
    "short begin": (record(BEGIN, b"\0\1"), "with 2 bytes"),
    "long begin": (record(BEGIN, bytes(9)), "with 9 bytes"),
    "twice": (begin() + begin(), "twice"),
    "body first": (begin() + record(STDIN, b"x"), "a body before the end of the variables"),
    "long question": (record(9, bytes(5000), request=0), "a question of 5000 bytes"),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_broken_rule_closes_the_connection_and_is_logged(listen, connect, name):
    server = listen()
    sent, reason = VIOLATIONS[name]
    web = connect(server)
    web.send(sent)
    assert web.is_closed()
    server.wait_for_log_line("a connection was closed", reason)
    assert connect(server).request("/a.php").body == b"hello"


def test_variables_and_a_body_after_their_ends_close_the_connection(listen, connect, folder):
    folder.php("wait.php", "await(SCRATCH . '/go');")
    server = listen()
    for extra in (record(PARAMS, b"x"), record(STDIN, b"x")):
        web = connect(server)
        web.send(begin() + variables(web.params("/wait.php")) + (body(b"") if extra[1] == STDIN else b"") + extra)
        assert web.is_closed()
    server.wait_for_log_line("after its end")
    server.wait_for_log_line("after their end")


LISTS = {
    "a name that is cut off": b"\x05\x01ab",
    "a value that is cut off": b"\x01\x7fab",
    "a length that is cut off": b"\x80\x00\x00",
    "two gigabytes": b"\xff\xff\xff\xff\xff\xff\xff\xffA",
    "no name": b"\x00\x01x",
    "a NUL": pair("SCRIPT_FILENAME", "/a.php\0.jpg"),
    "a line break in a header": pair("HTTP_X", "1\r\nSet-Cookie: x"),
    "no method": pair("X", "1"),
}


@pytest.mark.parametrize("name", LISTS)
def test_wrong_variables_are_400(listen, connect, name):
    server = listen()
    web = connect(server)
    listed = (b"" if name == "no method" else b"".join(pair(*each) for each in web.params("/a.php").items())) + LISTS[name]
    for _ in range(2):
        web.send(begin(keep=True) + record(PARAMS, listed) + record(PARAMS) + body(b""))
        assert web.response().status == 400
    assert web.request("/a.php").body == b"hello"
    server.wait_for_log_line("a request that is not valid: answered 400")


@pytest.mark.parametrize("kind", ["bytes", "one value", "headers", "others", "repeated"])
def test_too_many_variables_are_431(listen, connect, kind):
    server = listen()
    web = connect(server)
    params = web.params("/a.php")
    if kind == "bytes":
        params |= {f"X{number}": "x" * 60_000 for number in range(5)}
    elif kind == "one value":
        params["X"] = "x" * 70_000
    elif kind == "repeated":
        # Each is a search among all others: 60,000 of them took the event loop for 80 ms.
        names = b"".join(pair(f"X{number}", "") for number in range(200)) * 200
        web.send(begin() + variables(params)[:-8] + record(PARAMS, names[:60_000]) + record(PARAMS) + body(b""))
        assert web.response().status == 431
        return
    else:
        params |= {f"{'HTTP_' if kind == 'headers' else ''}X{number}": "" for number in range(300)}
    web.send(begin() + variables(params) + body(b""))
    assert web.response().status == 431
    assert connect(server).request("/a.php").body == b"hello"


def test_large_variables_within_the_limit_arrive(listen, connect, folder):
    folder.php("len.php", "echo strlen($_SERVER['HTTP_COOKIE']), ' ', strlen($_SERVER['X']);")
    web = connect(listen())
    assert web.request("/len.php", HTTP_COOKIE="c" * 20_000, X="x" * 20_000).body == b"20000 20000"


@pytest.mark.parametrize("sent", [record(99, b"", request=0), record(ABORT, b"", request=9), begin(3, role=2, keep=True)],
                         ids=["unknown types", "other requests", "other roles"])  # fmt: skip
def test_a_flood_of_useless_records_closes_the_connection(listen, connect, sent):
    server = listen()
    web = connect(server)
    with pytest.raises((ConnectionError, TimeoutError)):
        for _ in range(100):
            web.send(sent * 1000)
            time.sleep(0.005)
    server.wait_for_log_line("more than 1000 records without a use")
    assert connect(server).request("/a.php").body == b"hello"


def test_answers_that_are_not_read_take_no_memory(listen, connect):
    server = listen()
    question = record(9, pair("FCGI_MAX_CONNS", ""), request=0)
    before = memory(server)
    webs = [connect(server) for _ in range(50)]
    for web in webs:
        web.send(question * 900)
    time.sleep(0.3)
    assert memory(server) - before < 30_000_000
    assert connect(server).request("/a.php").body == b"hello"


def test_whole_responses_that_are_not_read_have_a_limit_of_memory(listen, connect, folder):
    """Once, each of them was copied twice, and did not count: 1 MB for each connection."""
    folder.php("page.php", "echo str_repeat('x', 500_000);")
    server = listen()
    before = memory(server)
    webs = [connect(server) for _ in range(700)]
    for web in webs:
        web.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        web.send(begin() + variables(web.params("/page.php")) + body(b""))
    for web in webs:
        assert web.socket.recv(8, socket.MSG_PEEK)
    # The allocator gives back some memory within a second: that part does not count.
    limit = before + (256 << 20) + 700 * (3 * 64 << 10) + (60 << 20)
    wait_for(lambda: memory(server) < limit, "memory within its limit", timeout=10)
    assert len(webs[0].response().body) == len(webs[-1].response().body) == 500_000


def test_large_heads_that_are_not_read_have_a_limit_for_all(listen, connect, folder):
    folder.php("page.php", 'for ($i = 0; $i < 110; $i++) header("X-A$i: " . str_repeat("a", 8000)); echo "large";')
    server = listen()
    webs = [connect(server) for _ in range(350)]
    for web in webs:
        web.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        web.send(begin() + variables(web.params("/page.php")) + body(b""))
    statuses = [web.socket.recv(8 + len("Status: 200"), socket.MSG_WAITALL)[8:] for web in webs]
    # 256 MiB of 881 KB each.
    assert set(statuses) == {b"Status: 200", b"Status: 502"} and statuses.count(b"Status: 200") < 310
    assert connect(server).request("/a.php").body == b"hello"


def test_a_body_in_records_of_one_byte_takes_little_memory(run, connect):
    """The server behind reads nothing. Once, each byte that waited took 50."""
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        routes = [{"action": {"proxy": f"http://127.0.0.1:{upstream.getsockname()[1]}"}}]
        listeners = {"127.0.0.1:{port}": {"pass": "routes", "protocol": "fastcgi"}}
        server = run({"listeners": listeners, "routes": routes})
        before = memory(server)
        webs = [connect(server) for _ in range(10)]
        for web in webs:
            web.socket.settimeout(1)
            params = web.params("/", "POST", 5_000_000)
            # The upstream's socket takes as much as this.
            web.send(begin() + variables(params) + record(STDIN, bytes(60_000)) * 60)
            with contextlib.suppress(TimeoutError):
                for _ in range(50):
                    web.send(record(STDIN, b"x") * 10_000)
        assert memory(server) - before < 20_000_000


def memory(server) -> int:
    text = open(f"/proc/{server.router().pid}/statm").read()
    return int(text.split()[1]) * os.sysconf("SC_PAGESIZE")


def test_variables_that_drip_have_a_time(listen, connect):
    server = listen(settings={"http": {"header_read_timeout": 1}})
    web = connect(server)
    started = time.monotonic()
    data = begin() + variables(web.params("/a.php"))
    with pytest.raises(OSError):
        for byte in data:
            web.send(bytes([byte]))
            time.sleep(0.05)
            assert time.monotonic() - started < 20
    server.wait_for_log_line("the variables of a request took too long")


def test_a_body_that_stalls_is_408(listen, connect):
    server = listen(settings={"http": {"body_read_timeout": 1}})
    web = connect(server)
    web.send(begin() + variables(web.params("/a.php", "POST", 100)) + record(STDIN, b"x"))
    assert web.response().status == 408


def test_an_idle_connection_is_closed(listen, connect):
    server = listen(settings={"http": {"idle_timeout": 1}})
    fresh, used = connect(server), connect(server)
    assert used.request("/a.php", keep=True).body == b"hello"
    assert fresh.is_closed() and used.is_closed()
    assert "a connection was closed" not in server.stderr


def test_a_web_server_that_reads_nothing_is_closed(listen, connect, folder):
    folder.php("large.php", "echo str_repeat('x', 50000000);")
    server = listen(settings={"http": {"send_timeout": 1}})
    web = connect(server)
    web.send(begin() + variables(web.params("/large.php")) + body(b""))
    server.wait_for_log_line("does not read its response")
    assert connect(server).request("/a.php").body == b"hello"


def test_random_records_never_stop_the_listener(listen, connect):
    server = listen()
    router = server.router().pid
    chance = random.Random(5)
    web = connect(server)
    honest = begin() + variables(web.params("/a.php", "POST", 3)) + body(b"abc")
    web.close()
    for _ in range(300):
        data = bytearray(honest)
        for _ in range(chance.randrange(1, 6)):
            action, at = chance.randrange(3), chance.randrange(len(data))
            if action == 0:
                data[at] = chance.randrange(256)
            elif action == 1:
                del data[at : at + chance.randrange(1, 20)]
            else:
                data[at:at] = chance.randbytes(chance.randrange(1, 20))
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.settimeout(5)
            try:
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
                while client.recv(65536):
                    pass
            except (ConnectionError, TimeoutError):
                pass
    assert connect(server).request("/a.php").body == b"hello"
    assert server.router().pid == router
    assert " ERROR " not in server.stderr
    # One line a minute for each reason.
    assert len(server.stderr.splitlines()) < 400


def test_connections_that_send_nothing_leave_room_for_others(listen, connect):
    server = listen()
    idle = [connect(server) for _ in range(300)]
    half = [connect(server) for _ in range(100)]
    for web in half:
        web.send(begin()[:5])
    assert connect(server).request("/a.php").body == b"hello"
    for web in half:
        web.send(begin()[5:] + variables(web.params("/a.php")) + body(b""))
    assert all(web.response().body == b"hello" for web in half)
    assert all(web.request("/a.php").body == b"hello" for web in idle[:20])


def test_a_response_ends_at_its_content_length(listen, connect, folder):
    """The rest is not read: it may have a gigabyte."""
    folder.php("endless.php", "header('Content-Length: 5'); for (;;) { echo str_repeat('x', 65536); }")
    server = listen()
    assert connect(server).request("/endless.php").body == b"xxxxx"
    # Its worker is free.
    assert connect(server).request("/a.php").body == b"hello"


def test_a_script_may_go_on_after_a_body_of_its_content_length(listen, connect, folder):
    done = folder.scratch / "done"
    code = f"header('Content-Length: 5'); echo 'hello'; flush(); usleep(300000); echo ''; flush(); touch('{done}');"
    folder.php("goes_on.php", code)
    server = listen()
    assert connect(server).request("/goes_on.php").body == b"hello"
    assert done.exists()
