"""The interop run of HTTP/3 with aioquic: aioquic_client.py HOST PORT FOLDER. See scripts/http3-interop."""

import asyncio
import hashlib
import os
import ssl
import sys
from pathlib import Path

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, ErrorCode, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration

HOST, PORT, FOLDER = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
PIECE = 16_384


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.http = H3Connection(self._quic)
        self.responses = {}

    def quic_event_received(self, event):
        for received in self.http.handle_event(event):
            response = self.responses.get(getattr(received, "stream_id", None))
            if response is None:
                continue
            if isinstance(received, HeadersReceived):
                response["headers"].append(dict(received.headers))
            if isinstance(received, DataReceived):
                response["body"] += received.data
            if received.stream_ended:
                response["done"].set()

    def begin(self, path, method=b"GET", body=b"", ends=True):
        stream = self._quic.get_next_available_stream_id()
        self.responses[stream] = {"headers": [], "body": bytearray(), "done": asyncio.Event()}
        head = [(b":method", method), (b":scheme", b"https"), (b":authority", b"localhost"), (b":path", path)]
        self.http.send_headers(stream, head, end_stream=ends and not body)
        for at in range(0, len(body), PIECE):
            self.http.send_data(stream, body[at : at + PIECE], end_stream=ends and at + PIECE >= len(body))
        self.transmit()
        return stream

    async def finish(self, stream):
        response = self.responses[stream]
        await asyncio.wait_for(response["done"].wait(), 60)
        assert response["headers"][-1][b":status"] == b"200", response["headers"]
        return bytes(response["body"])


def expect(name, found, wanted):
    assert found == wanted, f"{name}: {found[:100]!r}"
    print("ok  ", name)


async def main():
    settings = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, verify_mode=ssl.CERT_NONE, server_name="localhost")
    async with connect(HOST, PORT, configuration=settings, create_protocol=Client) as client:
        expect("GET", await client.finish(client.begin(b"/protocol.php")), b"HTTP/3.0")
        upload = os.urandom(8 << 20)
        digest = hashlib.sha256(upload).hexdigest().encode()
        expect("upload of 8 MiB", await client.finish(client.begin(b"/hash.php", b"POST", upload)), digest)
        expect("download", await client.finish(client.begin(b"/medium.bin")), (FOLDER / "medium.bin").read_bytes())
        streams = [client.begin(b"/protocol.php") for _ in range(100)]
        expect("100 requests", [await client.finish(stream) for stream in streams], [b"HTTP/3.0"] * 100)
        for _ in range(20):
            stream = client.begin(b"/hash.php", b"POST", b"x" * 1000, ends=False)
            client._quic.reset_stream(stream, ErrorCode.H3_REQUEST_CANCELLED)
            client._quic.stop_stream(stream, ErrorCode.H3_REQUEST_CANCELLED)
            client.transmit()
        expect("after 20 resets", await client.finish(client.begin(b"/protocol.php")), b"HTTP/3.0")
        client.request_key_update()
        expect("after a key update", await client.finish(client.begin(b"/protocol.php")), b"HTTP/3.0")
        client.change_connection_id()
        expect("with another connection ID", await client.finish(client.begin(b"/protocol.php")), b"HTTP/3.0")


asyncio.run(main())
