"""Passes UDP packets between clients and a server, as a network does that may hold them up."""

from __future__ import annotations

import selectors
import socket
import threading

LARGEST = 65536


class UdpRelay:
    """Clients send to `address`. Each of them has a port of its own towards the server."""

    def __init__(self, server: tuple[str, int]):
        self.server = server
        self.host = "127.0.0.1"
        self.front = self._bind()
        self.address = self.front.getsockname()
        self.holds_answers = False
        """Whether the packets of the server wait."""
        self.sent: list[bytes] = []
        """The packets of clients."""
        self.received: list[bytes] = []
        """The packets of the server."""
        self.backs: dict[tuple, socket.socket] = {}
        self.clients: dict[socket.socket, tuple] = {}
        self.held: list[tuple[bytes, tuple]] = []
        self.lock = threading.Lock()
        self.stopping = False
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.front, selectors.EVENT_READ)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def release(self) -> None:
        """Sends what was held, and holds nothing."""
        with self.lock:
            self.holds_answers = False
            for data, client in self.held:
                self.front.sendto(data, client)
            self.held.clear()

    def move(self, host: str) -> None:
        """The clients' packets come from another address from now on."""
        with self.lock:
            self.host = host
            self.backs.clear()

    def inject(self, packet: bytes) -> None:
        """Sends a packet to the server, as if a client had sent it."""
        with self.lock:
            self._pass(self.front, packet, self.address)

    def stop(self) -> None:
        self.stopping = True
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waker:
            waker.sendto(b"", self.address)
        self.thread.join()
        for each in (self.front, *self.clients):
            each.close()
        self.selector.close()

    def __enter__(self) -> UdpRelay:
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def _bind(self) -> socket.socket:
        bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        bound.bind((self.host, 0))
        return bound

    def _run(self) -> None:
        while not self.stopping:
            for key, _ in self.selector.select():
                try:
                    data, sender = key.fileobj.recvfrom(LARGEST)
                except OSError:
                    continue
                with self.lock:
                    self._pass(key.fileobj, data, sender)

    def _pass(self, came_to: socket.socket, data: bytes, sender: tuple) -> None:
        if came_to is not self.front:
            self.received.append(data)
            client = self.clients[came_to]
            if self.holds_answers:
                self.held.append((data, client))
            else:
                self.front.sendto(data, client)
        elif not self.stopping:
            self.sent.append(data)
            if sender not in self.backs:
                back = self.backs[sender] = self._bind()
                self.clients[back] = sender
                self.selector.register(back, selectors.EVENT_READ)
            self.backs[sender].sendto(data, self.server)
