"""The terminal, the log's socket, the session's keys and the current folder belong to the user who started howdah. Code of an
application runs as another user, and must not get them."""

import ctypes
import fcntl
import json
import os
import pty
import shutil
import socket
import subprocess
import tempfile
import termios
import threading
from pathlib import Path
from typing import Iterator

import pytest

from support.http.client import Connection
from support.machine import free_port
from support.roadrunner_applications import PYTHON
from support.server import EXECUTABLE
from support.waiting import wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts applications as another user")

KEYCTL = 250
JOIN_SESSION_KEYRING = 1
SESSION_KEYRING = -3


@pytest.fixture
def place() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="howdah-session-"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


def page(place: Path, code: str, name: str = "index.php") -> Path:
    site = place / "site"
    site.mkdir(exist_ok=True)
    (site / name).write_text(f"<?php {code}")
    return site


def serve(site: Path, *options: str, **how) -> tuple[subprocess.Popen, int]:
    port = free_port()
    command = [str(EXECUTABLE), "serve", str(site), "--listen", f"127.0.0.1:{port}", "--processes", "1", *options]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, **how)
    try:
        wait_for(lambda: is_open(port) or process.poll() is not None, "its start")
        assert process.poll() is None
    except BaseException:
        end(process)
        raise
    return process, port


def is_open(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def get(port: int, path: str = "/") -> str:
    with Connection(("127.0.0.1", port)) as client:
        return client.request("GET", path).text


def end(process: subprocess.Popen) -> None:
    process.terminate()
    process.wait()


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """The operator's side and howdah's side of a terminal."""
    ours, theirs = pty.openpty()
    text = bytearray()
    thread = threading.Thread(target=read_all, args=(ours, text), daemon=True)
    thread.start()
    yield theirs, text
    os.close(theirs)
    thread.join(5)
    os.close(ours)


def read_all(descriptor: int, text: bytearray) -> None:
    while True:
        try:
            part = os.read(descriptor, 4096)
        except OSError:
            return
        if not part:
            return
        text += part


def take_terminal(descriptor: int) -> None:
    os.setsid()
    fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)


TERMINAL = """
echo json_encode([
    'tty' => @fopen('/dev/tty', 'r+') !== false,
    'terminals' => array_values(array_filter([0, 1, 2], 'posix_isatty')),
    'of the supervisor' => posix_getsid(0) === posix_getsid((int) $_GET['supervisor']),
]);
error_log('a line of PHP');
file_put_contents('php://stdout', "a line on standard output\\n");
"""


def test_an_application_has_no_terminal(place, terminal):
    """It could read what root types, and type for root (TIOCSTI)."""
    theirs, text = terminal
    process, port = serve(
        page(place, TERMINAL), stdout=theirs, stderr=theirs, preexec_fn=lambda: take_terminal(theirs)
    )
    try:
        assert get(port, f"/?supervisor={process.pid}") == '{"tty":false,"terminals":[],"of the supervisor":false}'
        wait_for(lambda: b"a line of PHP" in text and b"a line on standard output" in text, "its output")
        get(port, "/?supervisor=1")
    finally:
        end(process)
    wait_for(lambda: text.count(b"a line of PHP") == 2, "its last words")


def test_other_programs_have_no_terminal(place, terminal):
    theirs, text = terminal
    (place / "server.py").write_text(SERVER.format(answer="[os.path.exists('/proc/self/fd/0'), *map(os.isatty, (0, 1, 2)), can_open()]"))
    process, port = run(place, stdout=theirs, stderr=theirs, preexec_fn=lambda: take_terminal(theirs))
    try:
        assert get(port) == "[True, False, False, False, False]"
    finally:
        end(process)


SERVER = """
import http.server, os, sys
def can_open():
    try:
        os.close(os.open("/dev/tty", os.O_RDWR))
        return True
    except OSError:
        return False
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = repr({answer}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def program(place: Path, port: int) -> str:
    command = [PYTHON, f"{place}/server.py", "$PORT"]
    application = {"type": "http", "command": command, "address": "port", "processes": 1}
    listeners = {f"127.0.0.1:{port}": {"pass": "applications/app"}}
    return json.dumps({"listeners": listeners, "applications": {"app": application}})


def run(place: Path, **how) -> tuple[subprocess.Popen, int]:
    port = free_port()
    (place / "config.json").write_text(program(place, port))
    command = [str(EXECUTABLE), "run", "--config", str(place / "config.json"), "--state-dir", str(place / "state")]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, **how)
    try:
        wait_for(lambda: process.poll() is not None or is_open(port) and get(port), "its start")
        assert process.poll() is None
    except BaseException:
        end(process)
        raise
    return process, port


def test_an_application_cannot_end_the_log_of_systemd(place):
    """Its journal is a socket, and shutdown(2) ends it for all who share it."""
    ours, theirs = socket.socketpair()
    text = bytearray()
    thread = threading.Thread(target=read_all, args=(ours.fileno(), text), daemon=True)
    thread.start()
    hostile = "import os, socket; socket.socket(fileno=os.dup(2)).shutdown(socket.SHUT_RDWR)"
    site = page(place, "error_log('a line of PHP');")
    page(place, f"shell_exec('{PYTHON} -c \"{hostile}\"'); echo 'done';", "hostile.php")
    process, port = serve(site, stdout=theirs, stderr=theirs)
    try:
        assert get(port, "/hostile.php") == "done"
        get(port)
        wait_for(lambda: b"a line of PHP" in text, "the line of PHP")
    finally:
        end(process)
        theirs.close()
        thread.join(5)
        ours.close()


def join_keyring_with_a_key() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(KEYCTL, JOIN_SESSION_KEYRING, None) < 0:
        os._exit(77)
    add_key = 248
    libc.syscall(add_key, b"user", b"howdah-test-key", b"secret", 6, SESSION_KEYRING)


@pytest.mark.skipif(not Path("/proc/keys").exists() or os.uname().machine != "x86_64", reason="a kernel with keyrings, and its system calls by number")
def test_an_application_has_no_keys_of_the_session(place):
    """Kerberos tickets are there. A process has the keys of its session whatever its user is."""
    site = page(place, "echo substr_count(file_get_contents('/proc/keys'), 'howdah-test-key');")
    process, port = serve(site, preexec_fn=join_keyring_with_a_key)
    try:
        keys = subprocess.run(["cat", "/proc/keys"], preexec_fn=join_keyring_with_a_key, capture_output=True, text=True).stdout
        assert "howdah-test-key" in keys, "root's own session has it"
        assert get(port) == "0"
    finally:
        end(process)


def test_a_private_current_folder_is_left(place):
    """A process that is in a folder needs no access to those above it."""
    private = place / "private"
    project = private / "project"
    project.mkdir(parents=True)
    private.chmod(0o700)
    (project / "secrets.env").write_text("hunter2")
    (place / "server.py").write_text(SERVER.format(answer="os.getcwd()"))
    process, port = run(place, cwd=project)
    try:
        assert get(port) == "'/'"
    finally:
        end(process)
    code = "register_shutdown_function(function () { echo getcwd(), shell_exec('cat secrets.env 2>&1'); });"
    process, port = serve(page(place, code), cwd=project)
    try:
        assert "hunter2" not in get(port)
    finally:
        end(process)


def test_a_current_folder_that_the_application_can_enter_stays(place):
    (place / "server.py").write_text(SERVER.format(answer="os.getcwd()"))
    process, port = run(place, cwd=place)
    try:
        assert get(port) == repr(str(place))
    finally:
        end(process)
