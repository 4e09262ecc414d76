"""Which response of an HTTP/2 connection goes first: RFC 9218. See docs/http.md."""

import pytest
from hyperframe.frame import WindowUpdateFrame

from support.folders import Folder, readable
from support.http.http2 import Http2Connection
from support.server import Howdah, stop_all

SIZE = 40_000
PRIORITY_UPDATE = 0x10


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = Folder(readable(tmp_path_factory.mktemp("priority")))
    folder.php("large.php", "echo str_repeat('x', 4_000_000);")
    folder.php("urgent.php", f"header('Priority: u=0'); echo str_repeat('x', {SIZE});")
    folder.php("late.php", f"header('Priority: u=7'); echo str_repeat('x', {SIZE});")
    folder.php("usual.php", f"echo str_repeat('x', {SIZE});")
    folder.write("file.css", "x" * SIZE)
    config = {
        "listeners": {"127.0.0.1:{port}": {"pass": "routes", "http2": True}},
        "routes": [
            {"match": {"uri": "*.php"}, "action": {"pass": "applications/app"}},
            {"action": {"share": f"{folder.root}$uri"}},
        ],
        "applications": {"app": {"type": "php", "processes": 2, "root": str(folder.root)}},
    }
    server = Howdah.run(config)
    yield server
    stop_all([server])


class Narrow(Http2Connection):
    """A connection whose window is the only limit: that of each response is wide."""

    def __init__(self, server: Howdah):
        super().__init__((server.host, server.port), window=1 << 24, grants=False)

    def fill(self, path="/large.php", priority="u=3") -> int:
        """A response that has taken the whole window, and would take more."""
        stream = self.ask(path, priority)
        self.read_until(lambda: len(self.streams[stream].body) == 65_535)
        return stream

    def ask(self, path: str, priority: str | None) -> int:
        """A request whose response waits for the window."""
        stream = self.begin(path=path, headers=[("priority", priority)] if priority else [])
        self.read_until(lambda: self.streams[stream].heads)
        self.settle()
        return stream

    def settle(self) -> None:
        """Responses wait for the window as soon as the first bytes of their bodies are there."""
        for _ in range(5):
            self.ping()

    def ping(self) -> None:
        pongs = self.pongs
        self.send_raw(b"\0\0\x08\x06\0\0\0\0\0ping-png")
        self.read_until(lambda: self.pongs > pongs)

    def open(self, size: int) -> dict[int, int]:
        """Opens the window by this size. Returns how many bytes of each response come then."""
        before = {number: len(stream.body) for number, stream in self.streams.items()}
        self.send(WindowUpdateFrame(0, size))
        self.read_until(lambda: sum(self.grown(before).values()) >= size)
        assert not self.closed, self.goaways
        self.settle()
        return self.grown(before)

    def grown(self, before) -> dict[int, int]:
        grown = {number: len(stream.body) - before.get(number, 0) for number, stream in self.streams.items()}
        return {number: size for number, size in grown.items() if size}

    def update(self, stream: int, priority: str) -> None:
        payload = stream.to_bytes(4, "big") + priority.encode()
        self.send_raw(len(payload).to_bytes(3, "big") + bytes([PRIORITY_UPDATE]) + bytes(5) + payload)


# The path and the priority of a request behind a large response of PHP (u=3); whether it overtakes that.
OTHERS = {
    "a more urgent file": ("/file.css", "u=2", True),
    "a less urgent file": ("/file.css", "u=4", False),
    "a file of the same urgency": ("/file.css", "u=3", False),
    "an incremental file of the same urgency": ("/file.css", "i", False),
    "a file without a priority": ("/file.css", None, False),
    "a priority that is not valid": ("/file.css", "u=0, ", False),
    "a priority out of range": ("/file.css", "u=-1", False),
    "a more urgent script": ("/usual.php", "u=1, i", True),
    "a script that makes its response urgent": ("/urgent.php", "u=5", True),
    "a script that makes its response less urgent": ("/late.php", "u=0", False),
}


@pytest.mark.parametrize("name", OTHERS)
def test_the_most_urgent_response_goes_first(server, name):
    path, priority, overtakes = OTHERS[name]
    with Narrow(server) as connection:
        large = connection.fill()
        other = connection.ask(path, priority)
        assert connection.open(SIZE) == {other if overtakes else large: SIZE}


def test_responses_of_the_same_urgency_take_turns_if_they_are_incremental(server):
    with Narrow(server) as connection:
        large = connection.fill(priority="i")
        others = [connection.ask("/file.css", priority) for priority in ("i", "u=3, i=?1", None)]
        grown = connection.open(SIZE)
        assert set(grown) >= {large, others[0], others[1]} - {large} and max(grown.values()) < SIZE, grown
        assert connection.open(3 * SIZE + 50_000)
        assert all(len(connection.streams[stream].body) == SIZE for stream in others)


def test_others_go_one_after_another(server):
    with Narrow(server) as connection:
        connection.fill(priority="u=6")
        others = [connection.ask("/file.css", "u=3") for _ in range(3)]
        for stream in others:
            assert connection.open(SIZE) == {stream: SIZE}


def test_a_client_changes_a_priority(server):
    with Narrow(server) as connection:
        large = connection.fill()
        # Before the request, and while the response waits.
        early = connection.next_stream
        connection.update(early, "u=1")
        assert connection.ask("/file.css", "u=7") == early
        late = connection.ask("/file.css", "u=7")
        connection.update(late, "u=0")
        assert connection.open(SIZE) == {late: SIZE}
        connection.update(99, "u=0")
        connection.update(large, "u=0")
        assert connection.open(SIZE) == {large: SIZE}
        connection.update(large, "u=7, i")
        assert connection.open(SIZE) == {early: SIZE}
        assert connection.open(SIZE) == {large: SIZE}


def test_a_response_whose_own_window_is_closed_holds_no_other_up(server):
    with Http2Connection((server.host, server.port), window=10_000, grants=False) as connection:
        urgent = connection.begin(path="/large.php", headers=[("priority", "u=0")])
        connection.read_until(lambda: len(connection.streams[urgent].body) == 10_000)
        other = connection.begin(path="/file.css", headers=[("priority", "u=7")])
        connection.read_until(lambda: len(connection.streams[other].body) == 10_000)


def test_resets_do_not_use_the_window_up(server):
    """A response that is reset leaves its part of the window to the others."""
    with Narrow(server) as connection:
        for _ in range(20):
            stream = connection.fill()
            connection.send_raw(b"\0\0\x04\x03\0" + stream.to_bytes(4, "big") + b"\0\0\0\x08")
            connection.ping()
            before = sum(len(response.body) for response in connection.streams.values())
            connection.send(WindowUpdateFrame(0, 65_535))
            connection.streams.pop(stream)
            other = connection.ask("/file.css", None)
            connection.read_until(lambda: connection.streams[other].is_over)
            assert before and len(connection.streams[other].body) == SIZE
            connection.send(WindowUpdateFrame(0, SIZE))
