"""Requests of HTTP/2 for an upstream, which gets HTTP/1.1: each is one request there, or none. See docs/http.md.

No head of HTTP/2 may become two requests, a request with another end than its stream has, or headers that the
client did not send.
"""

import pytest

from support.http.http2 import Http2Connection
from support.http.upstream import Upstream, ok

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
LINES = "\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
NONE = None


def target(path: str) -> str:
    return f"GET {path} HTTP/1.1"


# Pseudo headers, headers, and the request line of the upstream; NONE if it gets no request.
PATHS = {
    "a space": ({"path": "/a b"}, [], NONE),
    "a space and a version": ({"path": "/a HTTP/1.1"}, [], NONE),
    "a tab": ({"path": "/a\tb"}, [], NONE),
    "lines": ({"path": "/a HTTP/1.1" + LINES}, [], NONE),
    "CR": ({"path": "/a\rb"}, [], NONE),
    "LF": ({"path": "/a\nb"}, [], NONE),
    "NUL": ({"path": "/a\0b"}, [], NONE),
    "DEL": ({"path": "/a\x7fb"}, [], NONE),
    "lines in the query": ({"path": "/a?b" + LINES}, [], NONE),
    "lines that are encoded": ({"path": "/a%0d%0aGET%20/smuggled%20HTTP/1.1%0d%0a"}, [], target("/a%0d%0aGET%20/smuggled%20HTTP/1.1%0d%0a")),
    "encoded lines in the query": ({"path": "/a?b=%0d%0ac:%20d"}, [], target("/a?b=%0d%0ac:%20d")),
    "a fragment": ({"path": "/a#b"}, [], target("/a")),
    "a fragment behind a query": ({"path": "/a?b#c"}, [], target("/a?b")),
    "an absolute form": ({"path": "http://y/a"}, [], NONE),
    "two slashes": ({"path": "//y/a"}, [], target("//y/a")),
    "no slash": ({"path": "a"}, [], NONE),
    "a colon": ({"path": ":80/a"}, [], NONE),
    "an asterisk": ({"path": "*"}, [], NONE),
    "an asterisk with OPTIONS": ({"method": "OPTIONS", "path": "*"}, [], "OPTIONS * HTTP/1.1"),
    "an encoded slash": ({"path": "/a%2fb"}, [], target("/a%2fb")),
    "folders above": ({"path": "/../a"}, [], NONE),
    "encoded folders above": ({"path": "/%2e%2e/a"}, [], NONE),
    "a backslash": ({"path": "/a\\b"}, [], (NONE, target("/a\\b"), target("/a%5Cb"))),
    "letters that are not ASCII": ({"path": "/ä"}, [], (NONE, target("/%C3%A4"), target("/Ã¤"))),
}
METHODS = {
    "a method with lines": ({"method": "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\nGET"}, [], NONE),
    "a method with a space": ({"method": "GET /smuggled"}, [], NONE),
    "an empty method": ({"method": ""}, [], NONE),
    "CONNECT": ({"method": "CONNECT", "scheme": None, "path": None}, [], NONE),
    "TRACE": ({"method": "TRACE"}, [], NONE),
    "PRI": ({"method": "PRI", "path": "*"}, [], NONE),
    "an unknown method": ({"method": "BREW"}, [], "BREW / HTTP/1.1"),
}
HOSTS = {
    "lines in :authority": ({"authority": "x" + LINES}, [], NONE),
    "a space in :authority": ({"authority": "x y"}, [], NONE),
    "a path in :authority": ({"authority": "x/smuggled"}, [], NONE),
    "a user in :authority": ({"authority": "y@x"}, [], NONE),
    "lines in :scheme": ({"scheme": "http://y/smuggled HTTP/1.1\r\nx: y\r\n\r\nhttp"}, [], NONE),
    "a host in :scheme": ({"scheme": "http://y/a?"}, [], NONE),
    "another Host": ({}, [("host", "y")], NONE),
    "an equal Host": ({}, [("host", "X")], target("/")),
    "two Hosts": ({}, [("host", "x"), ("host", "x")], NONE),
}
HEADERS = {
    "lines in a value": ({}, [("a", "b" + LINES)], NONE),
    "LF in a value": ({}, [("a", "b\nc: d")], NONE),
    "CR in a value": ({}, [("a", "b\rc: d")], NONE),
    "NUL in a value": ({}, [("a", "b\0")], NONE),
    "lines in a name": ({}, [("a: b\r\nc", "d")], NONE),
    "a colon in a name": ({}, [("content-length: 0\r\n\r\nx", "d")], NONE),
    "a space behind a name": ({}, [("content-length ", "3")], NONE),
    "capitals in a name": ({}, [("Transfer-Encoding", "chunked")], NONE),
    "an empty name": ({}, [("", "b")], NONE),
    "a pseudo header's name": ({}, [(":path", "/smuggled")], NONE),
    "Transfer-Encoding": ({}, [("transfer-encoding", "chunked")], NONE),
    "Transfer-Encoding: identity": ({}, [("transfer-encoding", "identity")], NONE),
    "Connection": ({}, [("connection", "host")], NONE),
    "Keep-Alive": ({}, [("keep-alive", "timeout=5")], NONE),
    "Proxy-Connection": ({}, [("proxy-connection", "keep-alive")], NONE),
    "Upgrade": ({}, [("upgrade", "websocket")], NONE),
    "HTTP2-Settings": ({}, [("http2-settings", "AAMAAABkAARAAAAAAAIAAAAA")], target("/")),
    "TE: gzip": ({}, [("te", "gzip")], NONE),
    "TE: trailers": ({}, [("te", "trailers")], target("/")),
    "Trailer": ({}, [("trailer", "content-length")], target("/")),
    "Proxy": ({}, [("proxy", "http://y/")], target("/")),
    "Expect": ({}, [("expect", "100-continue")], target("/")),
    "Content_Length": ({}, [("content_length", "3")], target("/")),
    "Transfer_Encoding": ({}, [("transfer_encoding", "chunked")], target("/")),
    "cookies in parts": ({}, [("cookie", "a=1"), ("cookie", "b=2; c=3")], target("/")),
}
# As a POST with a body that looks like a request.
LENGTHS = {
    "no length": ([], True),
    "the length": ([("content-length", str(len(SMUGGLED)))], True),
    "a length with zeros": ([("content-length", f"000{len(SMUGGLED)}")], (True, False)),
    "a length of 0": ([("content-length", "0")], False),
    "a length that is too small": ([("content-length", "1")], False),
    "a length that is too large": ([("content-length", "1000")], False),
    "a length with a sign": ([("content-length", f"+{len(SMUGGLED)}")], False),
    "a negative length": ([("content-length", "-1")], False),
    "a length with a fraction": ([("content-length", f"{len(SMUGGLED)}.0")], False),
    "a hexadecimal length": ([("content-length", f"0x{len(SMUGGLED):x}")], False),
    "a length with a letter": ([("content-length", f"{len(SMUGGLED)}a")], False),
    "an empty length": ([("content-length", "")], False),
    "a list": ([("content-length", f"{len(SMUGGLED)}, {len(SMUGGLED)}")], False),
    "two equal lengths": ([("content-length", str(len(SMUGGLED)))] * 2, False),
    "two lengths": ([("content-length", "0"), ("content-length", str(len(SMUGGLED)))], False),
    "a length beyond 64 bits": ([("content-length", str((1 << 64) + len(SMUGGLED)))], False),
    "a length and a coding": ([("content-length", "0"), ("transfer-encoding", "chunked")], False),
    "a coding": ([("transfer-encoding", "chunked")], False),
    "a length with a space": ([("content-length", f" {len(SMUGGLED)} ")], (True, False)),
    "Expect": ([("expect", "100-continue")], True),
}  # fmt: skip


COMPLETE = []
"""The requests that have come to their end."""


def handler(visit):
    while request := visit.request():
        COMPLETE.append(request)
        visit.send(ok(b"up"))


@pytest.fixture(scope="module")
def upstream():
    with Upstream(handler) as upstream:
        yield upstream


@pytest.fixture
def server(run, upstream):
    routes = [{"action": {"proxy": upstream.url}}]
    settings = {"http": {"discard_unsafe_fields": False}}
    return run({"listeners": {"127.0.0.1:{port}": {"pass": "routes", "http2": True}}, "routes": routes, "settings": settings})


def received(server, upstream, head, body=None):
    """The requests that the upstream gets for a head. The next request of another client is itself."""
    before = len(upstream.requests)
    with Http2Connection((server.host, server.port)) as connection:
        fields = connection.head(headers=head[1], **head[0])
        [frame] = connection.request_frames(fields, body is None)
        connection.send(frame)
        if body is not None:
            connection.upload(frame.stream_id, body, ends=True)
        connection.response(frame.stream_id)
    with Http2Connection((server.host, server.port)) as other:
        assert other.request(path="/next").text == "up"
    *requests, following = upstream.requests[before:]
    assert following.line == "GET /next HTTP/1.1" and not upstream.fragments and not upstream.errors
    return requests


TABLES = {"paths": PATHS, "methods": METHODS, "hosts": HOSTS, "headers": HEADERS}


@pytest.mark.parametrize("table", TABLES)
def test_a_head_is_one_request_or_none(server, upstream, table):
    for name, (pseudo, headers, expected) in TABLES[table].items():
        requests = received(server, upstream, (pseudo, headers))
        assert len(requests) <= 1, name
        line = requests[0].line if requests else NONE
        assert line in (expected if isinstance(expected, tuple) else (expected,)), f"{name}: {line}"
        for request in requests:
            names = [name for name, _ in request.headers]
            assert request.header("host") == "x" and not request.body, name
            dropped = ("transfer-encoding", "content-length", "upgrade", "keep-alive", "http2-settings", "trailer", "proxy", "expect")
            assert not set(names) & set(dropped), name
            assert names.count("cookie") <= 1 and not [each for each in names if each.startswith(":")], name
            assert request.header("connection") in (None, "TE"), name


def test_a_body_ends_where_its_stream_ends(server, upstream):
    for name, (headers, expected) in LENGTHS.items():
        try:
            requests = received(server, upstream, ({"method": "POST"}, headers), SMUGGLED)
        except AssertionError:
            raise AssertionError(name) from None
        whole = [request for request in requests if request.body == SMUGGLED]
        # howdah sends the head before the body. A body that breaks off is no complete request.
        others = [request for request in requests if request not in whole and request in COMPLETE]
        assert len(requests) <= 1 and (not others or headers[0] == ("content-length", "0")), name
        assert bool(whole) in (expected if isinstance(expected, tuple) else (expected,)), name
        for request in whole:
            assert request.line == "POST / HTTP/1.1"
            assert (request.header("transfer-encoding") == "chunked") != (request.header("content-length") == str(len(SMUGGLED))), name


def test_a_websocket_has_no_body(server, upstream):
    for headers in ([], [("content-length", str(len(SMUGGLED)))]):
        requests = received(server, upstream, ({"method": "CONNECT", "protocol": "websocket"}, headers), SMUGGLED)
        assert [request.line for request in requests] == ["GET / HTTP/1.1"]
        assert requests[0].header("content-length") in (None, "0") and requests[0].header("transfer-encoding") is None


def test_names_that_are_not_safe_are_dropped_by_default(run, upstream):
    server = run({
        "listeners": {"127.0.0.1:{port}": {"pass": "routes", "http2": True}},
        "routes": [{"action": {"proxy": upstream.url}}],
    })  # fmt: skip
    for name in ("content_length", "transfer_encoding", "x.y", "a!b"):
        [request] = received(server, upstream, ({}, [(name, "3")]))
        assert request.header(name) is None
