"""HTTP/2: versions, heads, bodies, responses, limits and ends of streams and connections. See docs/http.md."""

import json
import signal
import time
import subprocess

import pytest
from hyperframe.frame import DataFrame, HeadersFrame, PingFrame, RstStreamFrame, SettingsFrame, WindowUpdateFrame

from support.folders import Folder, readable
from support.http.http2 import CANCEL, NO_ERROR, PREFACE, PROTOCOL_ERROR, REFUSED_STREAM, Http2Connection
from support.http.tls import Authority
from support.http.upstream import Upstream, answers, ok
from support.server import Howdah, stop_all
from support.waiting import wait_for


def targets(folder: Folder) -> dict:
    return {"direct": {"root": str(folder.root)}, "front": {"root": str(folder.root), "script": "index.php"}}


def config(folder: Folder, http=None, listener=None, application=None, **more) -> dict:
    return {
        "listeners": {"127.0.0.1:{port}": {"pass": "routes", "http2": True, **(listener or {})}},
        "routes": [
            {"match": {"uri": ["*.php", "*.php/*"]}, "action": {"pass": "applications/app/direct"}},
            {"action": {"share": f"{folder.root}$uri", "fallback": {"pass": "applications/app/front"}}},
        ],
        "applications": {"app": {"type": "php", "processes": 2, "targets": targets(folder), **(application or {})}},
        "access_log": {"path": f"{folder.scratch}/access.log", "format": "$request_line $status $body_bytes_sent"},
        "settings": {"http": http or {}},
        **more,
    }


def fill(folder: Folder) -> Folder:
    folder.php("index.php", "echo json_encode($_SERVER);")
    folder.php("length.php", "echo $_SERVER['CONTENT_LENGTH'] ?? '-', ' ', strlen(file_get_contents('php://input'));")
    folder.php("large.php", "for ($i = 0; $i < 64; $i++) { echo str_repeat(chr(65 + $i % 26), 32768); }")
    folder.php("wait.php", "echo 'begun'; while (ob_get_level()) { ob_end_flush(); } flush(); await(SCRATCH . '/go'); echo ' done';")
    folder.php("slow.php", "touch(SCRATCH . '/running'); await(SCRATCH . '/go'); echo 'done';")
    folder.write("file.txt", "0123456789" * 1000)
    return folder


@pytest.fixture
def pages(folder):
    return fill(folder)


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory):
    return fill(Folder(readable(tmp_path_factory.mktemp("http2"))))


@pytest.fixture(scope="module")
def server(shared_folder):
    """One server for the tests that change nothing."""
    http = {"max_body_size": 4_000_000, "compression": {"compressors": {"encoding": "gzip", "min_length": 100}}}
    server = Howdah.run(config(shared_folder, http))
    yield server
    stop_all([server])


def connect(server: Howdah, **how) -> Http2Connection:
    return Http2Connection((server.host, server.port), **how)


def log_lines(folder: Folder) -> list[str]:
    file = folder.scratch / "access.log"
    return file.read_text().splitlines() if file.exists() else []


# --- The version


def test_tls_agrees_on_http_2(run, pages, tmp_path):
    authority = Authority(tmp_path)
    state = tmp_path / "state"
    (state / "certs").mkdir(parents=True)
    (state / "certs" / "shop").write_text(authority.bundle("shop.example"))
    tls = {"tls": {"certificate": "shop"}}
    control = tmp_path / "control.sock"
    options = ("--state-dir", str(state), "--control", f"unix:{control}")
    server = run(config(pages, listener=tls | {"http2": True}), *options)
    server.control = control
    curl = ["curl", "-sS", "--cacert", authority.root, "--resolve", f"shop.example:{server.port}:127.0.0.1"]

    def get(*more) -> str:
        command = [*curl, *more, "-w", " %{http_version}", f"https://shop.example:{server.port}/?a=b"]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout

    answer = get("--http2")
    assert answer.endswith(" 2")
    for field in ['"SERVER_PROTOCOL":"HTTP\\/2.0"', '"HTTPS":"on"', '"REQUEST_SCHEME":"https"', '"REQUEST_URI":"\\/?a=b"']:
        assert field in answer, answer
    assert f'"HTTP_HOST":"shop.example:{server.port}"' in answer
    assert get("--http1.1").endswith(" 1.1")
    listener = f"/config/listeners/127.0.0.1:{server.port}"
    assert server.api("DELETE", f"{listener}/http2").status == 200
    assert get("--http2").endswith(" 2")
    assert server.api("PUT", f"{listener}/http2", "false").status == 200
    assert get("--http2").endswith(" 1.1")


def test_a_plain_listener_knows_both_versions(server):
    assert server.get("/file.txt").status == 200
    assert server.post("/length.php", b"PRI").text == "3 3"
    with connect(server) as connection:
        assert connection.request(path="/file.txt").status == 200
    with connect(server) as connection:
        assert connection.settings == {}
        connection.read_until(lambda: connection.settings)
        assert connection.settings[SettingsFrame.MAX_CONCURRENT_STREAMS] == 128


@pytest.mark.parametrize("size", [1, 2, 23])
def test_the_preface_may_come_in_pieces(server, size):
    with server.connect() as connection:
        for at in range(0, len(PREFACE), size):
            connection.send(PREFACE[at : at + size])
        connection.send(SettingsFrame(0).serialize())
        assert connection.socket.recv(9)[3] == SettingsFrame.type
    with server.connect() as connection:
        for piece in (b"P", b"RI / HTTP/1.1\r\nHo", b"st: x\r\n\r\n"):
            connection.send(piece)
        assert connection.response().status in (200, 405)


def test_bytes_that_are_neither_version_end_the_connection(server, shared_folder):
    """A client of HTTP/2 with a wrong preface could not read an answer of HTTP/1 (RFC 9113, 3.4)."""
    before = len(log_lines(shared_folder))
    assert server.raw(b"INVALID CONNECTION PREFACE\r\n\r\n") == b""
    server.wait_for_log_line("a connection was closed", "neither HTTP/1 nor HTTP/2")
    assert server.raw(b"GET / ICY/1.0\r\n\r\n") == b""
    assert server.raw(b"GET / HTTP/1.x\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    second = b"GET /file.txt HTTP/1.1\r\nHost: x\r\n\r\n"
    assert server.raw(second + b"GET / ICY/1.0\r\n\r\n").count(b"HTTP/1.1 ") == 2
    wait_for(lambda: sum(line.startswith("- 400") for line in log_lines(shared_folder)[before:]) == 4)


def test_a_listener_without_http2_refuses_its_preface(run, pages):
    server = run(config(pages, listener={"http2": False}))
    assert server.raw(PREFACE).startswith(b"HTTP/1.1 505 ")


# --- Heads


def test_php_sees_a_request_like_any_other(server):
    with connect(server, name="shop.example:81") as connection:
        headers = [("cookie", "a=1"), ("x-one", " 1 "), ("cookie", "b=2"), ("te", "trailers"), ("x_unsafe", "1")]
        seen = connection.request(path="/x/y?q=%20", headers=headers)
        assert seen.status == 200
        got = json.loads(seen.text)
    expected = {
        "SERVER_PROTOCOL": "HTTP/2.0", "HTTP_HOST": "shop.example:81", "REQUEST_URI": "/x/y?q=%20", "QUERY_STRING": "q=%20",
        "REQUEST_METHOD": "GET", "REQUEST_SCHEME": "http", "HTTP_COOKIE": "a=1; b=2", "HTTP_X_ONE": "1", "SERVER_NAME": "shop.example",
    }  # fmt: skip
    assert {name: got.get(name) for name in expected} == expected
    assert "HTTP_X_UNSAFE" not in got and "CONTENT_LENGTH" not in got


H = [("x", "y")]
GOAWAY = -1

# The answer is a status, or the code of RST_STREAM. GOAWAY: h2 cannot decode such bytes, and closes the connection.
HEADS = {
    "a request": ({}, [], 200),
    "no :authority, but a Host": ({"authority": None}, [("host", "x")], 200),
    "a Host equal to :authority": ({}, [("host", "X")], 200),
    "another Host than :authority": ({}, [("host", "y")], 400),
    "two Hosts": ({"authority": None}, [("host", "x"), ("host", "x")], 400),
    "no host at all": ({"authority": None}, [], 400),
    "an empty :authority": ({"authority": ""}, [], (400, PROTOCOL_ERROR)),
    "a user in :authority": ({"authority": "u@x"}, [], 400),
    "a path in :authority": ({"authority": "x/y"}, [], (400, PROTOCOL_ERROR)),
    "two dots as :authority": ({"authority": ".."}, [], 400),
    "an unknown scheme": ({"scheme": "ftp"}, [], 400),
    "another scheme than the connection's": ({"scheme": "https"}, [], 200),
    "no scheme": ({"scheme": None}, [], PROTOCOL_ERROR),
    "no method": ({"method": None}, [], PROTOCOL_ERROR),
    "no path": ({"path": None}, [], (400, PROTOCOL_ERROR)),
    "an empty path": ({"path": ""}, [], PROTOCOL_ERROR),
    "a path without a slash": ({"path": "x"}, [], (400, PROTOCOL_ERROR)),
    "a path with a space": ({"path": "/a b"}, [], PROTOCOL_ERROR),
    "a path with a line": ({"path": "/a HTTP/1.1\r\nx: y"}, [], PROTOCOL_ERROR),
    "a path with NUL": ({"path": "/a\0"}, [], PROTOCOL_ERROR),
    "a path with %00": ({"path": "/a%00"}, [], 400),
    "a path above the root": ({"path": "/../x"}, [], 400),
    "an asterisk with OPTIONS": ({"method": "OPTIONS", "path": "*"}, [], (200, 405)),
    "an asterisk with GET": ({"path": "*"}, [], 400),
    "a method with a space": ({"method": "GET /x"}, [], GOAWAY),
    "a method with a line": ({"method": "GET\r\n"}, [], GOAWAY),
    "CONNECT": ({"method": "CONNECT", "scheme": None, "path": None}, [], 405),
    "CONNECT for another protocol": ({"method": "CONNECT", "protocol": "connect-udp"}, [], 501),
    ":protocol without CONNECT": ({"protocol": "websocket"}, [], PROTOCOL_ERROR),
    "TRACE": ({"method": "TRACE"}, [], 405),
    "an unknown pseudo header": ({"other": "x"}, [], GOAWAY),
    "a pseudo header of responses": ({"status": "200"}, [], PROTOCOL_ERROR),
    "a pseudo header at the end": ({"path": None}, [*H, (":path", "/")], PROTOCOL_ERROR),
    "a pseudo header twice": ({}, [(":path", "/x")], PROTOCOL_ERROR),
    "a name in capitals": ({}, [("X-Y", "z")], GOAWAY),
    "a name with a colon": ({}, [("x:y", "z")], GOAWAY),
    "a name with a space": ({}, [("x y", "z")], GOAWAY),
    "a name with a line": ({}, [("x\r\ny", "z")], GOAWAY),
    "an empty name": ({}, [("", "z")], GOAWAY),
    "a value with a line": ({}, [("x", "y\r\nz: 1")], GOAWAY),
    "a value with LF": ({}, [("x", "y\nz: 1")], GOAWAY),
    "a value with NUL": ({}, [("x", "y\0")], GOAWAY),
    "Connection": ({}, [("connection", "close")], PROTOCOL_ERROR),
    "Keep-Alive": ({}, [("keep-alive", "1")], PROTOCOL_ERROR),
    "Proxy-Connection": ({}, [("proxy-connection", "close")], PROTOCOL_ERROR),
    "Transfer-Encoding": ({}, [("transfer-encoding", "chunked")], PROTOCOL_ERROR),
    "Upgrade": ({}, [("upgrade", "websocket")], PROTOCOL_ERROR),
    "TE other than trailers": ({}, [("te", "gzip")], PROTOCOL_ERROR),
    "a length without a body": ({}, [("content-length", "3")], PROTOCOL_ERROR),
    "a length of 0": ({}, [("content-length", "0")], 200),
    "two equal lengths": ({}, [("content-length", "0")] * 2, 400),
    "two lengths": ({}, [("content-length", "0"), ("content-length", "1")], PROTOCOL_ERROR),
    "a length with a sign": ({}, [("content-length", "+0")], PROTOCOL_ERROR),
    "a list of lengths": ({}, [("content-length", "0, 0")], PROTOCOL_ERROR),
    "an empty length": ({}, [("content-length", "")], (200, 400, PROTOCOL_ERROR)),
    "a long path": ({"path": "/" + "x" * 65600}, [], PROTOCOL_ERROR),
    "a long path and a header": ({"path": "/" + "x" * 65400}, [("x", "y" * 200)], 431),
    "long headers": ({}, [(f"x{n}", "y" * 8000) for n in range(9)], 431),
    "very long headers": ({}, [(f"x{n}", "y" * 8000) for n in range(16)], 431),
    "extremely long headers": ({}, [(f"x{n}", "y" * 8000) for n in range(40)], GOAWAY),
    "many headers": ({}, [(f"x{n}", "") for n in range(257)], 431),
}  # fmt: skip


def test_a_wrong_head_ends_its_stream_alone(server):
    def begin(connection) -> int:
        """A request that is under way all the time."""
        return connection.begin("POST", "/length.php", ends=False)

    connection = connect(server)
    other = begin(connection)
    for name, (pseudo, headers, expected) in HEADS.items():
        expected = expected if isinstance(expected, tuple) else (expected,)
        got = connection.response(connection.begin_in_pieces(connection.head(headers=headers, **pseudo)))
        if connection.closed:
            assert GOAWAY in expected, f"{name}: {connection.goaways}"
            connection.socket.close()
            connection = connect(server)
            other = begin(connection)
            continue
        answer = got.status if got.heads else got.reset
        assert answer in expected, f"{name}: {got}"[:500]
        assert not connection.goaways, name
    connection.send(DataFrame(other, data=b"12345", flags=["END_STREAM"]))
    assert connection.response(other).text == "5 5"
    connection.socket.close()


def test_a_head_that_cannot_be_decoded_has_a_line_in_the_access_log(run, pages):
    server = run(config(pages))
    for head in (b"\xff" * 20, b"\x00\x03X-Y\x01z"):
        with connect(server) as connection:
            assert connection.request(path="/file.txt").status == 200
            connection.send(HeadersFrame(3, data=head, flags=["END_HEADERS", "END_STREAM"]))
            connection.read_to_end()
            assert connection.goaways
    wait_for(lambda: log_lines(pages).count("- 400 0") == 2, "two lines")
    assert "a request that is not valid: answered 400" in server.stderr


# --- Bodies


def test_php_gets_a_body_with_or_without_a_length(server):
    with connect(server) as connection:
        body = b"0123456789" * 20_000
        for headers in ([], [("content-length", str(len(body)))]):
            stream = connection.begin("POST", "/length.php", headers, ends=False)
            connection.upload(stream, body, ends=True)
            assert connection.response(stream).text == f"{len(body)} {len(body)}"
        assert connection.request("POST", "/length.php", [("content-length", "0")], b"").text == "0 0"


def test_a_large_upload_flows(server, tmp_path):
    file = tmp_path / "upload"
    file.write_bytes(b"x" * 3_500_000)
    command = ["curl", "-sS", "--http2-prior-knowledge", "-T", str(file), "-X", "POST", f"http://127.0.0.1:{server.port}/length.php"]
    assert subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout == "3500000 3500000"


@pytest.mark.parametrize("length", ["4", "6"])
def test_a_body_of_another_length_is_reset(server, length):
    with connect(server) as connection:
        got = connection.request("POST", "/length.php", [("content-length", length)], b"12345")
        assert got.reset == PROTOCOL_ERROR or got.status == 400
        assert connection.request(path="/file.txt").status == 200


@pytest.mark.parametrize("headers", [[("content-length", "5000000")], []])
def test_a_body_that_is_too_large_is_answered_413(server, headers):
    with connect(server) as connection:
        other = connection.begin("POST", "/length.php", ends=False)
        stream = connection.begin("POST", "/length.php", headers, ends=False)
        if not headers:
            connection.upload(stream, b"x" * 4_500_000)
        got = connection.response(stream)
        assert got.status == 413 and "connection" not in got.headers
        connection.send(DataFrame(other, data=b"12345", flags=["END_STREAM"]))
        assert connection.response(other).text == "5 5"


def test_a_client_that_waits_gets_100_continue(server):
    with connect(server) as connection:
        stream = connection.begin("POST", "/length.php", [("expect", "100-continue")], ends=False)
        connection.read_until(lambda: connection.streams[stream].heads)
        assert connection.streams[stream].interim == [100]
        connection.send(DataFrame(stream, data=b"12345", flags=["END_STREAM"]))
        got = connection.response(stream)
        assert (got.status, got.interim, got.text) == (200, [100], "5 5")
        refused = connection.request("POST", "/length.php", [("expect", "100-continue"), ("content-length", "9000000")], None)
        assert refused.reset == PROTOCOL_ERROR  # Its stream has ended already.
        stream = connection.begin("POST", "/length.php", [("expect", "100-continue"), ("content-length", "9000000")], ends=False)
        got = connection.response(stream)
        assert (got.status, got.interim) == (413, [])


def test_trailers_are_dropped(server):
    with connect(server) as connection:
        stream = connection.begin("POST", "/length.php", ends=False)
        connection.send(DataFrame(stream, data=b"12345"))
        connection.send(*connection.request_frames([("x-checksum", "1")], True, stream))
        assert connection.response(stream).text == "5 5"


# --- Responses


def test_heads_of_responses_have_the_form_of_http_2(server, shared_folder):
    shared_folder.php(
        "hop.php",
        "header('Connection: X-Hop'); header('X-Hop: 1'); header('Keep-Alive: 5'); header('Upgrade: h2c');"
        "header('Transfer-Encoding: identity'); header('X-Mixed: Value'); echo 'hop';",
    )
    with connect(server) as connection:
        got = connection.request(path="/hop.php")
        names = {name for name, _ in got.heads[-1]}
        assert got.status == 200 and got.text == "hop"
        assert not names & {"connection", "keep-alive", "upgrade", "transfer-encoding", "proxy-connection"}, names
        assert all(name == name.lower() for name in names)
        assert got.headers["x-mixed"] == "Value" and got.headers["date"] and got.headers["content-length"] == "3"


def test_files_and_their_forms(server):
    with connect(server) as connection:
        whole = connection.request(path="/file.txt")
        assert (whole.status, len(whole.body), whole.headers["content-length"]) == (200, 10000, "10000")
        head = connection.request("HEAD", "/file.txt")
        assert (head.status, head.body, head.headers["content-length"]) == (200, b"", "10000")
        part = connection.request(path="/file.txt", headers=[("range", "bytes=10-14")])
        assert (part.status, part.text) == (206, "01234")
        same = connection.request(path="/file.txt", headers=[("if-none-match", whole.headers["etag"])])
        assert (same.status, same.body) == (304, b"")
        small = connection.request(path="/file.txt", headers=[("accept-encoding", "gzip")])
        assert small.headers["content-encoding"] == "gzip" and len(small.body) < 1000
        assert connection.request(path="/length.php", method="HEAD").body == b""
        assert len(connection.request(path="/large.php").body) == 64 * 32768


def test_pieces_arrive_as_they_are_flushed(run, pages):
    with connect(run(config(pages))) as connection:
        stream = connection.begin(path="/wait.php")
        connection.read_until(lambda: connection.streams[stream].body)
        assert connection.streams[stream].text == "begun"
        (pages.scratch / "go").touch()
        assert connection.response(stream).text == "begun done"


def test_a_script_may_send_early_hints(server, shared_folder):
    shared_folder.php("hints.php", "header('Link: </a.css>; rel=preload'); headers_send(103); echo 'page';")
    with connect(server) as connection:
        got = connection.request(path="/hints.php")
        if got.status == 200 and got.interim:
            assert got.heads[0] == [(":status", "103"), ("link", "</a.css>; rel=preload")]
        assert got.text.endswith("page") or "headers_send" in got.text


def test_a_closed_window_holds_a_response_back_and_no_other(server):
    with connect(server, window=0) as connection:
        held = connection.begin(path="/large.php")
        connection.read_until(lambda: connection.streams[held].heads)
        assert connection.request("HEAD", "/file.txt").status == 200
        assert connection.streams[held].body == b""
        connection.send(WindowUpdateFrame(held, 10))
        connection.read_until(lambda: len(connection.streams[held].body) == 10)
        connection.send(SettingsFrame(0, settings={SettingsFrame.INITIAL_WINDOW_SIZE: 1 << 20}))
        assert len(connection.response(held).body) == 64 * 32768


# --- Ends of streams


def test_a_client_that_resets_its_stream_takes_its_request_with_it(run, pages):
    server = run(config(pages))
    with connect(server) as connection:
        stream = connection.begin(path="/slow.php?reset")
        wait_for((pages.scratch / "running").exists)
        connection.send(RstStreamFrame(stream, error_code=CANCEL))
        wait_for(lambda: [line for line in log_lines(pages) if "reset" in line and " 499 " in line], "the line of the request")
        assert connection.request(path="/file.txt").status == 200
    (pages.scratch / "go").touch()


def test_a_client_that_closes_its_connection_takes_all_its_requests_with_it(run, pages):
    server = run(config(pages))
    with connect(server) as connection:
        for number in range(5):
            connection.begin(path=f"/slow.php?closed{number}")
        wait_for((pages.scratch / "running").exists)
        # The requests before this one have come, too.
        assert connection.request(path="/file.txt").status == 200
    wait_for(lambda: len([line for line in log_lines(pages) if "closed" in line and " 499 " in line]) == 5, "their lines")
    (pages.scratch / "go").touch()
    assert "GET /slow.php?closed0 HTTP/2.0 499 0" in log_lines(pages)


def test_a_body_that_stalls_is_answered_408(run, pages):
    server = run(config(pages, {"body_read_timeout": 1}))
    with connect(server) as connection:
        other = connection.begin(path="/slow.php")
        got = connection.response(connection.begin("POST", "/length.php", body=b"123", ends=False))
        assert got.status == 408
        (pages.scratch / "go").touch()
        assert connection.response(other).text == "done"


def test_a_window_that_stays_closed_costs_the_stream(run, pages):
    server = run(config(pages, {"send_timeout": 1}))
    with connect(server, window=0) as connection:
        held = [connection.begin(path=path) for path in ("/large.php", "/file.txt")]
        assert [connection.response(stream).reset for stream in held] == [CANCEL, CANCEL]
        assert connection.request("HEAD", "/file.txt").status == 200


def test_a_full_queue_refuses_a_stream_alone(run, pages):
    server = run(config(pages, application={"processes": 1, "limits": {"queue_timeout": 1}}))
    with connect(server) as connection:
        running = connection.begin(path="/slow.php")
        wait_for((pages.scratch / "running").exists)
        got = connection.request(path="/length.php")
        assert got.status == 503 and "retry-after" in got.headers
        (pages.scratch / "go").touch()
        assert connection.response(running).status in (200, 503)
        assert connection.request(path="/file.txt").status == 200


def test_streams_beyond_the_limit_are_refused(run, pages):
    server = run(config(pages, {"http2": {"max_concurrent_streams": 2}}))
    with connect(server) as connection:
        connection.read_until(lambda: connection.settings)
        assert connection.settings[SettingsFrame.MAX_CONCURRENT_STREAMS] == 2
        streams = [connection.begin("POST", "/length.php", ends=False) for _ in range(3)]
        assert connection.response(streams[2]).reset == REFUSED_STREAM
        for stream in streams[:2]:
            connection.send(DataFrame(stream, data=b"12345", flags=["END_STREAM"]))
            assert connection.response(stream).text == "5 5"


# --- Ends of connections


def test_an_idle_connection_is_closed_with_goaway(run, pages):
    server = run(config(pages, {"idle_timeout": 1}))
    with connect(server) as connection:
        assert connection.request(path="/file.txt").status == 200
        connection.read_to_end()
        assert set(connection.goaways) == {NO_ERROR}


def test_an_incomplete_head_closes_the_connection(run, pages):
    server = run(config(pages, {"header_read_timeout": 1}))
    with connect(server) as connection:
        other = connection.begin(path="/slow.php")
        block = connection.encoder.encode(connection.head())
        connection.send(HeadersFrame(3, data=block, flags=["END_STREAM"]))
        connection.read_to_end()
        assert connection.closed and not connection.streams[other].is_over
    with server.connect() as connection:
        connection.send(PREFACE[:10])
        assert b" 408 " in connection.socket.recv(1000) or connection.socket.recv(1000) == b""
    (pages.scratch / "go").touch()


@pytest.mark.parametrize("end", ["listener", "shutdown"])
def test_a_drain_finishes_requests(run, pages, end):
    server = run(config(pages))
    with connect(server) as idle, connect(server) as connection:
        assert idle.request(path="/file.txt").status == 200
        running = connection.begin(path="/slow.php")
        wait_for((pages.scratch / "running").exists)
        if end == "listener":
            assert server.api("DELETE", f"/config/listeners/127.0.0.1:{server.port}").status == 200
        else:
            server.send_signal(signal.SIGTERM)
        connection.read_until(lambda: connection.goaways)
        idle.read_to_end()
        assert set(idle.goaways) == {NO_ERROR}
        (pages.scratch / "go").touch()
        assert connection.response(running).text == "done"
        connection.read_to_end()
        assert set(connection.goaways) == {NO_ERROR}


def test_a_client_that_ignores_goaway_is_closed(run, pages):
    server = run(config(pages))
    with connect(server) as connection:
        assert connection.request(path="/file.txt").status == 200
        connection._received = lambda frame: None
        server.send_signal(signal.SIGTERM)
        connection.read_to_end()
    assert server.exit_code() == 0


def test_a_client_that_does_not_answer_the_ping_of_a_drain_gets_no_more_requests(run, pages):
    """h2 accepts new streams until the answer: a client that was locked out could go on while one request runs."""
    server = run(config(pages))
    with connect(server) as connection:
        running = connection.begin(path="/slow.php")
        wait_for((pages.scratch / "running").exists)
        received = connection._received
        connection._received = lambda frame: None if isinstance(frame, PingFrame) else received(frame)
        assert server.api("DELETE", f"/config/listeners/127.0.0.1:{server.port}").status == 200
        connection.read_until(lambda: connection.goaways)
        time.sleep(1.5)
        assert connection.response(connection.begin(path="/file.txt")).reset == REFUSED_STREAM
        (pages.scratch / "go").touch()
        assert connection.response(running).text == "done"


# --- Upstreams


def test_an_upstream_gets_one_request_of_http_1(run, pages):
    with Upstream(answers(ok(b"up"))) as upstream:
        server = run(config(pages, routes=[{"action": {"proxy": upstream.url}}]))
        # The heads that pass are one request with one body each; the others never arrive.
        for pseudo, headers, _ in HEADS.values():
            with connect(server) as connection:
                connection.response(connection.begin_in_pieces(connection.head(headers=headers, **pseudo)))
        assert len(upstream.requests) >= 5
        with connect(server, name="shop.example") as connection:
            body = connection.request("POST", "/b?c=d", [("cookie", "a=1"), ("cookie", "b=2")], b"GET /smuggled HTTP/1.1\r\n\r\n")
            assert body.text == "up"
            known = connection.request("POST", "/known", [("content-length", "3")], b"abc")
            assert known.text == "up"
        assert not upstream.fragments
        lines = [request.line for request in upstream.requests]
        assert not [line for line in lines if "smuggled" in line]
        for request in upstream.requests:
            assert request.line.endswith(" HTTP/1.1") and request.line.count(" ") == 2, request.raw
            assert len(request.all("host")) == 1
            assert not (request.all("content-length") and request.all("transfer-encoding"))
            assert not [name for name, _ in request.headers if name.startswith(":") or name in ("keep-alive", "te")]
        chunked, known = upstream.requests[-2:]
        assert chunked.line == "POST /b?c=d HTTP/1.1" and chunked.header("transfer-encoding") == "chunked"
        assert chunked.header("cookie") == "a=1; b=2" and chunked.header("host") == "shop.example"
        assert known.header("content-length") == "3"


def test_a_request_for_a_websocket_has_no_body_for_the_upstream(run, pages):
    """An upstream that waits for a body would take the next request on its connection for it."""
    with Upstream(answers(ok(b"up"))) as upstream:
        server = run(config(pages, routes=[{"action": {"proxy": upstream.url}}]))
        with connect(server) as connection:
            head = connection.head("CONNECT", "/", [("content-length", "30")], protocol="websocket")
            [frame] = connection.request_frames(head, ends=False)
            connection.send(frame, DataFrame(frame.stream_id, data=b"GET /smuggled HTTP/1.1\r\nA: b\r\n"))
            assert connection.response(frame.stream_id).status == 501
            assert connection.request(path="/next").text == "up"
        assert [request.line for request in upstream.requests] == ["GET / HTTP/1.1", "GET /next HTTP/1.1"]
        assert upstream.requests[0].header("content-length") in (None, "0") and not upstream.fragments


def test_a_reset_of_the_client_reaches_the_upstream(run, pages):
    left = []

    def handler(visit):
        if visit.head():
            left.append(visit.some())

    with Upstream(handler) as upstream:
        server = run(config(pages, routes=[{"action": {"proxy": upstream.url}}]))
        with connect(server) as connection:
            stream = connection.begin()
            wait_for(lambda: upstream.requests)
            connection.send(RstStreamFrame(stream, error_code=CANCEL))
            assert wait_for(lambda: left) == [b""]


def test_an_upstream_that_breaks_off_resets_the_stream(run, pages):
    def handler(visit):
        if visit.head():
            visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")

    with Upstream(handler) as upstream:
        server = run(config(pages, routes=[{"match": {"uri": "/up"}, "action": {"proxy": upstream.url}}, {"action": {"return": 204}}]))
        with connect(server) as connection:
            got = connection.request(path="/up")
            assert got.reset == 2 and got.body == b"half"
            assert connection.request().status == 204


def test_a_websocket_is_a_stream(run, pages):
    grant = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\nSec-WebSocket-Protocol: chat\r\n\r\n"

    def handler(visit):
        request = visit.head()
        if request and request.header("upgrade"):
            visit.send(grant, b"welcome")
            while piece := visit.some():
                visit.send(piece.upper())
        elif request:
            visit.send(ok(b"page"))

    with Upstream(handler) as upstream:
        route = {"match": {"uri": "/ws"}, "action": {"proxy": upstream.url}}
        server = run(config(pages, routes=[route, {"action": {"pass": "applications/app/direct"}}]))
        with connect(server) as connection:
            connection.read_until(lambda: connection.settings)
            assert connection.settings[SettingsFrame.ENABLE_CONNECT_PROTOCOL] == 1
            headers = [("sec-websocket-version", "13"), ("sec-websocket-protocol", "chat")]
            stream = connection.begin("CONNECT", "/ws", headers, ends=False, protocol="websocket")
            tunnel = connection.streams[stream]
            connection.read_until(lambda: tunnel.body)
            assert tunnel.status == 200 and tunnel.headers["sec-websocket-protocol"] == "chat"
            assert "sec-websocket-accept" not in tunnel.headers and "upgrade" not in tunnel.headers
            connection.send(DataFrame(stream, data=b"abc"))
            connection.read_until(lambda: tunnel.text == "welcomeABC")
            # Other requests go on beside it.
            assert connection.request(path="/length.php").status == 200
            connection.send(DataFrame(stream, data=b"d", flags=["END_STREAM"]))
            connection.response(stream)
            assert tunnel.text == "welcomeABCD" and tunnel.ended
            asked = upstream.requests[0]
            assert asked.line == "GET /ws HTTP/1.1" and asked.header("upgrade") == "websocket"
            assert len(asked.header("sec-websocket-key")) == 24 and asked.header("sec-websocket-version") == "13"
            # A page is no WebSocket: the client must not take it for one.
            refused = connection.begin("CONNECT", "/length.php", headers, ends=False, protocol="websocket")
            assert connection.response(refused).status == 501
