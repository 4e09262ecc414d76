"""The metrics listener and the dashboard: any user of the machine may connect to them."""

import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from support.control import returning
from support.dashboard import Dashboard
from support.http.client import Connection
from support.machine import free_port
from support.processes import Process
from support.server import Howdah, stop_all
from support.waiting import wait_for

# Seconds that others may wait on a busy machine, while the attack goes on.
LONGEST = 10.0

# Connections that always have another request, which is there before the answer to the last one. A connection that ends is
# opened again.
REQUESTS_WITHOUT_END = """
import selectors, socket, sys
port, path, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
request = f"GET {path} HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\n\\r\\n".encode()
selector = selectors.DefaultSelector()
def begin():
    client = socket.socket()
    client.setblocking(False)
    client.connect_ex(("127.0.0.1", port))
    selector.register(client, selectors.EVENT_WRITE)
for _ in range(count):
    begin()
answers = 0
while True:
    for key, events in selector.select():
        try:
            if events & selectors.EVENT_WRITE:
                key.fileobj.sendall(request)
                selector.modify(key.fileobj, selectors.EVENT_READ)
            elif not key.fileobj.recv(1 << 20):
                raise ConnectionResetError
            else:
                answers += 1
                if answers == 20 * count:
                    print("goes on", flush=True)
            key.fileobj.sendall(request)
        except OSError:
            selector.unregister(key.fileobj)
            key.fileobj.close()
            begin()
"""

# Clients that ask for the metrics, and leave at once.
LEAVING_CLIENTS = """
import socket, sys
print("goes on", flush=True)
while True:
    with socket.socket() as client:
        client.settimeout(1)
        try:
            client.connect(("127.0.0.1", int(sys.argv[1])))
            client.sendall(b"GET /metrics HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
        except OSError:
            pass
"""


@pytest.fixture
def metrics_port():
    return free_port()


@pytest.fixture
def server(metrics_port):
    routes = [{"match": {"uri": f"/some/path/of/a/site/{n}"}, **returning(204)} for n in range(300)]
    settings = {"metrics": {"listen": f"127.0.0.1:{metrics_port}"}}
    server = Howdah.run({"routes": [*routes, returning(204)], "settings": settings})
    with server.connect() as connection:
        assert all(connection.request("GET", f"/some/path/of/a/site/{n}").status == 204 for n in range(300))
    yield server
    stop_all([server])


@contextmanager
def attack(script: str, *arguments):
    command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "goes on\n"
            yield
        finally:
            process.kill()


def longest_time(port: int, path: str) -> float:
    times = []
    for _ in range(5):
        began = time.monotonic()
        with Connection(("127.0.0.1", port), timeout=LONGEST) as connection:
            assert connection.request("GET", path).status == 200
        times.append(time.monotonic() - began)
    return max(times)


@pytest.mark.parametrize("path", ["/", "/metrics"])
def test_requests_without_end_keep_no_one_from_the_metrics(server, metrics_port, path):
    with attack(REQUESTS_WITHOUT_END, metrics_port, path, 40):
        assert longest_time(metrics_port, "/metrics") < LONGEST


@pytest.mark.parametrize("path", ["/icon.svg", "/api/now"])
def test_requests_without_end_keep_no_browser_from_the_dashboard(server, path):
    with Dashboard("--control", f"unix:{server.control}") as dashboard:
        with attack(REQUESTS_WITHOUT_END, dashboard.port, path, 80):
            assert longest_time(dashboard.port, "/icon.svg") < LONGEST


def test_clients_that_leave_do_not_fill_the_supervisor_with_texts(server, metrics_port):
    """It made a text of a megabyte for each of them, thousands at a time, and did nothing else meanwhile."""
    memory = lambda: int(Process.of(server.pid).status("VmHWM").split()[0])
    before = memory()
    with attack(LEAVING_CLIENTS, metrics_port), attack(LEAVING_CLIENTS, metrics_port):
        until = time.monotonic() + 5
        while time.monotonic() < until:
            assert server.api("GET", "/config").status == 200
    with Connection(("127.0.0.1", metrics_port)) as connection:
        assert connection.request("GET", "/metrics").status == 200
    assert memory() < before + 64 * 1024, (before, memory())
