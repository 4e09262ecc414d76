"""A client of HTTP/3 that sends any frames, right or wrong, and reads what comes back.

The frames and QPACK are code of this file; QUIC is `quic-pipe`, an example of crates/router.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from hpack.huffman_table import decode_huffman

from support.http.qpack_table import STATIC_TABLE
from support.server import EXECUTABLE
from support.waiting import PATIENCE

PIPE = EXECUTABLE.parent / "examples/quic-pipe"
DATA, HEADERS, SETTINGS, GOAWAY, MAX_PUSH_ID = 0, 1, 4, 7, 0xD
PRIORITY_UPDATE = 0xF0700
CONTROL, QPACK_ENCODER, QPACK_DECODER = 0, 2, 3
NO_ERROR, INTERNAL_ERROR, FRAME_UNEXPECTED, EXCESSIVE_LOAD = 0x100, 0x102, 0x105, 0x107
REQUEST_REJECTED, REQUEST_CANCELLED, MESSAGE_ERROR = 0x10B, 0x10C, 0x10E

Fields = Iterable[tuple[str, str]]


def integer(value: int) -> bytes:
    """An integer of variable length (RFC 9000, 16)."""
    for length, mark in ((1, 0), (2, 0x40), (4, 0x80), (8, 0xC0)):
        if value < 1 << (8 * length - 2):
            encoded = bytearray(value.to_bytes(length, "big"))
            encoded[0] |= mark
            return bytes(encoded)
    raise ValueError(value)


def take_integer(data: bytes, at: int) -> tuple[int, int] | None:
    """The integer there, and its end."""
    if at >= len(data):
        return None
    length = 1 << (data[at] >> 6)
    if at + length > len(data):
        return None
    return int.from_bytes(data[at : at + length], "big") & (1 << (8 * length - 2)) - 1, at + length


def frame(kind: int, payload: bytes = b"") -> bytes:
    return integer(kind) + integer(len(payload)) + payload


def encode(fields: Fields) -> bytes:
    """QPACK, with literals only."""
    out = bytearray(b"\0\0")
    for name, value in fields:
        out += prefixed(len(name.encode()), 3, 0x20) + name.encode() + prefixed(len(value.encode("latin1")), 7, 0)
        out += value.encode("latin1")
    return bytes(out)


def prefixed(value: int, bits: int, mark: int) -> bytes:
    most = (1 << bits) - 1
    if value < most:
        return bytes([mark | value])
    out, value = bytearray([mark | most]), value - most
    while value >= 128:
        out.append(value % 128 | 128)
        value //= 128
    return bytes(out) + bytes([value])


class Decoder:
    """QPACK without a dynamic table."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def fields(self) -> list[tuple[str, str]]:
        assert self._integer(8) == 0 and self._integer(7) == 0, "no dynamic table was allowed"
        out = []
        while self.at < len(self.data):
            first = self.data[self.at]
            if first & 0xC0 == 0xC0:
                out.append(STATIC_TABLE[self._integer(6)])
            elif first & 0xD0 == 0x50:
                out.append((STATIC_TABLE[self._integer(4)][0], self._text(7)))
            else:
                assert first & 0xE0 == 0x20, "no dynamic table was allowed"
                out.append((self._text(3), self._text(7)))
        return out

    def _integer(self, bits: int) -> int:
        most = (1 << bits) - 1
        value = self.data[self.at] & most
        self.at += 1
        shift = 0
        while value >= most:
            byte = self.data[self.at]
            self.at += 1
            value += (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        return value

    def _text(self, bits: int) -> str:
        is_huffman = self.data[self.at] >> bits & 1
        length = self._integer(bits)
        text = self.data[self.at : self.at + length]
        self.at += length
        return (decode_huffman(text) if is_huffman else text).decode("latin1")


@dataclass
class Stream:
    """The response on a stream, as far as it has come."""

    number: int
    raw: bytes = b""
    size: int = 0
    """All bytes of it, those of its frames, too."""
    heads: list[list[tuple[str, str]]] = field(default_factory=list)
    body: bytes = b""
    ended: bool = False
    reset: int | None = None
    """The code of RESET_STREAM."""
    refused: str | None = None
    """Why the server takes no more bytes."""

    @property
    def interim(self) -> list[int]:
        return [int(dict(head)[":status"]) for head in self.heads if dict(head)[":status"].startswith("1")]

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.heads[-1]) if self.heads else {}

    @property
    def status(self) -> int:
        return int(self.headers[":status"])

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def is_over(self) -> bool:
        return self.ended or self.reset is not None

    def read(self, data: bytes) -> None:
        self.raw += data
        self.size += len(data)
        while (kind := take_integer(self.raw, 0)) and (length := take_integer(self.raw, kind[1])):
            end = length[1] + length[0]
            if kind[0] == DATA:
                # A body is read as it comes.
                self.body += self.raw[length[1] : end]
                missing = end - len(self.raw)
                if missing > 0:
                    self.raw = integer(DATA) + integer(missing)
                    return
            elif len(self.raw) < end:
                return
            elif kind[0] == HEADERS:
                self.heads.append(Decoder(self.raw[length[1] : end]).fields())
            self.raw = self.raw[end:]


class Http3Connection:
    """One connection. `begins`: it sends its settings; `ca`: the certificate that must have signed the server's;
    `certificate`: a file with the client's own; `window`: how many bytes of all responses may wait in the client;
    `stream_window`: how many bytes each stream of the server may have; `early`: it sends early data when it comes again."""

    def __init__(
        self, address, name="localhost", begins=True, alpn="h3", ca: str | None = None, certificate: str | None = None,
        window: int | None = None, stream_window: int | None = None, early=False,
    ):  # fmt: skip
        assert PIPE.exists(), f"{PIPE} is missing: scripts/ci-cargo build --profile ci"
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        options = {"address": f"{host}:{address[1]}", "name": name, "alpn": alpn, "ca": ca, "early": early}
        options |= {"certificate": certificate, "window": window, "stream_window": stream_window}
        command = [str(PIPE), json.dumps(options)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.name = name
        self.sends_early = False
        """Whether the connection began with early data."""
        self.control: Stream | None = None
        """The client's stream for settings and priorities."""
        self.accepted_early: bool | None = None
        """Whether the server has accepted it; known after the handshake."""
        self.streams: dict[int, Stream] = {}
        self.from_server: dict[str, bytes] = {}
        self.is_connected = False
        self.arrivals: list[int] = []
        """The numbers of the streams whose bytes came, in their order."""
        self.closed: dict | None = None
        """Why the connection has ended, and with which code."""
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.wait(lambda: self.is_connected or self.closed)
        if begins and self.is_connected:
            self.control = self.open_one_direction(integer(CONTROL) + frame(SETTINGS))

    # --- Streams

    def open(self, is_request=True, reads=True) -> Stream:
        stream = Stream(len(self.streams))
        with self.changed:
            self.streams[stream.number] = stream
        self._do("open", stream=stream.number, is_request=is_request, reads=reads)
        return stream

    def open_one_direction(self, data: bytes, ends=False) -> Stream:
        stream = self.open(is_request=False)
        self.send(stream, data, ends)
        return stream

    def send(self, stream: Stream, data: bytes, ends=False) -> None:
        self._do("send", stream=stream.number, data=data.hex(), ends=ends)

    def drip(self, stream: Stream, data: bytes) -> None:
        """Sends bytes, each in a packet of its own."""
        self._do("drip", stream=stream.number, data=data.hex())

    def reset(self, stream: Stream, code=REQUEST_CANCELLED) -> None:
        self._do("reset", stream=stream.number, code=code)

    def stop(self, stream: Stream, code=REQUEST_CANCELLED) -> None:
        """Cancels the response."""
        self._do("stop", stream=stream.number, code=code)

    def take(self, stream: Stream, size: int) -> None:
        """Reads bytes of a response that nothing reads otherwise."""
        self._do("take", stream=stream.number, bytes=size)

    def shake(self, count: int) -> None:
        """Begins other handshakes."""
        self._do("shake", count=count)

    def again(self, *requests: bytes) -> list[Stream]:
        """Connects again, with requests in the first packets."""
        with self.changed:
            self.streams, self.from_server, self.closed, self.is_connected = {}, {}, None, False
            self.accepted_early = None
            streams = [Stream(number) for number in range(len(requests))]
            self.streams.update({stream.number: stream for stream in streams})
            self.streams[len(requests)] = Stream(len(requests))
        settings = {"is_request": False, "data": (integer(CONTROL) + frame(SETTINGS)).hex(), "ends": False}
        sent = [{"is_request": True, "data": data.hex(), "ends": True} for data in requests] + [settings]
        self._do("again", requests=[{"stream": number, **what} for number, what in enumerate(sent)])
        self.wait(lambda: self.is_connected or self.closed)
        return streams

    def update_priority(self, request: int, priority: str) -> None:
        """PRIORITY_UPDATE for the request with this number, from 0 on."""
        self.send(self.control, frame(PRIORITY_UPDATE, integer(4 * request) + priority.encode()))

    def move(self) -> None:
        """Goes on with another address."""
        self._do("move")

    # --- Requests

    def head(self, target="/", headers: Fields = (), method="GET", authority: str | None = None) -> bytes:
        fields = [(":method", method), (":scheme", "https"), (":path", target), (":authority", authority or self.name)]
        return frame(HEADERS, encode([*fields, *headers]))

    def begin(self, target="/", headers: Fields = (), method="GET", body: bytes | None = None, ends=True, **how) -> Stream:
        """Sends a request; `ends=False` leaves its body open."""
        stream = self.open(**how)
        self.send(stream, self.head(target, headers, method) + (frame(DATA, body) if body else b""), ends)
        return stream

    def request(self, *how, **more) -> Stream:
        """Sends a request, and waits for its response."""
        return self.finish(self.begin(*how, **more))

    def finish(self, stream: Stream, timeout=PATIENCE) -> Stream:
        self.wait(lambda: stream.is_over or self.closed, timeout)
        return stream

    # --- The connection

    def wait(self, holds, timeout=PATIENCE):
        with self.changed:
            assert self.changed.wait_for(holds, timeout), f"closed: {self.closed}, streams: {self.streams}"

    @property
    def goaway(self) -> list[int]:
        """The streams that GOAWAY has named."""
        named = []
        for data in self.from_server.values():
            if data[:1] != bytes([CONTROL]):
                continue
            at = 1
            while (kind := take_integer(data, at)) and (length := take_integer(data, kind[1])):
                at = length[1] + length[0]
                if kind[0] == GOAWAY and at <= len(data):
                    named.append(take_integer(data, length[1])[0])
        return named

    def close(self) -> None:
        """Ends the client, which closes the connection."""
        if self.process.stdin and not self.process.stdin.closed:
            try:
                self.process.stdin.close()
            except BrokenPipeError:
                pass
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()
        self.reader.join(PATIENCE)

    def kill(self) -> None:
        """Ends the client without a word to the server."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def __enter__(self) -> Http3Connection:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _do(self, what: str, **more) -> None:
        try:
            self.process.stdin.write(json.dumps({"do": what, **more}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def _read(self) -> None:
        for line in self.process.stdout:
            event = json.loads(line)
            with self.changed:
                self._take(event)
                self.changed.notify_all()
        with self.changed:
            self.closed = self.closed or {"reason": "the client ended", "code": None}
            self.changed.notify_all()

    def _take(self, event: dict) -> None:
        kind, number = event["event"], event.get("stream")
        if kind == "connected":
            self.is_connected = True
            self.sends_early = event.get("early", False)
        elif kind == "shaken":
            self.accepted_early = event["accepted"]
        elif kind == "closed":
            self.closed = {"reason": event["reason"], "code": event.get("code")}
        elif isinstance(number, str):
            if kind == "data":
                self.from_server[number] = self.from_server.get(number, b"") + bytes.fromhex(event["data"])
        elif kind == "data":
            self.arrivals.append(number)
            self.streams[number].read(bytes.fromhex(event["data"]))
        elif kind == "end":
            self.streams[number].ended = True
        elif kind == "reset":
            self.streams[number].reset = event["code"]
        elif kind == "refused":
            self.streams[number].refused = event["reason"]


