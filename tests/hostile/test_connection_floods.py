"""Clients that connect without a pause, and workers and upstreams that write without one: others must have their turn."""

import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hyperframe.frame import DataFrame

from support.async_site import LOOP
from support.http.http2 import Http2Connection
from support.http.upstream import Upstream
from support.http_applications import configuration
from support.processes import cpu_seconds
from support.roadrunner_applications import frame, hostile_application, roadrunner_application
from support.waiting import PATIENCE, longest_wait, wait_for

FLOOD = """
import socket, sys
address = ("127.0.0.1", int(sys.argv[1])) if sys.argv[1].isdigit() else sys.argv[1]
family = socket.AF_INET if sys.argv[1].isdigit() else socket.AF_UNIX
print("begins", flush=True)
while True:
    with socket.socket(family) as client:
        try:
            client.connect(address)
        except OSError:
            pass
"""


@pytest.mark.load
@pytest.mark.parametrize("end", [False, True])
def test_clients_of_a_unix_listener_do_not_stop_others(application, run, socket_path, end):
    listeners = {
        "127.0.0.1:{port}": {"pass": "applications/app"},
        f"unix:{socket_path}": {"pass": "applications/app", "socket": {"mode": "0666"}},
    }
    server = run({"applications": {"app": application}, "listeners": listeners, "settings": {"listen_threads": 1}})
    floods = [
        subprocess.Popen([sys.executable, "-c", FLOOD, str(socket_path)], stdout=subprocess.PIPE) for _ in range(4)
    ]
    try:
        for flood in floods:
            flood.stdout.readline()
        router = server.router()
        times = [longest_wait(server, "/", seconds=0.1) for _ in range(20)]
        # Once, a thread that never slept looked for responses of PHP four times a second.
        assert statistics.median(times) < 0.1, times
        if end:
            name = "unix:" + str(socket_path).replace("/", "%2F")
            assert server.api("DELETE", f"/config/listeners/{name}").status == 200
            wait_for(lambda: not socket_path.exists(), "the end of the listener")
            assert server.get("/").text == "here"
        assert server.router() == router
    finally:
        for flood in floods:
            flood.kill()
            flood.communicate()
    # They were closed as fast as they came.
    assert "connections are open, as many as" not in server.stderr


VERSION = [("sec-websocket-version", "13")]
UPGRADE = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="), *VERSION]
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n"


@pytest.mark.parametrize("http2", [False, True])
def test_clients_that_leave_their_websockets_leave_no_count_behind(run, http2):
    """The server of the WebSockets does not notice that they leave, as one that hangs."""
    ended = threading.Event()

    def hang(visit) -> None:
        if visit.head():
            visit.send(SWITCHED)
            ended.wait(2 * PATIENCE)

    with Upstream(hang) as upstream:
        listeners = {"127.0.0.1:{port}": {"pass": "routes", "http2": True}}
        server = run({"listeners": listeners, "routes": [{"action": {"proxy": upstream.url}}]})
        active = lambda: json.loads(server.api("GET", "/status/connections/active").text)
        if http2:
            with Http2Connection((server.host, server.port)) as connection:
                stream = connection.begin("CONNECT", "/", VERSION, ends=False, protocol="websocket")
                connection.read_until(lambda: connection.streams[stream].heads)
                connection.send(DataFrame(stream, flags=["END_STREAM"]))
                wait_for(lambda: active() == 1, "the tunnel")
                connection.read_what_is_there()
        else:
            with server.connect() as connection:
                connection.send_request("GET", "/", UPGRADE)
                assert connection.stream()[0].status == 101
                wait_for(lambda: active() == 1, "the tunnel")
        wait_for(lambda: active() == 0, "the end of the tunnel")
        ended.set()


def test_a_server_that_ends_its_websocket_leaves_no_count_behind(run):
    """The client does not notice that, as one that hangs."""

    def leave(visit) -> None:
        if visit.head():
            visit.send(SWITCHED + b"last")

    with Upstream(leave) as upstream:
        listeners = {"127.0.0.1:{port}": {"pass": "routes", "http2": True}}
        server = run({"listeners": listeners, "routes": [{"action": {"proxy": upstream.url}}]})
        active = lambda: json.loads(server.api("GET", "/status/connections/active").text)
        with server.connect() as one, Http2Connection((server.host, server.port)) as other:
            one.send_request("GET", "/", UPGRADE)
            assert one.stream()[0].status == 101
            stream = other.begin("CONNECT", "/", VERSION, ends=False, protocol="websocket")
            other.read_until(lambda: other.streams[stream].heads)
            assert active() == 2
            wait_for(lambda: active() == 0, "the end of the tunnels")


# Requests with heads of 60 KB, in a pipeline that never ends.
LARGE_HEADS = """
import socket, sys, threading
requests = b"GET /" + b"%61" * 20000 + b" HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n"
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as client:
    def read():
        while client.recv(1 << 16):
            pass
    threading.Thread(target=read, daemon=True).start()
    print("begins", flush=True)
    while True:
        client.sendall(requests)
"""


@pytest.mark.load
def test_pipelines_of_large_heads_do_not_stop_others(run):
    routes = [{"match": {"uri": "/other"}, "action": {"return": 200}}, {"action": {"return": 404}}]
    server = run({"routes": routes, "settings": {"listen_threads": 1}})
    command = [sys.executable, "-c", LARGE_HEADS, str(server.port)]
    floods = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
    try:
        for flood in floods:
            flood.stdout.readline()
        longest = longest_wait(server, "/other", seconds=2.5)
    finally:
        for flood in floods:
            flood.kill()
            flood.communicate()
    assert longest < 0.6, longest


@pytest.mark.load
@pytest.mark.parametrize("piece", [frame(body=b"x", stream=1), frame(stream=5)], ids=["short", "ping"])
def test_workers_of_roadrunner_that_write_without_a_pause_do_not_stop_others(folder, run, piece):
    routes = [
        {"match": {"uri": "/other"}, "action": {"return": 200}},
        {"action": {"pass": "applications/hostile"}},
    ]
    hostile = hostile_application(folder, processes=4)
    server = run({"applications": {"hostile": hostile}, "routes": routes, "settings": {"listen_threads": 1}})
    connections = [server.connect() for _ in range(4)]
    for connection in connections:
        connection.send_request("POST", "/flood", (), piece)
    for connection in connections:
        assert connection.socket.recv(12) == b"HTTP/1.1 200"
        # Then nothing but other tasks makes the flood wait.
        connection.socket.close()
    longest = longest_wait(server, "/other", seconds=2.5)
    assert longest < 1, longest


def test_an_upstream_with_endless_interim_responses_does_not_stop_others(run, application):
    interim = b"HTTP/1.1 103 Early Hints\r\n\r\n" * 10_000

    def flood() -> None:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                while True:
                    connection.sendall(interim)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=flood, daemon=True).start()
        routes = [
            {"match": {"uri": "/flood"}, "action": {"proxy": f"http://127.0.0.1:{listener.getsockname()[1]}"}},
            {"action": {"pass": "applications/app"}},
        ]
        server = run({"applications": {"app": application}, "routes": routes, "settings": {"listen_threads": 1}})
        assert server.get("/flood").status == 502
        server.wait_for_log_line("interim responses are too long")
        assert server.get("/").text == "here"


# Each wrong header would be a line in the log, which has the path.
@pytest.mark.load
@pytest.mark.parametrize("header, path", [("", "/hints.php"), ("header('a b: c');", "/hints.php/" + "\\" * 30_000)], ids=["none", "wrong"])
def test_a_script_with_endless_interim_responses_does_not_stop_others(folder, run, application, header, path):
    script = f"header_remove(); ini_set('default_mimetype', ''); {header} $end = microtime(true) + 3; while (microtime(true) < $end) headers_send(103);"
    folder.php("hints.php", script)
    other = {"match": {"uri": "/other"}, "action": {"return": 200}}
    routes = [other, {"action": {"pass": "applications/app"}}]
    server = run({"applications": {"app": application}, "routes": routes, "settings": {"listen_threads": 1}})
    with server.connect() as first, server.connect() as second:
        for connection in (first, second):
            connection.send_request("GET", path, ())
        longest = longest_wait(server, "/other", seconds=2.5)
    assert longest < 1, longest


def assert_requests_that_wait_cost_little(server, target: str, requests: int) -> None:
    """Sends requests that get no answer, and looks at the processor time of the router, and at other requests."""
    router = server.router()
    with contextlib.ExitStack() as clients:
        for _ in range(requests):
            clients.enter_context(server.connect()).send_request("GET", target)
        time.sleep(0.5)
        before, longest, until = cpu_seconds(router.pid), 0.0, time.monotonic() + 3
        while time.monotonic() < until:
            began = time.monotonic()
            assert server.get("/other").status == 200
            longest = max(longest, time.monotonic() - began)
            time.sleep(0.02)
        used = cpu_seconds(router.pid) - before
    assert used < 1.5 and longest < 1, (used, longest)


@pytest.mark.load
def test_requests_for_a_socket_that_accepts_nothing_do_not_stop_others(run, socket_path):
    """Each tried to connect 200 times a second, without a limit for all."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(socket_path))
        socket_path.chmod(0o777)
        listener.listen(1)
        routes = [
            {"match": {"uri": "/other"}, "action": {"return": 200}},
            {"action": {"proxy": f"http://unix:{socket_path}"}},
        ]
        server = run({"routes": routes, "settings": {"listen_threads": 1}})
        assert_requests_that_wait_cost_little(server, "/", 1500)


CLOSES_ITS_SOCKET = r"""<?php
$server = stream_socket_server('unix://' . getenv('HOWDAH_SOCKET'));
while ($client = stream_socket_accept($server, -1)) {
    $line = (string) fgets($client);
    @fwrite($client, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    fclose($client);
    if (str_contains($line, '/close')) { break; }
}
fclose($server);
sleep(1000);
"""


@pytest.mark.load
def test_requests_for_a_process_that_accepts_nothing_do_not_stop_others(run, folder):
    """It lives, and has closed its socket. Each request tried to connect a hundred times a second."""
    script = folder.write("closes.php", CLOSES_ITS_SOCKET)
    application = {"type": "http", "command": f"php {script}", "working_directory": str(folder.root), "processes": 1}
    routes = [{"match": {"uri": "/other"}, "action": {"return": 200}}, {"action": {"pass": "applications/app"}}]
    server = run({"applications": {"app": application}, "routes": routes, "settings": {"listen_threads": 1}})
    assert server.get("/close").status == 200
    assert_requests_that_wait_cost_little(server, "/", 1500)


RELAY_FLOOD = """
import os, socket, sys
os.setuid(65534)
address, connections = ("127.0.0.1", int(sys.argv[1])), []
print("begins", flush=True)
while True:
    client = socket.socket()
    client.setblocking(False)
    client.connect_ex(address)
    connections.append(client)
    if len(connections) > 900:
        connections.pop(0).close()
"""


@pytest.mark.load
@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_another_user_does_not_keep_a_worker_from_its_relay(run, folder):
    server = run(configuration(roadrunner_application(folder)))
    waits = folder.scratch / "waits"
    application = roadrunner_application(folder, {"BOOT_WAITS": str(waits)}, relay="tcp")
    with ThreadPoolExecutor() as pool:
        changed = pool.submit(server.api, "PUT", "/config/applications/app", application)
        relay = wait_for(lambda: waits.exists() and waits.read_text(), "the worker")
        command = [sys.executable, "-c", RELAY_FLOOD, relay.rpartition(":")[2]]
        floods = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
        try:
            for flood in floods:
                flood.stdout.readline()
            server.wait_for_log_line("refused a connection of", "user id 65534")
            waits.with_suffix(".end").touch()
            assert changed.result().status == 200, changed.result().text
        finally:
            for flood in floods:
                flood.kill()
                flood.communicate()
    assert server.get("/").json()["relay"] == relay


MAILBOX_FLOOD = r"""
serve(function (Request $request) {
    static $held = [];
    if ($request->path() === '/hold') {
        $held[] = $request;
        return;
    }
    // The bits of all slots in the mailbox of the first thread: see Layout in crates/channel.
    $map = preg_grep('/ rw-s .*memfd:howdah-channel/', file('/proc/self/maps'));
    $bits = hexdec(strtok(reset($map), '-')) + 128 + 128 + 1024 * 128 + 128;
    $c = FFI::cdef('int fork(void); void *memset(void *, int, size_t); int getppid(void);');
    $parent = getmypid();
    if ($c->fork() === 0) {
        while ($c->getppid() === $parent) { $c->memset(FFI::cast('char *', $bits), 255, 16384 / 8); }
        posix_kill(getmypid(), 9);
    }
    text($request, 'begins');
});
"""


@pytest.mark.load
def test_a_worker_that_fills_its_mailbox_does_not_stop_others(run, folder):
    folder.php("server.php", LOOP + MAILBOX_FLOOD)
    application = {
        "type": "php",
        "root": str(folder.root),
        "processes": {"max": 16, "spare": 1},
        "worker": {"script": "server.php", "concurrency": 1000},
        "options": {"admin": {"ffi.enable": "1"}},
    }
    routes = [{"match": {"uri": "/other"}, "action": {"return": 200}}, {"action": {"pass": "applications/app"}}]
    server = run({"applications": {"app": application}, "routes": routes, "settings": {"listen_threads": 1}})
    with contextlib.ExitStack() as clients:
        for _ in range(900):
            clients.enter_context(server.connect()).send_request("GET", "/hold")
        wait_for(lambda: server.api("GET", "/status/applications/app/requests/active").json() == 900, "the requests")
    # Their clients have left, and their slots are watched until the worker has finished them.
    router = server.router()
    flood = server.get("/flood")
    if flood.status != 200:
        pytest.skip("this PHP has no FFI")
    assert flood.text == "begins"
    longest, until = 0.0, time.monotonic() + 2
    with server.connect() as other:
        while time.monotonic() < until:
            began = time.monotonic()
            assert other.request("GET", "/other").status == 200
            longest = max(longest, time.monotonic() - began)
    assert longest < 1 and server.router() == router
