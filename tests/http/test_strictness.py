"""Ambiguous HTTP/1.1 requests and howdah's responses to them. See docs/http.md.

Each request of the corpus is sent to a script and to a file, at once and in pieces. Another request follows it: if the
first is rejected, the second must not be parsed as a request; otherwise it must be answered. Everything runs alone, and
again beside enough idle connections that howdah releases the buffers of connections between two requests.
"""

import contextlib
import os
import re
import socket
import time

import pytest

from support.folders import readable
from support.http.upstream import Upstream, ok
from support.processes import open_files
from support.server import stop_all
from support.site import Site
from support.waiting import PATIENCE, wait_for

HOST = b"Host: x\r\n"
TE = b"Transfer-Encoding: chunked\r\n"
END = b"0\r\n\r\n"


def get(target: bytes = b"TARGET", headers: bytes = HOST, version: bytes = b"HTTP/1.1") -> bytes:
    return b"GET %b %b\r\n%b\r\n" % (target, version, headers)


def post(headers: bytes, body: bytes = b"hello", version: bytes = b"HTTP/1.1") -> bytes:
    return b"POST TARGET %b\r\n%b%b\r\n%b" % (version, HOST, headers, body)


def chunks(body: bytes) -> bytes:
    return post(TE, body)


# TARGET stands for a script or a file. A rejected request gets one response with this status; the connection closes.
REFUSED = {
    # The request line (RFC 9112, 3)
    "two spaces after the method": (400, b"GET  TARGET HTTP/1.1\r\n" + HOST + b"\r\n"),
    "two spaces before the version": (400, b"GET TARGET  HTTP/1.1\r\n" + HOST + b"\r\n"),
    "a space behind the version": (400, b"GET TARGET HTTP/1.1 \r\n" + HOST + b"\r\n"),
    "a space before the method": (400, b" GET TARGET HTTP/1.1\r\n" + HOST + b"\r\n"),
    "a tab for a space": (400, b"GET\tTARGET HTTP/1.1\r\n" + HOST + b"\r\n"),
    "a space in the target": (400, get(b"TARGET x")),
    "no target": (400, b"GET HTTP/1.1\r\n" + HOST + b"\r\n"),
    "HTTP/0.9": (400, b"GET TARGET\r\n\r\n"),
    "a bare LF after the request line": (400, b"GET TARGET HTTP/1.1\nHost: x\r\n\r\n"),
    "bare LFs everywhere": (400, b"GET TARGET HTTP/1.1\nHost: x\n\n"),
    "a bare CR after the request line": (400, b"GET TARGET HTTP/1.1\rHost: x\r\n\r\n"),
    "a bare LF before the request line": (400, b"\n" + get()),
    "a method with a control character": (400, b"GE\x01T TARGET HTTP/1.1\r\n" + HOST + b"\r\n"),
    "a method with a separator": (400, b"G(T TARGET HTTP/1.1\r\n" + HOST + b"\r\n"),
    "a method with a colon": (400, b"GET: TARGET HTTP/1.1\r\n" + HOST + b"\r\n"),
    "a method in quotes": (400, b'"GET" TARGET HTTP/1.1\r\n' + HOST + b"\r\n"),
    "no method": (400, b" TARGET HTTP/1.1\r\n" + HOST + b"\r\n"),
    # Versions (RFC 9110, 2.5)
    "HTTP/1.2": (505, get(version=b"HTTP/1.2")),
    "HTTP/2.0": (505, get(version=b"HTTP/2.0")),
    "HTTP/0.9 by its name": (505, get(version=b"HTTP/0.9")),
    "the preface of HTTP/2": (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "http/1.1": (400, get(version=b"http/1.1")),
    "HTTP/1.10": (400, get(version=b"HTTP/1.10")),
    "HTTP/01.1": (400, get(version=b"HTTP/01.1")),
    "another protocol": (400, get(version=b"ICY/1.1")),
    "TLS": (400, bytes.fromhex("16030100a5010000a10303") + b"\x11" * 160),
    # Targets (RFC 9112, 3.2)
    "a target without a slash": (400, get(b"x.php")),
    "an empty path": (400, get(b"?x=1")),
    "a fragment": (400, get(b"TARGET#x")),
    "a fragment after a query": (400, get(b"TARGET?x#y")),
    "NUL in the target": (400, get(b"TARGET\0")),
    "DEL in the target": (400, get(b"TARGET\x7f")),
    "%00": (400, get(b"TARGET%00")),
    "a percent sign alone": (400, get(b"TARGET%")),
    "half an escape": (400, get(b"TARGET%4")),
    "an escape with other letters": (400, get(b"TARGET%zz")),
    "an escape with a sign": (400, get(b"TARGET%+1")),
    "above the root": (400, get(b"/..TARGET")),
    "above the root, encoded": (400, get(b"/%2e%2e%2fTARGET")),
    "above the root, later": (400, get(b"/a/../../TARGET")),
    "* with GET": (400, get(b"*")),
    "another scheme": (400, get(b"ftp://xTARGET")),
    "a scheme without a host": (400, get(b"http://TARGET")),
    "a user in the target": (400, get(b"http://user@xTARGET")),
    # Host (RFC 9112, 3.2)
    "no Host": (400, get(headers=b"")),
    "two Hosts": (400, get(headers=b"Host: x\r\nHost: y\r\n")),
    "two equal Hosts": (400, get(headers=HOST + HOST)),
    "an empty Host": (400, get(headers=b"Host:\r\n")),
    "a Host of spaces": (400, get(headers=b"Host:   \r\n")),
    "an empty Host in HTTP/1.0": (400, get(headers=b"Host:\r\n", version=b"HTTP/1.0")),
    "two Hosts beside an absolute target": (400, get(b"http://xTARGET", HOST + HOST)),
    "no Host beside an absolute target": (400, get(b"http://xTARGET", b"")),
    "a Host with a path": (400, get(headers=b"Host: x/y\r\n")),
    "a Host with a space": (400, get(headers=b"Host: x y\r\n")),
    "a Host with a user": (400, get(headers=b"Host: user@x\r\n")),
    "two names in a Host": (400, get(headers=b"Host: x, y\r\n")),
    "a Host with dots": (400, get(headers=b"Host: ..\r\n")),
    "a Host with a bad port": (400, get(headers=b"Host: x:y\r\n")),
    "a Host with two ports": (400, get(headers=b"Host: x:80:80\r\n")),
    "a Host with half a bracket": (400, get(headers=b"Host: [::1\r\n")),
    "a Host that is no ASCII": (400, get(headers="Host: é\r\n".encode())),
    # Headers (RFC 9112, 5)
    "a space before a colon": (400, get(headers=HOST + b"X-A : 1\r\n")),
    "a tab before a colon": (400, get(headers=HOST + b"X-A\t: 1\r\n")),
    "a folded header": (400, get(headers=HOST + b"X-A: 1\r\n 2\r\n")),
    "a header folded with a tab": (400, get(headers=HOST + b"X-A: 1\r\n\t2\r\n")),
    "a folded first header": (400, b"GET TARGET HTTP/1.1\r\n X-A: 1\r\n" + HOST + b"\r\n"),
    "a header without a colon": (400, get(headers=HOST + b"nonsense\r\n")),
    "a header without a name": (400, get(headers=HOST + b": 1\r\n")),
    "a name with a control character": (400, get(headers=HOST + b"X\x01A: 1\r\n")),
    "a name that is no ASCII": (400, get(headers=HOST + b"X\xe9: 1\r\n")),
    "a name with a slash": (400, get(headers=HOST + b"X/A: 1\r\n")),
    "NUL in a value": (400, get(headers=HOST + b"X-A: a\0b\r\n")),
    "a bare CR in a value": (400, get(headers=HOST + b"X-A: a\rX-B: b\r\n")),
    "a bare LF after a header": (400, get(headers=HOST + b"X-A: a\nX-B: b\r\n")),
    "a bare LF for the empty line": (400, b"GET TARGET HTTP/1.1\r\n" + HOST + b"\n"),
    # Content-Length (RFC 9110, 8.6; RFC 9112, 6.3)
    "two lengths": (400, post(b"Content-Length: 5\r\nContent-Length: 6\r\n")),
    "two equal lengths": (400, post(b"Content-Length: 5\r\nContent-Length: 5\r\n")),
    "two lengths of no body": (400, get(headers=HOST + b"Content-Length: 0\r\nContent-Length: 0\r\n")),
    "a list of lengths": (400, post(b"Content-Length: 5, 5\r\n")),
    "an empty length": (400, post(b"Content-Length:\r\n")),
    "a negative length": (400, post(b"Content-Length: -5\r\n")),
    "a length with a sign": (400, post(b"Content-Length: +5\r\n")),
    "a length in hexadecimal": (400, post(b"Content-Length: 0x5\r\n")),
    "a length with a fraction": (400, post(b"Content-Length: 5.0\r\n")),
    "a length with a space in it": (400, post(b"Content-Length: 0 5\r\n")),
    "a length beyond 63 bits": (400, post(b"Content-Length: 9223372036854775808\r\n")),
    "a length beyond 64 bits": (400, post(b"Content-Length: 18446744073709551621\r\n")),
    "a space before the colon of a length": (400, post(b"Content-Length : 5\r\n")),
    # Transfer-Encoding (RFC 9112, 6.1 and 6.3)
    "chunked and a length": (400, post(TE + b"Content-Length: 5\r\n", END)),
    "a length and chunked": (400, post(b"Content-Length: 5\r\n" + TE, END)),
    "chunked and a length that fits": (400, post(TE + b"Content-Length: 5\r\n", END)),
    "chunked and no length": (400, post(TE + b"Content-Length: 0\r\n", END)),
    "chunked twice": (400, post(TE + TE, END)),
    "chunked twice in a list": (400, post(b"Transfer-Encoding: chunked, chunked\r\n", END)),
    "chunked, then identity": (400, post(b"Transfer-Encoding: chunked, identity\r\n", END)),
    "chunked, then gzip": (400, post(b"Transfer-Encoding: chunked, gzip\r\n", END)),
    "chunked, then nothing": (400, post(b"Transfer-Encoding: chunked,\r\n", END)),
    "chunked and identity in two headers": (400, post(TE + b"Transfer-Encoding: identity\r\n", END)),
    "identity": (400, post(b"Transfer-Encoding: identity\r\nContent-Length: 5\r\n")),
    "gzip": (400, post(b"Transfer-Encoding: gzip\r\n")),
    "gzip, then chunked": (501, post(b"Transfer-Encoding: gzip, chunked\r\n", END)),
    "identity, then chunked": (501, post(b"Transfer-Encoding: identity, chunked\r\n", END)),
    "not quite chunked": (400, post(b"Transfer-Encoding: xchunked\r\n", END)),
    "chunked in quotes": (400, post(b'Transfer-Encoding: "chunked"\r\n', END)),
    "chunked after a control character": (400, post(b"Transfer-Encoding: \x0bchunked\r\n", END)),
    "chunked with a parameter": (400, post(b"Transfer-Encoding: chunked;q=1\r\n", END)),
    "an empty transfer-encoding": (400, post(b"Transfer-Encoding:\r\n", END)),
    "a space before the colon of chunked": (400, post(b"Transfer-Encoding : chunked\r\n", END)),
    "a folded chunked": (400, post(b"Transfer-Encoding:\r\n chunked\r\n", END)),
    "chunked in HTTP/1.0": (400, post(TE, END, b"HTTP/1.0")),
    # Methods (RFC 9110, 9.3)
    "CONNECT to a host": (405, b"CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n\r\n"),
    "CONNECT": (405, b"CONNECT TARGET HTTP/1.1\r\nHost: x\r\n\r\n"),
    "TRACE": (405, b"TRACE TARGET HTTP/1.1\r\nHost: x\r\nX-Secret: s3\r\n\r\n"),
}  # fmt: skip

# Bodies with malformed chunks (RFC 9112, 7.1). The script of such a request does not run.
BROKEN = {
    "no size": b"\r\nhello\r\n" + END,
    "a size that is no number": b"x\r\nhello\r\n" + END,
    "a negative size": b"-5\r\nhello\r\n" + END,
    "a size with a sign": b"+5\r\nhello\r\n" + END,
    "a size with a prefix": b"0x5\r\nhello\r\n" + END,
    "a size with an underscore": b"0_5\r\nhello\r\n" + END,
    "a space before a size": b" 5\r\nhello\r\n" + END,
    "a space behind a size": b"5 \r\nhello\r\n" + END,
    "two sizes": b"5 5\r\nhello\r\n" + END,
    "a size of 17 digits": b"00000000000000005\r\nhello\r\n" + END,
    "a size beyond 64 bits": b"10000000000000005\r\nhello\r\n" + END,
    "a bare LF after a size": b"5\nhello\r\n" + END,
    "a bare CR after a size": b"5\rhello\r\n" + END,
    "a bare LF in an extension": b"5;a\nb\r\nhello\r\n" + END,
    "NUL in an extension": b"5;a\0b\r\nhello\r\n" + END,
    "an endless extension": b"5;" + b"a" * 5000 + b"\r\nhello\r\n" + END,
    "a chunk that is longer than its size": b"4\r\nhello\r\n" + END,
    "a chunk that is shorter than its size": b"6\r\nhello\r\n" + END,
    "a bare LF after a chunk": b"5\r\nhello\n" + END,
    "a bare LF for the last line": b"5\r\nhello\r\n0\r\n\n",
    "a folded trailer": b"5\r\nhello\r\n0\r\nX-A: 1\r\n 2\r\n\r\n",
    "a bare LF after a trailer": b"5\r\nhello\r\n0\r\nX-A: 1\n\r\n",
    "a trailer without a colon": b"5\r\nhello\r\n0\r\nnonsense\r\n\r\n",
}

# Requests that are unusual but unambiguous, each with the length of the body that a script gets.
ACCEPTED = {
    "an empty line first": (b"\r\n" + get(), 0),
    "HTTP/1.0 without Host": (b"GET TARGET HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 0),
    "an absolute target": (get(b"http://xTARGET"), 0),
    "an absolute target of another host": (get(b"http://y:81TARGET"), 0),
    "an absolute target with another scheme": (get(b"https://xTARGET"), 0),
    "a scheme in capitals": (get(b"HTTP://XTARGET"), 0),
    "two slashes": (get(b"//TARGET"), 0),
    "a folder and out of it": (get(b"/a/b/../..TARGET"), 0),
    "a folder and out of it, encoded": (get(b"/a%2f%2e%2eTARGET"), 0),
    "dots": (get(b"/.TARGET"), 0),
    "a bad escape in the query": (get(b"TARGET?%&%zz=%4"), 0),
    "a Host with a dot at its end": (get(headers=b"Host: x.\r\n"), 0),
    "a Host of digits and brackets": (get(headers=b"Host: [::1]:80\r\n"), 0),
    "spaces around a value": (get(headers=HOST + b"X-A: \t 1 \t \r\n"), 0),
    "no space before a value": (get(headers=b"Host:x\r\n"), 0),
    "bytes beyond ASCII in a value": (get(headers=HOST + b"X-A: \xe9\xff\r\n"), 0),
    "a body of a GET": (b"GET TARGET HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", 5),
    "a length with zeros": (post(b"Content-Length: 0005\r\n"), 5),
    "a length with spaces around": (post(b"Content-Length: \t5 \r\n"), 5),
    "chunked in capitals": (post(b"TRANSFER-ENCODING: CHUNKED\r\n", b"5\r\nhello\r\n" + END), 5),
    "an extension": (chunks(b'5;a=b;c="d e"\r\nhello\r\n' + END), 5),
    "a space before an extension": (chunks(b"5 ;a\r\nhello\r\n" + END), 5),
    "a size of 16 digits": (chunks(b"0000000000000005\r\nhello\r\n" + END), 5),
    "a trailer": (chunks(b"5\r\nhello\r\n0\r\nX-A: 1\r\nContent-Length: 9\r\n\r\n"), 5),
    "a request in a body": (post(b"Content-Length: 37\r\n", b"GET /smuggled.php HTTP/1.1\r\nHost: x\r\n\r\n"[:37]), 37),
    "a request in a chunk": (chunks(b"25\r\n" + b"GET /smuggled.php HTTP/1.1\r\nHost: x\r\n\r\n"[:37] + b"\r\n" + END), 37),
}  # fmt: skip

TARGETS = [b"/seen.php", b"/file.txt"]
BEHIND = b"GET /smuggled.php HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


# More connections than connection.rs allows to keep their buffers. With one processor, one router thread has them all.
CROWD = 300
ONE_PROCESSOR = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))]


@pytest.fixture(scope="module", params=["alone", "in a crowd"])
def site(request, tmp_path_factory):
    site = Site(readable(tmp_path_factory.mktemp("site")), prefix=ONE_PROCESSOR)
    crowd = join(site.server) if request.param == "in a crowd" else []
    yield site
    for idle in crowd:
        idle.close()
    stop_all([site.server])


def join(server) -> list[socket.socket]:
    """Idle connections, all of them accepted."""
    crowd = [socket.create_connection((server.host, server.port)) for _ in range(CROWD)]
    number = server.router().pid

    def sockets():
        return sum(target.startswith("socket:") for target in open_files(number).values())

    wait_for(lambda: sockets() > CROWD, "the connections to be accepted")
    return crowd


@pytest.fixture(autouse=True)
def files(site):
    site.php("smuggled.php", "touch(SCRATCH . '/smuggled'); echo 'smuggled';")
    site.php(
        "seen.php",
        "touch(SCRATCH . '/ran'); echo json_encode(['host' => $_SERVER['HTTP_HOST'] ?? null, "
        "'name' => $_SERVER['SERVER_NAME'], 'length' => strlen(file_get_contents('php://input'))]);",
    )
    site.write("file.txt", "a file")
    for name in ("smuggled", "ran"):
        (site.scratch / name).unlink(missing_ok=True)


def send(server, data: bytes, pieces: bool) -> bytes:
    """Sends the data and returns everything that the server sends. `pieces` splits the data at the critical places."""
    with server.connect() as connection:
        try:
            for piece in re.split(rb"(?<=[\r\n: ])", data) if pieces else [data]:
                connection.send(piece)
                if pieces:
                    time.sleep(0.0002)
        except (BrokenPipeError, ConnectionResetError):
            pass
        return connection.rest()


def statuses(raw: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d{3}) ", raw)]


@pytest.mark.parametrize("pieces", [False, True], ids=["at once", "in pieces"])
@pytest.mark.parametrize("target", TARGETS, ids=["script", "file"])
@pytest.mark.parametrize("name", REFUSED)
def test_an_ambiguous_request_is_rejected_once(site, server, name, target, pieces):
    status, request = REFUSED[name]
    raw = send(server, request.replace(b"TARGET", target) + BEHIND, pieces)
    assert statuses(raw) == [status], raw
    assert re.search(rb"(?i)\r\nconnection: close\r\n", raw) and b"s3" not in raw, raw
    assert not (site.scratch / "smuggled").exists() and not (site.scratch / "ran").exists()


@pytest.mark.parametrize("pieces", [False, True], ids=["at once", "in pieces"])
@pytest.mark.parametrize("name", BROKEN)
def test_a_body_with_broken_chunks_reaches_no_script(site, server, name, pieces):
    raw = send(server, chunks(BROKEN[name]).replace(b"TARGET", b"/seen.php") + BEHIND, pieces)
    assert statuses(raw) == [400], raw
    assert not (site.scratch / "smuggled").exists() and not (site.scratch / "ran").exists()


@pytest.mark.parametrize("name", BROKEN)
def test_bytes_after_broken_chunks_are_not_parsed_as_a_request(site, server, name):
    """The response for a file does not depend on the body."""
    raw = send(server, chunks(BROKEN[name]).replace(b"TARGET", b"/file.txt") + BEHIND, False)
    assert statuses(raw) in ([404], [400], []), raw
    assert not (site.scratch / "smuggled").exists()


@pytest.mark.parametrize("pieces", [False, True], ids=["at once", "in pieces"])
@pytest.mark.parametrize("target", TARGETS, ids=["script", "file"])
@pytest.mark.parametrize("name", ACCEPTED)
def test_an_unambiguous_request_is_answered(site, server, name, target, pieces):
    request, length = ACCEPTED[name]
    with server.connect() as connection:
        data = request.replace(b"TARGET", target) + BEHIND
        # howdah does not wait for an unwanted body: if it has not arrived yet, the connection closes.
        may_end = target == b"/file.txt" and length > 0 and pieces
        try:
            for piece in re.split(rb"(?<=[\r\n: ])", data) if pieces else [data]:
                connection.send(piece)
        except (BrokenPipeError, ConnectionResetError):
            assert may_end
        method = "POST" if request.startswith(b"POST") else "GET"
        response = connection.response(method)
        if target == b"/file.txt":
            assert response.status == (404 if method == "POST" else 200), response
        else:
            assert response.status == 200 and response.json()["length"] == length, response
        if not may_end:
            assert connection.response().text == "smuggled"
        else:
            # If the body had arrived, the request behind it runs: it must not do that in the time of the next test.
            with contextlib.suppress(ConnectionResetError):
                connection.rest()


# Requests that are answered before their body has arrived: later bytes must not be parsed as a request.
EARLY = {
    "a file": (200, b"GET /file.txt HTTP/1.1\r\nHost: x\r\nContent-Length: LENGTH\r\n\r\n"),
    "a file, in a chunk": (200, b"GET /file.txt HTTP/1.1\r\nHost: x\r\n" + TE + b"\r\nHEX\r\n"),
    "a file that is not there": (404, b"GET /none.txt HTTP/1.1\r\nHost: x\r\nContent-Length: LENGTH\r\n\r\n"),
    "a file, for a script that is not there": (404, b"POST /file.txt HTTP/1.1\r\nHost: x\r\nContent-Length: LENGTH\r\n\r\n"),
    "a bad path": (400, b"POST /%00 HTTP/1.1\r\nHost: x\r\nContent-Length: LENGTH\r\n\r\n"),
}
# The first parser would reject this request: it runs only if another one parses it.
NOT_JUDGED = b"GET /smuggled.php HTTP/1.1\nHost: x\n\n"


@pytest.mark.parametrize("body", [BEHIND, NOT_JUDGED], ids=["a valid request", "a malformed request"])
@pytest.mark.parametrize("before", [b"", b"xyz"], ids=["no body", "some of the body"])
@pytest.mark.parametrize("name", EARLY)
def test_a_body_that_arrives_after_the_response_is_not_parsed_as_a_request(site, server, name, before, body):
    status, head = EARLY[name]
    length = len(before) + len(body)
    head = head.replace(b"LENGTH", b"%d" % length).replace(b"HEX", b"%x" % length)
    with server.connect() as connection:
        connection.send(head + before)
        response = connection.response()
        assert response.status == status and response.header("connection") == "close"
        # The connection has time to discard the body early, which would be wrong.
        time.sleep(0.05)
        try:
            connection.send(body)
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert connection.rest() == b""
    assert not (site.scratch / "smuggled").exists()


def test_a_body_that_has_arrived_is_dropped_and_the_next_request_answered(server):
    """It makes no difference whether the body is read."""
    for body in (b"Content-Length: 5\r\n\r\nhello", TE + b"\r\n5\r\nhello\r\n5\r\nhello\r\n" + END):
        with server.connect() as connection:
            connection.send(b"GET /file.txt HTTP/1.1\r\nHost: x\r\n" + body + get(b"/seen.php"))
            assert connection.response().header("connection") is None
            assert connection.response().json()["length"] == 0


@pytest.mark.parametrize("is_busy", [False, True], ids=["alone", "in a crowd"])
def test_a_body_that_the_upstream_did_not_read_is_not_parsed_as_a_request(run, is_busy):
    def early(visit):
        visit.head()
        visit.send(ok(b"ok", b"Connection: close"))
        visit.until_closed()

    with Upstream(early) as upstream:
        server = run({"routes": [{"action": {"proxy": upstream.url}}], "settings": {"listen_threads": 1}})
        crowd = join(server) if is_busy else []
        for body in (BEHIND, NOT_JUDGED):
            with server.connect() as connection:
                connection.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\nxyz" % (len(body) + 3))
                assert connection.response().text == "ok"
                time.sleep(0.05)
                try:
                    connection.send(body + get(b"/next", HOST + b"Connection: close\r\n"))
                except (BrokenPipeError, ConnectionResetError):
                    pass
                assert len(statuses(connection.rest())) < 2
        for idle in crowd:
            idle.close()
        assert {request.line for request in upstream.requests} <= {"POST / HTTP/1.1", "GET /next HTTP/1.1"}


@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
def test_bytes_after_a_rejected_upgrade_are_the_next_request(server, later):
    upgrade = get(b"/seen.php", HOST + b"Connection: upgrade\r\nUpgrade: websocket\r\n")
    with server.connect() as connection:
        connection.send(upgrade + (b"" if later else get(b"/file.txt")))
        assert connection.response().status == 200
        if later:
            time.sleep(0.05)
            connection.send(get(b"/file.txt"))
        assert connection.response().text == "a file"


def test_the_host_of_an_absolute_target_wins(site, server):
    """RFC 9112, 3.2.2: it overrides the Host header, which another server may have used."""
    with server.connect() as connection:
        connection.send(b"GET http://Other.example:81/seen.php HTTP/1.1\r\nHost: ignored.example\r\n\r\n")
        got = connection.response().json()
    assert got["host"] == "Other.example:81" and got["name"] == "other.example"


def test_a_rejected_head_is_answered_in_order(site, server):
    slow = site.page("usleep(200000); echo 'first';").encode()
    bad = post(b"Content-Length: 5\r\nContent-Length: 5\r\n").replace(b"TARGET", b"/seen.php")
    with server.connect() as connection:
        connection.send(get(slow) + get(b"/file.txt") + bad + BEHIND)
        assert connection.response().text == "first"
        assert connection.response().text == "a file"
        assert connection.response().status == 400
        assert connection.is_closed()
    assert not (site.scratch / "smuggled").exists() and not (site.scratch / "ran").exists()


def test_the_rejection_of_a_head_has_no_body_for_head_requests(server):
    with server.connect() as connection:
        connection.send(b"HEAD /seen.php HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 0\r\nHost: x\r\n\r\n")
        response = connection.response("HEAD")
        assert response.status == 400 and connection.is_closed()


def test_a_rejected_request_is_in_the_access_log(site, server):
    def lines():
        return server.stdout.count(' "-" 400 ')

    before = lines()
    assert statuses(server.raw(get(headers=HOST + HOST + b"Content-Length: x\r\n"))) == [400]
    deadline = time.monotonic() + PATIENCE
    while lines() == before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert lines() == before + 1


def test_a_request_rejected_by_the_parser_is_logged_with_its_status(server):
    before = server.stdout.count(' "-" 431 ')
    raw = server.raw(get(b"/file.txt", HOST + b"X: 1\r\n" * 300))
    assert statuses(raw) == [431]
    wait_for(lambda: server.stdout.count(' "-" 431 ') == before + 1, "its line")


# --- Methods


@pytest.mark.parametrize("method", ["get", "Get", "G.E!T", "X-OWN", "_", "a" * 100])
def test_methods_are_case_sensitive(server, method):
    """RFC 9110, 9.1: methods are case-sensitive, and any token is possible. Scripts get every method."""
    assert server.request(method, "/server.php").json()["REQUEST_METHOD"] == method
    assert server.request(method, "/file.txt").status == 404, "no script of the application"


# --- Sizes


@pytest.mark.parametrize("pieces", [1, 100])
@pytest.mark.parametrize(
    "status, before, filling, after",
    [
        (414, b"GET /seen.php?", b"x" * 100_000, b" HTTP/1.1\r\nHost: x\r\n\r\n"),
        (414, b"GET /", b"x" * 100_000, b""),
        (431, b"GET /seen.php HTTP/1.1\r\nHost: x\r\nX-A: ", b"x" * 100_000, b"\r\n\r\n"),
        (431, b"GET /seen.php HTTP/1.1\r\nHost: x\r\n", b"X-A: 1\r\n" * 12_500, b"\r\n"),
        (431, b"GET /seen.php HTTP/1.1\r\nHost: x\r\n", b"X: 1\r\n" * 300, b"\r\n"),
        (431, b"GET /seen.php HTTP/1.1\r\nHost: x\r\n", b"x" * 100_000, b": 1\r\n\r\n"),
    ],
    ids=["a long query", "an endless line", "a long header", "many headers", "too many small headers", "a long name"],
)
def test_an_endless_head_is_classified_by_its_first_line(site, server, status, before, filling, after, pieces):
    """RFC 9112, 3: 414 for the target, 431 for headers. No unread bytes are left, which would cause a reset."""
    data = before + filling + after
    with server.connect() as connection:
        size = len(data) // pieces + 1
        try:
            for at in range(0, len(data), size):
                connection.send(data[at : at + size])
        except (BrokenPipeError, ConnectionResetError):
            pass
        raw = connection.rest()
    assert statuses(raw) == [status], raw[:200]
    assert not (site.scratch / "ran").exists()


# --- Headers that CGI cannot distinguish

UNSAFE = [
    ("X_Forwarded_For", "underscore"),
    ("X.Forwarded.For", "dot"),
    ("X-Forwarded_For", "mixed"),
    ("X!Own", "own"),
    ("_x", "alone"),
]


def application(folder, http):
    return {"applications": {"app": {"type": "php", "root": str(folder.root), "index": "index.php"}}, "settings": {"http": http}}


HEADERS = "echo json_encode(array_filter($_SERVER, fn($k) => str_starts_with($k, 'HTTP_'), ARRAY_FILTER_USE_KEY));"


@pytest.mark.parametrize("http", [{}, {"discard_unsafe_fields": True}], ids=["by default", "when configured"])
def test_unsafe_fields_are_discarded(folder, run, http):
    folder.php("index.php", HEADERS)
    with run(application(folder, http)).connect() as connection:
        got = connection.request("GET", "/", UNSAFE + [("X-Real", "1")]).json()
        assert {key for key in got if key != "HTTP_HOST"} == {"HTTP_X_REAL"}


def test_unsafe_fields_pass_if_configured_but_never_replace_safe_ones(folder, run):
    folder.php("index.php", HEADERS)
    with run(application(folder, {"discard_unsafe_fields": False})).connect() as connection:
        got = connection.request("GET", "/", UNSAFE).json()
        assert got["HTTP_X_FORWARDED_FOR"] == "underscore", "the first of several wins"
        assert (got["HTTP_X_OWN"], got["HTTP__X"]) == ("own", "alone")
        for headers in (UNSAFE + [("X-Forwarded-For", "safe")], [("X-Forwarded-For", "safe")] + UNSAFE):
            assert connection.request("GET", "/", headers).json()["HTTP_X_FORWARDED_FOR"] == "safe"
        assert "HTTP_PROXY" not in connection.request("GET", "/", {"Proxy": "http://evil"}).json()


# --- Bodies of unknown length


@pytest.mark.parametrize("http, status", [({}, 411), ({"chunked_transform": False}, 411), ({"chunked_transform": True}, 200)])
def test_chunked_bodies_reach_an_application_if_configured(folder, run, http, status):
    folder.php("index.php", "touch(SCRATCH . '/ran'); echo strlen(file_get_contents('php://input')), $_SERVER['CONTENT_LENGTH'];")
    server = run(application(folder, http))
    with server.connect() as connection:
        response = connection.request("POST", "/", (), [b"hello", b"you"])
        assert response.status == status
        assert (folder.scratch / "ran").exists() == (status == 200)
        if status == 200:
            assert response.text == "88"
            assert connection.request("GET", "/").status == 200
        else:
            assert connection.is_closed()
    assert server.post("/", b"hello").text == "55"


@pytest.mark.parametrize("option", ["discard_unsafe_fields", "chunked_transform", "server_version"])
def test_a_wrong_value_is_rejected(folder, option):
    from support.server import Howdah

    server = None
    with pytest.raises(AssertionError) as error:
        server = Howdah.run(application(folder, {option: "yes"}))
    assert server is None and f"settings/http/{option}: expected true or false" in str(error.value)
