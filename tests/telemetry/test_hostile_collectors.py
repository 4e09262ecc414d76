"""Collectors of OpenTelemetry that send too much, or what they should not: the process that exports stays small, and requests go on."""

import os
import socket
import struct
import threading
from pathlib import Path

import pytest

from support.server import Howdah
from support.waiting import wait_for

TITLE = "howdah: metrics"
# Without an attack, the process has about 15 MB.
MOST_BYTES = 64_000_000
HEADERS, SETTINGS, PUSH_PROMISE = 1, 4, 5
END_HEADERS, ACK = 4, 1
# 4 KB in the dynamic table, and then each byte is this header.
LARGE = b"\x40\x01x" + b"\x7f\xa1\x1e" + b"y" * 4000
AGAIN = b"\xbe"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


class HostileCollector:
    """When a request has come, it sends `attack(number)` for number after number."""

    def __init__(self, attack, *, is_grpc: bool):
        self.attack, self.is_grpc, self.sent, self.requests, self.ends = attack, is_grpc, 0, 0, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def settings(self) -> dict:
        path = "" if self.is_grpc else "/v1/traces"
        protocol = "grpc" if self.is_grpc else "http"
        return {"telemetry": {"endpoint": f"http://127.0.0.1:{self.port}{path}", "protocol": protocol}}

    def accept(self) -> None:
        try:
            while True:
                threading.Thread(target=self.serve, args=(self.listener.accept()[0],), daemon=True).start()
        except OSError:
            pass

    def serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                if self.is_grpc:
                    connection.sendall(frame(SETTINGS, 0, 0) + frame(SETTINGS, ACK, 0))
                received = b""
                # The head of the request.
                while (b"\x01\x04\x00\x00\x00\x01" if self.is_grpc else b"\r\n\r\n") not in received:
                    if not (part := connection.recv(65536)):
                        return
                    received += part
                self.requests += 1
                threading.Thread(target=self.drain, args=(connection,), daemon=True).start()
                for number in range(1_000_000):
                    connection.sendall(self.attack(number))
                    self.sent += 1
        except OSError:
            self.ends += 1

    @staticmethod
    def drain(connection: socket.socket) -> None:
        try:
            while connection.recv(65536):
                pass
        except OSError:
            pass


def head(number: int) -> bytes:
    """Headers of 16 MB, in 4 or 8 KB."""
    return (LARGE if number == 0 else b"") + AGAIN * 3900


def promises(number: int) -> bytes:
    """Answers that were not asked for."""
    return frame(PUSH_PROMISE, END_HEADERS, 1, struct.pack(">I", 2 * (number + 1)) + b"\x82\x86\x84\x01\x01x" + head(number))


def heads(number: int) -> bytes:
    return frame(HEADERS, END_HEADERS, 1, b"\x08\x03103" + head(number))


def trailers(number: int) -> bytes:
    return b"x: y\r\n" * 100 if number else b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"


@pytest.mark.parametrize("attack", [promises, heads, trailers])
def test_an_endless_answer_takes_no_memory(attack):
    collector = HostileCollector(attack, is_grpc=attack is not trailers)
    server = Howdah.run({"routes": [{"action": {"return": 200}}], "settings": collector.settings})
    try:
        assert server.get("/").status == 200
        wait_for(lambda: collector.requests, "spans")
        (process,) = server.titled(TITLE)
        # Then the connection has ended, or howdah reads all of it.
        wait_for(lambda: collector.sent > 500 or collector.ends, "the attack")
        assert server.get("/").status == 200
        text = Path(f"/proc/{process.pid}/statm").read_text()
        assert int(text.split()[1]) * os.sysconf("SC_PAGESIZE") < MOST_BYTES
    finally:
        collector.listener.close()
        server.kill()
