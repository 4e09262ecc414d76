"""Clients of HTTP/3 that write another sender's address on their packets."""

import json
import select
import socket
import threading

from support.http.http3 import REQUEST_REJECTED, Http3Connection
from support.waiting import wait_for

PROVEN, SPOOFED = "127.0.0.1", "127.0.0.9"


class Relay:
    """Passes packets on, from an address that gets no answers if it is `spoofed`."""

    def __init__(self, server):
        self.server = (server.host, server.port)
        self.sockets = [self._socket(host) for host in (PROVEN, PROVEN, SPOOFED)]
        self.front, self.own, self.other = self.sockets
        self.client = None
        self.spoofs, self.dropped, self.is_over = False, 0, False
        self.thread = threading.Thread(target=self._run)

    @staticmethod
    def _socket(host: str) -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((host, 0))
        return made

    @property
    def address(self):
        return self.front.getsockname()

    def _run(self):
        while not self.is_over:
            for ready in select.select(self.sockets, [], [], 0.05)[0]:
                data, sender = ready.recvfrom(1 << 16)
                if ready is self.front:
                    self.client = sender
                    (self.other if self.spoofs else self.own).sendto(data, self.server)
                elif ready is self.own:
                    self.front.sendto(data, self.client)
                else:
                    self.dropped += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over = True
        self.thread.join()
        for each in self.sockets:
            each.close()


def guarded(folder) -> dict:
    """Only the spoofed address may run the script."""
    folder.php("index.php", "file_put_contents(SCRATCH . '/ran', $_SERVER['REMOTE_ADDR'] . PHP_EOL, FILE_APPEND); echo 'ran';")
    return {
        "routes": [
            {"match": {"source": f"{SPOOFED}/32"}, "action": {"pass": "applications/app"}},
            {"action": {"return": 403}},
        ],
        "applications": {"app": {"type": "php", "root": str(folder.root), "script": "index.php", "processes": 1}},
        "access_log": {"path": f"{folder.scratch}/access.log", "format": "$remote_addr $status"},
    }


def test_an_address_that_the_client_does_not_have_is_not_believed(begin, folder):
    """QUIC moves to a new address at once. Access rules, rate limits and logs got it before it was proven."""
    server = begin(**guarded(folder))
    with Relay(server) as relay, Http3Connection(relay.address) as client:
        assert client.request("/").status == 403
        for _ in range(3):
            dropped, relay.spoofs = relay.dropped, True
            stream = client.begin("/")
            # The server has the packet, and answers it there.
            wait_for(lambda before=dropped: relay.dropped > before, "an answer to the spoofed address")
            relay.spoofs = False
            client.finish(stream)
            assert not (folder.scratch / "ran").exists()
            assert stream.reset == REQUEST_REJECTED or stream.heads and stream.status == 403 or client.closed, stream
            if client.closed:
                break
    assert SPOOFED not in (folder.scratch / "access.log").read_text()


def test_a_handshake_proves_an_address(begin, folder):
    """The first request may come from another one."""
    server = begin(**guarded(folder))
    with Relay(server) as relay:
        with Http3Connection(relay.address, begins=False) as client:
            client.wait(lambda: client.from_server)
            relay.spoofs = True
            stream = client.begin("/")
            wait_for(lambda: relay.dropped, "an answer to the spoofed address")
            relay.spoofs = False
            client.finish(stream)
        assert not (folder.scratch / "ran").exists()


def test_requests_of_a_client_that_moves_are_finished(begin, folder):
    """A telephone in another network: its downloads go on, and it gets new connections for later requests."""
    folder.php("slow.php", "touch(SCRATCH . '/running'); await(SCRATCH . '/go'); echo $_SERVER['REMOTE_ADDR'];")
    application = {"type": "php", "root": str(folder.root), "processes": 2}
    server = begin([{"action": {"pass": "applications/app"}}], applications={"app": application})
    with Relay(server) as relay, Http3Connection(relay.address) as client:
        slow = client.begin("/slow.php")
        wait_for((folder.scratch / "running").exists)
        relay.own = relay.other
        later = client.finish(client.begin("/slow.php"))
        assert later.reset == REQUEST_REJECTED
        client.wait(lambda: client.goaway)
        (folder.scratch / "go").touch()
        assert client.finish(slow).text == PROVEN
        client.wait(lambda: client.closed)
    assert json.loads(server.api("GET", "/status").body)["requests"]["total"] == 1
