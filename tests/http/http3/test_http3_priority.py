"""Which response of an HTTP/3 connection goes first: RFC 9218. See docs/http.md."""

import pytest

from support.folders import Folder, readable
from support.http.http3 import Stream
from support.http.http3_site import config, connect, fill, start, with_certificates
from support.server import stop_all
from support.waiting import wait_for

WINDOW = 65_536
# A response of this size is in the router at once: it waits for nothing but the window.
SIZE = 8_000
LONG = 200_000
LARGE = 8_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory, authority):
    folder = Folder(readable(tmp_path_factory.mktemp("priority")))
    fill(folder)
    folder.php("urgent.php", f"header('Priority: u=0'); echo str_repeat('x', {SIZE});")
    folder.php("late.php", f"header('Priority: u=7'); echo str_repeat('x', {SIZE});")
    folder.php("usual.php", f"echo str_repeat('x', {SIZE});")
    folder.php("long.php", f"echo str_repeat('x', {LONG});")
    folder.php("count.php", "touch(SCRATCH . '/' . $_GET['n']);")
    folder.write("large.bin", "x" * LARGE)
    place = tmp_path_factory.mktemp("priority-state")
    # With one process, a request that runs shows that those before it have ended.
    site = config(folder, application={"processes": 1})
    server = start(site, with_certificates(place, authority, shop=("shop.example",)), place)
    server.folder = folder
    yield server
    stop_all([server])


class Narrow:
    """A connection whose window is the only limit, and that a large response has filled."""

    def __init__(self, server):
        self.server = server
        self.client = connect(server, window=WINDOW)
        self.requests = 0
        self.large = self.ask("/large.bin", "u=7", reads=False)
        # The rest of the window.
        self.client.take(self.large, 1)
        self.client.wait(lambda: self.large.size == 1)

    def ask(self, path: str, priority: str | None, reads=True) -> Stream:
        """A request whose response waits for the window."""
        stream = self.client.begin(path, [("priority", priority)] if priority else [], reads=reads)
        self.requests += 1
        self.settle()
        return stream

    def settle(self) -> None:
        """The server has read what came before."""
        mark = self.server.folder.scratch / f"{id(self)}-{self.requests}"
        self.client.begin(f"/count.php?n={mark.name}", [("priority", "u=7")], method="HEAD")
        self.requests += 1
        wait_for(mark.exists)

    def order(self, *streams: Stream) -> list[Stream]:
        """Opens the window, until all of these responses have come. The streams of their bytes, in the order of these."""
        while not all(stream.is_over for stream in streams):
            before = self.large.size
            self.client.take(self.large, WINDOW // 4)
            self.client.wait(lambda before=before: self.large.size > before or all(stream.is_over for stream in streams))
        assert all(len(stream.body) in (SIZE, LONG) for stream in streams)
        arrived = [number for number in self.client.arrivals if number in {stream.number for stream in streams}]
        return [self.client.streams[number] for n, number in enumerate(arrived) if n == 0 or number != arrived[n - 1]]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()


USUAL = ("/usual.php", "u=3")
# Two requests, one after the other, and which of the responses comes first.
PAIRS = {
    "a more urgent one": (USUAL, ("/usual.php", "u=2"), "second"),
    "a less urgent one": (USUAL, ("/usual.php", "u=4"), "first"),
    "one of the same urgency": (USUAL, USUAL, "first"),
    "an incremental one of the same urgency": (USUAL, ("/usual.php", "i"), "first"),
    "one behind an incremental one": (("/usual.php", "i"), USUAL, "second"),
    "one without a priority": (USUAL, ("/usual.php", None), "first"),
    "a priority that is not valid": (USUAL, ("/usual.php", "u=0, "), "first"),
    "a priority out of range": (USUAL, ("/usual.php", "u=-1"), "first"),
    "a more urgent incremental one": (USUAL, ("/usual.php", "u=1, i"), "second"),
    "a script that makes its response urgent": (USUAL, ("/urgent.php", "u=5"), "second"),
    "a script that makes its response less urgent": (USUAL, ("/late.php", "u=0"), "first"),
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_most_urgent_response_goes_first(server, name):
    first, second, winner = PAIRS[name]
    with Narrow(server) as connection:
        streams = [connection.ask(*first), connection.ask(*second)]
        assert connection.order(*streams) == (streams if winner == "first" else streams[::-1])


@pytest.mark.parametrize("priorities", [("i", "i"), (None, "u=3, i=?1")])
def test_incremental_responses_take_turns(server, priorities):
    with Narrow(server) as connection:
        streams = [connection.ask("/long.php", priority) for priority in priorities]
        assert len(connection.order(*streams)) > 2


def test_a_client_changes_a_priority(server):
    with Narrow(server) as connection:
        # Before the request, and while its response waits.
        connection.client.update_priority(connection.requests, "u=1")
        early = connection.ask("/usual.php", "u=7")
        late_number = connection.requests
        late = connection.ask("/urgent.php", "u=7")
        last = connection.ask("/usual.php", "u=2")
        connection.client.update_priority(99, "u=0")
        connection.client.update_priority(late_number - 2, "u=4")
        # The script names the urgency, and the client the rest.
        connection.client.update_priority(late_number, "u=6, i")
        connection.settle()
        assert connection.order(early, late, last) == [late, last, early]


def test_a_response_whose_own_window_is_closed_holds_no_other_up(server):
    with connect(server) as client:
        urgent = client.begin("/large.bin", [("priority", "u=0")], reads=False)
        other = client.request("/usual.php", [("priority", "u=7")])
        assert len(other.body) == SIZE and not urgent.ended
        client.stop(urgent)
