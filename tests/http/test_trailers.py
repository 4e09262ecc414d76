"""Trailers: headers behind a chunked body of an upstream, or of a request. See docs/http.md."""

import pytest
from hyperframe.frame import DataFrame

from support.http.http2 import Http2Connection
from support.http.upstream import Upstream, answers, ok

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, X-Two, Set-Cookie\r\n\r\n"
TRAILERS = b"0\r\nX-Sum: 1\r\nX-Two: a\r\nX-Two: b\r\nSet-Cookie: a=b\r\nContent-Length: 3\r\nConnection: close\r\nX-Other: 2\r\n\r\n"
BODIES = {"/body": b"5\r\nhello\r\n", "/empty": b"", "/large": b"8000\r\n" + b"x" * 0x8000 + b"\r\n"}
KEPT = [("x-sum", "1"), ("x-two", "a"), ("x-two", "b")]


def handler(visit):
    while request := visit.request():
        path = request.line.split()[1]
        visit.send(HEAD, BODIES[path])
        visit.send(TRAILERS)


@pytest.fixture(scope="module")
def upstream():
    with Upstream(handler) as upstream:
        yield upstream


@pytest.fixture
def server(run, upstream):
    listener = {"pass": "routes", "http2": True}
    compression = {"compressors": {"encoding": "gzip"}}
    return run({
        "listeners": {"127.0.0.1:{port}": listener},
        "routes": [{"action": {"proxy": upstream.url}}],
        "settings": {"http": {"compression": compression}},
    })  # fmt: skip


def test_a_client_of_http_2_gets_the_trailers(server, upstream):
    accepted = upstream.accepted
    with Http2Connection((server.host, server.port)) as connection:
        for path, chunk in BODIES.items():
            got = connection.request(path=path, headers=[("accept-encoding", "gzip")])
            head, trailers = map(dict, got.heads)
            assert (head[":status"], head["trailer"]) == ("200", "X-Sum, X-Two, Set-Cookie") and "content-encoding" not in head
            assert got.body == b"".join(chunk.split(b"\r\n")[1:2]) and got.ended
            # Not those that change what the response is.
            assert got.heads[1] == [*KEPT, ("x-other", "2")], trailers
        assert connection.request("HEAD", "/body").heads[0][0] == (":status", "200")
    assert upstream.accepted - accepted <= 2, "the connection was used again"


def raw(server, path: str, *headers: str, version="1.1") -> tuple[str, bytes]:
    lines = [f"GET {path} HTTP/{version}", "Host: x", "Connection: close", *headers]
    head, _, body = server.raw("\r\n".join(lines).encode() + b"\r\n\r\n").partition(b"\r\n\r\n")
    return head.decode().lower(), body


@pytest.mark.parametrize("te", ["trailers", "gzip;q=0.5, Trailers"])
def test_a_client_of_http_1_gets_them_if_it_asks(server, upstream, te):
    for path, chunk in BODIES.items():
        head, body = raw(server, path, f"TE: {te}")
        assert "trailer: x-sum, x-two, set-cookie" in head
        # Only those that the head has named.
        assert body.lower().endswith(b"0\r\nx-sum: 1\r\nx-two: a\r\nx-two: b\r\n\r\n"), body[-200:]
        asked = upstream.requests[-1]
        assert (asked.header("te"), asked.header("connection")) == ("trailers", "TE")


def test_others_get_none(server, upstream):
    for path, chunk in BODIES.items():
        head, body = raw(server, path)
        assert "trailer" not in head and body.endswith(b"0\r\n\r\n") and b"X-Sum" not in body and b"x-sum" not in body
        assert upstream.requests[-1].header("te") is None
        head, body = raw(server, path, "TE: trailers", version="1.0")
        assert "trailer" not in head and body == b"".join(chunk.split(b"\r\n")[1:2])


def test_an_upstream_that_breaks_off_in_its_trailers_is_no_complete_response(run):
    def breaks_off(visit):
        if visit.request():
            visit.send(HEAD, BODIES["/body"])
            visit.send(b"0\r\nX-Sum: 1\r\n")

    with Upstream(breaks_off) as upstream:
        server = run({
            "listeners": {"127.0.0.1:{port}": {"pass": "routes", "http2": True}},
            "routes": [{"action": {"proxy": upstream.url}}],
        })  # fmt: skip
        with Http2Connection((server.host, server.port)) as connection:
            got = connection.request(path="/body")
            assert got.reset == 2 or got.status == 502
        assert not raw(server, "/body", "TE: trailers")[1].endswith(b"\r\n\r\n")


# --- Of requests


def test_those_of_requests_end_at_howdah(run):
    """Also those that the head has announced: an upstream that merges them with the headers would believe the client that it
    is another one."""
    with Upstream(answers(ok())) as upstream:
        server = run({
            "listeners": {"127.0.0.1:{port}": {"pass": "routes", "http2": True}},
            "routes": [{"action": {"proxy": upstream.url}}],
        })  # fmt: skip
        headers = "Transfer-Encoding: chunked\r\nTrailer: X-Forwarded-For\r\nTE: trailers\r\nConnection: close"
        body = "5\r\nhello\r\n0\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n"
        assert server.raw(f"POST / HTTP/1.1\r\nHost: x\r\n{headers}\r\n\r\n{body}".encode()).startswith(b"HTTP/1.1 200")
        with Http2Connection((server.host, server.port)) as connection:
            stream = connection.begin("POST", "/", [("trailer", "x-forwarded-for"), ("te", "trailers")], ends=False)
            connection.send(DataFrame(stream, data=b"hello"))
            connection.send(*connection.request_frames([("x-forwarded-for", "10.0.0.1")], True, stream))
            assert connection.response(stream).status == 200
        for request in upstream.requests:
            assert request.body == b"hello" and request.raw_body.endswith(b"0\r\n\r\n") and request.header("trailer") is None
            assert b"10.0.0.1" not in request.raw + request.raw_body
        assert len(upstream.requests) == 2
