"""Requests of HTTP/3 for an upstream, which gets HTTP/1.1: each is one request there, or none. See docs/http.md."""

import pytest

from support.http.client import Connection
from support.http.downgrades import LENGTHS, NONE, SMUGGLED, TABLES, target
from support.http.http3 import DATA, HEADERS, Http3Connection, encode, frame
from support.http.upstream import Upstream, ok

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
def server(begin, upstream):
    return begin([{"action": {"proxy": upstream.url}}], http={"discard_unsafe_fields": False})


def received(server, upstream, pseudo, headers, body=None):
    """The requests that the upstream gets for a head. The next request of another client is itself."""
    before = len(upstream.requests)
    defaults = {"method": "GET", "scheme": "https", "authority": "x", "path": "/"}
    fields = [(f":{name}", value) for name, value in {**defaults, **pseudo}.items() if value is not None]
    with Http3Connection((server.host, server.port)) as connection:
        stream = connection.open()
        data = frame(HEADERS, encode([*fields, *headers])) + (frame(DATA, body) if body is not None else b"")
        connection.send(stream, data, ends=True)
        connection.finish(stream)
    with Connection(server.plain) as other:
        assert other.request("GET", "/next").text == "up"
    *requests, following = upstream.requests[before:]
    assert following.line == "GET /next HTTP/1.1" and not upstream.fragments and not upstream.errors
    return requests


# h3 compares `Host` as it stands, and takes the last pseudo header of several (docs/http.md).
DIFFERENT = {"an equal Host": NONE, "a pseudo header's name": target("/smuggled")}


@pytest.mark.parametrize("table", TABLES)
def test_a_head_is_one_request_or_none(server, upstream, table):
    for name, (pseudo, headers, expected) in TABLES[table].items():
        requests = received(server, upstream, pseudo, headers)
        expected = DIFFERENT.get(name, expected)
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
        requests = received(server, upstream, {"method": "POST"}, headers, SMUGGLED)
        whole = [request for request in requests if request.body == SMUGGLED]
        # howdah sends the head before the body. A body that breaks off is no complete request.
        others = [request for request in requests if request not in whole and request in COMPLETE]
        assert len(requests) <= 1 and (not others or headers[0] == ("content-length", "0")), name
        assert bool(whole) in (expected if isinstance(expected, tuple) else (expected,)), name
        for request in whole:
            assert request.line == "POST / HTTP/1.1"
            assert (request.header("transfer-encoding") == "chunked") != (request.header("content-length") == str(len(SMUGGLED))), name
