"""A strict HTTP/1.1 client.

It reads exactly what the framing of a response announces, keeps what follows for the next response (pipelining), and
raises `ProtocolError` for anything that a client may reject.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
from dataclasses import dataclass, field
from typing import Iterable, Iterator, Mapping, Sequence

from support.waiting import PATIENCE

Headers = Sequence[tuple[str, str]] | Mapping[str, str]


class ProtocolError(AssertionError):
    """The server violated HTTP/1.1, or closed the connection within a response."""


class ClosedWithoutResponse(ProtocolError):
    """The server closed the connection before the first byte of a response."""


@dataclass
class Response:
    status: int
    reason: str
    version: str
    headers: list[tuple[str, str]]
    body: bytes = b""
    trailers: list[tuple[str, str]] = field(default_factory=list)
    interim: list[int] = field(default_factory=list)
    """The statuses of the 1xx responses that came before."""

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def header(self, name: str) -> str | None:
        """The value of a header that occurs at most once; asserts that it does."""
        values = self.all(name)
        assert len(values) <= 1, f"{name} occurs {len(values)} times: {values}"
        return values[0] if values else None

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "surrogateescape")

    def json(self):
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise AssertionError(f"{self.status}, not JSON ({error}): {self.body[:2000]!r}") from None


class Connection:
    """One connection of an HTTP/1.1 client."""

    def __init__(self, address: tuple[str, int] | str, timeout: float = PATIENCE):
        if isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(timeout)
            self.socket.connect(address)
            self.host = "localhost"
        else:
            self.socket = socket.create_connection(address, timeout)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            host, port = address[:2]
            self.host = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.buffer = b""

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def request(
        self, method: str, target: str, headers: Headers = (), body: bytes | str | Iterable[bytes] | None = None
    ) -> Response:
        """Sends a request and reads its response. An iterable body is sent chunked, an item a chunk."""
        self.send_request(method, target, headers, body)
        return self.response(method)

    def send_request(
        self, method: str, target: str, headers: Headers = (), body: bytes | str | Iterable[bytes] | None = None
    ) -> None:
        fields = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
        given = {name.lower() for name, _ in fields}
        if "host" not in given:
            fields.insert(0, ("Host", self.host))
        if isinstance(body, str):
            body = body.encode()
        if isinstance(body, (bytes, bytearray, memoryview)):
            if "content-length" not in given:
                fields.append(("Content-Length", str(len(body))))
        elif body is not None:
            fields.append(("Transfer-Encoding", "chunked"))
        head = f"{method} {target} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields) + "\r\n"
        data = head.encode("utf-8", "surrogateescape")
        try:
            if body is None:
                self.send(data)
            elif isinstance(body, (bytes, bytearray, memoryview)):
                self.send(data + body if len(body) < 65536 else data)
                if len(body) >= 65536:
                    self.send(body)
            else:
                self.send(data)
                for chunk in body:
                    self.send(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                self.send(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass  # An early response, such as 413, may still be there to read.

    def response(self, method: str = "GET") -> Response:
        """Reads one whole response to a request with the method."""
        response, body = self.stream(method)
        response.body = b"".join(body)
        return response

    def stream(self, method: str = "GET") -> tuple[Response, Iterator[bytes]]:
        """Reads the head of a response; returns it and an iterator of its body in pieces, as they arrive."""
        interim = []
        while True:
            response = self.head()
            if response.status == 101 or response.status >= 200:
                break
            interim.append(response.status)
        response.interim = interim
        return response, self._body(method, response)

    def head(self) -> Response:
        """Reads one head, also of a response before the response."""
        line = self._line(begins_a_response=True)
        match = re.fullmatch(rb"(HTTP/1\.[01]) (\d{3}) ?([^\r\n]*)", line)
        if not match:
            raise ProtocolError(f"not a status line: {line!r}")
        version, status, reason = match.groups()
        return Response(int(status), reason.decode("latin-1"), version.decode(), self._fields())

    def _fields(self) -> list[tuple[str, str]]:
        fields = []
        while line := self._line():
            name, colon, value = line.partition(b":")
            if not colon or not re.fullmatch(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
                raise ProtocolError(f"not a header: {line!r}")
            fields.append((name.decode(), value.strip(b" \t").decode("utf-8", "surrogateescape")))
        return fields

    def _body(self, method: str, response: Response) -> Iterator[bytes]:
        encodings = [v.strip().lower() for value in response.all("transfer-encoding") for v in value.split(",")]
        lengths = response.all("content-length")
        if encodings and lengths:
            raise ProtocolError(f"both Transfer-Encoding and Content-Length: {response}")
        if len(lengths) > 1:
            raise ProtocolError(f"several Content-Length: {response}")
        if (response.status == 204 or response.status < 200) and (encodings or lengths):
            raise ProtocolError(f"{response.status} with {'Transfer-Encoding' if encodings else 'Content-Length'}")
        if method == "HEAD" or response.status in (204, 304) or response.status < 200:
            return
        if encodings:
            if encodings != ["chunked"]:
                raise ProtocolError(f"Transfer-Encoding: {encodings}")
            while True:
                line = self._line()
                if not re.fullmatch(rb"[0-9a-fA-F]+(;.*)?", line):
                    raise ProtocolError(f"not a chunk's size: {line[:200]!r}")
                size = int(line.split(b";")[0], 16)
                if size == 0:
                    break
                yield self._exactly(size)
                if self._exactly(2) != b"\r\n":
                    raise ProtocolError("a chunk is longer than its size")
            response.trailers = self._fields()
        elif lengths:
            remaining = int(lengths[0])
            while remaining:
                piece = self._some(min(remaining, 1 << 20))
                if not piece:
                    raise ProtocolError(f"hung up {remaining} bytes before the end of a body of {lengths[0]}")
                remaining -= len(piece)
                yield piece
        else:
            while piece := self._some(1 << 20):
                yield piece

    def _some(self, most: int) -> bytes:
        if not self.buffer:
            self.buffer = self.socket.recv(1 << 18)
        piece, self.buffer = self.buffer[:most], self.buffer[most:]
        return piece

    def _exactly(self, size: int) -> bytes:
        pieces = []
        while size:
            piece = self._some(size)
            if not piece:
                raise ProtocolError(f"hung up in a chunk, {size} bytes before its end")
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def _line(self, begins_a_response: bool = False) -> bytes:
        while b"\r\n" not in self.buffer:
            more = self.socket.recv(65536)
            if not more and begins_a_response and not self.buffer:
                raise ClosedWithoutResponse("hung up before the response")
            if not more:
                raise ProtocolError(f"hung up in a line: {self.buffer[:200]!r}")
            self.buffer += more
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line

    def rest(self) -> bytes:
        """Reads everything until the server closes or resets the connection."""
        pieces = [self.buffer]
        self.buffer = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := self.socket.recv(1 << 18):
                pieces.append(piece)
        return b"".join(pieces)

    def is_closed(self) -> bool:
        """Waits until the server closes the connection; returns whether it sent no more bytes before."""
        return self.rest() == b""
