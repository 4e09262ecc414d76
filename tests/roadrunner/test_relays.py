"""Workers that connect to a socket: which connections are theirs. The other tests of this folder also run with Unix sockets."""

import os
import re
import socket
import stat
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.http.load import Load
from support.http_applications import change, configuration, pids, wait_until_gone
from support.roadrunner_applications import frame, hostile_application, roadrunner_application
from support.waiting import wait_for

SO_PASSRIGHTS = 83


def connect(relay: str) -> socket.socket:
    kind, _, address = relay.partition("://")
    connection = socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET)
    connection.settimeout(10)
    connection.connect(address if kind == "unix" else ("127.0.0.1", int(address.rpartition(":")[2])))
    return connection


def test_a_worker_gets_requests_over_tcp(run, folder):
    server = run(configuration(roadrunner_application(folder, relay="tcp", processes=2)))
    page = server.get("/").json()
    assert re.fullmatch(r"tcp://127\.0\.0\.1:\d+", page["relay"]) and page["pid"] in pids(server)
    for size in [0, 1, 5000, 3_000_000]:
        body = os.urandom(size)
        assert server.post("/echo", body, {"Content-Type": "application/octet-stream"}).body == body
    assert server.get("/big?kib=3000").body == b"0123456789abcdef" * 3000 * 64
    assert server.get("/stream?chunks=30").text.count("chunk") == 30
    assert server.get("/error").status == 500 and server.get("/die").status == 502
    assert wait_for(lambda: len(pids(server)) == 2, "another worker")

    def check(client, _):
        response = client.get("/")
        return response.status != 200 and response.status

    with Load(server, check, clients=4) as load:
        before = pids(server)
        assert change(server, {"VERSION": "2"}).status == 200
        wait_until_gone(*before)
        wait_for(lambda: load.correct > 100, "requests")
    load.assert_flawless()


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_a_connection_of_another_process_is_refused(run, folder, kind):
    server = run(configuration(roadrunner_application(folder)))
    waits = folder.scratch / "waits"
    application = roadrunner_application(folder, {"BOOT_WAITS": str(waits)}, relay=kind)
    with ThreadPoolExecutor() as pool:
        changed = pool.submit(server.api, "PUT", "/config/applications/app", application)
        relay = wait_for(lambda: waits.exists() and waits.read_text(), "the worker")
        path = Path(relay.removeprefix("unix://"))
        if kind == "unix":
            status = path.stat()
            assert stat.S_IMODE(status.st_mode) == 0o600 and not stat.S_IMODE(path.parent.stat().st_mode) & 0o007
            if os.geteuid() == 0:
                assert status.st_uid != 0
                assert path.parent.stat().st_uid == 0 and not stat.S_IMODE(path.parent.stat().st_mode) & 0o020
        # As root, of another user; otherwise of the same user, and not of the worker's process group.
        for _ in range(2):
            with connect(relay) as foreign:
                if question := foreign.recv(1000):
                    assert kind == "tcp" and os.geteuid() != 0, question
                    payload = b'{"pid":%d}' % os.getpid()
                    foreign.sendall(frame(payload, options=(), flags=1))
                    assert foreign.recv(1000) == b""
        waits.with_suffix(".end").touch()
        assert changed.result().status == 200, changed.result().text
    server.wait_for_log_line("refused a connection of", f"to {relay}: only the worker with the pid")
    assert server.get("/").json()["relay"] == relay
    # The worker has connected: the socket is closed.
    with pytest.raises(OSError):
        connect(relay)
    server.stop()
    assert kind == "tcp" or not path.parent.exists()


def test_a_worker_that_does_not_connect_is_the_answer_to_the_change(run, folder):
    server = run(configuration(roadrunner_application(folder)), time_divider=10)
    application = roadrunner_application(folder, relay="unix", command="sleep 1000")
    response = server.api("PUT", "/config/applications/app", application)
    assert response.status == 500
    assert "s (it has not connected to unix:///" in response.json()["detail"]
    printing = roadrunner_application(folder, {"BOOT_PRINTS": "1"}, relay="unix")
    assert server.api("PUT", "/config/applications/app", printing).status == 200, "text goes to the log"
    server.wait_for_log_line("Warning: something is deprecated in config.php")
    wrong = roadrunner_application(folder, relay="unix", command=["php", "-r", """
        $relay = stream_socket_client(getenv('RR_RELAY')); fwrite($relay, 'Hello, I am no worker'); sleep(1000);"""])
    response = server.api("PUT", "/config/applications/app", wrong)
    assert response.status == 500 and 'it wrote \\"Hello, I am' in response.text


def test_a_worker_cannot_attach_descriptors(run, folder):
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS, struct.pack("i", 0))
        except OSError:
            pytest.skip("this kernel has no SO_PASSRIGHTS")
    server = run({"applications": {"app": hostile_application(folder, relay="unix")}})
    for _ in range(3):
        # A byte that comes with a descriptor would not be an answer.
        response = server.post("/attach", frame(body=b"refused"))
        assert (response.status, response.body) == (200, b"refused")
