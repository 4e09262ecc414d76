"""The control API on a port: users of the machine, and web pages."""

import select
import subprocess
import sys
from pathlib import Path

import pytest

from support.http.client import Connection
from support.machine import NOBODY, free_port, needs_root
from support.waiting import wait_for

CLIENT = """
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(b"PUT /config/applications HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Length: 2\\r\\n\\r\\n{}")
if sys.argv[2] == "closes":
    s.close()
else:
    try:
        print(s.recv(100))
    except ConnectionResetError:
        print(b"")
"""


@pytest.fixture
def server(application, run, tmp_path):
    port = free_port()
    options = ("--control", f"127.0.0.1:{port}", "--state-dir", str(tmp_path / "state"))
    server = run({"applications": {"app": application}}, *options)
    server.control_port = port
    return server


def api(server, method: str, path: str, body=None, headers=()):
    with Connection(("127.0.0.1", server.control_port)) as connection:
        return connection.request(method, path, headers, body)


@needs_root
@pytest.mark.parametrize("client", ["waits", "closes"])
def test_another_user_cannot_use_the_port(server, client):
    before = api(server, "GET", "/config").text
    as_another = ["setpriv", f"--reuid={NOBODY}", "--clear-groups", sys.executable, "-c", CLIENT]
    for _ in range(20):
        result = subprocess.run([*as_another, str(server.control_port), client], capture_output=True, text=True, timeout=30)
        assert result.returncode == 0 and result.stdout.strip() in ("", "b''"), result
    assert api(server, "GET", "/config").text == before
    if client == "waits":
        wait_for(lambda: "refused user id 65534" in server.stderr, "the line")
    else:
        # Health checks do that all the time.
        assert "whose user is not known" not in server.stderr
    assert server.get("/").text == "here"


def test_a_get_changes_nothing(server):
    prototype = server.prototype()
    assert api(server, "GET", "/control/applications/app/restart").status == 405
    assert server.prototype() == prototype
    assert api(server, "POST", "/control/applications/app/restart").status == 200
    wait_for(lambda: server.titled('howdah: "app" prototype') and server.prototype() != prototype, "another prototype")


@needs_root
def test_the_port_is_warned_of(server):
    assert "is open to every process of root" in server.stderr


FLOOD = """
import socket, sys
sockets = []
while len(sockets) < 400:
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex(("127.0.0.1", int(sys.argv[1])))
    sockets.append(s)
print("all", flush=True)
sys.stdin.read()
"""


@needs_root
def test_connections_of_another_user_do_not_take_the_supervisors_descriptors(server):
    as_another = ["setpriv", f"--reuid={NOBODY}", "--clear-groups", sys.executable, "-c", FLOOD]
    descriptors = Path(f"/proc/{server.pid}/fd")
    before = most = len(list(descriptors.iterdir()))
    floods = [
        subprocess.Popen([*as_another, str(server.control_port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    try:
        answered = False
        while not answered:
            most = max(most, len(list(descriptors.iterdir())))
            answered = all(select.select([flood.stdout], [], [], 0)[0] for flood in floods)
        assert api(server, "GET", "/config").status == 200
    finally:
        for flood in floods:
            flood.communicate()
    assert most < before + 40, (before, most)
