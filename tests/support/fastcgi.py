"""PHP-FPM of Debian as a FastCGI server, and servers in Python whose answers a test chooses."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Callable

from support.machine import free_port
from support.server import DISTRIBUTION_PHP
from support.waiting import wait_for

FPM = f"php-fpm{DISTRIBUTION_PHP}"
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
        shutil.rmtree(self.directory, ignore_errors=True)


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
                self.parameters = dict(pairs(listed))
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


def pairs(listed: bytes):
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


def pair(name: str | bytes, value: str | bytes) -> bytes:
    """A variable as a web server sends it."""
    name, value = (text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text for text in (name, value))
    lengths = [struct.pack("B", n) if n < 0x80 else struct.pack(">I", n | 0x80000000) for n in (len(name), len(value))]
    return b"".join(lengths) + name + value


def begin(request: int = 1, role: int = 1, keep: bool = False) -> bytes:
    return record(BEGIN, struct.pack(">HB5x", role, keep), request)


def variables(values: dict, request: int = 1, portion: int = 65535) -> bytes:
    """The records of variables, with the end of them."""
    listed = b"".join(pair(name, value) for name, value in values.items())
    portions = [listed[at : at + portion] for at in range(0, len(listed), portion)]
    return b"".join(record(PARAMS, part, request) for part in [*portions, b""])


def body(content: bytes, request: int = 1, portion: int = 65535) -> bytes:
    portions = [content[at : at + portion] for at in range(0, len(content), portion)]
    return b"".join(record(STDIN, part, request) for part in [*portions, b""])


class WebServer:
    """A web server's connection to a FastCGI listener of howdah."""

    def __init__(self, address: tuple[str, int] | str, root, timeout: float = 30):
        self.root = str(root)
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family)
        self.socket.settimeout(timeout)
        self.socket.connect(address)
        self._received = b""

    def params(self, target: str, method: str = "GET", length: int | None = None, **others: str) -> dict[str, str]:
        """The variables of nginx's fastcgi.conf."""
        path, _, query = target.partition("?")
        script = path[: path.find(".php") + 4] if ".php" in path else path
        return {
            "SCRIPT_FILENAME": f"{self.root}{script}",
            "QUERY_STRING": query,
            "REQUEST_METHOD": method,
            "CONTENT_LENGTH": "" if length is None else str(length),
            "SCRIPT_NAME": script,
            "PATH_INFO": path[len(script) :],
            "REQUEST_URI": target,
            "DOCUMENT_URI": script,
            "DOCUMENT_ROOT": self.root,
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REQUEST_SCHEME": "http",
            "GATEWAY_INTERFACE": "CGI/1.1",
            "SERVER_SOFTWARE": "nginx/1.22.1",
            "REMOTE_ADDR": "192.0.2.7",
            "REMOTE_PORT": "4711",
            "SERVER_ADDR": "192.0.2.1",
            "SERVER_PORT": "80",
            "SERVER_NAME": "shop.example",
            "REDIRECT_STATUS": "200",
            "HTTP_HOST": "shop.example",
            **others,
        }

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def request(self, target: str, content: bytes | None = None, *, keep=False, number=1, **others: str) -> CgiResponse:
        """Sends a request, and returns its response."""
        length = None if content is None else len(content)
        params = self.params(target, "GET" if content is None else "POST", length)
        self.send(begin(number, keep=keep) + variables({**params, **others}, number) + body(content or b"", number))
        return self.response(number)

    def record(self) -> tuple[int, int, bytes]:
        """The type, the request and the content of the next record."""
        head = self._exactly(8)
        version, kind, number, length, padding, reserved = struct.unpack(">BBHHBB", head)
        assert (version, reserved) == (1, 0), head
        return kind, number, self._exactly(length + padding)[:length]

    def response(self, number: int = 1) -> CgiResponse:
        output, has_ended = b"", False
        while True:
            kind, of, content = self.record()
            assert of == number, (kind, of, content)
            if kind == STDOUT:
                assert not has_ended
                has_ended = not content
                output += content
            else:
                assert kind == END, (kind, content)
                return CgiResponse(output, *struct.unpack(">IBxxx", content))

    def is_closed(self) -> bool:
        """Waits for the end of the connection."""
        try:
            return self._received == b"" and self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> WebServer:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            part = self.socket.recv(65536)
            if not part:
                raise ConnectionError(f"the connection ended after {self._received!r}")
            self._received += part
        got, self._received = self._received[:size], self._received[size:]
        return got


class CgiResponse:
    """A response in CGI's form."""

    def __init__(self, output: bytes, exit_status: int, outcome: int):
        self.exit_status, self.outcome = exit_status, outcome
        head, _, self.body = output.partition(b"\r\n\r\n")
        self.headers = [tuple(line.split(": ", 1)) for line in head.decode("latin-1").split("\r\n") if line]
        status = self.header("Status")
        self.status = int(status.split()[0]) if status else None

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self):
        return json.loads(self.body)
