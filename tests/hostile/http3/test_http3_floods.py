"""Heads that come in small pieces, and clients that keep a connection open: see docs/http.md."""

import json
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from support.http.client import Connection
from support.http.http3 import CONTROL, EXCESSIVE_LOAD, HEADERS, SETTINGS, Http3Connection, encode, frame, integer
from support.waiting import wait_for

OTHER = [{"action": {"return": 200}}]
# Of a head with 100 KB of QPACK, the beginning.
LONG_HEAD = integer(HEADERS) + integer(100_000) + b"\0\0"


def connect(server, **how) -> Http3Connection:
    return Http3Connection((server.host, server.port), **how)


def resident_bytes(server) -> int:
    return int(Path(f"/proc/{server.router().pid}/statm").read_text().split()[1]) * 4096


def connections(server) -> int:
    counts = json.loads(server.api("GET", "/status").body)["connections"]
    return counts["active"] + counts["idle"]


class Bystander:
    """A client of the same event loop, and how long it waits at most."""

    def __init__(self, server):
        self.server, self.longest, self.count, self.is_over = server, 0.0, 0, threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        with Connection(self.server.plain) as connection:
            while not self.is_over.is_set():
                began = time.monotonic()
                assert connection.request("GET", "/").status == 200
                self.longest = max(self.longest, time.monotonic() - began)
                self.count += 1
                time.sleep(0.002)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()


def test_a_head_in_pieces_of_one_byte_does_not_stop_others(begin):
    """h3 looked at all pieces of a head when another one came: the last one of 60,000 took seconds."""
    server = begin(OTHER)
    fields = [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "localhost"), ("x", "y" * 59_000)]
    with connect(server) as client, Bystander(server) as bystander:
        stream = client.open()
        client.drip(stream, frame(HEADERS, encode(fields)))
        client.send(stream, b"", ends=True)
        assert client.finish(stream, 60).status == 200
    assert bystander.count > 10 and bystander.longest < 1, bystander.longest


def test_heads_of_one_byte_for_each_header_are_not_unpacked(begin):
    """3,000 headers are 3 KB in QPACK, and took a millisecond, which no other request did."""
    server = begin(OTHER)
    fields = encode([(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "localhost")])
    accept = b"\xdd"
    with connect(server) as client:
        for count, expected in ((100, 200), (300, 431), (3000, None)):
            stream = client.open()
            client.send(stream, frame(HEADERS, fields + accept * count), ends=True)
            client.finish(stream)
            assert (stream.status if stream.heads else None) == expected, (count, stream)
        assert stream.reset is not None


def test_heads_that_are_not_complete_take_limited_memory(begin):
    """The heads of 100 streams come at the same time, without an end."""
    server = begin(OTHER)
    with connect(server) as client:
        streams = [client.open() for _ in range(100)]
        for stream in streams:
            client.send(stream, LONG_HEAD + b"x" * 80_000)
        client.wait(lambda: any(stream.reset is not None for stream in streams))
        # The others wait for their ends, and more requests are answered when there is room.
        for stream in streams:
            client.reset(stream)
            client.stop(stream)
        wait_for(lambda: client.request("/").is_over and client.request("/").heads)
    wait_for(lambda: "take too much memory: refusing another one" in server.stderr, "a line in the log")
    assert server.stderr.count("take too much memory") == 1


def test_heads_of_responses_that_are_not_read_count_in_the_memory_of_requests(begin, folder):
    """QUIC takes no more of them than the client's window allows; the rest waited beside it, without a limit."""
    folder.php("heads.php", "for ($n = 0; $n < 100; $n++) { header(\"X-$n: \" . str_repeat('z', 9000)); } file_put_contents(SCRATCH . '/ran', 'x', FILE_APPEND);")
    # On a busy machine, all of them take longer than the usual ten seconds.
    application = {"type": "php", "root": str(folder.root), "processes": 2, "limits": {"queue_timeout": 100}}
    routes = [{"match": {"uri": "*.php"}, "action": {"pass": "applications/app"}}, *OTHER]
    server = begin(routes, applications={"app": application})
    with connect(server) as client:
        assert len(client.request("/heads.php").headers) > 100
    before = resident_bytes(server)
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(server, stream_window=2000)) for _ in range(3)]
        streams = [client.begin("/heads.php", reads=False) for client in clients for _ in range(100)]
        wait_for(lambda: (folder.scratch / "ran").stat().st_size == 1 + len(streams), "all responses", 100)
        assert resident_bytes(server) < before + (64 << 20)
        with connect(server) as other:
            assert other.request("/").status == 200


def test_a_client_without_room_for_goaway_does_not_keep_its_connection(begin):
    """GOAWAY waited for the client's window, without an end, and the end of an idle connection for GOAWAY."""
    server = begin(OTHER, http={"idle_timeout": 1})
    with connect(server) as client:
        client.wait(lambda: client.closed)
        [settings] = [data for data in client.from_server.values() if data[:1] == bytes([CONTROL])]
        assert client.goaway
    # Its settings have room, GOAWAY has none.
    window = 1 + len(frame(SETTINGS)) + settings[2]
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(server, stream_window=window)) for _ in range(5)]
        assert connections(server) == 5
        for client in clients:
            client.wait(lambda client=client: client.closed)
        wait_for(lambda: connections(server) == 0, "no connection")


def test_a_connection_that_breaks_the_rules_ends_at_once(begin):
    """Once, it counted until its incomplete head was late."""
    server = begin(OTHER, http={"header_read_timeout": 3600})
    with connect(server) as client:
        assert connections(server) == 1
        client.send(client.open(), integer(SETTINGS) + integer(5000))
        client.wait(lambda: client.closed)
        assert client.closed["code"] == EXCESSIVE_LOAD
        wait_for(lambda: connections(server) == 0, "no connection")
