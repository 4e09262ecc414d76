"""Clients of HTTP/3 in other ways than usual: IPv6, certificates, many handshakes, many connections. See docs/http.md."""

import hashlib
import json

import pytest

from support.http.http3 import DATA, frame
from support.http.http3_site import connect, connect_through
from support.http.tls import Authority
from support.http.udp_relay import UdpRelay
from support.processes import open_files
from support.waiting import wait_for

PIECE = 1 << 18
RETRY = 0xF0
"""The first four bits of a packet that asks the client to prove its address (RFC 9000, 17.2.5)."""


def test_ipv6(begin):
    server = begin(address="[::1]:{port}")
    server.host = "::1"
    with connect(server) as client:
        seen = json.loads(client.request("/").body)
        assert (seen["REMOTE_ADDR"], seen["SERVER_ADDR"]) == ("::1", "::1")
        before = seen["REMOTE_PORT"]
        client.move()
        assert json.loads(client.request("/").body)["REMOTE_PORT"] != before


@pytest.fixture
def staff(authority):
    file = authority.folder / "client.pem"
    file.write_text(authority.bundle("zoe"))
    return str(file)


@pytest.fixture
def stranger(tmp_path):
    folder = tmp_path / "strangers"
    folder.mkdir()
    file = folder / "client.pem"
    file.write_text(Authority(folder).bundle("mallory"))
    return str(file)


def test_a_client_shows_its_certificate(begin, staff, stranger):
    server = begin(tls={"client_ca": "staff"})
    with connect(server, certificate=staff) as client:
        seen = json.loads(client.request("/").body)
        assert (seen["SSL_CLIENT_VERIFY"], seen["SSL_CLIENT_S_DN"].split(",")[0]) == ("SUCCESS", "CN=zoe")
    for certificate in (None, stranger):
        with connect(server, certificate=certificate) as client:
            # The client has finished its handshake before the server has seen its certificate.
            client.begin("/mark.php")
            client.wait(lambda: client.closed)
            assert "certificate" in client.closed["reason"].lower() or "handshake" in client.closed["reason"], client.closed


def test_a_certificate_may_be_optional(begin, staff):
    server = begin(tls={"client_ca": "staff", "client_verify": "optional"})
    for certificate, verified in ((staff, "SUCCESS"), (None, "NONE")):
        with connect(server, certificate=certificate) as client:
            assert json.loads(client.request("/").body)["SSL_CLIENT_VERIFY"] == verified


def test_clients_prove_their_address_while_many_handshakes_are_under_way(begin):
    server = begin()
    address = (server.host, server.port)
    with UdpRelay(address) as quiet, UdpRelay(address) as usual, connect(server) as crowd:

        def retries() -> int:
            return sum(packet[0] & 0xF0 == RETRY for packet in usual.received)

        def visit() -> None:
            with connect_through(usual) as client:
                assert client.request("/file.txt").status == 200

        visit()
        assert retries() == 0
        with connect_through(quiet) as lost:
            quiet.holds_answers = True
            lost.shake(40)
            wait_for(lambda: len({packet[6:14] for packet in quiet.sent}) > 40)
            wait_for(lambda: visit() or retries() > 0)
            # Connected clients go on.
            assert crowd.request("/file.txt").status == 200
            quiet.release()


def test_a_connection_beyond_the_limit_is_refused(begin, folder):
    server = begin(start_with={"prefix": ("prlimit", "--nofile=256:256")})
    with connect(server) as busy:
        slow = busy.begin("/slow.php")
        wait_for((folder.scratch / "running").exists)
        with connect(server) as crowd:
            crowd.shake(300)

            def is_refused() -> bool:
                with connect(server) as client:
                    return bool(client.closed) and "refused" in client.closed["reason"]

            # Some of the crowd may have given up.
            wait_for(lambda: crowd.shake(20) or is_refused())
            assert server.stderr.count("as many as the limit of descriptors allows") == 1
            (folder.scratch / "go").touch()
            assert busy.finish(slow).text == "done"
        wait_for(lambda: not is_refused())
        with connect(server) as client:
            assert client.request("/file.txt").status == 200


def test_a_client_beyond_the_limit_takes_the_place_of_an_idle_one(begin):
    server = begin(start_with={"prefix": ("prlimit", "--nofile=256:256")})
    with connect(server) as idle, connect(server) as crowd:
        assert idle.request("/file.txt").status == 200
        crowd.shake(300)
        idle.wait(lambda: idle.goaway or idle.closed)


@pytest.mark.parametrize("moves", [False, True])
def test_a_large_body_and_a_large_response(begin, folder, moves):
    """Also while the client goes to another address, again and again."""
    server = begin(http={"max_body_size": 30_000_000})
    content = bytes(range(256)) * 16_000
    (folder.root / "large.bin").write_bytes(content)
    with connect(server) as client:
        download = client.begin("/large.bin")
        upload = client.begin("/hash.php", method="POST", ends=False)
        for part in range(0, len(content), PIECE):
            client.send(upload, frame(DATA, content[part : part + PIECE]))
            if moves:
                client.move()
        client.send(upload, b"", ends=True)
        assert client.finish(upload).text == hashlib.sha256(content).hexdigest()
        assert client.finish(download).body == content


def test_an_upload_that_is_reset_again_and_again_leaves_nothing(begin, folder):
    server = begin(http={"max_body_size": 30_000_000, "body_buffer_size": 1000})
    with connect(server) as client:
        for _ in range(50):
            stream = client.begin("/hash.php", method="POST", body=b"x" * 100_000, ends=False)
            client.reset(stream)
            assert client.finish(stream).is_over
        assert client.request("/hash.php", method="POST", body=b"abc").text == hashlib.sha256(b"abc").hexdigest()
    files = open_files(server.router().pid).values()
    assert not [file for file in files if "deleted" in file and "/tmp" in file], files
