"""`settings/metrics`: the listener of its own for Prometheus, its access, its process, and changes of it."""

import json
import os
import socket

import pytest

from support.control import returning
from support.exposition import OPENMETRICS, PROTOBUF, PROTOBUF_TYPE, Exposition, Families
from support.http.client import Connection, Response
from support.machine import free_port, needs_root
from support.server import Howdah, stop_all
from support.waiting import wait_for

TITLE = "howdah: metrics"


def configuration(port: int, **settings) -> dict:
    metrics = {"listen": f"127.0.0.1:{port}", **settings}
    return {"routes": [returning(204)], "settings": {"metrics": metrics}}


class Metrics:
    """A howdah with a metrics listener."""

    def __init__(self, **settings):
        self.port = free_port()
        self.server = Howdah.run(configuration(self.port, **settings))
        self.process()

    def process(self):
        """Waits until there is exactly one."""
        return wait_for(lambda: len(found := self.server.titled(TITLE)) == 1 and found[0], TITLE)

    def request(self, method: str = "GET", path: str = "/metrics", headers=()) -> Response:
        with Connection(("127.0.0.1", self.port)) as connection:
            return connection.request(method, path, headers)

    def change(self, path: str, body) -> Response:
        return self.server.api("PUT", path, json.dumps(body))


@pytest.fixture(scope="module")
def shared():
    metrics = Metrics()
    yield metrics
    stop_all([metrics.server])


@pytest.fixture
def metrics():
    metrics = Metrics()
    yield metrics
    stop_all([metrics.server])


def test_prometheus_reads_the_same_numbers_as_the_control_socket(shared):
    shared.server.get("/")
    response = shared.request(headers=OPENMETRICS)
    assert response.status == 200
    assert response.header("Content-Type") == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    found = Exposition(response.text, is_openmetrics=True)
    control = Exposition.of(shared.server)
    assert found.sum("howdah_requests_total", route="routes/0", status="2xx") >= 1
    assert {s.name for s in found.samples} == {s.name for s in control.samples}
    plain = shared.request()
    assert plain.header("Content-Type") == "text/plain; version=0.0.4; charset=utf-8"
    assert Exposition(plain.text).sum("howdah_router_up") == 1
    native = shared.request(headers=PROTOBUF)
    assert native.header("Content-Type") == PROTOBUF_TYPE
    families = Families(native.body)
    assert families.values["howdah_router_up",] == 1 and families.histograms
    # Prometheus keeps its connection.
    with Connection(("127.0.0.1", shared.port)) as connection:
        assert [connection.request("GET", "/metrics").status for _ in range(3)] == [200] * 3
        assert connection.request("HEAD", "/metrics").status == 200


@pytest.mark.parametrize(
    "method, path, status", [("GET", "/", 404), ("GET", "/metrics/", 404), ("POST", "/metrics", 405), ("PUT", "/config", 404)]
)
def test_nothing_else_is_there(shared, method, path, status):
    assert shared.request(method, path).status == status


def test_bytes_that_are_no_request_harm_no_one(shared):
    process = shared.process()
    for data in (b"\0" * 100, b"GET /metrics HTTP/1.1\r\n" + b"a: b\r\n" * 20000, b"GET " + b"/" * 100000, b"\x16\x03\x01"):
        with socket.create_connection(("127.0.0.1", shared.port)) as client:
            try:
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
                client.recv(1 << 16)
            except OSError:
                pass
    assert shared.request().status == 200
    assert shared.process() == process, "it is still the same process"


@pytest.mark.parametrize("begun", [b"", b"G", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"], ids=["silent", "slow", "idle"])
def test_clients_that_wait_keep_no_one_out(shared, begun):
    waiting = []
    try:
        for _ in range(100):
            client = socket.create_connection(("127.0.0.1", shared.port))
            waiting.append(client)
            client.sendall(begun)
            if begun.endswith(b"\n"):
                assert client.recv(1) == b"H"
        # More than there are places: those are closed that have waited for longest.
        while waiting[0].recv(1 << 16):
            pass
        assert shared.request().status == 200
    finally:
        for client in waiting:
            client.close()


def responds(metrics: Metrics) -> bool:
    try:
        return metrics.request().status == 200
    except OSError:
        return False


def test_an_address_that_is_not_allowed_is_refused():
    metrics = Metrics(allow=["192.0.2.0/24"])
    try:
        refused = metrics.request()
        assert refused.status == 403 and "settings/metrics/allow" in refused.text
        assert metrics.change("/config/settings/metrics/allow", ["127.0.0.0/8"]).status == 200
        wait_for(lambda: responds(metrics), "the new settings")
    finally:
        stop_all([metrics.server])


@needs_root
def test_the_process_has_the_user_of_the_router(shared):
    users = [process.status("Uid").split()[0] for process in (shared.process(), shared.server.router())]
    assert users[0] == users[1] != "0"


def test_a_process_that_dies_is_replaced_and_clients_wait_for_it(metrics):
    first = metrics.process()
    first.kill()
    assert metrics.request().status == 200, "the supervisor keeps the socket"
    assert metrics.process() != first
    metrics.server.wait_for_log_line("process of the metrics listener", "killed")


def test_it_goes_on_while_the_router_is_replaced(metrics):
    metrics.server.get("/")
    metrics.server.router().kill()
    found = Exposition(metrics.request().text)
    assert found.sum("howdah_requests_total", route="routes/0") == 1
    wait_for(lambda: Exposition(metrics.request().text).values("howdah_router_up") == [1], "another router")


def test_a_change_opens_moves_and_closes_it(metrics):
    process = metrics.process()
    assert metrics.change("/config/routes", [returning(200)]).status == 200
    assert metrics.process() == process, "another change does not touch it"
    old, metrics.port = metrics.port, free_port()
    assert metrics.change("/config/settings/metrics", {"listen": f"127.0.0.1:{metrics.port}"}).status == 200
    wait_for(lambda: responds(metrics), "the new port")
    with pytest.raises(OSError):
        Connection(("127.0.0.1", old))
    assert metrics.server.api("DELETE", "/config/settings").status == 200
    wait_for(lambda: not metrics.server.titled(TITLE), "the end of the process")
    with pytest.raises(OSError):
        Connection(("127.0.0.1", metrics.port))


def test_an_address_that_is_taken_is_the_answer_to_the_change(metrics):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refused = metrics.change("/config/settings/metrics/listen", address)
        assert refused.status == 500, refused.text
        port = address.split(":")[1]
        expected = f'settings/metrics/listen: port {port} is in use by another program; choose another in "listen"'
        assert refused.json()["detail"].startswith(expected)
    assert responds(metrics), "the former one goes on"
    same = f"127.0.0.1:{metrics.server.port}"
    refused = metrics.change("/config/settings/metrics/listen", same)
    assert refused.status == 400 and "has the same address" in refused.json()["detail"]


def test_without_the_setting_there_is_no_process():
    server = Howdah.run({"routes": [returning(204)]})
    try:
        assert server.get("/").status == 204
        assert not server.titled(TITLE)
        assert server.api("GET", "/metrics").status == 200
    finally:
        stop_all([server])


def test_a_shutdown_ends_it(metrics):
    pid = metrics.process().pid
    stop_all([metrics.server])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
