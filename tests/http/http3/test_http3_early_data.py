"""Requests before the handshake is complete (0-RTT), and copies of them: RFC 8470. See docs/http.md."""

import json

import pytest

from support.http.http3_site import connect, connect_through
from support.http.udp_relay import UdpRelay
from support.http.upstream import Upstream
from support.waiting import wait_for

ON = {"http3": {"early_data": True}}


@pytest.fixture
def site(begin, folder):
    """A server that accepts early data, and a relay before it."""
    server = begin(listener=ON)
    folder.php("seen.php", "file_put_contents(SCRATCH . '/' . $_GET['n'], '.', FILE_APPEND); echo $_SERVER['HTTP_EARLY_DATA'] ?? '-';")
    with UdpRelay((server.host, server.port)) as relay:
        yield server, relay


def known(relay: UdpRelay, **how):
    """A client that was there before: it has sessions to resume, and a token for its address."""
    client = connect_through(relay, **{"early": True, **how})
    assert client.request("/seen.php?n=first").text == "-"
    return client


def runs(folder, name: str) -> int:
    file = folder.scratch / name
    return len(file.read_text()) if file.exists() else 0


def test_a_safe_request_is_answered_before_the_handshake_is_complete(site, folder):
    _, relay = site
    with known(relay) as client:
        relay.holds_answers = True
        get, head = client.again(client.head("/seen.php?n=get"), client.head("/seen.php?n=head", method="HEAD"))
        wait_for(lambda: runs(folder, "get") and runs(folder, "head"))
        assert client.sends_early and client.accepted_early is None
        relay.release()
        assert client.finish(get).text == "1" and client.finish(head).status == 200
        client.wait(lambda: client.accepted_early)
        # After the handshake, requests are as usual.
        assert client.request("/seen.php?n=later", method="POST").text == "-"
        assert (runs(folder, "get"), runs(folder, "later")) == (1, 1)


def test_other_methods_wait_for_the_handshake(site, folder):
    _, relay = site
    with known(relay) as client:
        relay.holds_answers = True
        post, put, get = client.again(
            client.head("/seen.php?n=post", [("early-data", "1")], method="POST"),
            client.head("/seen.php?n=put", method="PUT"),
            client.head("/seen.php?n=get"),
        )
        wait_for(lambda: runs(folder, "get"))
        assert (runs(folder, "post"), runs(folder, "put")) == (0, 0)
        relay.release()
        # The client's own header stays.
        assert [client.finish(stream).text for stream in (post, put, get)] == ["1", "-", "1"]
        assert (runs(folder, "post"), runs(folder, "put")) == (1, 1)


def test_a_copy_of_early_data_is_not_answered(site, folder):
    server, relay = site
    with known(relay) as client:
        before = len(relay.sent)
        [get] = client.again(client.head("/seen.php?n=get"))
        assert client.finish(get).text == "1" and client.accepted_early
    copy = relay.sent[before:]
    closed = lambda: json.loads(server.api("GET", "/status").body)["connections"]["closed"]
    wait_for(lambda: closed() == 2)
    # Another has recorded the packets, and sends them from an address of its own. The server answers them with a handshake.
    with UdpRelay((server.host, server.port)) as thief:
        before = len(thief.received)

        def is_answered() -> bool:
            for packet in copy:
                thief.inject(packet)
            return len(thief.received) > before

        wait_for(is_answered)
        with connect(server) as other:
            assert other.request("/seen.php?n=other").text == "-"
    assert runs(folder, "get") == 1


def test_a_client_at_another_address_proves_it_first(site, folder):
    """Its packets could name any address as their sender's."""
    server, relay = site
    with known(relay) as client:
        relay.move("127.0.0.2")
        relay.holds_answers = True
        [get] = client.again(client.head("/seen.php?n=get"))
        wait_for(lambda: relay.held)
        with connect(server) as other:
            assert other.request("/seen.php?n=other").text == "-"
        assert runs(folder, "get") == 0
        relay.release()
        assert client.finish(get).text == "-"


def test_an_upstream_may_refuse_it(begin):
    """425: the client sends the request again."""

    def handle(visit):
        while request := visit.request():
            status = b"425 Too Early" if request.header("early-data") else b"200 OK"
            visit.send(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")

    with Upstream(handle) as upstream:
        server = begin(listener=ON, routes=[{"action": {"proxy": upstream.url}}])
        with UdpRelay((server.host, server.port)) as relay, connect_through(relay, early=True) as client:
            assert client.request("/").status == 200
            relay.holds_answers = True
            [early] = client.again(client.head("/"))
            wait_for(lambda: len(upstream.requests) == 2)
            relay.release()
            assert client.finish(early).status == 425
            assert client.request("/").status == 200


def test_it_is_off_without_the_option(begin, folder):
    server = begin()
    with connect(server, early=True) as client:
        assert client.request("/file.txt").status == 200
        [again] = client.again(client.head("/file.txt"))
        assert client.finish(again).status == 200 and not client.sends_early


def test_it_is_switched_off_while_clients_have_sessions(site, folder):
    server, relay = site
    with known(relay) as client:
        path = f"/config/listeners/127.0.0.1:{server.port}/http3"
        assert server.api("PUT", path, "true").status == 200
        relay.holds_answers = True
        [get] = client.again(client.head("/seen.php?n=get"))
        wait_for(lambda: relay.held)
        assert client.sends_early
        relay.release()
        client.wait(lambda: client.accepted_early is not None)
        assert client.accepted_early is False and runs(folder, "get") == 0
