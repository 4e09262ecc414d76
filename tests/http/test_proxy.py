"""The action `proxy` and `upstreams`: forwarded requests and responses, and failures of upstreams."""

import contextlib
import hashlib
import signal
import struct
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.client import ProtocolError
from support.ports import free_port
from support.tls import Authority, Client, put
from support.upstream import Upstream, answers, ok
from support.waiting import wait_for


@pytest.fixture
def proxy(run):
    """Starts howdah in front of an upstream with this handler; returns both."""
    upstreams = []

    def start(handler, address="127.0.0.1:0", http=None, **options):
        upstream = Upstream(handler, address)
        upstreams.append(upstream)
        return run(configuration({"proxy": upstream.url}, http), **options), upstream

    yield start
    for upstream in upstreams:
        upstream.stop()
    assert not [error for upstream in upstreams for error in upstream.errors]


def configuration(action, http=None, **more):
    return {"routes": [{"action": action}], "settings": {"http": http or {}}, **more}


def group(*servers):
    """A configuration that passes requests to these servers, given as (upstream or address, weight)."""
    servers = {getattr(server, "address", server): {"weight": weight} for server, weight in servers}
    return {
        "listeners": {"127.0.0.1:{port}": {"pass": "upstreams/u"}},
        "upstreams": {"u": {"servers": servers}},
    }


def logged(server, *words):
    """Waits for the one line of the log with all these words."""

    def lines():
        return [line for line in server.stderr.splitlines() if all(word in line for word in words)]

    assert len(wait_for(lines, f"a line with {words}")) == 1, server.stderr


# --- Forwarded requests and responses


def test_a_request_and_its_response_pass_through(proxy):
    response = (
        b"HTTP/1.1 418 Short And Stout\r\nContent-Length: 5\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nServer: other\r\n"
        b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\nX-Up: yes\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n"
        b"\r\nhello"
    )
    server, upstream = proxy(answers(response))
    headers = [
        ("Host", "shop.example:8080"),
        ("Cookie", "a=b"),
        ("Accept", "text/html"),
        ("Accept", "*/*"),
        ("Connection", "keep-alive, X-Hop"),
        ("X-Hop", "1"),
        ("Keep-Alive", "300"),
        ("TE", "trailers"),
        ("Proxy-Connection", "keep-alive"),
        ("Proxy", "http://evil"),
        ("Under_Score", "1"),
    ]
    got = server.request("PATCH", "/a%2Fb//c/../d?x=%20&y[]=1", headers, b"body")
    assert (got.status, got.reason, got.text) == (418, "Short And Stout", "hello")
    assert got.all("Set-Cookie") == ["a=1", "b=2"]
    assert got.header("X-Up") == "yes" and got.header("Date") == "Thu, 01 Jan 1970 00:00:00 GMT"
    assert got.header("Server").startswith("howdah")
    assert got.header("X-Hop") is None and got.header("Keep-Alive") is None and got.header("Connection") is None
    [request] = upstream.requests
    assert request.line == "PATCH /a%2Fb//c/../d?x=%20&y[]=1 HTTP/1.1"
    assert request.body == b"body"
    assert sorted(request.headers) == [
        ("accept", "*/*"),
        ("accept", "text/html"),
        ("content-length", "4"),
        ("cookie", "a=b"),
        ("host", "shop.example:8080"),
    ]


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_an_upstream_may_listen_on_a_unix_socket(proxy, socket_path, kind):
    address = f"unix:{socket_path}" if kind == "path" else f"unix:@howdah-test-{free_port()}"
    server, upstream = proxy(answers(ok(b"over unix")), address)
    assert server.get("/").text == "over unix"
    assert upstream.requests[0].header("host") == f"127.0.0.1:{server.port}"


def test_a_request_without_host_is_sent_with_the_upstream_host(proxy):
    server, upstream = proxy(answers(ok()))
    assert server.raw(b"GET / HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 200 OK\r\n")
    assert upstream.requests[0].header("host") == upstream.address


def test_a_missing_file_falls_back_to_the_proxy(run, folder):
    folder.write("there.txt", "a file")
    with Upstream(answers(ok(b"an upstream"))) as upstream:
        server = run(configuration({"share": f"{folder.root}$uri", "fallback": {"proxy": upstream.url}}))
        assert server.get("/there.txt").text == "a file"
        assert server.get("/elsewhere").text == "an upstream"


def test_rewrite_and_response_headers_apply_to_a_proxy(run):
    with Upstream(answers(ok(b"ok", b"X-Up: 1", b"X-Other: 2"))) as upstream:
        headers = {"X-Up": None, "X-Ours": "$response_header_x_other"}
        action = {"rewrite": "/new$uri", "proxy": upstream.url, "response_headers": headers}
        server = run(configuration(action))
        got = server.get("/a%20b%2525/%C3%A4?x=%20y")
        assert got.header("X-Up") is None and got.header("X-Ours") == "2"
        assert server.get("/%0d%0aX:%20y").status == 200
        lines = [request.line for request in upstream.requests]
        assert lines[0].startswith("GET /new/a%20b%") and lines[0].endswith("/%C3%A4?x=%20y HTTP/1.1")
        assert lines[1] == "GET /new/%0D%0AX:%20y HTTP/1.1"


@pytest.mark.parametrize("status", [204, 304])
def test_responses_without_a_body_pass_through(proxy, status):
    response = b"HTTP/1.1 %d X\r\nETag: e\r\nContent-Length: 12\r\n\r\n" % status
    server, upstream = proxy(answers(response if status == 304 else response.replace(b"Content-Length: 12\r\n", b"")))
    with server.connect() as connection:
        for _ in range(3):
            assert connection.request("GET", "/").status == status
    assert upstream.accepted == 1


def test_head_has_a_length_and_no_body(proxy):
    server, upstream = proxy(answers(b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n"))
    with server.connect() as connection:
        for _ in range(3):
            got = connection.request("HEAD", "/")
            assert got.header("Content-Length") == "1234"
    assert upstream.accepted == 1 and upstream.requests[0].line == "HEAD / HTTP/1.1"


def test_interim_responses_and_trailers_are_dropped(proxy):
    response = (
        b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n"
        b"3;ext=1\r\nabc\r\n0\r\nX-T: 1\r\n\r\n"
    )
    server, _ = proxy(answers(response))
    with server.connect() as connection:
        for _ in range(2):
            got = connection.request("GET", "/", {"TE": "trailers", "Connection": "TE"})
            assert got.text == "abc" and got.trailers == [] and got.header("Trailer") is None


def test_a_http_1_0_upstream_ends_its_response_by_closing(proxy):
    def handler(visit):
        visit.request()
        visit.send(b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nuntil the end")

    server, _ = proxy(handler)
    with server.connect() as connection:
        for _ in range(3):
            got = connection.request("GET", "/")
            assert got.text == "until the end" and got.header("Transfer-Encoding") == "chunked"
    raw = server.raw(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert raw.endswith(b"\r\n\r\nuntil the end") and b"connection: close" in raw.lower()


# --- Bodies


def test_bodies_keep_their_framing(proxy):
    server, upstream = proxy(answers(lambda request: ok(hashlib.sha256(request.body).hexdigest().encode())))
    body = bytes(range(256)) * 20_000
    expected = hashlib.sha256(body).hexdigest()
    with server.connect() as connection:
        for method in ("POST", "PUT", "GET"):
            assert connection.request(method, "/", body=body).text == expected
            assert upstream.requests[-1].header("content-length") == str(len(body))
            pieces = [body[at : at + 77_777] for at in range(0, len(body), 77_777)]
            assert connection.request(method, "/", body=pieces).text == expected
            assert upstream.requests[-1].header("transfer-encoding") == "chunked"
        assert connection.request("POST", "/", body=b"").text == hashlib.sha256().hexdigest()
        assert upstream.requests[-1].header("content-length") == "0"
        assert connection.request("POST", "/", body=[]).status == 200
        assert connection.request("GET", "/").status == 200
        assert upstream.requests[-1].header("content-length") is None
    assert upstream.accepted == 1


def test_a_long_response_is_intact(proxy):
    body = hashlib.sha256(b"x").digest() * (1 << 20)
    chunked = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:1], body[1:99_999], body[99_999:]))
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked + b"0\r\n\r\n"
    server, _ = proxy(answers(lambda request: chunked if "chunked" in request.line else ok(body)))
    with server.connect() as connection:
        for target in ("/", "/chunked", "/"):
            assert connection.request("GET", target).body == body


def test_both_bodies_flow_at_the_same_time(proxy):
    def handler(visit):
        request = visit.head()
        visit.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in visit.body(request):
            visit.send(b"%x\r\n%b\r\n" % (len(piece) + 2, b"<" + piece + b">"))
        visit.send(b"0\r\n\r\n")

    server, _ = proxy(handler)
    with server.connect() as connection:
        connection.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        response, body = connection.stream("POST")
        for word in (b"one", b"two", b"three"):
            connection.send(b"%x\r\n%b\r\n" % (len(word), word))
            assert next(body) == b"<" + word + b">"
        connection.send(b"0\r\n\r\n")
        assert b"".join(body) == b"" and response.status == 200


def test_back_pressure_works_in_both_directions(proxy):
    """howdah buffers no more than the size of its buffers, in both directions."""
    going = threading.Event()
    sent = []

    def handler(visit):
        request = visit.head()
        if "upload" in request.line:
            going.wait(30)
            length = sum(map(len, visit.body(request)))
            visit.send(ok(b"%d" % length))
        else:
            visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (100 << 20))
            for number in range(100):
                visit.send(bytes(1 << 20))
                sent.append(number)

    server, _ = proxy(handler, http={"max_body_size": 200 << 20})
    with server.connect() as connection:
        connection.send(b"POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (100 << 20))
        connection.socket.settimeout(1)
        written = 0
        with contextlib.suppress(TimeoutError):
            while written < 100 << 20:
                written += connection.socket.send(bytes(min(1 << 16, (100 << 20) - written)))
        assert written < 40 << 20
        going.set()
        connection.socket.settimeout(30)
        connection.send(bytes((100 << 20) - written))
        assert connection.response("POST").text == str(100 << 20)
    with server.connect() as connection:
        connection.send_request("GET", "/download")
        wait_for(lambda: sent)
        count = -1
        while count != len(sent):
            count = len(sent)
            time.sleep(0.5)
        assert count < 40
        assert len(connection.response().body) == 100 << 20


def test_100_continue_is_sent_when_the_upstream_accepts_the_body(proxy):
    server, upstream = proxy(answers(lambda request: ok(request.body)))
    with server.connect() as connection:
        connection.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert connection._head().status == 100
        connection.send(b"abc")
        assert connection.response("POST").text == "abc"
    assert upstream.requests[0].header("expect") is None
    upstream.stop()
    with server.connect() as connection:
        connection.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        got = connection.response("POST")
        assert got.status == 502 and got.interim == []


def test_an_early_answer_reaches_the_client(proxy):
    def handler(visit):
        visit.head()
        visit.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
        visit.until_closed()

    server, _ = proxy(handler)
    with server.connect() as connection:
        connection.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + bytes(1000))
        got = connection.response("POST")
        assert (got.status, got.text) == (403, "no")


# --- Connections to upstreams


def test_upstream_connections_are_reused(proxy):
    server, upstream = proxy(answers(ok()))
    with server.connect() as connection:
        for number in range(50):
            assert connection.request("GET" if number % 2 else "POST", "/").text == "ok"
    assert upstream.accepted == 1 and len(upstream.requests) == 50


def test_concurrent_requests_use_separate_upstream_connections(proxy):
    meeting = threading.Barrier(20, timeout=30)

    def handler(visit):
        while request := visit.request():
            if "meet" in request.line:
                meeting.wait()
            visit.send(ok(request.line.encode()))

    server, upstream = proxy(handler)
    with ThreadPoolExecutor(20) as pool:
        for got in pool.map(lambda n: server.get(f"/meet/{n}"), range(20)):
            assert got.status == 200
        assert upstream.accepted == 20
        for number, got in enumerate(pool.map(lambda n: server.get(f"/{n}"), range(400))):
            assert got.text == f"GET /{number} HTTP/1.1"


@pytest.mark.parametrize("header", [b"Connection: close", b"X: y"])
def test_an_upstream_that_closes_after_each_response_loses_no_request(proxy, header):
    """Also without `Connection: close`: howdah notices the end before the next request, or sends the next request again."""
    server, upstream = proxy(answers(ok(b"ok", header), requests=1))
    with server.connect() as connection:
        for _ in range(200):
            assert connection.request("GET", "/").text == "ok"
    assert len(upstream.requests) == 200


def test_a_restarted_upstream_gets_all_later_requests(proxy):
    server, upstream = proxy(answers(ok(b"old")))
    assert server.get("/").text == "old"
    upstream.stop()
    with Upstream(answers(ok(b"new")), upstream.address):
        for method in ("POST", "GET"):
            assert server.request(method, "/").text == "new"


def test_a_client_that_disconnects_cancels_its_upstream_request(proxy):
    def handler(visit):
        request = visit.head()
        if "body" in request.line:
            visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nsome")
        visit.until_closed()

    server, upstream = proxy(handler)
    for target in ("/wait", "/body"):
        with server.connect() as connection:
            connection.send_request("GET", target)
            wait_for(lambda: upstream.open == 1)
            if target == "/body":
                connection.stream()
        wait_for(lambda: upstream.open == 0, "the end of the connection to the upstream")


# --- Failures


def test_an_upstream_that_is_down_gives_502(run):
    address = f"127.0.0.1:{free_port()}"
    server = run(configuration({"proxy": f"http://{address}"}))
    with server.connect() as connection:
        assert connection.request("GET", "/").status == 502
        logged(server, "could not be passed on", address, "refused", "502")
        assert connection.request("POST", "/", body=b"x").status == 502


def test_a_missing_unix_socket_gives_502(run, socket_path):
    server = run(configuration({"proxy": f"http://unix:{socket_path}"}))
    assert server.get("/").status == 502
    logged(server, "could not be passed on", str(socket_path), "No such file", "502")


@pytest.mark.parametrize(
    "response, why",
    [
        pytest.param(b"", "before its response", id="nothing"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Le", "no good", id="half a head"),
        pytest.param(b"SSH-2.0-OpenSSH\r\n\r\n", "no good", id="not HTTP"),
        pytest.param(b"HTTP/1.1 200 OK\r\nA: b\r\n folded\r\nContent-Length: 0\r\n\r\n", "no good", id="obs-fold"),
        pytest.param(b"HTTP/1.1 200 OK\r\nA : b\r\nContent-Length: 0\r\n\r\n", "no good", id="space before the colon"),
        pytest.param(b"HTTP/1.1 200 OK\r\nA: b\rc\r\nContent-Length: 0\r\n\r\n", "no good", id="bare CR"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nxy", "no good", id="a list of lengths"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy", "no good", id="two lengths"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "no good", id="negative length"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding", id="TE and CL"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding", id="TE gzip"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nabc", "Transfer-Encoding", id="TE identity"),
        pytest.param(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", "not asked for", id="101 unasked"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 300 + b"Content-Length: 0\r\n\r\n", "no good", id="too many headers"),
        pytest.param(b"HTTP/1.1 200 OK\r\nA: " + b"b" * 100_000 + b"\r\nContent-Length: 0\r\n\r\n", "no good", id="head too large"),
    ],
)
def test_a_malformed_response_gives_502(proxy, response, why):
    server, upstream = proxy(answers(response, requests=1))
    with server.connect() as connection:
        assert connection.request("GET", "/").status == 502
    logged(server, "could not be passed on", upstream.address, why, "502")
    assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    "head, body",
    [
        (b"Content-Length: 10", b"abc"),
        (b"Transfer-Encoding: chunked", b"3\r\nabc\r\n"),
        (b"Transfer-Encoding: chunked", b"3\r\nabc\r\nzzz\r\n"),
        (b"Transfer-Encoding: chunked", b"ffffffffffffffff0\r\nabc"),
        (b"Transfer-Encoding: chunked", b"5\r\nabc"),
    ],
)
def test_a_truncated_response_is_never_delivered_as_complete(proxy, head, body):
    server, upstream = proxy(answers(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n" + body, requests=1))
    with server.connect() as connection, pytest.raises((ProtocolError, ConnectionResetError)):
        connection.request("GET", "/")
    logged(server, "broke off", upstream.address)


def test_excess_bytes_of_an_upstream_reach_no_client(proxy):
    """A second response after the end of the first would become the response to the next request."""
    smuggled = ok(b"right") + ok(b"WRONG") * 2
    server, _ = proxy(answers(smuggled))
    with server.connect() as connection:
        for _ in range(20):
            assert connection.request("GET", "/").text == "right"
    wrong = b"HTTP/1.1 204 No Content\r\n\r\n" + ok(b"WRONG")
    server, _ = proxy(answers(lambda request: ok(b"right") if "right" in request.line else wrong))
    with server.connect() as connection:
        for _ in range(20):
            assert connection.request("GET", "/").status == 204
            assert connection.request("GET", "/right").text == "right"


def test_an_error_in_the_client_body_is_a_client_error(proxy):
    server, upstream = proxy(answers(ok()), http={"max_body_size": 1000, "body_read_timeout": 1})
    assert server.post("/", bytes(1000)).status == 200
    assert server.post("/", bytes(1001)).status == 413
    assert len(upstream.requests) == 1, "a body that is too long is not sent upstream"
    assert server.post("/", [bytes(600), bytes(600)]).status == 413
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    with server.connect() as connection:
        connection.send(head + b"3\r\nabc\r\nnonsense\r\n")
        assert connection.response("POST").status == 400
        assert connection.is_closed()
    with server.connect() as connection:
        connection.send(head + b"3\r\nabc\r\n")
        assert connection.response("POST").status == 408
        assert connection.is_closed()
    wait_for(lambda: upstream.open <= 1)
    assert "could not be passed on" not in server.stderr
    assert server.get("/").status == 200


# --- Upstreams of several servers


def test_servers_get_requests_in_proportion_to_their_weight(run):
    with Upstream(answers(ok(b"a"))) as a, Upstream(answers(ok(b"b"))) as b, Upstream(answers(ok(b"c"))) as c:
        server = run(group((a, 5), (b, 1), (c, 0)))
        with server.connect() as connection:
            got = "".join(connection.request("GET", "/").text for _ in range(60))
        assert Counter(got) == {"a": 50, "b": 10}
        assert got.startswith("aaabaa")


def test_no_request_is_lost_while_one_server_is_up(run):
    with Upstream(answers(ok(b"a"))) as a, Upstream(answers(ok(b"b"))) as b:
        server = run(group((f"127.0.0.1:{free_port()}", 1), (a, 1), (b, 1)))
        with server.connect() as connection:
            got = Counter(connection.request("POST", "/", body=b"x").text for _ in range(100))
        assert got["a"] > 30 and got["b"] > 30 and got["a"] + got["b"] == 100
        logged(server, "the next server of this upstream is asked instead", "refused")
        b.stop()
        with server.connect() as connection:
            # A request that was sent to b just before its end may be lost; GET is sent again.
            assert all(connection.request("GET", "/").text == "a" for _ in range(100))
        with Upstream(answers(ok(b"b")), b.address):
            wait_for(lambda: server.get("/").text == "b", "the return of a server")


def test_a_server_that_dies_during_a_request_fails_only_that_request(run):
    deaths = []

    def dies(visit):
        visit.head()
        deaths.append(1)

    with Upstream(dies) as a, Upstream(answers(ok(b"b"))) as b:
        server = run(group((a, 1), (b, 1)))
        for _ in range(10):
            assert server.get("/").text == "b"
        assert deaths
        got = {server.post("/", b"x" * 10).status for _ in range(4)}
        assert got == {200, 502}, "a POST may have had effects: it is sent once"
    with Upstream(dies) as a, Upstream(dies) as b, Upstream(dies) as c:
        deaths.clear()
        server = run(group((a, 1), (b, 1), (c, 1)))
        assert server.get("/").status == 502
        assert len(deaths) == 2, "a request that kills a server is not sent to the others"


@pytest.mark.parametrize("before", [0, 1], ids=["a new connection", "a pooled connection"])
def test_an_empty_chunked_body_is_not_sent_twice(run, before):
    """The whole request was sent: it may have had effects."""

    def dies(visit):
        for _ in range(before):
            visit.request()
            visit.send(ok())
        visit.request()

    with Upstream(dies) as a, Upstream(dies) as b:
        server = run({**group((a, 1), (b, 1)), "settings": {"listen_threads": 1}})
        with server.connect() as connection:
            assert [connection.request("GET", "/").status for _ in range(2 * before)] == [200] * 2 * before
            assert connection.request("POST", "/", (), []).status == 502
        sent = [request.line for upstream in (a, b) for request in upstream.requests]
        assert sent.count("POST / HTTP/1.1") == 1


def test_an_unread_body_decides_whether_the_connection_ends(proxy):
    server, _ = proxy(lambda visit: visit.head() and None)
    with server.connect() as connection:
        connection.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")
        connection.send(b"abc")
        response = connection.response()
        assert (response.status, response.header("connection")) == (502, "close")
        connection.send(b"defghij")
        assert connection.is_closed()
    with server.connect() as connection:
        for _ in range(2):
            response = connection.request("POST", "/", (), b"0123456789")
            assert (response.status, response.header("connection")) == (502, None)


def test_502_if_all_servers_are_down(run):
    server = run(group((f"127.0.0.1:{free_port()}", 1), (f"127.0.0.1:{free_port()}", 1)))
    for _ in range(3):
        assert server.get("/").status == 502
    assert server.stderr.count("could not be passed on") == 3


# --- Request smuggling

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    "headers, body",
    [
        pytest.param(b"Content-Length: 5\r\nTransfer-Encoding: chunked", b"0\r\n\r\n" + SMUGGLED, id="CL and TE"),
        pytest.param(b"Transfer-Encoding: chunked\r\nContent-Length: 5", b"0\r\n\r\n" + SMUGGLED, id="TE and CL"),
        pytest.param(b"Content-Length: 0\r\nContent-Length: 35", SMUGGLED, id="two lengths"),
        pytest.param(b"Content-Length: 0, 35", SMUGGLED, id="a list of lengths"),
        pytest.param(b"Content-Length: 3\r\nContent-Length: 3", b"abc", id="one length twice"),
        pytest.param(b"Content-Length: +3", b"abc", id="CL with a sign"),
        pytest.param(b"Content-Length: 0x3", b"abc", id="hexadecimal CL"),
        pytest.param(b"Content-Length: 3 0", b"abc", id="CL with a space"),
        pytest.param(b"Content-Length : 3", b"abc", id="space before the colon"),
        pytest.param(b"Content-Length: 3\r\n 0", b"abc", id="obs-fold in CL"),
        pytest.param(b"X: y\r\n Content-Length: 35", SMUGGLED, id="obs-fold hides CL"),
        pytest.param(b"X: y\rTransfer-Encoding: chunked", b"0\r\n\r\n" + SMUGGLED, id="bare CR"),
        pytest.param(b"X: y\nContent-Length: 35", SMUGGLED, id="bare LF"),
        pytest.param(b"X: y\0Content-Length: 35", SMUGGLED, id="NUL"),
        pytest.param(b"Transfer-Encoding: xchunked", b"0\r\n\r\n" + SMUGGLED, id="TE xchunked"),
        pytest.param(b"Transfer-Encoding: identity", SMUGGLED, id="TE identity"),
        pytest.param(b"Transfer-Encoding: gzip, chunked", b"0\r\n\r\n" + SMUGGLED, id="TE gzip, chunked"),
        pytest.param(b"Transfer-Encoding: chunked, identity", b"0\r\n\r\n" + SMUGGLED, id="TE chunked, identity"),
        pytest.param(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x", b"0\r\n\r\n" + SMUGGLED, id="two TE"),
        pytest.param(b"Transfer-Encoding: \x0bchunked", b"0\r\n\r\n" + SMUGGLED, id="TE vertical tab"),
        pytest.param(b"Transfer-Encoding:\tchunked", b"0\r\n\r\n" + SMUGGLED, id="TE tab"),
        pytest.param(b"Transfer-Encoding: \"chunked\"", b"0\r\n\r\n" + SMUGGLED, id="TE quoted"),
        pytest.param(b"Transfer-Encoding : chunked", b"0\r\n\r\n" + SMUGGLED, id="TE space before the colon"),
        pytest.param(b"Transfer_Encoding: chunked\r\nContent-Length: 35", SMUGGLED, id="TE underscore"),
        pytest.param(b"Transfer-Encoding: cHuNkEd", b"0\r\n\r\n" + SMUGGLED, id="TE in another case"),
        pytest.param(b"Connection: Content-Length\r\nContent-Length: 35", SMUGGLED, id="Connection names CL"),
        pytest.param(
            b"Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked", b"0\r\n\r\n" + SMUGGLED, id="Connection names TE"
        ),
        pytest.param(b"Connection: Host, X-A\r\nX-A: b\r\nContent-Length: 35", SMUGGLED, id="Connection names Host"),
        pytest.param(b"Transfer-Encoding: chunked", b"0\r\nX: y\r\n\r\n" + SMUGGLED, id="trailers"),
        pytest.param(b"Transfer-Encoding: chunked", b"1;a=\nb\r\nx\r\n0\r\n\r\n" + SMUGGLED, id="bare LF in an extension"),
        pytest.param(b"Transfer-Encoding: chunked", b"00000000000000001\r\nx\r\n0\r\n\r\n", id="long chunk size"),
        pytest.param(b"Transfer-Encoding: chunked", b"fffffffffffffffff\r\nx\r\n0\r\n\r\n", id="chunk size overflow"),
        pytest.param(b"Transfer-Encoding: chunked", b"1\r\nxy\r\n0\r\n\r\n", id="chunk longer than its size"),
        pytest.param(b"Transfer-Encoding: chunked", b"-1\r\n\r\n0\r\n\r\n", id="negative chunk size"),
        pytest.param(b"Transfer-Encoding: chunked", b"0x1\r\nx\r\n0\r\n\r\n", id="chunk size with 0x"),
        pytest.param(b"Transfer-Encoding: chunked", b"1 1\r\nx\r\n0\r\n\r\n", id="space in a chunk size"),
        pytest.param(b"Transfer-Encoding: chunked", b"1\nx\n0\n\n", id="chunks with bare LF"),
        pytest.param(b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAA", b"", id="h2c"),
        pytest.param(b"Expect: 100-continue\r\nContent-Length: 35", SMUGGLED, id="Expect"),
        pytest.param(b"Host: other", b"", id="two hosts"),
    ],
)
def test_a_client_and_an_upstream_see_the_same_requests(proxy, headers, body):
    """For any input, the upstream reads a request for / that howdah framed, and perhaps the requests that follow it.

    The upstream's parser follows the framing strictly and rejects a request with two framings. The requests that it reads
    completely must be those that the client gets responses to, in the same order.
    """
    seen = []

    def answer(request):
        seen.append(request.line)
        return ok(request.line.encode())

    server, upstream = proxy(answers(answer), http={"body_read_timeout": 1})
    data = b"POST / HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n\r\n" + body
    with server.connect() as connection:
        connection.send(data)
        connection.send(b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        responses = []
        with contextlib.suppress(ProtocolError, ConnectionResetError):
            while True:
                responses.append(connection.response("POST"))
    assert seen == [] or seen[0] == "POST / HTTP/1.1"
    assert all(line in ("POST / HTTP/1.1", "GET /smuggled HTTP/1.1", "GET /last HTTP/1.1") for line in seen), seen
    assert [got.text for got in responses if got.status == 200] == seen
    refused = [got.status for got in responses if got.status != 200]
    assert len(refused) <= 1 and all(status in (400, 408, 501) for status in refused), refused
    for request in upstream.requests:
        assert request.header("host") == "x"
        names = [name for name, _ in request.headers]
        assert len(set(names)) == len(names), request.raw
        for name in ("connection", "upgrade", "te", "expect", "http2-settings", "transfer_encoding", "x-a"):
            assert name not in names, request.raw
        assert b"\n" not in request.raw.replace(b"\r\n", b"") and b"\r" not in request.raw.replace(b"\r\n", b"")


@pytest.mark.parametrize(
    "line, host, expected, expected_host",
    [
        ("GET http://a.example/x?y HTTP/1.1", "b.example", "GET /x?y HTTP/1.1", "a.example"),
        ("GET http://a.example HTTP/1.1", "b.example", "GET / HTTP/1.1", "a.example"),
        ("GET http://a.example:81/x HTTP/1.1", "a.example", "GET /x HTTP/1.1", "a.example:81"),
        ("OPTIONS * HTTP/1.1", "a.example", "OPTIONS * HTTP/1.1", "a.example"),
        ("GET //b.example/x HTTP/1.1", "a.example", "GET //b.example/x HTTP/1.1", "a.example"),
        ("GET http://a@b.example/x HTTP/1.1", "b.example", None, None),
        ("GET /x y HTTP/1.1", "a.example", None, None),
        ("GET /x\ty HTTP/1.1", "a.example", None, None),
        ("GET /x\rGET /y HTTP/1.1", "a.example", None, None),
        ("GET x HTTP/1.1", "a.example", None, None),
        ("CONNECT a.example:80 HTTP/1.1", "a.example:80", None, None),
        ("TRACE / HTTP/1.1", "a.example", None, None),
        ("GET /x HTTP/1.1", "a.example/../b", None, None),
        ("GET /x HTTP/1.1", "a.example, b.example", None, None),
        ("GET /%zz HTTP/1.1", "a.example", None, None),
        ("GET /%00 HTTP/1.1", "a.example", None, None),
    ],
)
def test_a_target_is_normalized_or_rejected(proxy, line, host, expected, expected_host):
    server, upstream = proxy(answers(ok()))
    raw = server.raw(f"{line}\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    if expected is None:
        assert upstream.requests == []
        assert raw.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 405 "))
    else:
        [request] = upstream.requests
        assert (request.line, request.header("host")) == (expected, expected_host)
        assert raw.startswith(b"HTTP/1.1 200 ")


# --- WebSockets

ASK = {
    "Connection": "keep-alive, Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
GRANT = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)


def frame(text: bytes, mask: bytes = b"") -> bytes:
    """A text frame of a WebSocket (RFC 6455, 5.2)."""
    is_masked = 128 if mask else 0
    size = struct.pack("!B", len(text) | is_masked) if len(text) < 126 else struct.pack("!BQ", 127 | is_masked, len(text))
    masked = bytes(byte ^ mask[n % 4] for n, byte in enumerate(text)) if mask else text
    return b"\x81" + size + mask + masked


def read_frame(read) -> bytes:
    """The text of the next frame; `read(n)` returns n bytes."""
    first, size = read(2)
    assert first == 0x81
    length = size & 127
    if length == 127:
        length = struct.unpack("!Q", read(8))[0]
    mask = read(4) if size & 128 else bytes(4)
    return bytes(byte ^ mask[n % 4] for n, byte in enumerate(read(length)))


def echo(visit):
    """A WebSocket server that returns each text in capitals and closes after BYE."""
    if not visit.head():
        return

    def read(size):
        data = b""
        while len(data) < size:
            piece = visit.some(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    visit.send(GRANT + frame(b"WELCOME"))
    text = b""
    while text != b"BYE":
        text = read_frame(read).upper()
        visit.send(frame(text))


def test_a_websocket_passes_through(proxy):
    server, upstream = proxy(echo)
    with server.connect() as connection:
        connection.send_request("GET", "/chat?room=1", ASK)
        connection.send(frame(b"too early", b"mask"))
        got, _ = connection.stream()
        assert got.status == 101 and got.header("Upgrade") == "websocket" and got.header("Connection") == "Upgrade"
        assert got.header("Sec-WebSocket-Accept") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        assert read_frame(connection._exactly) == b"WELCOME"
        assert read_frame(connection._exactly) == b"TOO EARLY"
        for size in (1, 100, 1000, 300_000):
            connection.send(frame(b"x" * size, b"\1\2\3\4"))
            assert read_frame(connection._exactly) == b"X" * size
        connection.send(frame(b"bye", b"mask"))
        assert read_frame(connection._exactly) == b"BYE"
        assert connection.is_closed()
    [request] = upstream.requests
    assert request.line == "GET /chat?room=1 HTTP/1.1"
    assert (request.header("connection"), request.header("upgrade")) == ("Upgrade", "websocket")
    assert request.header("sec-websocket-key") == ASK["Sec-WebSocket-Key"]
    wait_for(lambda: upstream.open == 0)


def test_a_websocket_passes_through_tls(run, tmp_path):
    authority = Authority(tmp_path)
    with Upstream(echo) as upstream:
        server = run(configuration({"proxy": upstream.url}))
        put(server, "shop", authority.bundle("shop.example"))
        listener = {"pass": "routes", "tls": {"certificate": "shop"}}
        assert server.api("PUT", f"/config/listeners/127.0.0.1:{server.port}", listener).status == 200
        with Client(authority, server).connect() as connection:
            connection.send_request("GET", "/", ASK)
            assert connection.stream()[0].status == 101
            assert read_frame(connection._exactly) == b"WELCOME"
            connection.send(frame(b"x" * 300_000, b"mask"))
            assert read_frame(connection._exactly) == b"X" * 300_000
            connection.send(frame(b"bye", b"mask"))
            assert read_frame(connection._exactly) == b"BYE"
            assert connection.is_closed()


def test_a_websocket_may_follow_a_request_on_the_same_connections(proxy):
    def handler(visit):
        visit.request()
        visit.send(ok())
        echo(visit)

    server, upstream = proxy(handler)
    with server.connect() as connection:
        assert connection.request("GET", "/").text == "ok"
        connection.send_request("GET", "/", ASK)
        assert connection.stream()[0].status == 101
        assert read_frame(connection._exactly) == b"WELCOME"
    assert upstream.accepted == 1
    wait_for(lambda: upstream.open == 0, "the end of the tunnel when the client hangs up")


def test_a_rejected_websocket_upgrade_is_an_ordinary_response(proxy):
    refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"
    server, upstream = proxy(answers(lambda request: refusal if request.header("upgrade") else ok()))
    with server.connect() as connection:
        assert connection.request("GET", "/", ASK).status == 403
        assert connection.request("GET", "/").status == 200
    assert upstream.accepted == 1


def test_an_upgrade_to_another_protocol_gives_502(proxy):
    server, _ = proxy(answers(GRANT.replace(b"websocket", b"h2c"), requests=1))
    with server.connect() as connection:
        assert connection.request("GET", "/", ASK).status == 502


def test_a_websocket_is_closed_after_the_shutdown_grace_period(proxy):
    server, _ = proxy(echo, time_divider=4)
    with server.connect() as connection:
        connection.send_request("GET", "/", ASK)
        assert connection.stream()[0].status == 101
        assert read_frame(connection._exactly) == b"WELCOME"
        began = time.monotonic()
        server.send_signal(signal.SIGTERM)
        connection.send(frame(b"still here", b"mask"))
        assert read_frame(connection._exactly) == b"STILL HERE"
        assert connection.is_closed()
        assert 2 < time.monotonic() - began < 25
    assert server.exit_code() == 0

