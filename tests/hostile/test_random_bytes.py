"""Random requests, responses of upstreams, and headers of scripts: none meets a bug of howdah, and none fills the log.

    HOWDAH_TEST_SEED=7 tests/run tests/hostile/test_random_bytes.py         # other bytes than usual
"""

import contextlib
import json
import os
import random
import socket
import time

import pytest

from support.http.upstream import Handler, Upstream, Visit
from support.waiting import wait_for

METHODS = [b"GET", b"POST", b"HEAD", b"OPTIONS", b"PUT", b"DELETE", b"PATCH", b"PROPFIND", b"TRACE", b"CONNECT", b"get", b"G\x00T", b""]
TARGETS = [
    b"/", b"/file.txt", b"/missing.php", b"/index.php/a/b?c=d&e[]=f", b"/%00", b"/%", b"/%zz", b"/a/../../b", b"//", b"/..%2f..%2f",
    b"*", b"http://other/x", b"/\xff\xfe", b"/" + b"a" * 5000, b"/?" + b"q=1&" * 3000, b"/folder", b"/proxy", b"/echo.php",
]  # fmt: skip
VALUES = [
    b"", b"1", b"-1", b"18446744073709551616", b"bytes=0-0,1-1,-1", b"bytes=" + b"0-0," * 2000, b"bytes=5-2", b"bytes=-99999999999999999999",
    b"chunked", b"chunked, chunked", b"gzip;q=0.0001, br;q=9, *;q=x", b"gzip," * 3000, b"close", b"upgrade", b"100-continue", b"\xff\xfe",
    b"Basic " + b"A" * 4000, b"Basic \xff", b"W/\"x\"," * 2000, b"Thu, 99 Foo 9999 99:99:99 GMT", b"for=\"[::1]:x\";by=_", b"1.2.3.4, ::1, x",
    b"a=b; c; =; " * 1000, b"websocket", b"\"", b"identity;q=0", b"trailers", b"x\ty",
]  # fmt: skip
NAMES = [
    b"Host", b"Range", b"If-Range", b"If-None-Match", b"If-Modified-Since", b"Accept-Encoding", b"Content-Length", b"Transfer-Encoding",
    b"Connection", b"Upgrade", b"Expect", b"Cookie", b"Authorization", b"X-Forwarded-For", b"Forwarded", b"TE", b"Trailer", b"X-A", b"X_A",
    b"Content-Type", b"Proxy", b"Keep-Alive", b"Date", b"", b"A b", b"\x00",
]  # fmt: skip
SCRIPT = """mt_srand((int) ($_SERVER['HTTP_X_SEED'] ?? 1));
$bytes = fn(int $length): string => implode(array_map(fn() => chr(mt_rand(0, 255)), range(1, $length)));
$names = ['Content-Length', 'Content-Type', 'ETag', 'Location', 'Status', 'Transfer-Encoding', 'Connection', 'X-Accel-Redirect',
    'X-Sendfile', 'Content-Encoding', 'Set-Cookie', 'Date', 'Trailer'];
for ($n = mt_rand(0, 60); $n > 0; $n--) {
    $name = mt_rand(0, 3) ? $names[mt_rand(0, 12)] : $bytes(4);
    @header($name . ': ' . (mt_rand(0, 1) ? $bytes(20) : mt_rand(-1, 999999)), (bool) mt_rand(0, 1));
}
@http_response_code(mt_rand(0, 5) ? mt_rand(100, 999) : 200);
echo str_repeat('x', mt_rand(0, 3) ? mt_rand(0, 300) : 200000);"""


def random_request(draw: random.Random) -> bytes:
    head = b" ".join([draw.choice(METHODS), draw.choice(TARGETS), draw.choice([b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"x"])])
    fields = [(b"Host", b"localhost")] if draw.random() < 0.9 else []
    fields += [(draw.choice(NAMES), draw.choice(VALUES)) for _ in range(draw.choice([0, 1, 2, 3, 5, 80, 400]))]
    fields.append((b"X-Seed", b"%d" % draw.randrange(1 << 30)))
    request = head + b"\r\n" + b"".join(name + b": " + value + b"\r\n" for name, value in fields) + b"\r\n"
    request += draw.choice([b"", b"", b"5\r\nhello\r\n0\r\n\r\n", b"x" * draw.randrange(3000), b"ffffffffffffffffff\r\n"])
    if draw.random() < 0.2:
        position = draw.randrange(len(request))
        request = request[:position] + bytes([draw.randrange(256)]) + request[position + 1 :]
    if draw.random() < 0.1:
        request = request[: draw.randrange(len(request))]
    return request


def random_response(draw: random.Random) -> bytes:
    status = draw.choice([b"200 OK", b"100 Continue", b"101 x", b"204 x", b"304 x", b"999 x", b"099", b"abc", b"200", b"1xx"])
    count = draw.choice([0, 1, 3, 20, 200, 3000, 40_000])
    names = [b"A%d" % n for n in range(count)] if draw.random() < 0.5 else [b"A"] * count
    fields = [(name, b"v") for name in names] + [(draw.choice(NAMES), draw.choice(VALUES)) for _ in range(draw.choice([0, 1, 4]))]
    response = b"HTTP/1.1 " + status + b"\r\n" + b"".join(name + b": " + value + b"\r\n" for name, value in fields) + b"\r\n"
    response += draw.choice([b"", b"5\r\nhello\r\n0\r\n\r\n", b"x" * 1000, b"0\r\n" + b"T: v\r\n" * 30_000 + b"\r\n"])
    if draw.random() < 0.3:
        position = draw.randrange(len(response))
        response = response[:position] + bytes([draw.randrange(256)]) + response[position + 1 :]
    return response * draw.choice([1, 1, 2])


def random_answers(draw: random.Random) -> Handler:
    """Answers the first bytes of each connection with random bytes, and closes it."""

    def answer(visit: Visit) -> None:
        visit.some()
        visit.send(random_response(draw))

    return answer


def send(port: int, request: bytes) -> bytes:
    """The beginning of the answer, or nothing, which is no error here."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as client:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        client.settimeout(0.3)
        return client.recv(1 << 16)
    return b""


# A program of an HTTP application: answers each connection with the next of the responses in a file.
MANAGED = """import itertools, json, os, socket, sys
responses = itertools.cycle(bytes.fromhex(text) for text in json.load(open(sys.argv[1])))
listener = socket.socket(socket.AF_UNIX)
listener.bind(os.environ["HOWDAH_SOCKET"])
listener.listen(100)
while True:
    client, _ = listener.accept()
    try:
        if client.recv(65536):
            client.sendall(next(responses))
    except OSError:
        pass
    client.close()
"""


def managed(folder, seed: int) -> dict:
    """An HTTP application that answers with random bytes."""
    draw = random.Random(seed)
    folder.write("responses.json", json.dumps([random_response(draw).hex() for _ in range(50)]))
    command = ["/usr/bin/python3", str(folder.write("managed.py", MANAGED)), str(folder.root / "responses.json")]
    return {"type": "http", "command": command}


@pytest.mark.parametrize("target", [None, b"/proxy", b"/managed", b"/random.php"])
def test_random_bytes_meet_no_bug_and_write_few_lines(application, folder, run, target):
    seed = int(os.environ.get("HOWDAH_TEST_SEED", "1"))
    draw = random.Random(seed)
    folder.write("file.txt", "content" * 100)
    folder.write("folder/index.html", "index")
    folder.php("echo.php", "echo file_get_contents('php://input'), json_encode($_SERVER, JSON_PARTIAL_OUTPUT_ON_ERROR);")
    folder.php("random.php", SCRIPT)
    with Upstream(random_answers(random.Random(seed))) as upstream:
        routes = [
            {"match": {"uri": "/proxy"}, "action": {"proxy": upstream.url}},
            {"match": {"uri": "/managed"}, "action": {"pass": "applications/managed"}},
            {"match": {"uri": "*.php*"}, "action": {"pass": "applications/app"}},
            {"action": {"share": f"{folder.root}$uri", "fallback": {"pass": "applications/app"}}},
        ]
        forwarded = {"client_ip": "X-Forwarded-For", "source": ["127.0.0.1"], "recursive": True}
        settings = {"http": {"compression": {"compressors": [{"encoding": "gzip", "min_length": 1}]}}}
        config = {
            "listeners": {"127.0.0.1:{port}": {"pass": "routes", "forwarded": forwarded}},
            "applications": {"app": {**application, "send_file": {"/": str(folder.root)}}, "managed": managed(folder, seed)},
            "routes": routes,
            "access_log": {"path": str(folder.scratch / "access.log"), "format": "$remote_addr $request_line $status $header_x_a $arg_c $cookie_a"},
            "settings": settings,
        }
        server = run(config)
        router = server.router()
        began = time.monotonic()
        for _ in range(400):
            request = random_request(draw)
            if target:
                method, _, rest = request.partition(b" ")
                request = b"GET " + target + b" " + rest.partition(b" ")[2]
            send(server.port, request)
        windows = 1 + int((time.monotonic() - began) / 10)
        assert server.get("/file.txt").text == "content" * 100, seed
        assert server.router() == router, (seed, server.stderr[-2000:])
        assert "panicked" not in server.stderr and "a bug of howdah" not in server.stderr, (seed, server.stderr[-2000:])
        # 20 lines of each kind in ten seconds; a kind has a line for each client of some hundred.
        assert len(server.stderr.splitlines()) < 300 + 100 * windows, (seed, len(server.stderr.splitlines()))
        status = wait_for(lambda: active(server) == 0 and server.api("GET", "/status").json(), "all requests to end")
        assert status["connections"]["active"] <= 1, (seed, status)


def active(server) -> int:
    return server.api("GET", "/status").json()["applications"]["app"]["requests"]["active"]
