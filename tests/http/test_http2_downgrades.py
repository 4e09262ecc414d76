"""Requests of HTTP/2 for an upstream, which gets HTTP/1.1: each is one request there, or none. See docs/http.md.

No head of HTTP/2 may become two requests, a request with another end than its stream has, or headers that the
client did not send.
"""

import pytest

from support.http.downgrades import LENGTHS, NONE, SMUGGLED, TABLES
from support.http.http2 import Http2Connection
from support.http.upstream import Upstream, ok
from support.waiting import wait_for

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


def send(server, head, body=None):
    with Http2Connection((server.host, server.port)) as connection:
        fields = connection.head(headers=head[1], **head[0])
        [frame] = connection.request_frames(fields, body is None)
        connection.send(frame)
        if body is not None:
            connection.upload(frame.stream_id, body, ends=True)
        connection.response(frame.stream_id)
    with Http2Connection((server.host, server.port)) as other:
        assert other.request(path="/next").text == "up"


def received(server, upstream, head, body=None):
    """The requests that the upstream gets for a head. The next request of another client is itself."""
    before = len(upstream.requests)
    send(server, head, body)
    *requests, following = upstream.requests[before:]
    assert following.line == "GET /next HTTP/1.1" and not upstream.fragments and not upstream.errors
    return requests


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
    before = len(upstream.requests)
    for number, (headers, _) in enumerate(LENGTHS.values()):
        send(server, ({"method": "POST", "path": f"/{number}"}, headers), SMUGGLED)
    # The upstream may read a request that was broken off later than the next one.
    server.stop()
    wait_for(lambda: not upstream.open, "the end of all connections to the upstream")
    found = upstream.requests[before:]
    posts = [[request for request in found if request.line == f"POST /{number} HTTP/1.1"] for number in range(len(LENGTHS))]
    following = [request for request in found if request.line == "GET /next HTTP/1.1"]
    assert len(found) == len(following) + sum(map(len, posts)), [request.line for request in found]
    assert len(following) == len(LENGTHS) and not upstream.fragments and not upstream.errors
    for requests, (name, (headers, expected)) in zip(posts, LENGTHS.items(), strict=True):
        whole = [request for request in requests if request.body == SMUGGLED]
        # howdah sends the head before the body. A body that breaks off is no complete request.
        others = [request for request in requests if request not in whole and request in COMPLETE]
        assert len(requests) <= 1 and (not others or headers[0] == ("content-length", "0")), name
        assert bool(whole) in (expected if isinstance(expected, tuple) else (expected,)), name
        for request in whole:
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
