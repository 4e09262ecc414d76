"""Many keep-alive connections that do nothing, after one request each."""

import selectors
import socket

from lib.process_tree import BenchError


class IdleConnections:
    """Opens `count` connections to the port, a batch at a time; close() closes them."""

    BATCH = 200

    def __init__(self, port, path, count):
        self.request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
        self.sockets = []
        try:
            while len(self.sockets) < count:
                self._open_batch(port, min(self.BATCH, count - len(self.sockets)))
        except OSError as error:
            self.close()
            raise BenchError(f"after {len(self.sockets):,} of {count:,} connections: {error}") from error

    def _open_batch(self, port, count):
        batch = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(count)]
        self.sockets += batch
        for connection in batch:
            connection.sendall(self.request)
        for connection in batch:
            _read_response(connection)

    def still_open(self):
        """How many of them the server has not closed."""
        selector = selectors.DefaultSelector()
        for connection in self.sockets:
            selector.register(connection, selectors.EVENT_READ)
        # A connection that is readable without a request is closed: the server has no other reason to send.
        closed = len(selector.select(timeout=0))
        selector.close()
        return len(self.sockets) - closed

    def ask_again(self, every):
        """A second request on each `every`th connection; raises if a response is missing."""
        for connection in self.sockets[::every]:
            connection.sendall(self.request)
            _read_response(connection)

    def close(self):
        for connection in self.sockets:
            connection.close()


def _read_response(connection):
    """Reads one whole response, of a Content-Length or chunked; raises if its status is not 200."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += _receive(connection)
    head, _, body = received.partition(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n")[0]:
        raise OSError(f"the answer is {head.splitlines()[0].decode()}")
    headers = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:])
    if b"content-length" in headers:
        length = int(headers[b"content-length"])
        while len(body) < length:
            body += _receive(connection)
    else:
        while not body.endswith(b"0\r\n\r\n"):
            body += _receive(connection)


def _receive(connection):
    received = connection.recv(65536)
    if not received:
        raise OSError("the server has closed the connection")
    return received
