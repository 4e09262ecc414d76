"""PHP-FPM of Debian as a FastCGI server, and servers in Python whose answers a test chooses."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Callable

from support.machine import free_port
from support.waiting import wait_for

FPM = "php-fpm8.2"
BEGIN, ABORT, END, PARAMS, STDIN, STDOUT, STDERR = range(1, 8)


def fastcgi_application(folder, address, **options) -> dict:
    return {"type": "fastcgi", "address": address, "root": str(folder.root), **options}


class Fpm:
    """A running PHP-FPM with one pool. The options replace those of the pool."""

    def __init__(self, *, tcp: bool = False, **pool):
        self.directory = Path(tempfile.mkdtemp(prefix="howdah-fpm-"))
        self.directory.chmod(0o755)
        self.address = f"127.0.0.1:{free_port()}" if tcp else f"unix:{self.directory}/fpm.sock"
        self.log = self.directory / "fpm.log"
        options = {
            "listen": self.address.removeprefix("unix:"),
            "listen.mode": "0666",
            "pm": "static",
            "pm.max_children": 2,
            # The errors of scripts go to the web server.
            "php_admin_value[error_log]": "",
            "php_admin_flag[log_errors]": "on",
            **({"user": "www-data", "group": "www-data"} if os.geteuid() == 0 else {}),
            **{name.replace("__", "."): value for name, value in pool.items()},
        }
        lines = ["[global]", f"error_log = {self.log}", "daemonize = no", "[test]"]
        lines += [f"{name} = {value}" for name, value in options.items() if value != ""]
        (self.directory / "fpm.conf").write_text("\n".join(lines) + "\n")
        self.process: subprocess.Popen | None = None

    def start(self) -> Fpm:
        command = ["setpriv", "--pdeathsig", "KILL", FPM, "--nodaemonize", "--fpm-config", str(self.directory / "fpm.conf")]
        with open(self.directory / "output", "ab") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        wait_for(lambda: self.process.poll() is not None or self.accepts(), "PHP-FPM")
        assert self.process.poll() is None, self.output()
        return self

    def accepts(self) -> bool:
        with contextlib.suppress(OSError):
            self.connect().close()
            return True
        return False

    def connect(self) -> socket.socket:
        if self.address.startswith("unix:"):
            client = socket.socket(socket.AF_UNIX)
            client.connect(self.address.removeprefix("unix:"))
            return client
        host, port = self.address.rsplit(":", 1)
        return socket.create_connection((host, int(port)))

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(30)

    def children(self) -> list[int]:
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in listed.split()]

    def output(self) -> str:
        logs = [self.directory / "output", self.log]
        return "\n".join(log.read_text(errors="replace") for log in logs if log.exists())

    def __enter__(self) -> Fpm:
        return self.start()

    def __exit__(self, *_) -> None:
        self.stop()


def record(kind: int, content: bytes = b"", request: int = 1, padding: int = 0, version: int = 1) -> bytes:
    return struct.pack(">BBHHBB", version, kind, request, len(content), padding, 0) + content + b"\0" * padding


def end(status: int = 0, outcome: int = 0) -> bytes:
    return record(END, struct.pack(">IBxxx", status, outcome))


def answer(body: bytes = b"hello", head: bytes = b"Content-Type: text/plain\r\n\r\n") -> bytes:
    return record(STDOUT, head + body) + record(STDOUT) + end()


class Request:
    """A request as a FastCGI server gets it."""

    def __init__(self, connection: socket.socket):
        self.connection = connection
        self.parameters: dict[str, str] = {}
        self.body = b""
        self.keeps_connection = False
        self.is_aborted = False

    def read(self) -> bool:
        """Reads it to its end. False if the client has closed the connection before it."""
        listed = b""
        while True:
            head = self._exactly(8)
            if len(head) < 8:
                return False
            version, kind, number, length, padding, _ = struct.unpack(">BBHHBB", head)
            assert (version, number) == (1, 1), head
            content = self._exactly(length + padding)[:length]
            if kind == BEGIN:
                role, flags = struct.unpack(">HB5x", content)
                assert role == 1
                self.keeps_connection = flags == 1
            elif kind == PARAMS and content:
                listed += content
            elif kind == PARAMS:
                self.parameters = dict(_pairs(listed))
            elif kind == STDIN and content:
                self.body += content
            elif kind == STDIN:
                return True
            elif kind == ABORT:
                self.is_aborted = True
            else:
                raise AssertionError(head)

    def _exactly(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            part = self.connection.recv(size - len(got))
            if not part:
                break
            got += part
        return got


def _pairs(listed: bytes):
    while listed:
        lengths = []
        for _ in range(2):
            if listed[0] < 0x80:
                lengths.append(listed[0])
                listed = listed[1:]
            else:
                lengths.append(struct.unpack(">I", listed[:4])[0] & 0x7FFFFFFF)
                listed = listed[4:]
        name, value = listed[: lengths[0]], listed[lengths[0] : sum(lengths)]
        listed = listed[sum(lengths) :]
        yield name.decode(), value.decode("utf-8", "surrogateescape")


class FakeServer:
    """A FastCGI server: `answer(request)` returns the bytes for a request, or sends them itself and returns None.

    After the bytes, the connection waits for another request if it is kept, and is closed otherwise.
    """

    def __init__(self, path: Path, answer: Callable[[Request], bytes | None]):
        self.answer = answer
        self.address = f"unix:{path}"
        self.requests: list[Request] = []
        self.connections = 0
        self._open: list[socket.socket] = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        path.chmod(0o777)
        self.listener.listen(128)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                self.connections += 1
                self._open.append(connection)
                threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            while (request := Request(connection)).read():
                self.requests.append(request)
                sent = self.answer(request)
                if sent is not None:
                    connection.sendall(sent)
                if not request.keeps_connection:
                    break

    def close(self) -> None:
        self.listener.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
