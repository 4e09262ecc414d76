"""The action `proxy`: forwarded requests and responses, bodies, connections to upstreams."""

import contextlib
import hashlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.http.proxying import proxy_configuration
from support.http.upstream import Upstream, answers, ok
from support.machine import free_port
from support.waiting import wait_for

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
        ("connection", "TE"),
        ("content-length", "4"),
        ("cookie", "a=b"),
        ("host", "shop.example:8080"),
        ("te", "trailers"),
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
        server = run(proxy_configuration({"share": f"{folder.root}$uri", "fallback": {"proxy": upstream.url}}))
        assert server.get("/there.txt").text == "a file"
        assert server.get("/elsewhere").text == "an upstream"


def test_rewrite_and_response_headers_apply_to_a_proxy(run):
    with Upstream(answers(ok(b"ok", b"X-Up: 1", b"X-Other: 2"))) as upstream:
        headers = {"X-Up": None, "X-Ours": "$response_header_x_other"}
        action = {"rewrite": "/new$uri", "proxy": upstream.url, "response_headers": headers}
        server = run(proxy_configuration(action))
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


def test_trailers_are_for_clients_that_ask_for_them(proxy):
    response = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n"
        b"3;ext=1\r\nabc\r\n0\r\nX-T: 1\r\n\r\n"
    )
    server, _ = proxy(answers(response))
    with server.connect() as connection:
        for _ in range(2):
            got = connection.request("GET", "/")
            assert got.text == "abc" and got.trailers == [] and got.header("Trailer") is None
            got = connection.request("GET", "/", {"TE": "trailers", "Connection": "TE"})
            assert got.text == "abc" and got.trailers == [("X-T", "1")] and got.header("Trailer") == "X-T"


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
        assert connection.head().status == 100
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
    """Also without `Connection: close`: howdah notices the end before the next request, or sends it again."""
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
    heads = []

    def handler(visit):
        heads.append(visit.head().line)
        if "body" in heads[-1]:
            visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nsome")
        visit.until_closed()

    server, upstream = proxy(handler)
    for target in ("/wait", "/body"):
        with server.connect() as connection:
            connection.send_request("GET", target)
            wait_for(lambda: heads and target in heads[-1], "the request")
            if target == "/body":
                connection.stream()
        wait_for(lambda: upstream.open == 0, "the end of the connection to the upstream")
