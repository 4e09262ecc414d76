"""HTTP/1.1 as clients and attackers use it: connections, pipelining, bodies, rejected requests."""

import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.http.client import ProtocolError
from support.waiting import wait_for

# --- Connections


def test_a_connection_serves_many_requests(site, server):
    site.write("hello.txt", "hello")
    with server.connect() as connection:
        for number in range(200):
            assert connection.request("GET", f"/request.php?n={number}").json()["get"] == {"n": str(number)}
            assert connection.request("GET", "/hello.txt").text == "hello"
            assert connection.request("GET", "/missing.txt").status == 404


def test_connection_close_is_honoured(server):
    for target in ("/server.php", "/missing.txt"):
        with server.connect() as connection:
            response = connection.request("GET", target, {"Connection": "close"})
            assert response.header("Connection").lower() == "close"
            assert connection.is_closed()


def test_requests_may_be_pipelined(site, server):
    slow = site.page("usleep($_GET['us']); echo $_GET['n'];")
    requests = [
        b"GET %b?us=%d&n=%d HTTP/1.1\r\nHost: x\r\n\r\n" % (slow.encode(), (20 - n) * 500, n) for n in range(20)
    ]
    with server.connect() as connection:
        connection.send(b"".join(requests))
        assert [connection.response().text for _ in range(20)] == [str(n) for n in range(20)]


def test_pipelined_requests_of_all_kinds_are_answered_in_order(site, server):
    site.write("hello.txt", "hello")
    with server.connect() as connection:
        for _ in range(5):
            connection.send(
                b"POST /request.php HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nabc"
                b"HEAD /server.php HTTP/1.1\r\nHost: x\r\n\r\n"
                b"POST /request.php HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n"
                b"GET /hello.txt HTTP/1.1\r\nHost: x\r\n\r\n"
                b"GET /missing HTTP/1.1\r\nHost: x\r\n\r\n"
            )
        for _ in range(5):
            assert connection.response("POST").json()["input"]["length"] == 3
            assert connection.response("HEAD").status == 200
            assert connection.response("POST").json()["input"]["length"] == 4
            assert connection.response().text == "hello"
            assert connection.response().status == 404


def test_a_request_may_come_byte_by_byte(server):
    request = b"POST /request.php?a=1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"
    with server.connect() as connection:
        for byte in request * 2:
            connection.send(bytes([byte]))
        for _ in range(2):
            got = connection.response("POST").json()
            assert got["get"] == {"a": "1"} and got["input"]["length"] == 5


def test_empty_lines_before_a_request_are_ignored(server):
    with server.connect() as connection:
        connection.send(b"\r\nGET /pid.php HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.response().status == 200


def test_many_concurrent_connections_are_served(site, server):
    connections = [server.connect() for _ in range(400)]
    try:
        for number, connection in enumerate(connections):
            connection.send_request("GET", f"/request.php?n={number}")
        for number, connection in enumerate(connections):
            assert connection.response().json()["get"] == {"n": str(number)}
    finally:
        for connection in connections:
            connection.close()


def test_parallel_requests_get_answers_of_their_own(site, server):
    path = site.page("usleep(mt_rand(0, 3000)); echo str_repeat($_GET['n'] . ' ', mt_rand(1, 20000));")

    def client(number: int) -> bool:
        with server.connect() as connection:
            return all(
                set(connection.request("GET", f"{path}?n={number}").text.split()) == {str(number)} for _ in range(40)
            )

    with ThreadPoolExecutor(12) as pool:
        assert all(pool.map(client, range(12)))


# --- HTTP/1.0


def test_http_1_0_gets_no_chunks_and_a_closed_connection(site, server):
    path = site.page("echo 'a'; flush(); echo 'b'; echo str_repeat('x', 100000);").encode()
    for target in (path, b"/server.php"):
        head, body = server.raw(b"GET %b HTTP/1.0\r\n\r\n" % target).split(b"\r\n\r\n", 1)
        assert b"transfer-encoding" not in head.lower()
        assert head.startswith((b"HTTP/1.0 200", b"HTTP/1.1 200"))
        assert body.startswith(b"{") or body == b"ab" + b"x" * 100000


def test_http_1_0_keep_alive_is_rejected_for_a_response_without_length(site, server):
    """Only the end of the connection marks the end of this response."""
    page = site.page("while (@ob_end_flush()); echo 'a'; flush(); usleep(50000); echo 'b';").encode()
    raw = server.raw(b"GET %b HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" % page)
    assert re.findall(rb"(?i)\r\nconnection: ([^\r]*)", raw) == [b"close"] and raw.endswith(b"\r\n\r\nab")


def test_php_sees_the_http_1_0_protocol(server):
    head, body = server.raw(b"GET /server.php HTTP/1.0\r\nHost: old.example\r\n\r\n").split(b"\r\n\r\n", 1)
    assert b'"SERVER_PROTOCOL":"HTTP/1.0"' in body and b'"HTTP_HOST":"old.example"' in body


# --- Targets


def test_an_absolute_target_is_accepted(server):
    with server.connect() as connection:
        got = connection.request("GET", "http://other.example:81/server.php?x=1", {"Host": "ignored.example"}).json()
    assert (got["SCRIPT_NAME"], got["QUERY_STRING"], got["REQUEST_URI"]) == ("/server.php", "x=1", "/server.php?x=1")
    assert got["SERVER_NAME"] == "other.example", "RFC 9112, 3.2.2: the target wins over Host"


def test_options_asterisk_is_answered(server):
    with server.connect() as connection:
        assert connection.request("OPTIONS", "*").status in (200, 204, 400, 404, 405, 501)
    assert server.get("/pid.php").status == 200


# --- Methods


@pytest.mark.parametrize("method", ["OPTIONS", "PROPFIND", "REPORT", "PURGE", "MKCOL", "X-OWN", "get"])
def test_php_gets_any_method(server, method):
    assert server.request(method, "/server.php").json()["REQUEST_METHOD"] == method


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "PROPFIND"])
def test_a_static_file_rejects_methods_that_write(folder, run, method):
    folder.write("hello.txt", "hello")
    with run({"routes": [{"action": {"share": f"{folder.root}$uri"}}]}).connect() as connection:
        response = connection.request(method, "/hello.txt", (), "body")
        assert response.status == 405
        assert {"GET", "HEAD"} <= {word.strip() for word in response.header("Allow").split(",")}
        assert connection.request("GET", "/hello.txt").text == "hello"


# --- Chunked bodies


def chunked(body: bytes, target: str = "/request.php", extra: bytes = b"") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n%b\r\n%b" % (target.encode(), extra, body)


@pytest.mark.parametrize(
    "body, length",
    [
        (b"0\r\n\r\n", 0),
        (b"A\r\n0123456789\r\n0\r\n\r\n", 10),
        (b"a\r\n0123456789\r\n0\r\n\r\n", 10),
        (b"000000000a\r\n0123456789\r\n000\r\n\r\n", 10),
        (b"5;name=value\r\n01234\r\n5;flag\r\n56789\r\n0;last\r\n\r\n", 10),
        (b"1\r\n0\r\n" * 1000 + b"0\r\n\r\n", 1000),
        (b"3\r\nabc\r\n0\r\nX-Trailer: 1\r\nX-Second: 2\r\n\r\n", 3),
    ],
)
def test_chunked_bodies_are_decoded(server, body, length):
    with server.connect() as connection:
        for _ in range(2):
            connection.send(chunked(body))
            assert connection.response("POST").json()["input"]["length"] == length


def test_trailers_do_not_become_headers(server):
    body = b"3\r\nabc\r\n0\r\nX-Trailer: 1\r\nContent-Length: 99\r\nHost: evil\r\nAuthorization: Basic eDp5\r\n\r\n"
    with server.connect() as connection:
        connection.send(chunked(body, "/server.php", b"Trailer: X-Trailer\r\n"))
        got = connection.response("POST").json()
    assert got["HTTP_HOST"] == "x" and got.get("CONTENT_LENGTH") == "3"
    assert "HTTP_X_TRAILER" not in got and "PHP_AUTH_USER" not in got


# --- Expect


def test_expect_continue_gets_100_continue(server):
    with server.connect() as connection:
        connection.send(b"POST /request.php HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        assert connection.head().status == 100
        connection.send(b"hello")
        assert connection.response("POST").json()["input"]["length"] == 5
        assert connection.request("GET", "/pid.php").interim == []


def test_a_client_that_does_not_wait_for_100_continue_is_served(server):
    with server.connect() as connection:
        connection.send(
            b"POST /request.php HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello"
        )
        assert connection.response("POST").json()["input"]["length"] == 5


def test_a_rejected_body_gets_no_100_continue(folder, run):
    folder.php("index.php", "echo 'ran';")
    server = run(
        {
            "applications": {"app": {"type": "php", "root": str(folder.root), "index": "index.php"}},
            "settings": {"http": {"max_body_size": 1000}},
        }
    )
    with server.connect() as connection:
        connection.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n")
        response = connection.response("POST")
        assert (response.status, response.interim) == (413, [])


def test_an_unknown_expectation_gets_417(server):
    assert server.get("/pid.php", {"Expect": "miracles"}).status in (200, 417)


# --- Rejected requests: see also test_strictness.py


def test_a_bad_request_does_not_affect_earlier_responses(server):
    with server.connect() as connection:
        connection.send(b"GET /pid.php HTTP/1.1\r\nHost: x\r\n\r\nGET nonsense\r\n\r\n")
        assert connection.response().status == 200
        assert connection.response().status == 400
        assert connection.is_closed()


# --- Date and Server


def test_every_response_has_a_date(site, server):
    site.write("hello.txt", "hello")
    for target in ("/server.php", "/hello.txt", "/missing"):
        when = time.strptime(server.get(target).header("Date"), "%a, %d %b %Y %H:%M:%S GMT")
        assert abs(time.time() - (time.mktime(when) - time.timezone)) < 10


@pytest.mark.parametrize("shown", [True, False])
def test_server_version_controls_the_server_header(folder, run, shown):
    folder.php("index.php", "echo $_SERVER['SERVER_SOFTWARE'];")
    server = run(
        {
            "applications": {"app": {"type": "php", "root": str(folder.root), "index": "index.php"}},
            "settings": {"http": {"server_version": shown}},
        }
    )
    name = server.get("/").header("Server")
    assert name.startswith("howdah/") if shown else name == "howdah"


def test_silent_connections_do_not_block_other_clients(site, server):
    silent = [server.connect() for _ in range(100)]
    try:
        assert server.get("/pid.php").status == 200
    finally:
        for connection in silent:
            connection.close()
    assert server.get("/pid.php").status == 200


def test_a_response_is_dropped_after_its_client_disconnected(site, server):
    """A queued request leaves the queue when its client disconnects."""
    started, go = site.scratch / "hold", site.scratch / "hold-go"
    site.php("count.php", "file_put_contents(SCRATCH . '/count', 'x', FILE_APPEND); echo 'counted';")
    holders = []
    for number in range(len(server.workers()) or 2):
        holder = server.connect()
        holder.send_request("GET", f"/wait.php?started={started}{number}&until={go}")
        holders.append(holder)
        wait_for(site.scratch.joinpath(f"hold{number}").exists)
    for _ in range(20):
        with server.connect() as impatient:
            impatient.send_request("GET", "/count.php")
            # The head has been read when the next connection is answered.
        assert server.get("/missing").status == 404
    stays = server.connect()
    stays.send_request("GET", "/count.php")
    go.touch()
    assert stays.response().text == "counted"
    for holder in holders:
        assert holder.response().status == 200
        holder.close()
    stays.close()
    assert len((site.scratch / "count").read_text()) <= 5, "requests of disconnected clients were run"


def test_the_test_client_rejects_malformed_responses(server):
    """A client that accepts everything would make the tests above worthless."""
    with server.connect() as connection:
        connection.buffer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
        with pytest.raises(ProtocolError):
            connection.response()
