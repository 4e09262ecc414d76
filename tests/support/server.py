"""Starts the real howdah for a test, sends requests to it, and checks that no process of it is left over.

    with Howdah.serve(folder, processes=1, ini={"display_errors": "1"}) as server:
        assert server.get("/index.php").text == "hello"

    with Howdah.run({"applications": {"app": {"type": "php", "root": str(folder)}}}) as server: ...

A server takes a free port of its own and its own session, so that any number of them run side by side. Leaving the
`with` block stops it with SIGTERM and asserts that it exited with 0, that no process of its session is left, zombies
included, and that nothing panicked. When the block raises, everything is killed instead, and the first error is
reported.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Callable, Iterable, Mapping, Sequence

from support.folders import Folder, readable
from support.http.client import Connection, Headers, Response
from support.machine import free_port
from support.processes import Process
from support.waiting import PATIENCE, wait_for

REPOSITORY = Path(__file__).resolve().parents[2]
EXECUTABLE = Path(os.environ.get("HOWDAH", REPOSITORY / "target/release/howdah"))
# The PHP version to test, such as 8.4. By default howdah uses the newest that it finds.
PHP = os.environ.get("HOWDAH_TEST_PHP")
# The PHP of the distribution, whose other servers some tests start: that of Debian 12, or that of scripts/php-in-chroot.
DISTRIBUTION_PHP = PHP or "8.2"
# The extensions of most tests. Loading all that are installed takes a third of a server's start.
FEW_EXTENSIONS = ("ctype", "ffi", "mbstring", "opcache", "pdo", "phar", "posix", "sockets", "tokenizer")


def few_extensions(folder: Path) -> Path | None:
    """A folder with the php.ini files of FEW_EXTENSIONS, which the first process writes. None if PHP has no such files."""
    if not folder.exists():
        folder.mkdir()
        for file in Path(f"/etc/php/{DISTRIBUTION_PHP}/embed/conf.d").glob("*.ini"):
            if file.stem.partition("-")[2] in FEW_EXTENSIONS:
                (folder / file.name).write_text(file.read_text())
        readable(folder)
    return folder if list(folder.iterdir()) else None


class Howdah:
    """A running howdah. `Howdah.serve` and `Howdah.run` start one; the constructor takes any arguments."""

    started: list[Howdah] = []
    """The servers of the current test; conftest.py shows their output when it fails."""
    extensions: Path | None = None
    """The folder of php.ini files that servers read; None: that of the distribution. conftest.py sets it for each test."""

    def __init__(
        self,
        arguments: Callable[[int], list[str]],
        environ: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        cwd: os.PathLike | str | None = None,
        ready: Callable[[Howdah], bool] | None = None,
        time_divider: int = 1,
    ):
        """Starts `EXECUTABLE` with the result of `arguments(free port)`, and waits until it is ready.

        `prefix` goes before the executable (`["setpriv", …]`); `ready` replaces the wait for the URL's line. A
        `time_divider` shortens howdah's own long timeouts, for tests that wait for one of them. Only builds with debug
        assertions do that: such a test must pass, if later, with a release build, too.
        """
        self.directory = Path(tempfile.mkdtemp(prefix="howdah-test-"))
        # With a prefix, another user may write here.
        self.directory.chmod(0o777 if prefix else 0o755)
        self.control = self.directory / "control.sock"
        self.process: subprocess.Popen | None = None
        self.ended = False  # Whether a test has stopped it or seen its exit.
        self.sessions: set[int] = set()
        """The sessions of its processes, as far as a test has looked at them."""
        self.host = "127.0.0.1"
        Howdah.started.append(self)
        for attempt in range(5):
            self.port = free_port()
            # If pytest is killed, the kernel kills the server.
            guard = ["setpriv", "--pdeathsig", "KILL"]
            words = arguments(self.port)
            if words[0] == "run" and "--state-dir" not in words:
                words = [*words, "--state-dir", str(self.directory / "state"), "--control", f"unix:{self.control}"]
            self._spawn([*guard, *prefix, str(EXECUTABLE), *words], environ, cwd, time_divider)
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

    def _spawn(self, command: list[str], environ: Mapping[str, str] | None, cwd, time_divider: int) -> None:
        if environ is not None:
            environ = {"PATH": os.environ["PATH"], **environ}
        else:
            environ = {**os.environ, **({"PHP_INI_SCAN_DIR": str(self.extensions)} if self.extensions else {})}
        if time_divider != 1:
            environ = {**environ, "HOWDAH_TEST_TIME_DIVIDER": str(time_divider)}
        with open(self.directory / "stdout", "wb") as stdout, open(self.directory / "stderr", "wb") as stderr:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=cwd,
                env=environ,
                start_new_session=True,
            )

    def _has_printed_its_url(self) -> bool:
        return re.search(rf"(https?|fastcgi)://\S*:{self.port}\b", self.stdout) is not None

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
        """`howdah serve FOLDER`. `ini` and `env` become --ini and --env; `{port}` in `listen` is the free port.

        With `processes` None howdah chooses their number.
        """
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
        """Sends a request to the control API of `Howdah.run`. A body that is neither text nor bytes is sent as JSON."""
        if body is not None and not isinstance(body, (str, bytes)):
            body = json.dumps(body)
        with Connection(str(self.control)) as connection:
            return connection.request(method, path, headers, body)

    @classmethod
    def run(cls, config: Mapping, *options: str, **start) -> Howdah:
        """`howdah run --config` with the configuration, and its own control socket (`api`).

        `{port}` in the name of a listener is the free port.
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

    # --- Output

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

    def wait_for_log_line(self, *words: str) -> None:
        """Waits for a line of the log with all these words; asserts that it is the only one."""

        def lines():
            return [line for line in self.stderr.splitlines() if all(word in line for word in words)]

        assert len(wait_for(lines, f"a line with {words}")) == 1, self.stderr

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
        """Sends bytes unchanged, and returns everything until the server closes the connection."""
        with self.connect(timeout) as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.send(data)
            return connection.rest()

    # --- Processes

    def processes(self) -> list[Process]:
        """The supervisor and every process below it."""
        found = Process.tree(self.pid)
        self.sessions |= {process.session for process in found if process.session}
        return found

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
        """Processes of the server's sessions (that is all of them, unless PHP code left them) that still exist.

        A zombie is not counted if its parent is outside the sessions: init may reap it later."""
        left = Process.of_sessions({self.pid, *self.sessions})
        ours = {process.pid for process in left}
        return [process for process in left if process.state != "Z" or process.parent in ours]

    # --- Shutdown

    def send_signal(self, number: int) -> None:
        self.process.send_signal(number)

    def exit_code(self, timeout: float = PATIENCE) -> int:
        """Waits until the supervisor has exited."""
        self.ended = True
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            tree = "\n".join(map(str, self.processes()))
            raise AssertionError(f"still running after {timeout:g} s:\n{tree}") from None

    def stop(self, number: int = signal.SIGTERM, timeout: float = PATIENCE) -> None:
        """Stops the server as an operator does, and asserts that it exits cleanly and completely."""
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
        # A zombie that only init can reap gets some time; a process that runs does not.
        if left := self.leftovers():
            assert not (running := [process for process in left if process.state != "Z"]), f"left over: {running}"
            wait_for(lambda: not self.leftovers(), "the end of zombies")
        assert "panicked" not in stderr, stderr
        self._remove_directory()

    def kill(self) -> None:
        """Kills everything at once. Nothing is asserted."""
        self.ended = True
        if not self.directory.exists():
            return  # It was stopped without any process left.
        if self.process is not None:
            for process in {p.pid: p for p in [*self.processes(), *self.leftovers()]}.values():
                if process.pid == self.pid and self.process.returncode is not None:
                    continue
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            self.process.wait()
        self._remove_directory()

    def _remove_directory(self) -> None:
        self.final_output = {name: self._output(name) for name in ("stdout", "stderr")}
        shutil.rmtree(self.directory, ignore_errors=True)

    def output(self) -> dict[str, str]:
        """stdout and stderr, also after the shutdown."""
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


def stop_all(servers: Iterable[Howdah]) -> None:
    """Stops and checks each server; kills all of them if one does not stop cleanly."""
    try:
        for server in servers:
            server.stop()
    finally:
        for server in servers:
            server.kill()
