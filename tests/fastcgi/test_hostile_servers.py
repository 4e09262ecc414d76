"""FastCGI servers that break the rules of the protocol: each answer costs its own request only."""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.fastcgi import END, STDERR, STDOUT, FakeServer, Request, answer, end, fastcgi_application, record
from support.http.client import ProtocolError
from support.http_applications import configuration
from support.waiting import wait_for

TEXT = b"Content-Type: text/plain\r\n\r\n"


@pytest.fixture
def fake(run, folder, socket_path):
    """A howdah in front of a server that answers so; `howdah.fake` is the server."""
    started = []

    def start(answer, **options):
        started.append(FakeServer(socket_path, answer))
        folder.php("x.php", "")
        howdah = run(configuration(fastcgi_application(folder, started[-1].address, **options)))
        howdah.fake = started[-1]
        return howdah

    yield start
    for each in started:
        each.close()


def one_of(answers: dict):
    """The answer that the query names."""
    return lambda request: answers[request.parameters["QUERY_STRING"]]


GOOD = {
    "padding": record(STDOUT, TEXT, padding=255) + record(STDOUT, b"hello", padding=7) + end(),
    "many-records": b"".join(record(STDOUT, bytes([byte])) for byte in TEXT + b"hello") + end(),
    "no-end-of-stdout": record(STDOUT, TEXT + b"hello") + end(),
    "ends-of-streams": record(STDOUT, TEXT + b"hello") + record(STDOUT) + record(STDERR) + record(STDOUT) + end(),
    "lines-with-lf": record(STDOUT, b"Content-Type: text/plain\n\nhello") + end(),
    "exit-status": record(STDOUT, TEXT + b"hello") + end(status=255),
    "more-after-the-end": answer() + b"garbage",
    "a-wrong-length": record(STDOUT, b"Content-Length: 3\r\n" + TEXT + b"hello") + end(),
    "framing-of-its-own": record(STDOUT, b"Transfer-Encoding: chunked\r\nConnection: close\r\n" + TEXT + b"hello") + end(),
}




def test_unusual_answers_are_valid(fake):
    server = fake(one_of(GOOD))
    for name in GOOD:
        response = server.get(f"/x.php?{name}")
        assert (response.status, response.text) == (200, "hello"), name


WRONG = {
    "not-fastcgi": (b"HTTP/1.1 200 OK\r\n\r\n", "it sent something that is not FastCGI"),
    "version": (record(STDOUT, TEXT, version=2), "it sent something that is not FastCGI"),
    "another-request": (record(STDOUT, TEXT, request=2), "it answered the request number 2"),
    "no-request": (record(END, b"\0" * 8, request=0), "it answered the request number 0"),
    "unknown-type": (record(77, b"x"), "it sent a record of the type 77"),
    "management": (record(10, b"", request=0), "it answered a question that it was not asked"),
    "a-short-end": (record(STDOUT, TEXT) + record(END, b"\0" * 7), "it ended a request with 7 bytes"),
    "an-unknown-end": (end(outcome=9), "it ended a request with the unknown status 9"),
    "another-role": (end(outcome=3), "it does not answer requests (FCGI_UNKNOWN_ROLE)"),
    "an-early-end": (end(), "it ended the request without headers"),
    "half-a-head": (record(STDOUT, b"Content-Type: text/plain\r\n") + end(), "it ended the request without headers"),
    "a-text": (record(STDOUT, b"Warning in x.php: y\n\n") + end(), "a line of its response is not a header: \"Warning in x.php: y\""),
    "a-page": (record(STDOUT, b"<html>\n\n") + end(), "a line of its response is not a header"),
    "a-wrong-status": (record(STDOUT, b"Status: fine\r\n\r\n") + end(), "the status of its response is"),
    "two-statuses": (record(STDOUT, b"Status: 200\r\nStatus: 404\r\n\r\n") + end(), "its response has several statuses"),
    "an-interim-status": (record(STDOUT, b"Status: 103\r\n\r\n") + end(), "a status that no response can end with"),
    "an-endless-head": (record(STDOUT, b"X: " + b"x" * 60_000) * 2, "have no end within 65536 bytes"),
}


def test_each_wrong_answer_is_502_and_explained(fake):
    server = fake(one_of({name: wrong for name, (wrong, _) in WRONG.items()} | {"good": answer()}))
    for name, (_, reason) in WRONG.items():
        assert server.get(f"/x.php?{name}").status == 502, name
        assert server.get("/x.php?good").text == "hello", name
        wait_for(lambda: reason in server.stderr, f"{name}: {reason}")


def test_an_answer_may_come_byte_by_byte(fake):
    whole = record(STDERR, b"a message\n", padding=3) + record(STDOUT, b"Status: 201 Made\r\n" + TEXT + b"hello", padding=1) + end()

    def slowly(request: Request):
        at = int(request.parameters["QUERY_STRING"])
        request.connection.sendall(whole[:at])
        # Until the first part was read.
        time.sleep(0.002)
        return whole[at:]

    server = fake(slowly)
    with server.connect() as connection:
        for at in range(1, len(whole)):
            response = connection.request("GET", f"/x.php?{at}")
            assert (response.status, response.text) == (201, "hello"), at


def test_a_response_that_breaks_off_closes_the_clients_connection(fake):
    def broken(request: Request):
        request.connection.sendall(record(STDOUT, TEXT) + record(STDOUT, b"x" * 60_000) * 4)
        request.connection.shutdown(socket.SHUT_RDWR)

    server = fake(broken)
    with pytest.raises(ProtocolError):
        server.get("/x.php")
    server.wait_for_log_line("closed a connection before the end of its answer", "closing the client's connection")


def test_endless_messages_take_no_memory(fake):
    def endless(request: Request):
        for _ in range(600):
            request.connection.sendall(record(STDERR, b"x" * 65_000) * 2)
        return answer()

    server = fake(endless)
    router = server.router().pid

    def resident() -> int:
        with open(f"/proc/{router}/statm") as file:
            return int(file.read().split()[1]) * 4096

    before = resident()
    assert server.get("/x.php").text == "hello"
    assert resident() - before < 30_000_000
    assert len(server.stderr) < 1_000_000


def test_many_lines_of_messages_are_left_out(fake):
    server = fake(lambda request: record(STDERR, b"a line\n" * 5000) + answer())
    assert server.get("/x.php").text == "hello"
    server.wait_for_log_line("a request logs more than 100 lines")
    assert server.stderr.count("FastCGI server: a line") <= 100


# Each portion of 64 KiB is thousands of lines or records.
COSTLY = {"empty lines": record(STDERR, b"\n" * 65_000), "short records": record(STDOUT, b"x") * 7000}


@pytest.mark.load
@pytest.mark.parametrize("name", COSTLY)
def test_answers_of_many_parts_do_not_stop_others(run, folder, socket_path, name):
    def endless(request: Request):
        request.connection.sendall(record(STDOUT, TEXT))
        while True:
            request.connection.sendall(COSTLY[name])

    folder.php("x.php", "")
    fake = FakeServer(socket_path, endless)
    routes = [{"match": {"uri": "/other"}, "action": {"return": 200}}, {"action": {"pass": "applications/app"}}]
    applications = {"app": fastcgi_application(folder, fake.address)}
    server = run({"applications": applications, "routes": routes, "settings": {"listen_threads": 1}})
    connections = [server.connect() for _ in range(4)]
    for connection in connections:
        connection.send_request("GET", "/x.php")
    times, until = [], time.monotonic() + 2
    while time.monotonic() < until:
        began = time.monotonic()
        assert server.get("/other").status == 200
        times.append(time.monotonic() - began)
    for connection in connections:
        connection.socket.close()
    fake.close()
    assert sorted(times)[len(times) // 2] < 0.05 and max(times) < 0.4, (len(times), max(times))


@pytest.mark.parametrize("outcome", [1, 2], ids=["one-request-at-a-time", "overloaded"])
def test_a_request_that_was_not_carried_out_is_sent_again(fake, outcome):
    turns = []

    def overloaded(request: Request):
        turns.append(1)
        return end(outcome=outcome) if len(turns) < 4 else answer()

    assert fake(overloaded).post("/x.php", "body").text == "hello"
    assert len(turns) == 4


def test_a_kept_connection_that_is_closed_costs_no_request(fake):
    def once(request: Request):
        # Closed as soon as another request comes on it.
        if getattr(request.connection, "fileno")() in seen and seen[request.connection.fileno()] is request.connection:
            request.connection.shutdown(socket.SHUT_RDWR)
            return None
        seen[request.connection.fileno()] = request.connection
        return answer()

    seen = {}
    server = fake(once, keep_alive=60)
    with server.connect() as connection:
        for _ in range(6):
            assert connection.request("GET", "/x.php").text == "hello"
            assert connection.request("POST", "/x.php", body="x").text == "hello"
    # No connection was kept for a POST, and each GET that found a closed one was sent on a new one.
    assert [request.parameters["REQUEST_METHOD"] for request in server.fake.requests].count("POST") == 6


def test_a_request_without_an_answer_is_not_sent_twice(fake):
    def closes(request: Request):
        request.connection.shutdown(socket.SHUT_RDWR)

    server = fake(closes)
    assert server.get("/x.php").status == 502 and server.post("/x.php", "x").status == 502
    assert len(server.fake.requests) == 2


def test_a_server_is_notified_of_a_client_that_leaves(fake):
    asked, left = threading.Event(), threading.Event()

    def waits(request: Request):
        asked.set()
        if not request.read():
            left.set()
        assert request.is_aborted

    server = fake(waits)
    with server.connect() as connection:
        connection.send_request("GET", "/x.php")
        assert asked.wait(30)
    assert left.wait(30)
    wait_for(lambda: server.api("GET", "/status/applications/app/servers").json()[server.fake.address]["connections"] == 0, "no connection")


def test_the_number_of_connections_has_a_limit(fake):
    most, now, lock = [0], [0], threading.Lock()

    def counted(request: Request):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.01)
        with lock:
            now[0] -= 1
        return answer()

    server = fake(counted, connections=3)
    with ThreadPoolExecutor(12) as clients:
        assert {answer.text for answer in clients.map(lambda _: server.get("/x.php"), range(60))} == {"hello"}
    assert most[0] == 3


def test_a_server_that_closes_each_connection_at_once_is_not_asked_without_a_pause(run, folder, socket_path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(socket_path))
    socket_path.chmod(0o777)
    listener.listen(128)
    closed = []

    def close_all():
        try:
            while True:
                connection, _ = listener.accept()
                connection.close()
                closed.append(1)
        except OSError:
            return

    threading.Thread(target=close_all, daemon=True).start()
    folder.php("x.php", "")
    server = run(configuration(fastcgi_application(folder, f"unix:{socket_path}", limits={"queue_timeout": 0.6})))
    # The body does not fit into the socket: the request is either sent again until its time is over, or lost.
    statuses = {server.get("/x.php").status for _ in range(3)} | {server.post("/x.php", b"x" * 3_000_000).status}
    assert statuses <= {502, 503} and len(closed) < 100
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
