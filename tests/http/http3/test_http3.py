"""HTTP/3: heads, bodies, responses, limits and ends of streams and connections. See docs/http.md."""

import json
import os
import signal
import socket
import subprocess

import pytest

from support.folders import Folder, readable
from support.http.http3 import (
    CONTROL,
    DATA,
    EXCESSIVE_LOAD,
    FRAME_UNEXPECTED,
    HEADERS,
    INTERNAL_ERROR,
    MESSAGE_ERROR,
    QPACK_ENCODER,
    REQUEST_CANCELLED,
    SETTINGS,
    Http3Connection,
    encode,
    frame,
    integer,
    take_integer,
)
from support.http.http3_site import config, connect, fill, log_lines, start, with_certificates
from support.http.tls import Authority
from support.http.upstream import Upstream, answers, ok
from support.server import Howdah, stop_all
from support.waiting import wait_for

ENABLE_CONNECT_PROTOCOL = 8


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory):
    return fill(Folder(readable(tmp_path_factory.mktemp("http3"))))


@pytest.fixture(scope="module")
def server(shared_folder, authority, tmp_path_factory):
    """One server for the tests that change nothing."""
    folder = tmp_path_factory.mktemp("http3-state")
    state = with_certificates(folder, authority, shop=("shop.example",), other=("other.example", "*.other.example"))
    http = {"max_body_size": 4_000_000, "compression": {"compressors": {"encoding": "gzip", "min_length": 100}}}
    tls = {"certificate": ["shop", "other"]}
    server = start(config(shared_folder, http, tls=tls), state, folder)
    yield server
    stop_all([server])


@pytest.fixture
def client(server):
    with connect(server) as client:
        yield client


# --- One view of a request


def test_an_application_gets_the_request_as_with_other_versions(client, server):
    stream = client.request("/a%20b?c=d", [("x-a", "1"), ("cookie", "a=b"), ("cookie", "c=d"), ("te", "trailers")])
    assert stream.status == 200 and stream.ended
    seen = json.loads(stream.body)
    expected = {
        "SERVER_PROTOCOL": "HTTP/3.0", "HTTPS": "on", "REQUEST_SCHEME": "https", "REQUEST_METHOD": "GET",
        "REQUEST_URI": "/a%20b?c=d", "QUERY_STRING": "c=d", "HTTP_HOST": "shop.example", "SERVER_NAME": "shop.example",
        "HTTP_X_A": "1", "HTTP_COOKIE": "a=b; c=d", "REMOTE_ADDR": "127.0.0.1", "SERVER_PORT": str(server.port),
        "SERVER_ADDR": "127.0.0.1", "SSL_PROTOCOL": "TLSv1.3",
    }  # fmt: skip
    assert {name: seen.get(name) for name in expected} == expected
    assert "alt-svc" not in stream.headers and "date" in stream.headers and stream.headers["server"].startswith("howdah")


def test_an_application_gets_the_cipher_suite(begin):
    server = begin()
    for suite in ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"):
        commands = {"Ciphersuites": suite}
        assert server.api("PUT", f"/config/listeners/{server.host}:{server.port}/tls/conf_commands", commands).status == 200
        with connect(server) as client:
            seen = json.loads(client.request("/").body)
            assert (seen["SSL_CIPHER"], seen["SSL_PROTOCOL"]) == (suite, "TLSv1.3")


def test_a_file_is_served_and_compressed(client, server):
    stream = client.request("/file.txt")
    assert (stream.status, len(stream.body), stream.headers["content-length"]) == (200, 10_000, "10000")
    assert client.request("/file.txt", [("range", "bytes=10-19")]).status == 206
    etag = stream.headers["etag"]
    assert client.request("/file.txt", [("if-none-match", etag)]).status == 304
    zipped = client.request("/file.txt", [("accept-encoding", "gzip")])
    assert zipped.headers["content-encoding"] == "gzip" and zipped.body[:2] == b"\x1f\x8b"
    head = client.request("/file.txt", method="HEAD")
    assert (head.status, head.body, head.headers["content-length"], head.ended) == (200, b"", "10000", True)


def test_bodies_of_requests(client, server):
    cases = [
        ([], b"", "- 0"),
        ([], b"x" * 5, "5 5"),
        ([("content-length", "5")], b"x" * 5, "5 5"),
        ([], b"x" * 1_000_000, "1000000 1000000"),
        ([("content-length", "1000000")], b"x" * 1_000_000, "1000000 1000000"),
    ]
    for headers, body, expected in cases:
        assert client.request("/length.php", headers, "POST", body).text == expected, (headers, len(body))


def test_a_body_may_come_in_any_frames(client):
    stream = client.begin("/length.php", method="POST", ends=False)
    for part in (frame(DATA), frame(DATA, b"a"), frame(0x21, b"ignored"), frame(DATA), frame(DATA, b"bc" * 100), integer(DATA)):
        client.send(stream, part)
    client.send(stream, b"\3xyz" + frame(HEADERS, encode([("trailer", "dropped")])), ends=True)
    assert client.finish(stream).text == "204 204"


def test_a_large_response_comes_whole(client):
    stream = client.request("/large.php")
    assert len(stream.body) == 64 * 32768 and stream.ended


def test_requests_are_answered_side_by_side(client, shared_folder):
    go, running = shared_folder.scratch / "go", shared_folder.scratch / "running"
    slow = client.begin("/slow.php")
    wait_for(running.exists)
    fast = [client.begin("/file.txt") for _ in range(20)]
    assert [client.finish(stream).status for stream in fast] == [200] * 20
    assert not slow.is_over
    go.touch()
    assert client.finish(slow).text == "done"
    go.unlink(), running.unlink()


def test_a_response_begins_before_its_end(client, shared_folder):
    go = shared_folder.scratch / "go"
    stream = client.begin("/early.php")
    client.wait(lambda: stream.body == b"begun")
    go.touch()
    assert client.finish(stream).text == "begun done"
    go.unlink()


def test_early_hints_precede_the_response(client):
    stream = client.request("/hints.php")
    assert (stream.interim, stream.status, stream.text) == ([103], 200, "done")
    assert dict(stream.heads[0])["link"] == "</a.css>; rel=preload"


def test_a_client_that_expects_100_continue_gets_it(client):
    stream = client.begin("/length.php", [("expect", "100-continue"), ("content-length", "3")], "POST", ends=False)
    client.wait(lambda: stream.interim == [100])
    client.send(stream, frame(DATA, b"abc"), ends=True)
    assert client.finish(stream).text == "3 3"


def test_an_upstream_gets_http_1(begin, folder):
    with Upstream(answers(ok(b"up"))) as upstream:
        server = begin(routes=[{"action": {"proxy": upstream.url}}])
        with connect(server) as client:
            stream = client.request("/a?b", [("x-a", "1")], "POST", b"body")
            assert (stream.status, stream.body) == (200, b"up")
        request = upstream.requests[0]
        assert (request.line, request.header("host"), request.body) == ("POST /a?b HTTP/1.1", "shop.example", b"body")


def test_trailers_of_an_upstream_come_behind_the_body(begin):
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
    bodies = {"/body": b"5\r\nhello\r\n", "/empty": b"", "/large": b"8000\r\n" + b"x" * 0x8000 + b"\r\n"}

    def handle(visit):
        while request := visit.request():
            visit.send(head, bodies[request.line.split()[1]])
            visit.send(b"0\r\nX-Sum: 1\r\nSet-Cookie: a=b\r\nContent-Length: 3\r\nX-Other: 2\r\n\r\n")

    with Upstream(handle) as upstream:
        server = begin(routes=[{"action": {"proxy": upstream.url}}])
        with connect(server) as client:
            for path, chunk in bodies.items():
                stream = client.request(path)
                assert dict(stream.heads[0])["trailer"] == "X-Sum" and stream.ended
                assert stream.heads[1:] == [[("x-sum", "1"), ("x-other", "2")]], path
                assert stream.body == b"".join(chunk.split(b"\r\n")[1:2])
            assert client.request("/body", method="HEAD").ended


# --- Strictness and failures


def test_a_malformed_request_costs_its_stream_only(client):
    head = [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "shop.example")]
    malformed = {
        "upper case": [*head, ("X-A", "1")],
        "no authority": head[:3],
        "another host": [*head, ("host", "other.example")],
        "no method": head[1:],
        "an unknown pseudo header": [*head, (":x", "1")],
        "a line end in a value": [*head, ("x", "a\r\nb: c")],
    }
    for name, fields in malformed.items():
        stream = client.open()
        client.send(stream, frame(HEADERS, encode(fields)), ends=True)
        client.finish(stream)
        assert stream.reset is not None and not stream.heads, (name, stream)
    assert client.request("/file.txt").status == 200


def test_headers_of_http_1_connections_are_refused(client):
    for header in [("connection", "close"), ("transfer-encoding", "chunked"), ("upgrade", "websocket"), ("keep-alive", "1"),
                   ("te", "gzip"), ("proxy-connection", "close")]:  # fmt: skip
        assert client.request("/", [header]).status == 400, header
    assert client.request("/file.txt").status == 200


def test_a_body_that_contradicts_its_length_resets_the_stream(client, shared_folder):
    """No script runs, also if the whole body comes together with the head."""
    for body in (b"", b"ab", b"abcd"):
        stream = client.request("/mark.php", [("content-length", "3")], "POST", body)
        assert stream.reset == MESSAGE_ERROR, body
    assert not (shared_folder.scratch / "ran").exists()
    assert client.request("/mark.php", [("content-length", "3")], "POST", b"abc").text == "3"
    assert (shared_folder.scratch / "ran").exists()
    assert client.request("/", [("content-length", "1"), ("content-length", "1")], "POST", b"a").status == 400
    assert client.request("/file.txt").status == 200


@pytest.mark.parametrize("rest", [frame(DATA, b"abc")[:-1], integer(DATA)], ids=["payload", "header"])
def test_a_body_that_is_cut_off_is_not_taken_for_a_whole_one(client, rest):
    stream = client.begin("/length.php", method="POST", body=b"first", ends=False)
    client.send(stream, rest, ends=True)
    client.finish(stream)
    assert stream.reset is not None or stream.status >= 400, stream
    assert client.request("/file.txt").status == 200


def test_howdahs_own_failures_leave_the_other_streams_alone(client):
    upload = client.begin("/length.php", method="POST", body=b"a", ends=False)
    assert client.request("/length.php", [("content-length", "5000000")], "POST", b"x").status == 413
    assert client.request("/file.txt", method="TRACE").status == 405
    assert client.request("/%00").status == 400
    assert client.request("/file.txt/../../x").status in (400, 404, 200)
    client.send(upload, frame(DATA, b"b"), ends=True)
    assert client.finish(upload).text == "2 2"


def test_connect_is_not_allowed(client):
    stream = client.open()
    client.send(stream, frame(HEADERS, encode([(":method", "CONNECT"), (":authority", "shop.example:443")])), ends=True)
    assert client.finish(stream).status == 405


def test_a_websocket_is_refused(client):
    """The library of HTTP/3 does not know them: clients are not asked to try."""
    head = [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "https"), (":path", "/"), (":authority", "shop.example")]
    stream = client.open()
    client.send(stream, frame(HEADERS, encode(head)))
    assert client.finish(stream).reset == MESSAGE_ERROR
    client.wait(lambda: any(data[:1] == bytes([CONTROL]) for data in client.from_server.values()))
    settings = next(data for data in client.from_server.values() if data[:1] == bytes([CONTROL]))
    at, end, found = 3, 3 + settings[2], {}
    while at < end:
        name, at = take_integer(settings, at)
        found[name], at = take_integer(settings, at)
    assert found.get(ENABLE_CONNECT_PROTOCOL, 0) == 0, found


def test_a_head_has_the_limits_of_http_1(client):
    assert client.request("/", [("x", "y" * 60_000)]).status == 200
    assert client.request("/", [("x", "y" * 66_000)]).status == 431
    assert client.request("/", [(f"x{n}", "") for n in range(257)]).status == 431
    # Beyond that, h3 answers, and beyond its limit the stream is reset.
    assert client.request("/", [("x", "y" * 150_000)]).reset is not None
    assert client.request("/file.txt").status == 200


def test_a_script_that_breaks_off_resets_the_stream(client):
    stream = client.request("/broken.php")
    assert stream.reset == INTERNAL_ERROR and not stream.ended


def test_a_frame_that_is_not_allowed_ends_the_connection(server):
    for first in (frame(DATA, b"x"), frame(SETTINGS), frame(2)):
        with connect(server) as client:
            client.send(client.open(), first)
            client.wait(lambda client=client: client.closed)
            assert client.closed["code"] == FRAME_UNEXPECTED, (first, client.closed)


def test_unknown_streams_and_frames_are_ignored(server):
    with connect(server, begins=False) as client:
        client.open_one_direction(integer(CONTROL) + frame(0x21, b"x") * 0 + frame(SETTINGS, integer(0x21) + integer(1)))
        client.open_one_direction(integer(0x21) + b"grease")
        client.open_one_direction(integer(QPACK_ENCODER))
        assert client.request("/file.txt").status == 200


# --- Clients that leave, or are slow


def test_a_cancelled_request_does_not_run(begin, folder):
    server = begin(application={"processes": 1})
    folder.php("mark.php", "touch(SCRATCH . '/ran');")
    with connect(server) as client:
        slow = client.begin("/slow.php")
        wait_for((folder.scratch / "running").exists)
        queued = client.begin("/mark.php")
        assert client.request("/file.txt").status == 200
        client.stop(queued)
        wait_for(lambda: any("/mark.php" in line and " 499 " in line for line in log_lines(folder)))
        (folder.scratch / "go").touch()
        assert client.finish(slow).text == "done"
        assert client.request("/length.php").status == 200
        assert not (folder.scratch / "ran").exists()


def test_an_upload_that_is_reset_is_dropped(client, shared_folder):
    stream = client.begin("/length.php", method="POST", body=b"x" * 1000, ends=False)
    client.reset(stream)
    assert client.request("/file.txt").status == 200


def test_a_client_that_takes_nothing_does_not_hold_php(begin, folder):
    server = begin(application={"processes": 1})
    with connect(server) as client:
        stuck = client.begin("/large.php", reads=False)
        assert client.request("/length.php").text == "- 0"
        client.stop(stuck)


def test_a_client_that_takes_nothing_loses_its_stream(begin, folder):
    server = begin(http={"send_timeout": 1})
    folder.write("big.bin", "x" * 4_000_000)
    with connect(server) as client:
        client.begin("/big.bin", reads=False)
        wait_for(lambda: any("/big.bin" in line for line in log_lines(folder)))
        assert client.request("/file.txt").status == 200


def test_a_head_that_does_not_come_costs_its_stream(begin):
    server = begin(http={"header_read_timeout": 1})
    with connect(server) as client:
        stream = client.open()
        client.send(stream, client.head("/file.txt")[:10])
        client.finish(stream)
        assert stream.reset is not None
        assert client.request("/file.txt").status == 200


def code_of_end(server, act) -> int | None:
    """The code with which the server closes the connection of a client that acts like this. On a busy machine the client may look at
    its packets so late that the server has forgotten the connection, and has answered a later packet with a stateless reset
    (RFC 9000, 10.3): the client reports only that, and tries again."""
    for _ in range(5):
        with connect(server) as client:
            act(client)
            client.wait(lambda: client.closed)
        if client.closed["reason"] != "reset by peer":
            break
    return client.closed["code"]


def test_requests_that_are_cancelled_again_and_again_end_the_connection(server):
    def cancel(client):
        for _ in range(2000):
            stream = client.begin("/slow.php", reads=True)
            client.stop(stream)
            client.reset(stream)
            if client.closed:
                break

    assert code_of_end(server, cancel) == EXCESSIVE_LOAD
    with connect(server) as client:
        assert client.request("/file.txt").status == 200


@pytest.mark.parametrize("kind", [DATA, 0x21], ids=["empty DATA", "unknown"])
def test_frames_without_a_use_end_the_connection(server, kind):
    def send(client):
        stream = client.begin("/length.php", method="POST", ends=False)
        for _ in range(100):
            client.send(stream, frame(kind) * 1000)

    assert code_of_end(server, send) == EXCESSIVE_LOAD


def test_an_endless_unknown_frame_takes_no_memory(server):
    def resident_kilobytes() -> int:
        return int(server.router().status("VmRSS").split()[0])

    with connect(server) as client:
        assert client.request("/file.txt").status == 200
        before = resident_kilobytes()
        stream = client.begin("/length.php", method="POST", ends=False)
        client.send(stream, integer(0x21) + integer(1 << 40) + b"x" * 3_000_000)
        assert client.request("/file.txt").status == 200
        assert resident_kilobytes() < before + 2000
        # quinn closes no connection whose packets fill the congestion window: the server would wait for its end.
        client.reset(stream)
        client.finish(stream)


def test_the_number_of_requests_is_limited(begin, folder):
    server = begin(http={"http2": {"max_concurrent_streams": 3}})
    with connect(server) as client:
        streams = [client.begin("/slow.php") for _ in range(5)]
        wait_for((folder.scratch / "running").exists)
        (folder.scratch / "go").touch()
        assert [client.finish(stream).text for stream in streams] == ["done"] * 5


# --- TLS


def test_a_client_gets_the_certificate_of_its_name(server, authority):
    for name in ("shop.example", "other.example", "x.other.example"):
        with connect(server, name=name, ca=authority.root) as client:
            assert client.request("/file.txt").status == 200, name
    with connect(server, name="wrong.example", ca=authority.root) as client:
        assert "certificate" in client.closed["reason"]


def test_another_protocol_is_refused(server):
    with connect(server, alpn="hq-interop") as client:
        assert "known protocol" in client.closed["reason"], client.closed


def test_a_certificate_is_replaced_while_connections_go_on(begin, authority):
    server = begin()
    with connect(server, ca=authority.root) as before:
        assert server.api("PUT", "/certificates/shop", authority.bundle("new.example")).status == 200

        def is_replaced() -> bool:
            with connect(server, name="new.example", ca=authority.root) as client:
                return client.is_connected

        wait_for(is_replaced)
        assert before.request("/file.txt").status == 200


# --- Its announcement, and changes


def curl(server: Howdah, authority: Authority, *more) -> str:
    command = ["curl", "-sSi", "--cacert", authority.root, "--resolve", f"shop.example:{server.port}:127.0.0.1", *more]
    return subprocess.run(
        [*command, f"https://shop.example:{server.port}/file.txt"], check=True, capture_output=True, text=True, timeout=30
    ).stdout.lower()


def test_other_versions_announce_it(server, authority):
    for version in ("--http1.1", "--http2"):
        assert f'\nalt-svc: h3=":{server.port}"; ma=86400' in curl(server, authority, version), version


def test_an_application_may_announce_something_else(begin, folder, authority):
    server = begin(routes=[{"action": {"share": f"{folder.root}$uri", "response_headers": {"Alt-Svc": "clear"}}}])
    answer = curl(server, authority)
    assert answer.count("alt-svc:") == 1 and "\nalt-svc: clear" in answer


def test_it_is_switched_on_and_off_while_requests_run(begin, folder, authority):
    server = begin(listener={"http3": False})
    listener = f"/config/listeners/127.0.0.1:{server.port}"
    assert "alt-svc" not in curl(server, authority)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind((server.host, server.port))
        answer = server.api("PUT", f"{listener}/http3", "true")
        assert answer.status >= 400 and b"which HTTP/3 needs, is in use by another program" in answer.body
    assert server.api("PUT", f"{listener}/http3", "true").status == 200
    assert "alt-svc" in curl(server, authority)
    with connect(server) as client:
        slow = client.begin("/slow.php")
        wait_for((folder.scratch / "running").exists)
        assert server.api("PUT", f"{listener}/http3", "false").status == 200
        client.wait(lambda: client.goaway)
        (folder.scratch / "go").touch()
        assert client.finish(slow).text == "done"
        client.wait(lambda: client.closed)
        assert client.closed["code"] == 0x100
    wait_for(lambda: server.api("PUT", f"{listener}/http3", "true").status == 200)
    with connect(server) as client:
        assert client.request("/file.txt").status == 200


def test_a_change_of_the_configuration_keeps_connections(begin):
    server = begin()
    with connect(server) as client:
        assert client.request("/file.txt").status == 200
        assert server.api("PUT", "/config/settings/http/server_version", "false").status == 200
        stream = client.request("/file.txt")
        assert stream.headers["server"] == "howdah" and not client.goaway


def test_a_shutdown_lets_requests_finish(begin, folder):
    server = begin()
    with connect(server) as client, connect(server) as idle:
        assert idle.request("/file.txt").status == 200
        slow = client.begin("/slow.php")
        wait_for((folder.scratch / "running").exists)
        server.send_signal(signal.SIGQUIT)
        client.wait(lambda: client.goaway)
        idle.wait(lambda: idle.closed)
        (folder.scratch / "go").touch()
        assert client.finish(slow).text == "done"
        client.wait(lambda: client.closed)
        assert client.closed["code"] == 0x100
    assert server.exit_code() == 0


def test_clients_notice_the_death_of_a_router_and_the_next_one_serves(begin):
    server = begin()
    with connect(server) as client:
        assert client.request("/file.txt").status == 200
        old = server.router().pid
        os.kill(old, signal.SIGKILL)
        wait_for(lambda: server.router() and server.router().pid != old)
        # The next packet is answered with a stateless reset.
        client.begin("/file.txt")
        client.wait(lambda: client.closed)
        assert "reset" in client.closed["reason"]
    with connect(server) as client:
        assert client.request("/file.txt").status == 200


def test_an_idle_connection_ends_with_goaway(begin):
    server = begin(http={"idle_timeout": 1})
    with connect(server) as client:
        assert client.request("/file.txt").status == 200
        client.wait(lambda: client.closed)
        assert client.goaway and client.closed["code"] == 0x100


def test_a_client_may_change_its_address(begin, folder):
    server = begin()
    with connect(server) as client:
        before = json.loads(client.request("/?a").body)["REMOTE_PORT"]
        slow = client.begin("/slow.php")
        wait_for((folder.scratch / "running").exists)
        client.move()
        after = json.loads(client.request("/?b").body)["REMOTE_PORT"]
        assert before != after
        (folder.scratch / "go").touch()
        assert client.finish(slow).text == "done"


# --- Numbers and logs


def test_the_access_log_and_the_status_know_it(begin, folder):
    server = begin()
    with connect(server) as client:
        assert client.request("/file.txt").status == 200
        wait_for(lambda: log_lines(folder) == ["127.0.0.1 GET /file.txt HTTP/3.0 200 10000"])
        connections = json.loads(server.api("GET", "/status").body)["connections"]
        assert (connections["accepted"], connections["closed"]) == (1, 0), connections


@pytest.mark.parametrize(
    ("listener", "problem"),
    [
        ({"tls": None, "http3": True}, "HTTP/3 is always encrypted"),
        ({"http3": "yes"}, "expected true, false or an object"),
        ({"tls": {"certificate": "shop", "conf_commands": {"MaxProtocol": "TLSv1.2"}}, "http3": True}, "HTTP/3 needs TLS 1.3"),
    ],
)
def test_a_wrong_configuration_is_explained(server, listener, problem):
    options = {"pass": "routes", "tls": {"certificate": "shop"}, **listener}
    options = {name: value for name, value in options.items() if value is not None}
    answer = server.api("PUT", "/config/listeners/127.0.0.1:1", json.dumps(options))
    assert answer.status == 400 and problem in answer.body.decode(), answer.body
