"""`howdah drain`: a server of an upstream finishes its requests, and gets no others."""

import threading

import pytest

from support.background import Background
from support.command_line import error_of, howdah
from support.http.proxying import upstream_group
from support.http.upstream import Upstream, answers, ok
from support.waiting import wait_for


class Held:
    """A server that answers its name, and `/hold` when it is released."""

    def __init__(self, name: bytes):
        self.name, self.released = name, threading.Event()
        self.upstream = Upstream(answers(self.answer))
        self.address = self.upstream.address

    def answer(self, request) -> bytes:
        if request.line.startswith("GET /hold"):
            assert self.released.wait(30)
        return ok(self.name)


@pytest.fixture
def pair():
    servers = Held(b"a"), Held(b"b")
    yield servers
    for server in servers:
        server.released.set()
        server.upstream.stop()


def drain(server, *arguments):
    return howdah("drain", *arguments, "--control", f"unix:{server.control}")


def test_a_server_is_drained_and_used_again(run, pair):
    with run(upstream_group(*((server, 3) for server in pair))) as server:

        def listed(one) -> dict:
            return server.api("GET", "/status").json()["upstreams"]["u"]["servers"][one.address]

        asking = Background(server.get, "/hold")
        held = wait_for(lambda: next((one for one in pair if listed(one)["active"] == 1), None), "the request")
        other = pair[1 - pair.index(held)]
        reason = error_of(drain(server, "u", held.address, "--timeout", "1"))
        assert f"after 1 s, the server {held.address} still has 1 requests" in reason
        assert listed(held) == {"state": "drained", "active": 1} and listed(other) == {"state": "up", "active": 0}
        assert {server.get("/").text for _ in range(8)} == {other.name.decode()}
        assert f"{held.address}  drained         1" in howdah("status", "--control", f"unix:{server.control}").stdout
        held.released.set()
        assert asking.result().text == held.name.decode()
        assert drain(server, "u", held.address).stdout == f"The server {held.address} drains: it has no requests.\n"
        assert drain(server, "u", held.address, "--end").stdout == f"The server {held.address} gets requests again.\n"
        assert {server.get("/").text for _ in range(8)} == {"a", "b"}
        # Its weight is what it was.
        assert server.api("GET", f"/config/upstreams/u/servers/{held.address}").json() == {"weight": 3, "drain": False}


def test_wrong_names_are_explained(run, pair):
    with run(upstream_group((pair[0], 1))) as server:
        assert 'has no upstream "x"' in error_of(drain(server, "x", pair[0].address))
        reason = error_of(drain(server, "u", "127.0.0.1:1"))
        assert f'the upstream "u" has no server "127.0.0.1:1"; write one of these: {pair[0].address}' in reason
        refused = server.api("PUT", f"/config/upstreams/u/servers/{pair[0].address}/drain", '"yes"')
        assert refused.status == 400 and "expected true or false" in refused.json()["detail"]
