"""WebSockets through the proxy."""

import signal
import struct
import time

from support.http.client import Connection
from support.http.proxying import proxy_configuration
from support.http.tls import Authority, Client, put
from support.http.upstream import Upstream, answers, ok
from support.waiting import wait_for

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


def talk(connection: Connection) -> None:
    """A conversation with the echo server, from the upgrade to the end."""
    connection.send_request("GET", "/", ASK)
    assert connection.stream()[0].status == 101
    assert read_frame(connection._exactly) == b"WELCOME"
    connection.send(frame(b"x" * 300_000, b"mask"))
    assert read_frame(connection._exactly) == b"X" * 300_000
    connection.send(frame(b"bye", b"mask"))
    assert read_frame(connection._exactly) == b"BYE"
    assert connection.is_closed()


def test_a_websocket_passes_through_tls(run, tmp_path):
    authority = Authority(tmp_path)
    with Upstream(echo) as upstream:
        server = run(proxy_configuration({"proxy": upstream.url}))
        put(server, "shop", authority.bundle("shop.example"))
        listener = {"pass": "routes", "tls": {"certificate": "shop"}}
        assert server.api("PUT", f"/config/listeners/127.0.0.1:{server.port}", listener).status == 200
        with Client(authority, server).connect() as connection:
            talk(connection)


def test_a_websocket_passes_through_to_an_https_server(run, tmp_path):
    with Upstream(echo, tls=Authority(tmp_path).server_context("127.0.0.1")) as upstream:
        server = run(proxy_configuration({"proxy": upstream.url, "tls": {"verify": False}}))
        with server.connect() as connection:
            talk(connection)


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
