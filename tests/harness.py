"""Starts the real howdah for a test, talks to it, and sees that nothing of it is left over.

    with Howdah.serve(folder, processes=1, ini={"display_errors": "1"}) as server:
        assert server.get("/index.php").text == "hello"

    with Howdah.run({"applications": {"app": {"type": "php", "root": str(folder)}}}) as server: ...

A server takes a free port of its own and its own session, so that any number of them run side by side. Leaving the
`with` block stops it with SIGTERM and asserts that it exited with 0, that no process of its session is left, zombies
included, and that nothing panicked. When the block raises, everything is killed instead, and the first error is the
one that is seen.

The HTTP client is ours and strict: it reads exactly what the framing of a response announces, keeps what follows for
the next response (pipelining), and raises `ProtocolError` for anything that a client may rightly refuse.

Run as root, howdah serves a folder of root's as www-data: `readable()` opens a folder and the parents that pytest
closes, and `Folder` does so by itself. Nothing here sleeps for a condition without a deadline; use `wait_for`.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Iterable, Iterator, Mapping, Sequence

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
EXECUTABLE = Path(os.environ.get("HOWDAH", REPOSITORY / "target/release/howdah"))
# The PHP version to test, as in 8.4; without it howdah takes the newest that it finds.
PHP = os.environ.get("HOWDAH_TEST_PHP")

# How long anything that must happen may take on a loaded machine. A test that meets it has failed.
PATIENCE = 30.0

Headers = Sequence[tuple[str, str]] | Mapping[str, str]


def wait_for(condition: Callable[[], object], what: str = "", timeout: float = PATIENCE):
    """Calls `condition` until it returns something true, and returns that."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout:g} s in vain for {what or condition}; last: {value!r}")
        time.sleep(0.01)


def free_port() -> int:
    """A TCP port that nobody listens on, below the range from which the kernel takes ports for clients."""
    while True:
        port = random.randrange(10240, 32000)
        with socket.socket() as v4, socket.socket(socket.AF_INET6) as v6:
            try:
                v4.bind(("0.0.0.0", port))
                v6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                v6.bind(("::", port))
            except OSError:
                continue
            return port


def readable(path: os.PathLike | str) -> Path:
    """Lets every user read what is in `path` and pass the folders above it that belong to us."""
    path = Path(path)
    for entry in [path, *path.rglob("*")] if path.is_dir() else [path]:
        if not entry.is_symlink():
            mode = entry.stat().st_mode
            entry.chmod(mode | (0o555 if entry.is_dir() else 0o444))
    for parent in path.resolve().parents:
        if parent.stat().st_uid == os.geteuid() and str(parent).startswith(tempfile.gettempdir() + "/"):
            parent.chmod(parent.stat().st_mode | 0o711)
    return path


PREAMBLE = (
    "if (!function_exists('await')) { function await(string $file): void "
    "{ for ($turn = 0; !file_exists($file) && $turn < 15000; $turn++) { usleep(1000); } } }"
)
"""What every script of `Folder.php` begins with: SCRATCH, the folder in which PHP may write, and await(FILE), which waits
until the file exists (but not for ever: a test that failed must not leave its worker hanging)."""


class Folder:
    """What a server serves (`root`), and beside it a `scratch` folder in which PHP may write."""

    def __init__(self, path: os.PathLike | str):
        self.root = Path(path) / "site"
        self.scratch = Path(path) / "scratch"
        self.root.mkdir(parents=True)
        self.scratch.mkdir()
        self.scratch.chmod(0o777)
        readable(self.root)

    def write(self, name: str, content: str | bytes = "") -> Path:
        """Makes the file `name` (relative to the root) with its folders, readable for everyone."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        # opcache does not keep a file that changed in the last two seconds.
        os.utime(path, (time.time() - 60,) * 2)
        for made in [path, *path.parents]:
            if made == self.root:
                break
            made.chmod(0o644 if made == path else 0o755)
        return path

    def php(self, name: str, code: str) -> Path:
        """Makes a PHP script of `code` (without the opening tag), which may use SCRATCH and `await`; see PREAMBLE."""
        return self.write(name, f"<?php const SCRATCH = {json.dumps(str(self.scratch))}; {PREAMBLE}\n{code}\n")

    def copy(self, *sources: os.PathLike | str) -> None:
        """Copies files, or what is in folders, into the root."""
        for source in map(Path, sources):
            if source.is_dir():
                shutil.copytree(source, self.root, dirs_exist_ok=True)
            else:
                shutil.copy(source, self.root)
        readable(self.root)


# --- HTTP ------------------------------------------------------------------------------------------------------------


class ProtocolError(AssertionError):
    """The server sent what HTTP/1.1 does not allow, or hung up where it must not."""


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
            pass  # An early answer (413, say) may still be there to read.

    def response(self, method: str = "GET") -> Response:
        """Reads one whole response to a request with the method."""
        response, body = self.stream(method)
        response.body = b"".join(body)
        return response

    def stream(self, method: str = "GET") -> tuple[Response, Iterator[bytes]]:
        """Reads the head of a response, and gives its body piece by piece, as it arrives."""
        interim = []
        while True:
            response = self._head()
            if response.status == 101 or response.status >= 200:
                break
            interim.append(response.status)
        response.interim = interim
        return response, self._body(method, response)

    def _head(self) -> Response:
        line = self._line()
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
                    raise ProtocolError("a chunk is longer than it says")
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

    def _line(self) -> bytes:
        while b"\r\n" not in self.buffer:
            more = self.socket.recv(65536)
            if not more:
                raise ProtocolError(f"hung up in a line: {self.buffer[:200]!r}")
            self.buffer += more
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line

    def rest(self) -> bytes:
        """Everything until the server hangs up; a reset counts as hanging up."""
        pieces = [self.buffer]
        self.buffer = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := self.socket.recv(1 << 18):
                pieces.append(piece)
        return b"".join(pieces)

    def is_closed(self) -> bool:
        """Waits until the server hangs up, and says whether it did so without another byte."""
        return self.rest() == b""


# --- Processes -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    session: int
    state: str = field(compare=False)
    """As in /proc: R, S, D, Z (zombie) …"""
    started: int
    """In clock ticks since boot: with the pid, this names a process for good."""
    title: str
    """As `ps -o args` shows it. Empty for a zombie."""

    @classmethod
    def all(cls) -> list[Process]:
        return [process for entry in os.listdir("/proc") if entry.isdigit() and (process := cls.of(int(entry)))]

    @classmethod
    def of(cls, pid: int) -> Process | None:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
            title = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return None
        fields = stat[stat.rindex(")") + 2 :].split()
        words = title.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace").rstrip()
        return cls(pid, int(fields[1]), int(fields[3]), fields[0], int(fields[19]), words)

    def status(self, key: str) -> str:
        """A line of /proc/PID/status: `status("Uid")` is the real, effective, saved and file system user."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(key + ":"):
                return line.split(":", 1)[1].strip()
        raise KeyError(key)

    def alive(self) -> bool:
        now = Process.of(self.pid)
        return now is not None and now.started == self.started and now.state != "Z"

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)


class Howdah:
    """A howdah that runs. `Howdah.serve` and `Howdah.run` start one; the constructor takes any arguments."""

    started: list[Howdah] = []
    """Those of the test that runs; conftest.py shows their output when it fails."""

    def __init__(
        self,
        arguments: Callable[[int], list[str]],
        environ: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        cwd: os.PathLike | str | None = None,
        ready: Callable[[Howdah], bool] | None = None,
    ):
        """Starts `EXECUTABLE` with what `arguments` makes of a free port, and waits until it is ready.

        `prefix` goes before the executable (`["setpriv", …]`); `ready` replaces the wait for the URL's line.
        """
        self.directory = Path(tempfile.mkdtemp(prefix="howdah-test-"))
        # With a prefix it may be somebody else who writes here.
        self.directory.chmod(0o777 if prefix else 0o755)
        self.control = self.directory / "control.sock"
        self.process: subprocess.Popen | None = None
        self.ended = False  # Whether a test has seen, or caused, the end of it.
        self.host = "127.0.0.1"
        Howdah.started.append(self)
        for attempt in range(5):
            self.port = free_port()
            # Should pytest itself be killed, the kernel ends the server.
            guard = ["setpriv", "--pdeathsig", "KILL"]
            words = arguments(self.port)
            if words[0] == "run" and "--state-dir" not in words:
                words = [*words, "--state-dir", str(self.directory / "state"), "--control", f"unix:{self.control}"]
            self._spawn([*guard, *prefix, str(EXECUTABLE), *words], environ, cwd)
            try:
                wait_for(
                    lambda: self.process.poll() is not None or (ready or Howdah._has_printed_its_url)(self),
                    "the line with the URL",
                )
                if self.process.poll() is None:
                    return
            except BaseException:
                self.kill()
                raise
            if not re.search(r"in use|taken", self.stderr):
                break
        message = f"exit code {self.process.returncode} instead of a server\n{self.stdout}\n{self.stderr}"
        self.kill()
        raise AssertionError(message)

    def _spawn(self, command: list[str], environ: Mapping[str, str] | None, cwd) -> None:
        with open(self.directory / "stdout", "wb") as stdout, open(self.directory / "stderr", "wb") as stderr:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=cwd,
                env=None if environ is None else {"PATH": os.environ["PATH"], **environ},
                start_new_session=True,
            )

    def _has_printed_its_url(self) -> bool:
        return re.search(rf"https?://\S*:{self.port}\b", self.stdout) is not None

    @classmethod
    def serve(
        cls,
        folder: Folder | os.PathLike | str,
        *options: str,
        processes: int | None = 2,
        ini: Mapping[str, object] = {},
        env: Mapping[str, str] = {},
        listen: Sequence[str] = ("127.0.0.1:{port}",),
        **start,
    ) -> Howdah:
        """`howdah serve FOLDER`. `ini` and `env` become --ini and --env; `{port}` in `listen` is the free port. With `processes`
        None howdah finds their number by itself."""
        root = folder.root if isinstance(folder, Folder) else folder

        def arguments(port: int) -> list[str]:
            words = ["serve", str(root), *options]
            if PHP and "--php" not in options:
                words += ["--php", PHP]
            for address in listen:
                words += ["--listen", address.format(port=port)]
            if processes is not None:
                words += ["--processes", str(processes)]
            for option, values in (("--ini", ini), ("--env", env)):
                for key, value in values.items():
                    words += [option, f"{key}={value}"]
            return words

        return cls(arguments, **start)

    def api(self, method: str, path: str, body: object = None, headers: Headers = ()) -> Response:
        """Asks the control API of `Howdah.run`. A body that is neither text nor bytes is sent as JSON."""
        if body is not None and not isinstance(body, (str, bytes)):
            body = json.dumps(body)
        with Connection(str(self.control)) as connection:
            return connection.request(method, path, headers, body)

    @classmethod
    def run(cls, config: Mapping, *options: str, **start) -> Howdah:
        """`howdah run --config` with the configuration, and a control socket of its own (`api`); `{port}` in the name of a listener is the free port.

        Without listeners, 127.0.0.1 passes to the routes, or else to the only application.
        """
        config = dict(config)
        if PHP:
            config["applications"] = {
                name: {**application, "type": f"php {PHP}"} if application.get("type") == "php" else application
                for name, application in config.get("applications", {}).items()
            }
        if "listeners" not in config:
            target = "routes" if "routes" in config else "applications/" + next(iter(config["applications"]))
            config["listeners"] = {"127.0.0.1:{port}": {"pass": target}}
        listeners = config["listeners"]
        handle, name = tempfile.mkstemp(prefix="howdah-config-", suffix=".json")
        os.close(handle)
        os.chmod(name, 0o644)

        def arguments(port: int) -> list[str]:
            config["listeners"] = {key.replace("{port}", str(port)): value for key, value in listeners.items()}
            Path(name).write_text(json.dumps(config, indent=2))
            return ["run", "--config", name, *options]

        try:
            return cls(arguments, **start)
        finally:
            os.unlink(name)

    # --- What it says

    @property
    def stdout(self) -> str:
        return self._output("stdout")

    @property
    def stderr(self) -> str:
        return self._output("stderr")

    def _output(self, name: str) -> str:
        with contextlib.suppress(FileNotFoundError):
            return (self.directory / name).read_text(errors="replace")
        return ""

    @property
    def pid(self) -> int:
        return self.process.pid

    # --- HTTP

    def connect(self, timeout: float = PATIENCE) -> Connection:
        return Connection((self.host, self.port), timeout)

    def request(
        self,
        method: str,
        target: str,
        headers: Headers = (),
        body: bytes | str | Iterable[bytes] | None = None,
        timeout: float = PATIENCE,
    ) -> Response:
        """One request on a connection of its own."""
        with self.connect(timeout) as connection:
            return connection.request(method, target, headers, body)

    def get(self, target: str, headers: Headers = (), timeout: float = PATIENCE) -> Response:
        return self.request("GET", target, headers, timeout=timeout)

    def post(self, target: str, body: bytes | str | Iterable[bytes], headers: Headers = ()) -> Response:
        return self.request("POST", target, headers, body)

    def raw(self, data: bytes, timeout: float = PATIENCE) -> bytes:
        """Sends bytes as they are, and returns everything until the server hangs up."""
        with self.connect(timeout) as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.send(data)
            return connection.rest()

    # --- Processes

    def processes(self) -> list[Process]:
        """The supervisor and every process below it."""
        every = Process.all()
        below = {self.pid}
        while more := {p.pid for p in every if p.parent in below} - below:
            below |= more
        return [process for process in every if process.pid in below]

    def titled(self, title: str) -> list[Process]:
        return sorted((p for p in self.processes() if p.title == title and p.state != "Z"), key=lambda p: p.pid)

    def router(self) -> Process:
        """Waits until there is exactly one."""
        return wait_for(lambda: self._only(self.titled("howdah: router")), "one router")

    def prototype(self, application: str = "app") -> Process:
        """Waits until there is exactly one."""
        title = f'howdah: "{application}" prototype'
        return wait_for(lambda: self._only(self.titled(title)), f"one {title}")

    def workers(self, application: str = "app", count: int | None = None) -> list[Process]:
        """The workers; with `count`, waits until there are exactly as many."""
        title = f'howdah: "{application}" worker'
        if count is None:
            return self.titled(title)
        return wait_for(lambda: (w := self.titled(title)) and len(w) == count and w, f"{count} of {title}")

    @staticmethod
    def _only(processes: list[Process]) -> Process | None:
        return processes[0] if len(processes) == 1 else None

    def zombies(self) -> list[Process]:
        return [process for process in self.processes() if process.state == "Z"]

    def leftovers(self) -> list[Process]:
        """Processes of the server's session (that is all of them, unless PHP code left it) that still exist.

        Dead ones are the business of the parent that they have now: it may be the machine's, which takes its time."""
        left = [process for process in Process.all() if process.session == self.pid]
        ours = {process.pid for process in left}
        return [process for process in left if process.state != "Z" or process.parent in ours]

    # --- The end

    def send_signal(self, number: int) -> None:
        self.process.send_signal(number)

    def exit_code(self, timeout: float = PATIENCE) -> int:
        """Waits until the supervisor has ended."""
        self.ended = True
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            tree = "\n".join(map(str, self.processes()))
            raise AssertionError(f"still running after {timeout:g} s:\n{tree}") from None

    def stop(self, number: int = signal.SIGTERM, timeout: float = PATIENCE) -> None:
        """Ends the server as an operator would, and asserts that it went cleanly and completely."""
        if self.ended:
            return
        assert self.process.poll() is None, f"ended by itself with {self.process.returncode}\n{self.stderr}"
        known = self.processes()
        self.send_signal(number)
        code = self.exit_code(timeout)
        left = [process for process in known if process.alive()]
        stderr = self.stderr
        assert code == 0, f"exit code {code}\n{stderr}"
        assert not left, f"left over: {left}"
        # What only init can reap now is given a moment; what runs is not.
        assert not (left := [process for process in self.leftovers() if process.state != "Z"]), f"left over: {left}"
        wait_for(lambda: not self.leftovers(), "the end of zombies", timeout=2)
        assert "panicked" not in stderr, stderr
        self.kill()

    def kill(self) -> None:
        """Ends everything at once, without asking. Nothing is asserted."""
        self.ended = True
        if self.process is not None:
            for process in {p.pid: p for p in [*self.processes(), *self.leftovers()]}.values():
                if process.pid == self.pid and self.process.returncode is not None:
                    continue
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            self.process.wait()
        if self.directory.exists():
            self.final_output = {name: self._output(name) for name in ("stdout", "stderr")}
        shutil.rmtree(self.directory, ignore_errors=True)

    def output(self) -> dict[str, str]:
        """stdout and stderr, also after the end."""
        return getattr(self, "final_output", None) or {"stdout": self.stdout, "stderr": self.stderr}

    def __enter__(self) -> Howdah:
        return self

    def __exit__(self, kind, *_) -> None:
        if kind is None:
            try:
                self.stop()
            finally:
                self.kill()
        else:
            self.kill()


@contextlib.contextmanager
def dead_file_system(folder):
    """A folder that hangs whoever looks into it, like a network file system whose server is gone, until the end."""
    point = folder / "dead"
    point.mkdir()
    libc = ctypes.CDLL(None)
    with contextlib.ExitStack() as end:
        try:
            # Nobody answers what the kernel asks there.
            device = os.open("/dev/fuse", os.O_RDWR)
        except OSError as error:
            pytest.skip(f"no FUSE: {error}")
        end.callback(os.close, device)
        options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        if libc.mount(b"dead", bytes(point), b"fuse", 0, options) != 0:
            pytest.skip("nothing can be mounted")
        end.callback(libc.umount2, bytes(point), 2)
        yield point
