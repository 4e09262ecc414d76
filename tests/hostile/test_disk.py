"""Bodies of requests and responses that fill a small disk: unfinished, waiting, in small pieces, or not read."""

import os
import select
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from support.fastcgi import STDOUT, FakeServer, Request, end, fastcgi_application, record
from support.faults.file_systems import small_disk
from support.http.client import Connection
from support.machine import needs_root
from support.roadrunner_applications import roadrunner_application
from support.waiting import wait_for

MIB = 1 << 20
DISK = 128 * MIB
UPLOAD = b"x" * 5_000_000
TAIL = 16
# FastCGI 1.0, 5.5: the server has too much to do.
OVERLOADED = 2


def form(size: int) -> tuple[dict, bytes]:
    """A multipart form with one file, of this size in all."""
    before = b'--b\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n'
    after = b"\r\n--b--\r\n"
    return {"Content-Type": "multipart/form-data; boundary=b"}, before.ljust(size - len(after), b"y") + after


def raw(size: int) -> tuple[dict, bytes]:
    return {"Content-Type": "text/plain"}, b"y" * size


def used(disk: Path) -> int:
    state = os.statvfs(disk)
    return (state.f_blocks - state.f_bfree) * state.f_frsize


def is_stable(disk: Path) -> bool:
    """Whether nothing is written to it. PHP's own copy of an upload has only the room that is left free."""
    before = used(disk)
    time.sleep(0.5)
    return used(disk) == before


def is_answered(client: Connection) -> bool:
    return bool(select.select([client.socket], [], [], 0)[0])


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "disk", f"size={DISK},mode=1777") as disk:
        yield disk


@pytest.fixture
def server(application, folder, run, disk, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(disk))
    folder.php("index.php", "echo strlen(file_get_contents('php://input'));")
    applications = {"php": application, "other": dict(application), "roadrunner": roadrunner_application(folder)}
    routes = [
        {"match": {"uri": "/php"}, "action": {"rewrite": "/index.php", "pass": "applications/php"}},
        {"match": {"uri": ["/uploads", "/length"]}, "action": {"pass": "applications/roadrunner"}},
        {"action": {"rewrite": "/index.php", "pass": "applications/other"}},
    ]
    settings = {"http": {"body_temp_path": str(disk), "max_body_size": 80 * MIB}}
    return run({"applications": applications, "routes": routes, "settings": settings})


@needs_root
@pytest.mark.parametrize("target, body, size", [("/php", raw, 8 * MIB), ("/php", raw, 2 * MIB), ("/uploads", form, 8 * MIB)])
def test_bodies_that_never_end_leave_the_disk_to_other_uploads(server, disk, target, body, size):
    headers, content = body(size)
    with ExitStack() as stack:
        held = []
        for _ in range(DISK // size):
            client = stack.enter_context(server.connect())
            client.send_request("POST", target, {**headers, "Content-Length": str(size)})
            with suppress(OSError):
                client.send(content[:-TAIL])
            held.append(client)
        wait_for(lambda: used(disk) > 3 * DISK // 4, "their files")
        for n in range(TAIL, TAIL - 8, -1):
            for client in held:
                with suppress(OSError):
                    client.send(content[-n : len(content) - n + 1])
            response = server.post("/", UPLOAD, {"Content-Type": "text/plain"})
            assert (response.status, response.text) == (200, "5000000")
        server.wait_for_log_line("answering 503 to the requests whose unfinished or waiting bodies take the most for longest")
        answered = [client for client in held if is_answered(client)]
        assert 0 < len(answered) * size <= DISK // 4, "as many as others need"
        for client in answered:
            assert client.response("POST").status == 503
        for client in held:
            if client not in answered:
                client.send(content[8 - TAIL :])
                assert client.response("POST").status == 200
    assert wait_for(lambda: used(disk) < MIB)


@needs_root
def test_complete_bodies_that_wait_for_a_worker_leave_the_disk_to_other_uploads(application, folder, run, disk):
    folder.php("index.php", "echo strlen(file_get_contents('php://input'));")
    folder.php("slow.php", "sleep(20);")
    applications = {"slow": {**application, "processes": 1}, "other": application}
    routes = [
        {"match": {"uri": "/slow"}, "action": {"rewrite": "/slow.php", "pass": "applications/slow"}},
        {"action": {"rewrite": "/index.php", "pass": "applications/other"}},
    ]
    server = run({"applications": applications, "routes": routes, "settings": {"http": {"body_temp_path": str(disk)}}})
    with ExitStack() as stack:
        held = []
        sizes = [8 * MIB - 10] * (DISK // (8 * MIB)) + [3_000_000] * 4 + [1_000_000] * 6 + [300_000] * 12 + [50_000] * 40
        for size in sizes:
            client = stack.enter_context(server.connect())
            with suppress(OSError):
                client.send_request("POST", "/slow", {"Content-Type": "text/plain", "Content-Length": str(size)})
                client.send(b"y" * size)
            held.append(client)
        assert used(disk) > 3 * DISK // 4
        for _ in range(5):
            response = server.post("/", UPLOAD, {"Content-Type": "text/plain"})
            assert (response.status, response.text) == (200, "5000000")
        server.wait_for_log_line("unfinished or waiting bodies take the most for longest")
        assert any(is_answered(client) for client in held)
    assert wait_for(lambda: used(disk) < 10 * MIB)


@needs_root
def test_bodies_that_a_server_refuses_leave_the_disk_to_other_uploads(application, folder, run, disk, socket_path):
    folder.php("index.php", "echo strlen(file_get_contents('php://input'));")
    # All of the disk that bodies may have.
    size, count = 8 * MIB - 10, DISK // (8 * MIB) - 1
    # All are refused at the same time, and the server cannot be reached any more.
    all_are_there = threading.Barrier(count, action=socket_path.unlink, timeout=30)

    def refuse(request: Request) -> bytes:
        all_are_there.wait()
        return end(outcome=OVERLOADED)

    fake = FakeServer(socket_path, refuse)
    options = {"connections": count, "keep_alive": 60, "limits": {"queue_timeout": 60}}
    server = run({
        "applications": {"fake": fastcgi_application(folder, fake.address, **options), "app": application},
        "routes": [
            {"match": {"uri": "/fake"}, "action": {"rewrite": "/index.php", "pass": "applications/fake"}},
            {"action": {"rewrite": "/index.php", "pass": "applications/app"}},
        ],
        "settings": {"http": {"body_temp_path": str(disk)}},
    })
    with ExitStack() as stack:
        stack.callback(fake.close)
        held = []
        for _ in range(count):
            client = stack.enter_context(server.connect())
            client.send_request("POST", "/fake", {"Content-Type": "text/plain", "Content-Length": str(size)})
            client.send(b"y" * size)
            held.append(client)
        has_closed = lambda request: request.connection.fileno() == -1
        wait_for(lambda: len(fake.requests) == count and all(map(has_closed, fake.requests)), "that all are refused")
        for _ in range(5):
            response = server.post("/", UPLOAD, {"Content-Type": "text/plain"})
            assert (response.status, response.text) == (200, "5000000")
        server.wait_for_log_line("unfinished or waiting bodies take the most for longest")
        assert any(is_answered(client) for client in held)
    assert wait_for(lambda: used(disk) < MIB)


@needs_root
def test_files_of_one_byte_leave_the_disk_to_other_uploads(server, disk):
    part = b'--b\r\nContent-Disposition: form-data; name="f[]"; filename="f"\r\n\r\ny\r\n'
    with ExitStack() as stack:
        for _ in range(DISK // (1000 * 4096) + 8):
            client = stack.enter_context(server.connect())
            headers = {"Content-Type": "multipart/form-data; boundary=b", "Content-Length": str(1000 * len(part) + 9)}
            with suppress(OSError):
                client.send_request("POST", "/uploads", headers)
                client.send(part * 1000)
        wait_for(lambda: used(disk) > 3 * DISK // 4 and is_stable(disk), "all of their files")
        for _ in range(5):
            assert server.post("/", UPLOAD, {"Content-Type": "text/plain"}).text == "5000000"


@needs_root
def test_responses_that_are_not_read_leave_the_disk_to_uploads(server, folder, disk):
    folder.php("index.php", "$_SERVER['REQUEST_METHOD'] == 'GET' ? print(str_repeat('x', 1560000)) : print(strlen(file_get_contents('php://input')));")
    with ExitStack() as stack:
        for _ in range(250):
            client = stack.enter_context(server.connect())
            client.send_request("GET", "/php", {})
        wait_for(lambda: used(disk) > DISK // 2, "their files")
        for _ in range(5):
            assert server.post("/", UPLOAD, {"Content-Type": "text/plain"}).text == "5000000"


@needs_root
def test_responses_that_grow_at_the_same_time_leave_the_disk_to_uploads(application, folder, run, disk, socket_path):
    folder.php("index.php", "echo strlen(file_get_contents('php://input'));")
    grow = threading.Event()

    def respond(request: Request) -> None:
        """Its file, and what is in memory and in sockets, and then more. The file has less than a mebibyte in all."""
        block = record(STDOUT, b"y" * 50_000)
        request.connection.sendall(record(STDOUT, b"Content-Type: text/plain\r\n\r\n") + 24 * block)
        grow.wait(30)
        request.connection.sendall(11 * block)

    fake = FakeServer(socket_path, respond)
    count = 180
    routes = [{"match": {"uri": "/fake"}, "action": {"rewrite": "/index.php", "pass": "applications/fake"}}]
    config = {
        "applications": {"fake": fastcgi_application(folder, fake.address, connections=count), "app": application},
        "routes": [*routes, {"action": {"rewrite": "/index.php", "pass": "applications/app"}}],
        "settings": {"http": {"body_temp_path": str(disk)}},
    }
    server = run(config)
    with ExitStack() as stack:
        stack.callback(fake.close)
        stack.callback(grow.set)
        for _ in range(count):
            client = stack.enter_context(server.connect())
            client.send_request("GET", "/fake", {})
        wait_for(lambda: used(disk) > DISK // 2, "their files")
        grow.set()
        wait_for(lambda: used(disk) > 3 * DISK // 4, "that they grow")
        largest, until = 0, time.monotonic() + 3
        while time.monotonic() < until:
            largest = max(largest, used(disk))
            time.sleep(0.01)
        # The free space is looked at after each mebibyte, and each of the two threads may write on meanwhile.
        assert largest < DISK - DISK // 16 + 4 * MIB
        # Bodies take no more than half of what they find, which is four mebibytes at least.
        small = UPLOAD[:2_000_000]
        assert server.post("/", small, {"Content-Type": "text/plain"}).text == "2000000"


@needs_root
def test_a_large_body_may_take_most_of_a_disk(server):
    headers, content = raw(80 * MIB)
    with server.connect() as client:
        client.send_request("POST", "/length", {**headers, "Content-Length": str(len(content))})
        client.send(content)
        assert client.response("POST").text.startswith(f"{len(content)} ")
