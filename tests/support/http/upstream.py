"""HTTP servers for tests of the proxy: a test controls every byte that they send, and they record what they receive.

    with Upstream(answers(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")) as upstream: ...

A handler is called with each `Visit` (a connection), in a thread of its own; when it returns, the connection is closed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
from dataclasses import dataclass, field
from typing import Callable, Iterator

from support.waiting import PATIENCE


@dataclass
class Request:
    raw: bytes
    """Everything up to the empty line, unchanged."""
    body: bytes = b""
    raw_body: bytes = b""
    """With chunks."""
    headers: list[tuple[str, str]] = field(default_factory=list)
    """Names in lower case."""

    @property
    def line(self) -> str:
        return self.raw.split(b"\r\n", 1)[0].decode("latin-1")

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name.lower()]

    def header(self, name: str) -> str | None:
        values = self.all(name)
        assert len(values) <= 1, f"{name} occurs {len(values)} times: {values}"
        return values[0] if values else None


class Visit:
    """One connection, as a handler sees it."""

    def __init__(self, upstream: Upstream, sock: socket.socket):
        self.upstream = upstream
        self.socket = sock
        self.buffer = b""

    def send(self, *data: bytes) -> None:
        self.socket.sendall(b"".join(data))

    def some(self, most: int = 1 << 16) -> bytes:
        """The next bytes; empty at the end."""
        if not self.buffer:
            with contextlib.suppress(ConnectionResetError):
                self.buffer = self.socket.recv(1 << 16)
        piece, self.buffer = self.buffer[:most], self.buffer[most:]
        return piece

    def head(self) -> Request | None:
        """The next request's head; None at the end of the connection."""
        raw = b""
        while b"\r\n\r\n" not in raw:
            more = self.some()
            if not more:
                if raw:
                    self.upstream.fragments.append(raw)
                return None
            raw += more
        raw, rest = raw.split(b"\r\n\r\n", 1)
        self.buffer = rest + self.buffer
        request = Request(raw)
        for line in raw.split(b"\r\n")[1:]:
            name, _, value = line.decode("latin-1").partition(":")
            request.headers.append((name.lower(), value.strip()))
        self.upstream.requests.append(request)
        return request

    def body(self, request: Request) -> Iterator[bytes]:
        """The body of a request, piece by piece, strictly as it is framed."""
        coding, length = request.header("transfer-encoding"), request.header("content-length")
        assert not (coding and length), request.raw
        if coding:
            assert coding == "chunked", coding
            while size := int(self._line(request), 16):
                yield from self._exactly(size, request)
                assert self._line(request) == b""
            while self._line(request):
                pass
        elif length:
            yield from self._exactly(int(length), request)

    def request(self) -> Request | None:
        """A whole request."""
        request = self.head()
        if request:
            request.body = b"".join(self.body(request))
        return request

    def until_closed(self) -> bytes:
        """Waits for the end of the connection, and returns the bytes before it."""
        pieces = []
        while piece := self.some():
            pieces.append(piece)
        return b"".join(pieces)

    def _exactly(self, size: int, request: Request) -> Iterator[bytes]:
        while size:
            piece = self.some(size)
            if not piece:
                raise EOFError("the request's body breaks off")
            request.raw_body += piece if len(request.raw_body) < 1 << 20 else b""
            size -= len(piece)
            yield piece

    def _line(self, request: Request) -> bytes:
        line = b""
        while not line.endswith(b"\r\n"):
            piece = self.some(1)
            if not piece:
                raise EOFError("the request's body breaks off")
            line += piece
        request.raw_body += line
        return line[:-2]


Handler = Callable[[Visit], None]


class Upstream:
    """A server. `address` is written as in a configuration; by default a free port of 127.0.0.1. With `tls`, it speaks
    HTTPS; `failed_handshakes` has the errors of its handshakes."""

    def __init__(self, handler: Handler, address: str = "127.0.0.1:0", tls: ssl.SSLContext | None = None):
        self.handler = handler
        self.tls = tls
        self.failed_handshakes: list[str] = []
        self.requests: list[Request] = []
        self.fragments: list[bytes] = []
        """The bytes of incomplete requests."""
        self.accepted = 0
        self.open = 0
        self.errors: list[BaseException] = []
        if address.startswith("unix:"):
            self.listener = socket.socket(socket.AF_UNIX)
            path = address.removeprefix("unix:")
            self.listener.bind("\0" + path[1:] if path.startswith("@") else path)
            if not path.startswith("@"):
                os.chmod(path, 0o777)
            self.address = address
        else:
            host, port = address.rsplit(":", 1)
            self.listener = socket.socket()
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.listener.bind((host, int(port)))
            self.address = f"{host}:{self.listener.getsockname()[1]}"
        self.listener.listen(128)
        self.sockets: set[socket.socket] = set()
        self.lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.address}"

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            sock.settimeout(PATIENCE)
            with self.lock:
                self.accepted += 1
                self.open += 1
                self.sockets.add(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            if self.tls:
                sock = self._encrypted(sock)
            self.handler(Visit(self, sock))
        except (OSError, EOFError):
            pass
        except BaseException as error:
            self.errors.append(error)
        finally:
            sock.close()
            with self.lock:
                self.open -= 1
                self.sockets.discard(sock)

    def _encrypted(self, plain: socket.socket) -> ssl.SSLSocket:
        try:
            sock = self.tls.wrap_socket(plain, server_side=True)
        except OSError as error:
            self.failed_handshakes.append(str(error))
            raise
        with self.lock:
            self.sockets.discard(plain)
            self.sockets.add(sock)
        return sock

    def stop(self) -> None:
        """Closes the listener and all connections."""
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        with self.lock:
            for sock in self.sockets:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Upstream:
        return self

    def __exit__(self, kind, *_) -> None:
        self.stop()
        if kind is None and self.errors:
            raise self.errors[0]


def answers(response: bytes | Callable[[Request], bytes], requests: int | None = None) -> Handler:
    """Answers each request, or the first `requests` of each connection, with these bytes."""

    def handler(visit: Visit) -> None:
        count = 0
        while (requests is None or count < requests) and (request := visit.request()):
            visit.send(response if isinstance(response, bytes) else response(request))
            count += 1

    return handler


def ok(body: bytes = b"ok", *headers: bytes) -> bytes:
    """A plain response."""
    lines = [b"HTTP/1.1 200 OK", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body
