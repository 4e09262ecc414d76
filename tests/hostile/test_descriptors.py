"""Descriptors that arrive: the last reference to a TCP socket with unsent data, whose end blocks its receiver."""

import array
import contextlib
import json
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Iterator

import pytest

from support import fastcgi
from support.command_line import howdah
from support.machine import free_port
from support.waiting import PATIENCE, wait_for

SO_PASSRIGHTS = 83
LINGER = 60


@contextlib.contextmanager
def lingering() -> Iterator[socket.socket]:
    """A socket whose close waits for LINGER seconds, because its peer reads nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sock = socket.create_connection(listener.getsockname())
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER))
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while sock.send(b"x" * 65536):
                pass
        try:
            yield sock
        finally:
            # Without the option, the end is a reset at once.
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()


def attach(target: socket.socket, attached: socket.socket, data: bytes = b"G") -> None:
    target.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [attached.fileno()]))])


@pytest.fixture(autouse=True)
def kernel_that_refuses():
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS, 0)
        except OSError:
            pytest.skip("this kernel has no SO_PASSRIGHTS")


@pytest.mark.parametrize("kind", ["path", "abstract", "fastcgi"])
def test_a_client_of_a_unix_listener_cannot_attach_descriptors(application, run, socket_path, kind):
    name = f"@howdah-test-{free_port()}" if kind == "abstract" else str(socket_path)
    protocol = {"protocol": "fastcgi"} if kind == "fastcgi" else {}
    listeners = {"127.0.0.1:{port}": {"pass": "applications/app"}, f"unix:{name}": {"pass": "applications/app", **protocol}}
    server = run({"applications": {"app": application}, "listeners": listeners})
    address = "\0" + name[1:] if kind == "abstract" else name
    for begin in (b"", fastcgi.begin() if protocol else b"GET / HTTP/1.1\r\n"):
        with lingering() as sock, socket.socket(socket.AF_UNIX) as client:
            client.connect(address)
            if begin:
                client.sendall(begin)
            with pytest.raises(PermissionError):
                attach(client, sock)
    began = time.monotonic()
    for _ in range(8):
        assert server.get("/").text == "here"
    assert time.monotonic() - began < LINGER / 2


def test_an_upstream_cannot_attach_descriptors(application, run, socket_path):
    refused = []

    def answer() -> None:
        with contextlib.suppress(OSError), lingering() as sock:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                try:
                    attach(connection, sock, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
                except PermissionError:
                    refused.append(True)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(socket_path))
        socket_path.chmod(0o777)
        listener.listen()
        listener.settimeout(PATIENCE)
        thread = threading.Thread(target=answer)
        thread.start()
        server = run({"routes": [{"action": {"proxy": f"http://unix:{socket_path}"}}], "applications": {"app": application}})
        assert server.get("/").text == "ok"
        thread.join()
    assert refused


def test_a_client_of_the_control_socket_cannot_attach_descriptors(application, run):
    server = run({"applications": {"app": application}})
    with lingering() as sock, socket.socket(socket.AF_UNIX) as client:
        client.connect(str(server.control))
        with pytest.raises(PermissionError):
            attach(client, sock)
    assert server.api("GET", "/config").status == 200


def test_a_server_in_the_place_of_the_control_socket_cannot_attach_descriptors():
    """Any user can listen at an abstract name while no howdah does."""
    name, refused = f"howdah-test-{free_port()}", []

    def answer() -> None:
        with contextlib.suppress(OSError), lingering() as sock:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
                try:
                    attach(connection, sock, head)
                except PermissionError:
                    refused.append(True)
                    connection.sendall(head)
                connection.sendall(b"{}")

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + name)
        listener.listen()
        listener.settimeout(PATIENCE)
        thread = threading.Thread(target=answer)
        thread.start()
        ended = howdah("config", "get", "--control", f"unix:@{name}")
        thread.join()
    assert refused and ended.returncode == 0 and ended.stdout.strip() == "{}"


HTTP_SERVER = """
import array, os, socket, sys

def attach(target, data, results):
    try:
        target.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [results.fileno()]))])
        return "sent"
    except PermissionError:
        target.sendall(data)
        return "refused"

path = os.environ["HOWDAH_ADDRESS"].removeprefix("unix:")
results = open(sys.argv[1], "a", buffering=1)
if "LISTEN_FDS" in os.environ:
    listener = socket.socket(fileno=3)
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    results.write("queue " + attach(client, b"x", results) + "\\n")
    client.close()
else:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
while True:
    connection, _ = listener.accept()
    with connection:
        words = connection.recv(1 << 16).split()
        if len(words) < 2:
            continue
        result = attach(connection, b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\nok", results)
        results.write(words[1].decode() + " " + result + "\\n")
"""


@pytest.mark.parametrize("address", ["unix", "listen_fds"])
def test_a_process_of_an_http_application_cannot_attach_descriptors(folder, run, address):
    results = folder.scratch / "results"
    script = folder.write("server.py", HTTP_SERVER)
    application = {
        "type": "http",
        "command": ["python3", str(script), str(results)],
        "address": address,
        "health_check": {"path": "/health"},
    }
    server = run({"applications": {"app": application}})
    assert server.get("/page").text == "ok"
    lines = wait_for(lambda: "/page" in (text := results.read_text()) and text.splitlines(), "the results")
    expected = {"/health refused", "/page refused"} | ({"queue refused"} if address == "listen_fds" else set())
    assert set(lines) == expected


LISTENER = """
import array, os, socket, struct, sys, time

listener = socket.socket(fileno=3)
connection, _ = listener.accept()
connection.recv(1 << 16)
connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
# The process has the socket, and can change what it accepts.
listener.setsockopt(socket.SOL_SOCKET, 83, 1)
sock = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
sock.setblocking(False)
try:
    while sock.send(b"x" * 65536):
        pass
except BlockingIOError:
    pass
client = socket.socket(socket.AF_UNIX)
path = os.environ["HOWDAH_ADDRESS"].removeprefix("unix:")
client.connect(path)
client.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [sock.fileno()]))])
sock.close()
client.close()
open(sys.argv[1], "w").write(path + "\\n")
time.sleep(1000)
"""


def test_descriptors_in_the_queue_of_a_socket_do_not_stop_the_supervisor(folder, run):
    results = folder.scratch / "results"
    script = folder.write("server.py", LISTENER)
    with socket.create_server(("127.0.0.1", 0)) as peer:
        application = {
            "type": "http",
            "command": ["python3", str(script), str(results), str(peer.getsockname()[1])],
            "address": "listen_fds",
            "health_check": {"interval": 3600},
        }
        server = run({"applications": {"app": application}})
        path = wait_for(lambda: results.exists() and results.read_text().endswith("\n") and results.read_text(), "its path")
        began = time.monotonic()
        assert server.api("PUT", "/config", {"listeners": {}}).status == 200
        # The folder is removed after the socket, when the process has exited.
        wait_for(lambda: not Path(path.strip()).exists(), "the end of the socket")
        assert server.api("GET", "/status").status == 200
        assert time.monotonic() - began < LINGER / 2


PRELOAD = """
try { $c = FFI::cdef('
    struct vector { void *base; size_t length; };
    struct message { void *name; unsigned name_length; struct vector *vectors; size_t count;
                     void *control; size_t control_length; int flags; };
    ssize_t sendmsg(int fd, const struct message *m, int flags);
    int *__errno_location(void);
'); } catch (Throwable $none) { file_put_contents(SCRATCH . '/results', json_encode(null)); return; }
$results = [];
$text = $c->new('char[2]');
FFI::memcpy($text, '{}', 2);
for ($fd = 3; $fd < 20; $fd++) {
    $vector = $c->new('struct vector');
    $vector->base = FFI::cast('void *', FFI::addr($text));
    $vector->length = 2;
    // Length, SOL_SOCKET, SCM_RIGHTS, the descriptor.
    $header = $c->new('char[24]');
    FFI::memcpy($header, pack('QiiiI', 20, 1, 1, 0, 0), 24);
    $message = $c->new('struct message');
    $message->vectors = FFI::addr($vector);
    $message->count = 1;
    $message->control = FFI::cast('void *', FFI::addr($header));
    $message->control_length = 24;
    $sent = $c->sendmsg($fd, FFI::addr($message), 0x4040);
    $results[$fd] = $sent < 0 ? -$c->__errno_location()[0] : $sent;
}
file_put_contents(SCRATCH . '/results', json_encode($results));
"""


def test_a_preload_script_cannot_attach_descriptors(folder, application, run):
    folder.php("preload.php", PRELOAD)
    application["options"] = {"admin": {"opcache.preload": str(folder.root / "preload.php"), "ffi.enable": "1"}}
    server = run({"applications": {"app": application}})
    assert server.get("/").text == "here"
    results = wait_for(lambda: (path := folder.scratch / "results").exists() and path.read_text(), "the script")
    results = json.loads(results)
    if results is None:
        pytest.skip("this PHP has no FFI")
    # EPERM for the socket of the supervisor; nothing was sent.
    assert -1 in results.values() and not [sent for sent in results.values() if sent >= 0], results
