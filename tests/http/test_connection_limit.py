"""`connection_limit` of an action: requests of a client that are answered at the same time."""

from concurrent.futures import ThreadPoolExecutor

from support.http.upstream import Upstream
from support.waiting import wait_for


ASK = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
GRANT = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)


def test_a_client_has_some_requests_at_a_time(folder, run):
    folder.php("index.php", "touch(SCRATCH . '/' . $_GET['n']); await(SCRATCH . '/go'); echo 'done';")
    trusted = {"source": "127.0.0.1", "client_ip": "X-Forwarded-For"}
    server = run(
        {
            "listeners": {"127.0.0.1:{port}": {"pass": "routes", "forwarded": trusted}},
            "routes": [
                {"match": {"uri": "/free"}, "action": {"return": 204}},
                {"action": {"pass": "applications/app", "connection_limit": 2}},
            ],
            "applications": {"app": {"type": "php", "root": str(folder.root), "script": "index.php", "processes": 4}},
        }
    )

    def get(target: str, client: str):
        return server.get(target, {"X-Forwarded-For": client})

    with ThreadPoolExecutor(3) as pool:
        try:
            running = [pool.submit(get, f"/?n={n}", "192.0.2.1") for n in (1, 2)]
            wait_for(lambda: all((folder.scratch / str(n)).exists() for n in (1, 2)))
            for _ in range(3):
                refused = get("/?n=3", "192.0.2.1")
                assert (refused.status, refused.header("Retry-After")) == (429, "1")
            assert get("/free", "192.0.2.1").status == 204
            running.append(pool.submit(get, "/?n=4", "192.0.2.2"))
            wait_for(lambda: (folder.scratch / "4").exists())
        finally:
            (folder.scratch / "go").touch()
        assert [answer.result().text for answer in running] == ["done"] * 3
    assert server.stderr.count('exceeds "connection_limit"') == 1, "one line for a client"
    # The count falls with the end of the response, which the client may see before howdah does.
    wait_for(lambda: get("/?n=5", "192.0.2.1").text == "done")


def test_a_websocket_counts_to_its_end(run):
    def handle(visit):
        if visit.head():
            visit.send(GRANT)
            visit.some()

    upstream = Upstream(handle)
    server = run({"routes": [{"action": {"proxy": upstream.url, "connection_limit": 1}}]})
    try:
        with server.connect() as connection:
            connection.send_request("GET", "/", ASK)
            assert connection.stream()[0].status == 101
            assert server.get("/").status == 429
        # Its end is noticed a moment later. The upstream answers nothing else than WebSockets.
        wait_for(lambda: server.get("/").status != 429)
    finally:
        upstream.stop()


def test_a_client_that_leaves_counts_no_more(folder, run):
    folder.php("index.php", "touch(SCRATCH . '/began'); await(SCRATCH . '/go'); echo 'done';")
    server = run(
        {
            "routes": [{"action": {"pass": "applications/app", "connection_limit": 1}}],
            "applications": {"app": {"type": "php", "root": str(folder.root), "script": "index.php", "processes": 2}},
        }
    )
    with server.connect() as connection:
        connection.send_request("GET", "/")
        wait_for(lambda: (folder.scratch / "began").exists())
        assert server.get("/").status == 429
    (folder.scratch / "go").touch()
    wait_for(lambda: server.get("/").status == 200)
