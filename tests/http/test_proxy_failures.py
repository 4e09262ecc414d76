"""The action `proxy` and `upstreams` when upstreams fail, and hostile requests and responses."""

import contextlib
from collections import Counter

import pytest

from support.http.client import ProtocolError
from support.http.proxying import proxy_configuration, upstream_group
from support.http.upstream import Upstream, answers, ok
from support.machine import free_port
from support.waiting import wait_for

# --- Failures


def test_an_upstream_that_is_down_gives_502(run):
    address = f"127.0.0.1:{free_port()}"
    server = run(proxy_configuration({"proxy": f"http://{address}"}))
    with server.connect() as connection:
        assert connection.request("GET", "/").status == 502
        server.wait_for_log_line("cannot forward a request", address, "refused", "502")
        assert connection.request("POST", "/", body=b"x").status == 502


def test_a_missing_unix_socket_gives_502(run, socket_path):
    server = run(proxy_configuration({"proxy": f"http://unix:{socket_path}"}))
    assert server.get("/").status == 502
    server.wait_for_log_line("cannot forward a request", str(socket_path), "No such file", "502")


@pytest.mark.parametrize(
    "response, why",
    [
        pytest.param(b"", "before its response", id="nothing"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Le", "not valid", id="half a head"),
        pytest.param(b"HTTP/1.1 200 OK\nContent-Length: 0\n\n", "LF alone", id="LF alone"),
        pytest.param(b"HTTP/1.1 200 OK\r\nA: b\nContent-Length: 0\r\n\r\n", "LF alone", id="LF alone within"),
        pytest.param(b"SSH-2.0-OpenSSH\r\n\r\n", "not valid", id="not HTTP"),
        pytest.param(b"HTTP/1.1 200 OK\r\nA: b\r\n folded\r\nContent-Length: 0\r\n\r\n", "not valid", id="obs-fold"),
        pytest.param(b"HTTP/1.1 200 OK\r\nA : b\r\nContent-Length: 0\r\n\r\n", "not valid", id="space before the colon"),
        pytest.param(b"HTTP/1.1 200 OK\r\nA: b\rc\r\nContent-Length: 0\r\n\r\n", "not valid", id="bare CR"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nxy", "not valid", id="a list of lengths"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy", "not valid", id="two lengths"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "not valid", id="negative length"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding", id="TE and CL"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding", id="TE gzip"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nabc", "Transfer-Encoding", id="TE identity"),
        pytest.param(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", "not requested", id="101 not requested"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 300 + b"Content-Length: 0\r\n\r\n", "not valid", id="too many headers"),
        pytest.param(b"HTTP/1.1 200 OK\r\nA: " + b"b" * 100_000 + b"\r\nContent-Length: 0\r\n\r\n", "not valid", id="head too large"),
    ],
)
def test_a_malformed_response_gives_502(proxy, response, why):
    server, upstream = proxy(answers(response, requests=1))
    with server.connect() as connection:
        assert connection.request("GET", "/").status == 502
    server.wait_for_log_line("cannot forward a request", upstream.address, why, "502")
    assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    "head, body",
    [
        (b"Content-Length: 10", b"abc"),
        (b"Transfer-Encoding: chunked", b"3\r\nabc\r\n"),
        (b"Transfer-Encoding: chunked", b"3\r\nabc\r\nzzz\r\n"),
        (b"Transfer-Encoding: chunked", b"3\r\nabc\r\nffffffffffffffff0\r\nabc"),
        (b"Transfer-Encoding: chunked", b"5\r\nabc"),
    ],
)
def test_a_truncated_response_is_never_delivered_as_complete(proxy, head, body):
    server, upstream = proxy(answers(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n" + body, requests=1))
    with server.connect() as connection, pytest.raises((ProtocolError, ConnectionResetError)):
        connection.request("GET", "/")
    server.wait_for_log_line("broke off", upstream.address)


@pytest.mark.parametrize("chunk", [b"ffffffffffffffff0\r\nabc", b"zzz\r\n", b"-1\r\nabc"])
def test_a_broken_first_chunk_is_answered_502(proxy, chunk):
    server, upstream = proxy(answers(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk, requests=1))
    assert server.get("/").status == 502
    server.wait_for_log_line("its response is not valid", upstream.address)


def test_a_response_to_http_1_0_that_breaks_off_ends_with_a_reset(proxy):
    """The end of the connection is the only end of such a body."""
    broken = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzzz\r\n"
    server, _ = proxy(answers(broken, requests=1))
    with server.connect() as connection, pytest.raises(ConnectionResetError):
        connection.send(b"GET / HTTP/1.0\r\n\r\n")
        while connection.socket.recv(65536):
            pass


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
    assert "cannot forward a request" not in server.stderr
    assert server.get("/").status == 200


# --- Upstreams of several servers


def test_servers_get_requests_in_proportion_to_their_weight(run):
    with Upstream(answers(ok(b"a"))) as a, Upstream(answers(ok(b"b"))) as b, Upstream(answers(ok(b"c"))) as c:
        server = run(upstream_group((a, 5), (b, 1), (c, 0)))
        with server.connect() as connection:
            got = "".join(connection.request("GET", "/").text for _ in range(60))
        assert Counter(got) == {"a": 50, "b": 10}
        assert got.startswith("aaabaa")


def test_no_request_is_lost_while_one_server_is_up(run):
    with Upstream(answers(ok(b"a"))) as a, Upstream(answers(ok(b"b"))) as b:
        server = run(upstream_group((f"127.0.0.1:{free_port()}", 1), (a, 1), (b, 1)))
        with server.connect() as connection:
            got = Counter(connection.request("POST", "/", body=b"x").text for _ in range(100))
        assert got["a"] > 30 and got["b"] > 30 and got["a"] + got["b"] == 100
        server.wait_for_log_line("trying the next one of the upstream", "refused")
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
        server = run(upstream_group((a, 1), (b, 1)))
        for _ in range(10):
            assert server.get("/").text == "b"
        assert deaths
        got = {server.post("/", b"x" * 10).status for _ in range(4)}
        assert got == {200, 502}, "a POST may have had effects: it is sent once"
    with Upstream(dies) as a, Upstream(dies) as b, Upstream(dies) as c:
        deaths.clear()
        server = run(upstream_group((a, 1), (b, 1), (c, 1)))
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
        server = run({**upstream_group((a, 1), (b, 1)), "settings": {"listen_threads": 1}})
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


def test_all_servers_down_gives_502(run):
    server = run(upstream_group((f"127.0.0.1:{free_port()}", 1), (f"127.0.0.1:{free_port()}", 1)))
    for _ in range(3):
        assert server.get("/").status == 502
    assert server.stderr.count("cannot forward a request") == 3


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

    The upstream's parser follows the framing strictly and rejects a request with two framings. The client must get
    responses to the requests that the upstream reads completely, in the same order.
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
