"""Floods of HTTP/2 frames: the connection ends, its memory is bounded, and other clients notice nothing."""

import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from support.folders import Folder, readable
from support.http.http2 import CANCEL, ENHANCE_YOUR_CALM, NO_ERROR, REFUSED_STREAM, Http2Connection
from support.server import REPOSITORY, Howdah, stop_all
from support.waiting import longest_wait, wait_for

# The frames that a flood sends before it gives up.
MOST = 200_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = Folder(readable(tmp_path_factory.mktemp("floods")))
    folder.php("read.php", "echo strlen(file_get_contents('php://input'));")
    folder.php("wait.php", "touch(SCRATCH . '/running'); await(SCRATCH . '/go'); echo 'done';")
    folder.write("file.txt", "hello")
    return folder


@pytest.fixture(scope="module")
def server(folder):
    routes = [
        {"match": {"uri": "*.php"}, "action": {"pass": "applications/app"}},
        {"action": {"share": f"{folder.root}$uri"}},
    ]
    listeners = {"127.0.0.1:{port}": {"pass": "routes", "http2": True}}
    applications = {"app": {"type": "php", "root": str(folder.root), "processes": 1}}
    server = Howdah.run({"listeners": listeners, "routes": routes, "applications": applications})
    yield server
    stop_all([server])


def connect(server, **how) -> Http2Connection:
    return Http2Connection((server.host, server.port), **how)


def resident_bytes(server) -> int:
    return int(Path(f"/proc/{server.router().pid}/statm").read_text().split()[1]) * 4096


def requests(connection, reset: bool):
    """Requests without an end; each is reset at once, or stays open."""
    frames = connection.request_frames(connection.head("POST", "/read.php"), ends=False)
    return frames + ([RstStreamFrame(frames[0].stream_id, error_code=CANCEL)] if reset else [])


FLOODS = {
    "SETTINGS": lambda connection: [SettingsFrame(0)],
    "SETTINGS that change the window": lambda connection: [SettingsFrame(0, settings={4: 1}), SettingsFrame(0, settings={4: 65535})],
    "PING": lambda connection: [PingFrame(0, opaque_data=b"12345678")],
    "PRIORITY": lambda connection: [PriorityFrame(1, depends_on=3, stream_weight=7)],
    "WINDOW_UPDATE": lambda connection: [WindowUpdateFrame(0, 1)],
    "empty DATA": lambda connection: [DataFrame(1)],
    "DATA of one byte": lambda connection: [DataFrame(1, data=b"x")],
    "padding": lambda connection: [DataFrame(1, pad_length=200, flags=["PADDED"])],
    "rapid resets": lambda connection: requests(connection, reset=True),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_ends_its_connection_alone(server, name):
    before = resident_bytes(server)
    with connect(server) as bystander, connect(server) as connection:
        other = bystander.begin("POST", "/read.php", ends=False)
        # DATA belongs to a request.
        connection.begin("POST", "/read.php", ends=False)
        connection.read_until(lambda: connection.settings)
        sent = 0
        while not connection.closed and sent < MOST:
            connection.send(*(frame for _ in range(50) for frame in FLOODS[name](connection)))
            sent += 50
            connection.read_what_is_there()
        assert connection.closed, f"{sent} frames"
        assert not connection.goaways or connection.goaways[-1] == ENHANCE_YOUR_CALM, connection.goaways
        bystander.send(DataFrame(other, data=b"12345", flags=["END_STREAM"]))
        assert bystander.response(other).text == "5"
    assert server.get("/file.txt").text == "hello"
    assert resident_bytes(server) < before + (32 << 20)


def test_a_flood_is_logged_once(server):
    for _ in range(2):
        with connect(server) as connection:
            connection.send(*(SettingsFrame(0) for _ in range(2000)))
            connection.read_to_end()
    wait_for(lambda: "a connection was closed" in server.stderr, "a line in the log")
    assert server.stderr.count("too many frames without a use") == 1


def test_continuations_without_an_end_close_the_connection(server):
    with connect(server) as connection:
        block = connection.encoder.encode(connection.head())
        connection.send(HeadersFrame(1, data=block, flags=["END_STREAM"]))
        sent = 0
        while not connection.closed and sent < MOST:
            connection.send(*(ContinuationFrame(1) for _ in range(50)))
            connection.read_what_is_there()
            sent += 50
        assert connection.closed and sent < 10_000
    assert server.get("/file.txt").text == "hello"


def test_a_head_that_unpacks_to_much_closes_the_connection(server):
    with connect(server) as connection:
        # One header of 4000 bytes in the table of HPACK, and references of one byte to it: 64 MB.
        connection.begin(path="/file.txt", headers=[("x", "y" * 4000)])
        head = connection.encoder.encode(connection.head())
        reference = connection.encoder.encode([("x", "y" * 4000)])
        assert len(reference) == 1
        connection.send(HeadersFrame(3, data=head + reference * 16_000, flags=["END_HEADERS", "END_STREAM"]))
        connection.read_to_end()
        assert connection.goaways == [ENHANCE_YOUR_CALM]
    assert server.get("/file.txt").text == "hello"


def test_responses_that_are_not_read_are_bounded(server, folder):
    """Windows of 2^31, 128 requests, and a client that reads nothing: the router holds a part of each response."""
    folder.write("large.bin", b"x" * 4_000_000)
    before = resident_bytes(server)
    with connect(server, window=(1 << 31) - 1, grants=False) as connection:
        connection.send(WindowUpdateFrame(0, (1 << 31) - 65536))
        for _ in range(100):
            connection.begin(path="/large.bin")
        assert server.get("/file.txt").text == "hello"
        assert resident_bytes(server) < before + (32 << 20)
    assert server.get("/file.txt").text == "hello"


def test_many_connections_that_read_nothing_take_little_memory(server, folder):
    folder.write("large.bin", b"x" * 4_000_000)
    before = resident_bytes(server)
    with ExitStack() as stack:
        for _ in range(20):
            connection = stack.enter_context(connect(server, window=(1 << 31) - 1, grants=False))
            connection.send(WindowUpdateFrame(0, (1 << 31) - 65536))
            connection.send(*(frame for _ in range(100) for frame in connection.request_frames(connection.head(path="/large.bin"))))
        assert server.get("/file.txt").text == "hello"
        until = time.monotonic() + 1
        while time.monotonic() < until:
            assert resident_bytes(server) < before + (80 << 20)
    assert server.get("/file.txt").text == "hello"


def test_many_responses_of_which_one_byte_is_read_take_little_memory(server, folder):
    """Each has a piece of its file in memory. Once, that was 64 KB, however many there were."""
    folder.write("large.bin", b"x" * 4_000_000)
    before = resident_bytes(server)
    with ExitStack() as stack:
        for _ in range(40):
            connection = stack.enter_context(connect(server, window=1, grants=False))
            streams = [connection.begin(path="/large.bin") for _ in range(100)]
            connection.read_until(lambda: all(connection.streams[stream].body for stream in streams))
        assert resident_bytes(server) < before + (250 << 20)
        assert server.get("/large.bin").body == b"x" * 4_000_000
    assert server.get("/file.txt").text == "hello"


def test_small_files_that_are_not_read_take_little_memory(server, folder):
    """More files than the cache has room for. Once, each of these responses kept a copy of its file: 1.2 GB."""
    for number in range(100):
        folder.write(f"image{number}.bin", b"x" * 1_500_000)
    before = resident_bytes(server)
    with ExitStack() as stack:
        for _ in range(8):
            connection = stack.enter_context(connect(server, window=0))
            streams = [connection.begin(path=f"/image{number}.bin") for number in range(100)]
            connection.read_until(lambda: all(connection.streams[stream].heads for stream in streams))
        assert server.get("/image5.bin").body == b"x" * 1_500_000
        caches, responses = (os.cpu_count() or 1) * (32 << 20), 64 << 20
        assert resident_bytes(server) < before + caches + responses + (40 << 20)
    assert server.get("/file.txt").text == "hello"


def test_parts_of_a_file_that_are_not_read_are_no_copies(server, folder):
    """Several ranges of a file in the cache. Once, each of these responses had a copy of them: 570 MB."""
    file = folder.write("parts.bin", b"x" * 1_900_000)
    # A file that has just changed is not in the cache.
    os.utime(file, (1_700_000_000,) * 2)
    assert len(server.get("/parts.bin").body) == 1_900_000
    before = resident_bytes(server)
    with ExitStack() as stack:
        for _ in range(3):
            connection = stack.enter_context(connect(server, window=0))
            ranges = [("range", "bytes=0-0,2-1899999")]
            streams = [connection.begin(path="/parts.bin", headers=ranges) for _ in range(100)]
            connection.read_until(lambda: all(connection.streams[stream].heads for stream in streams))
            assert {connection.streams[stream].status for stream in streams} == {206}
        assert resident_bytes(server) < before + (60 << 20)
    parts = server.get("/parts.bin", [("Range", "bytes=0-0,2-1899999")])
    assert parts.status == 206 and parts.body.count(b"x") >= 1_899_999


def test_whole_responses_of_scripts_that_are_not_read_have_a_limit_of_memory(server, folder):
    """Once, those of less than 512 KiB did not count: 600 MB."""
    folder.php("page.php", "echo str_repeat('x', 500_000);")
    before = resident_bytes(server)
    with ExitStack() as stack:
        for _ in range(20):
            connection = stack.enter_context(connect(server, window=0))
            streams = [connection.begin(path="/page.php") for _ in range(60)]
            connection.read_until(lambda: all(connection.streams[stream].heads for stream in streams))
        assert resident_bytes(server) < before + (256 << 20) + (60 << 20)
        assert server.get("/page.php").body == b"x" * 500_000
    assert server.get("/file.txt").text == "hello"


def test_files_that_are_not_read_leave_descriptors_to_others(folder):
    """Each of these responses has an open file. Once, ten connections took all descriptors, and no other one was accepted."""
    folder.write("large.bin", b"x" * 4_000_000)
    routes = [{"action": {"share": f"{folder.root}$uri"}}]
    listeners = {"127.0.0.1:{port}": {"pass": "routes", "http2": True}}
    limit = ("prlimit", "--nofile=1024:1024")
    with Howdah.run({"listeners": listeners, "routes": routes}, prefix=limit) as server, ExitStack() as stack:
        for _ in range(30):
            connection = stack.enter_context(connect(server, window=0))
            streams = [connection.streams[connection.begin(path="/large.bin")] for _ in range(100)]
            connection.read_until(lambda: all(stream.heads or stream.reset for stream in streams))
            assert {stream.status for stream in streams if stream.heads} == {200}
            assert {stream.reset for stream in streams} == {None, REFUSED_STREAM}
        with connect(server) as other:
            assert other.request(path="/large.bin").body == b"x" * 4_000_000
        assert server.get("/file.txt").text == "hello"
        server.wait_for_log_line("take too many descriptors: refusing another one")
        assert "Too many open files" not in server.stderr


def test_a_response_that_many_others_wait_for_arrives(server, folder):
    """Each stream has its turn, whether its client reads slowly or fast."""
    folder.write("medium.bin", b"x" * 1_000_000)
    with connect(server) as connection:
        streams = [connection.begin(path="/medium.bin") for _ in range(20)]
        assert [len(connection.response(stream).body) for stream in streams] == [1_000_000] * 20


def test_heads_of_a_few_bytes_do_not_take_all_memory(server):
    """HPACK: a reference of one byte is a cookie of 3500 bytes. Requests beyond the limit are refused, and others are answered."""
    cookies = [("cookie", "y" * 3500)] * 17
    before = resident_bytes(server)
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(server)) for _ in range(30)]
        sent = 0
        for connection in connections:
            connection.read_until(lambda: connection.settings)
            head = connection.head("POST", "/read.php", headers=cookies)
            frames = [frame for _ in range(100) for frame in connection.request_frames(head, ends=False)]
            sent += sum(len(frame.data) for frame in frames)
            connection.send(*frames)
        assert sent < 300_000
        refused = connections[-1]
        refused.read_until(lambda: any(stream.reset is not None for stream in refused.streams.values()))
        assert {stream.reset for stream in refused.streams.values()} == {None, REFUSED_STREAM}
        assert server.get("/file.txt").text == "hello"
        assert resident_bytes(server) < before + (180 << 20)
        with connect(server) as other:
            streams = [other.begin(path="/file.txt") for _ in range(100)]
            assert [other.response(stream).text for stream in streams] == ["hello"] * 100
        # The requests that were accepted go on.
        accepted = next(number for number, stream in refused.streams.items() if number and stream.reset is None)
        refused.send(DataFrame(accepted, data=b"12345", flags=["END_STREAM"]))
        assert refused.response(accepted).text == "5"
    wait_for(lambda: "take too much memory: refusing another one" in server.stderr, "a line in the log")
    assert server.stderr.count("take too much memory") == 1


def test_heads_that_take_the_memory_of_all_leave_room_for_others(server):
    """Each connection may have an eighth of what is free. Once, others had no more than nine requests at the same time."""
    cookies = [("cookie", "y" * 3500)] * 17
    with ExitStack() as stack:
        greedy = [stack.enter_context(connect(server)) for _ in range(70)]
        for connection in greedy:
            connection.read_until(lambda: connection.settings)
            head = connection.head("POST", "/read.php", headers=cookies)
            connection.send(*(frame for _ in range(56) for frame in connection.request_frames(head, ends=False)))
        for connection in greedy:
            connection.read_until(lambda: any(stream.reset is not None for stream in connection.streams.values()))
        with connect(server) as other:
            streams = [other.begin("POST", "/read.php", ends=False) for _ in range(40)]
            other.send(*(DataFrame(stream, data=b"x", flags=["END_STREAM"]) for stream in streams))
            assert [other.response(stream).text for stream in streams] == ["1"] * 40


@pytest.fixture
def upstream_that_accepts_nothing():
    """A port whose backlog is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, ExitStack() as stack:
        for _ in range(3):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_trailers_that_wait_behind_bodies_do_not_take_all_memory(run, upstream_that_accepts_nothing):
    listeners = {"127.0.0.1:{port}": {"pass": "routes", "http2": True}}
    server = run({"listeners": listeners, "routes": [{"action": {"proxy": upstream_that_accepts_nothing}}]})

    def send(connection, requests: int, trailers: bytes) -> None:
        """Requests to the upstream, each with a short body. One byte of 0x90 is `accept-encoding: gzip, deflate`."""
        for _ in range(requests):
            stream = connection.begin("POST", "/", body=b"x", ends=False)
            connection.send(HeadersFrame(stream, data=trailers, flags=["END_HEADERS", "END_STREAM"]))
        connection.send(PingFrame(0, opaque_data=b"12345678"))
        connection.read_until(lambda: connection.pongs or connection.closed)

    with ExitStack() as stack:
        before = resident_bytes(server)
        usual = stack.enter_context(connect(server))
        send(usual, 50, b"\x90" * 100)
        assert not usual.closed and not usual.goaways
        for _ in range(8):
            hostile = stack.enter_context(connect(server))
            send(hostile, 128, b"\x90" * 2260)
            assert hostile.closed or hostile.goaways == [ENHANCE_YOUR_CALM]
        assert resident_bytes(server) < before + (64 << 20)
    server.wait_for_log_line("the trailers of its requests take too much memory")


def test_heads_of_responses_that_are_not_read_count_in_the_memory_of_requests(run):
    location = {"return": 301, "location": "https://www.example.com$request_uri"}
    listeners = {"127.0.0.1:{port}": {"pass": "routes", "http2": True}}
    server = run({"listeners": listeners, "routes": [{"match": {"uri": "/r/*"}, "action": location}, {"action": {"return": 204}}]})
    with ExitStack() as stack:
        before = resident_bytes(server)
        connections = [stack.enter_context(connect(server)) for _ in range(6)]
        block = connections[0].encoder.encode(connections[0].head(path="/r/" + "z" * 60_000))
        pieces = [block[at : at + 16_000] for at in range(0, len(block), 16_000)]
        for connection in connections:
            for stream in range(1, 256, 2):
                frames = [HeadersFrame(stream, data=pieces[0], flags=["END_STREAM"])]
                frames += [ContinuationFrame(stream, data=piece) for piece in pieces[1:]]
                frames[-1].flags.add("END_HEADERS")
                connection.send(*frames)
        with connect(server) as other:
            assert other.request().status == 204
        assert resident_bytes(server) < before + (40 << 20)


# Heads of 4 KB that unpack to 3,900 headers, on a connection that has as many requests as it may.
COSTLY_HEADS = """
import sys
from hyperframe.frame import HeadersFrame
from support.http.http2 import Http2Connection

print("begins", flush=True)
while True:
    with Http2Connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        connection.read_until(lambda: connection.settings)
        head = connection.head("POST", "/read.php", headers=[("x", "y")])
        connection.send(*(frame for _ in range(128) for frame in connection.request_frames(head, ends=False)))
        block = connection.encoder.encode(connection.head("POST", "/read.php", headers=[("x", "y")] * 3900))
        while not connection.closed:
            frames = [HeadersFrame(connection.next_stream + 2 * n, data=block, flags=["END_HEADERS", "END_STREAM"]) for n in range(64)]
            connection.next_stream += 128
            connection.send(*frames)
            connection.read_what_is_there()
"""


@pytest.mark.load
def test_costly_heads_do_not_stop_others(folder):
    routes = [{"match": {"uri": "*.php"}, "action": {"pass": "applications/app"}}, {"action": {"return": 200}}]
    applications = {"app": {"type": "php", "root": str(folder.root), "processes": 1}}
    listeners = {"127.0.0.1:{port}": {"pass": "routes", "http2": True}}
    config = {"listeners": listeners, "routes": routes, "applications": applications, "settings": {"listen_threads": 1}}
    command = [sys.executable, "-c", COSTLY_HEADS]
    with Howdah.run(config) as server:
        floods = [
            subprocess.Popen([*command, str(server.port)], stdout=subprocess.PIPE, cwd=REPOSITORY / "tests") for _ in range(2)
        ]
        try:
            for flood in floods:
                flood.stdout.readline()
            longest = longest_wait(server, "/", seconds=2.5)
        finally:
            for flood in floods:
                flood.kill()
                flood.communicate()
    assert longest < 0.6, longest


def test_many_cancelled_requests_of_a_usual_client_are_accepted(server):
    """A page with a hundred images that is left, several times."""
    with connect(server) as connection:
        for _ in range(4):
            streams = [connection.begin(path="/file.txt") for _ in range(100)]
            connection.read_until(lambda: connection.streams[streams[0]].is_over)
            for stream in streams:
                connection.send(RstStreamFrame(stream, error_code=CANCEL))
            assert connection.request(path="/file.txt").text == "hello"
        assert not connection.goaways


def test_priorities_are_ignored(server):
    with connect(server) as connection:
        frames = connection.request_frames(connection.head(path="/file.txt", headers=[("priority", "u=1, i")]))
        frames[0].flags.add("PRIORITY")
        frames[0].depends_on, frames[0].stream_weight, frames[0].exclusive = 0, 255, True
        connection.send(*frames)
        # PRIORITY_UPDATE, RFC 9218.
        connection.send_raw(b"\0\0\x07\x10\0\0\0\0\0" + b"\0\0\0\x01u=3")
        assert connection.response(1).text == "hello"
        assert connection.request(path="/file.txt").text == "hello" and set(connection.goaways) <= {NO_ERROR}
