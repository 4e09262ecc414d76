"""Requests and answers that are short, and take much memory or time."""

import re
import select
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.faults.file_systems import fill, small_disk
from support.http.client import Connection
from support.http.http2 import Http2Connection
from support.machine import needs_root
from support.processes import cpu_seconds
from support.roadrunner_applications import frame, hostile_application, roadrunner_application
from support.waiting import wait_for

# A router has about 20 MB.
MOST = 200 << 20
FORM = [("Content-Type", "application/x-www-form-urlencoded")]


def peak_bytes(process) -> int:
    return int(re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())[1]) << 10


@pytest.fixture
def server(run, folder):
    applications = {"app": roadrunner_application(folder), "hostile": hostile_application(folder)}
    routes = [
        {"match": {"uri": "/other"}, "action": {"return": 200}},
        {"match": {"uri": "/hostile"}, "action": {"pass": "applications/hostile"}},
        {"action": {"pass": "applications/app"}},
    ]
    return run({"applications": applications, "routes": routes, "settings": {"listen_threads": 1}})


def test_a_form_with_many_arrays_is_refused(server):
    field = "a" + "[]" * 126
    form = "&".join([field] * (7 * 1024 * 1024 // len(field) - 1))
    status = server.post("/", form.encode(), FORM).status
    assert peak_bytes(server.router()) < MOST and status == 413


def test_others_are_answered_while_a_form_is_parsed(server):
    field = "a" + "[x]" * 120 + "=1"
    form = "&".join([field] * 20_000).encode()
    with server.connect() as client, server.connect() as other:
        client.send_request("POST", "/", FORM, form)
        answered = 0
        while not select.select([client.socket], [], [], 0)[0]:
            assert other.request("GET", "/other").status == 200
            answered += 1
        assert client.response("POST").status == 200
    # Some before it is parsed, and some by chance.
    assert answered > 20


def test_a_header_with_many_values_is_refused(server):
    name, values = "x" * 128_000, ",".join(['""'] * 40_000)
    context = '{"status":200,"headers":{"%s":[%s]}}' % (name, values)
    status = server.post("/hostile", frame(context=context.encode())).status
    assert peak_bytes(server.router()) < MOST and status == 502


@pytest.mark.load
def test_a_path_with_many_names_of_scripts_takes_no_longer_than_others(run, folder):
    folder.php("index.php", "echo 'here';")
    server = run({"applications": {"app": {"type": "php", "root": str(folder.root), "processes": 1}}})

    def seconds(name: str) -> float:
        began = time.monotonic()
        with server.connect() as connection:
            for _ in range(20):
                assert connection.request("GET", name * (60_000 // len(name))).status == 404
        return time.monotonic() - began

    seconds("/a.txt")
    assert seconds("/a.php") < 10 * seconds("/a.txt") + 0.1


@pytest.mark.load
def test_a_connection_header_with_many_options_takes_no_longer_than_another_header(run):
    upstream = run({"routes": [{"action": {"return": 200}}]})
    server = run({"routes": [{"action": {"proxy": f"http://127.0.0.1:{upstream.port}"}}]})
    headers = [(f"h{number}", "x") for number in range(240)]

    def seconds(name: str) -> float:
        began = time.monotonic()
        with server.connect() as connection:
            for _ in range(20):
                assert connection.request("GET", "/", [*headers, (name, "aa," * 19_000)]).status == 200
        return time.monotonic() - began

    seconds("X-Options")
    assert seconds("Connection") < 10 * seconds("X-Options") + 0.1


@pytest.fixture
def compressing(run, folder):
    """A server that compresses a page of 3 MB for its clients of HTTP/2. Another path has no compression."""
    folder.write("page.txt", "".join(f"{number} is a number of this page\n" for number in range(100_000)))

    def start(**compressor):
        routes = [{"match": {"uri": "/other"}, "action": {"return": 200}}, {"action": {"share": f"{folder.root}$uri"}}]
        listeners = {"127.0.0.1:{port}": {"pass": "routes", "http2": True}}
        settings = {"listen_threads": 1, "http": {"compression": {"compressors": [compressor]}}}
        return run({"routes": routes, "listeners": listeners, "settings": settings})

    return start


def begin_pages(stack: ExitStack, server, connections: int, encoding: str) -> list[tuple[Http2Connection, list[int]]]:
    """A hundred requests on each connection. The client takes the first bytes of each response, and no more."""
    begun = []
    for _ in range(connections):
        connection = stack.enter_context(Http2Connection((server.host, server.port), window=500, grants=False))
        streams = [connection.begin(path="/page.txt", headers=[("accept-encoding", encoding)]) for _ in range(100)]
        begun.append((connection, streams))
    return begun


def test_encoders_of_responses_that_are_not_read_have_a_limit_of_memory(compressing):
    """Beyond it, responses are not compressed. Once, 300 of them took more than a gigabyte."""
    server = compressing(encoding="zstd", level=6)
    with ExitStack() as stack:
        encodings = set()
        for connection, streams in begin_pages(stack, server, 3, "zstd"):
            connection.read_until(lambda: all(connection.streams[stream].body for stream in streams))
            encodings |= {connection.streams[stream].headers.get("content-encoding") for stream in streams}
        assert encodings == {"zstd", None}
        assert server.get("/other").status == 200
        assert peak_bytes(server.router()) < (256 + 100) << 20
        refused = server.get("/page.txt", [("Accept-Encoding", "zstd, identity;q=0")])
        assert (refused.status, refused.header("Retry-After")) == (503, "1")

    def encoding() -> str | None:
        return server.get("/page.txt", [("Accept-Encoding", "zstd")]).header("Content-Encoding")

    wait_for(lambda: encoding() == "zstd", "the memory of the clients that have left")


@pytest.mark.load
def test_slow_encoders_leave_processors_and_threads_to_others(compressing):
    server = compressing(encoding="br", level=11)
    router = server.router()
    with ExitStack() as stack:
        begin_pages(stack, server, 3, "br")
        most, until = 0, time.monotonic() + 3
        while time.monotonic() < until:
            assert server.get("/other").status == 200
            most = max(most, len(list(Path(f"/proc/{router.pid}/task").iterdir())))
    assert most < 50, most


BEGINNINGS = {
    "method": b"A" * 60_000,
    "empty lines": b"\r\n" * 30_000,
    "spaces": b"GET / HTTP/1.1\r\nX: " + b" " * 60_000,
}


@pytest.mark.load
@pytest.mark.parametrize("name", BEGINNINGS)
def test_each_byte_of_a_long_head_costs_as_much_as_of_a_short_one(run, name):
    """It comes in packets of one byte. Once, each was five times as much, because what had come was looked at again."""
    server = run({"routes": [{"action": {"return": 200}}], "settings": {"listen_threads": 1}})
    router = server.router()

    def seconds(begins: bytes) -> float:
        with server.connect() as client:
            client.socket.sendall(begins)
            time.sleep(0.1)
            before = cpu_seconds(router.pid)
            for number in range(3000):
                client.socket.sendall(begins[-2 + number % 2 :][:1])
                time.sleep(0.0003)
            return cpu_seconds(router.pid) - before

    def least_seconds(begins: bytes) -> float:
        # Other work on the machine's processors only adds to it.
        return min(seconds(begins) for _ in range(3))

    assert least_seconds(BEGINNINGS[name]) < 2 * least_seconds(BEGINNINGS[name][:50]) + 0.05


def test_large_forms_have_a_limit_of_memory_for_all(run, folder):
    """Bytes that are not UTF-8 become three for the worker, while a form waits for it."""
    application = roadrunner_application(folder, limits={"queue_timeout": 120})
    server = run({"applications": {"app": application}, "settings": {"listen_threads": 1}})
    form = b"a=" + b"\xff" * 8_000_000
    with ExitStack() as stack:
        stack.enter_context(server.connect()).send_request("GET", "/sleep?ms=100000")
        clients = [stack.enter_context(server.connect()) for _ in range(40)]
        for client in clients:
            client.send_request("POST", "/", FORM, form)
        small = stack.enter_context(server.connect())
        small.send_request("POST", "/", FORM, b"a=1")

        def refused() -> list[Connection]:
            answered = select.select([client.socket for client in clients], [], [], 0)[0]
            return [client for client in clients if client.socket in answered]

        def all_are_there() -> object:
            active = server.api("GET", "/status/applications/app/requests/active").json()
            return refused() and active + len(refused()) >= len(clients) + 2

        wait_for(all_are_there, "the requests")
        assert peak_bytes(server.router()) < (512 + 150) << 20
        assert {client.response("POST").status for client in refused()} == {503}
        server.wait_for_log_line("large forms and heads of all requests have")


def multipart(parts: list[bytes]) -> tuple[list[tuple[str, str]], bytes]:
    """The headers and the body of a form; each part has the rest of its Content-Disposition."""
    head = b"--x\r\nContent-Disposition: form-data; "
    body = b"".join(head + part + b"\r\n\r\n\r\n" for part in parts) + b"--x--\r\n"
    return [("Content-Type", "multipart/form-data; boundary=x")], body


def test_names_of_files_take_memory_of_forms(run, folder):
    """Control characters, which have six bytes for the worker."""
    application = roadrunner_application(folder, limits={"queue_timeout": 120})
    server = run({"applications": {"app": application}, "settings": {"listen_threads": 1}})
    headers, form = multipart([b'name="f[]"; filename="' + b"\x01" * 1000 + b'"'] * 400)
    with ExitStack() as stack:
        stack.enter_context(server.connect()).send_request("GET", "/sleep?ms=100000")
        clients = [stack.enter_context(server.connect()) for _ in range(100)]
        for client in clients:
            client.send_request("POST", "/", headers, form)
        answered = wait_for(lambda: select.select([client.socket for client in clients], [], [], 0)[0], "an answer")
        assert {client.response("POST").status for client in clients if client.socket in answered} == {503}
        server.wait_for_log_line("large forms and heads of all requests have")
        # An array takes half a kilobyte, and its name two bytes.
        headers, form = multipart([b'name="' + b"a" + b"[]" * 125 + b'"; filename=""'] * 160)
        arrays = stack.enter_context(server.connect())
        arrays.send_request("POST", "/", headers, form)
        assert arrays.response("POST").status == 503
    headers, form = multipart([b'name="f"; filename="' + b"n" * 1025 + b'"'])
    assert server.request("POST", "/", headers, form).status == 400
    server.wait_for_log_line("the name or the type of a file in the form is too long")


@pytest.mark.load
def test_others_are_answered_while_a_form_with_one_large_field_becomes_json(server):
    """Once, a field of 8 MB stopped the event loop for 0.4 seconds, and for seven times as long in this build."""
    with server.connect() as client, server.connect() as other:
        client.send_request("POST", "/length", FORM, b"a=" + b"\xff" * 7_000_000)
        longest = 0.0
        while not select.select([client.socket], [], [], 0)[0]:
            began = time.monotonic()
            assert other.request("GET", "/other").status == 200
            longest = max(longest, time.monotonic() - began)
        assert client.response("POST").status == 200
    assert longest < 1, longest


@needs_root
def test_workers_answer_while_the_memory_of_responses_and_the_disk_are_full(run, folder, tmp_path):
    """Once, the router waited for its client to make room, and the client for the head of the response."""
    folder.php("page.php", "echo str_repeat('x', (int) $_GET['bytes']);")
    applications = {
        "hostile": hostile_application(folder),
        "php": {"type": "php", "root": str(folder.root), "processes": 2},
    }
    routes = [{"match": {"uri": "/hostile/*"}, "action": {"pass": "applications/hostile"}}, {"action": {"pass": "applications/php"}}]
    listeners = {"127.0.0.1:{port}": {"pass": "routes", "http2": True}}
    answer = frame(body=b"a" * 40_000)
    with small_disk(tmp_path / "disk") as disk, ExitStack() as stack:
        settings = {"http": {"body_temp_path": str(disk), "body_buffer_size": 65536}, "listen_threads": 1}
        server = run({"applications": applications, "routes": routes, "listeners": listeners, "settings": settings})
        assert server.post("/hostile/halves", answer).body == b"a" * 40_000
        ballast = fill(disk)
        for length in [500_000] * 10 + [100_000, 30_000, 10_000]:
            connection = stack.enter_context(Http2Connection((server.host, server.port), window=0))
            streams = [connection.begin(path=f"/page.php?bytes={length}") for _ in range(60)]
            connection.read_until(lambda: all(connection.streams[stream].heads for stream in streams))
        for _ in range(3):
            assert server.post("/hostile/halves", answer).body == b"a" * 40_000
        ballast.unlink()


def test_large_heads_of_responses_that_no_client_reads_have_a_limit_for_all(run, folder):
    folder.php("large.php", 'for ($i = 0; $i < 110; $i++) header("X-A$i: " . str_repeat("a", 8000)); echo "large";')
    folder.php("small.php", "echo 'small';")
    server = run({"applications": {"app": {"type": "php", "root": str(folder.root), "processes": 2}}})
    with ExitStack() as stack:
        clients = []
        for number in range(400):
            client = stack.enter_context(server.connect())
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.send_request("GET", "/large.php")
            clients.append(client)
            if number % 50 == 0:
                assert server.get("/small.php").status == 200
        statuses = [client.socket.recv(len("HTTP/1.1 200")) for client in clients]
        # 256 MiB of 881 KB each.
        assert set(statuses) == {b"HTTP/1.1 200", b"HTTP/1.1 502"} and statuses.count(b"HTTP/1.1 200") < 310
        assert "the heads of responses that clients do not read take all of their memory" in server.stderr
        assert server.get("/small.php").status == 200
    wait_for(lambda: server.get("/large.php").status == 200)


def test_long_names_of_files_that_scripts_choose_are_not_kept(run, folder):
    folder.php("index.php", r"""header('X-Sendfile: /' . str_repeat("\x80", 1000000) . $_GET['n']);""")
    application = {"type": "php", "root": str(folder.root), "processes": 1, "send_file": {"/": str(folder.root)}}
    server = run({"applications": {"app": application}})
    with server.connect() as client:
        for number in range(100):
            assert client.request("GET", f"/?n={number}").status == 404
    # All names, with three bytes for each of the script's, have 300 MB.
    assert peak_bytes(server.router()) < MOST
    server.wait_for_log_line("cannot send the file that a script named")
