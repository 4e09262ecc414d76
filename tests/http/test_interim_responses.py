"""Responses before the response: 103 (Early Hints) and others."""

import threading

import pytest

from support.http.upstream import answers

HINTS = b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\nLink: </b.js>; rel=preload\r\nServer: x\r\nKeep-Alive: 5\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def test_they_are_passed_on_before_the_response(proxy):
    may_answer = threading.Event()

    def handler(visit):
        while visit.request():
            visit.send(b"HTTP/1.1 102 Processing\r\n\r\n", HINTS)
            assert may_answer.wait(10)
            visit.send(HINTS, OK)

    server, _ = proxy(handler)
    with server.connect() as connection:
        for _ in range(3):
            may_answer.clear()
            connection.send_request("GET", "/")
            processing, hints = connection.head(), connection.head()
            assert (processing.status, processing.headers) == (102, [])
            assert (hints.status, hints.reason, hints.version) == (103, "Early Hints", "HTTP/1.1")
            assert hints.headers == [("Link", "</a.css>; rel=preload"), ("Link", "</b.js>; rel=preload")]
            may_answer.set()
            got = connection.response()
            assert (got.status, got.interim, got.text) == (200, [103], "ok")


def test_100_is_howdahs_own(proxy):
    server, _ = proxy(answers(b"HTTP/1.1 100 Continue\r\n\r\n" + OK))
    with server.connect() as connection:
        got = connection.request("POST", "/", {"Expect": "100-continue"}, body=b"x")
        assert (got.status, got.interim) == (200, [100])
        assert connection.request("GET", "/").interim == []


def test_a_client_with_http_1_0_gets_none(proxy):
    server, _ = proxy(answers(HINTS + OK))
    raw = server.raw(b"GET / HTTP/1.0\r\n\r\n")
    assert b" 103 " not in raw and b" 200 " in raw


def test_very_many_are_dropped(proxy):
    server, _ = proxy(answers(HINTS * 1000 + OK))
    with server.connect() as connection:
        for _ in range(2):
            got = connection.request("GET", "/")
            assert (got.status, got.text) == (200, "ok")
            assert 1 <= len(got.interim) < 400


def test_pipelined_requests_keep_their_order(proxy):
    server, _ = proxy(answers(lambda request: HINTS + OK.replace(b"ok", request.line.split()[1][-2:].encode())))
    with server.connect() as connection:
        for number in range(10, 30):
            connection.send(f"GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        for number in range(10, 30):
            assert connection.response().text == str(number)


@pytest.mark.parametrize("body", [b"", b"x" * 100_000])
def test_a_request_with_a_body_gets_them(proxy, body):
    server, _ = proxy(answers(HINTS + OK))
    with server.connect() as connection:
        for _ in range(3):
            got = connection.request("POST", "/", body=body)
            assert (got.status, got.interim, got.text) == (200, [103], "ok")
