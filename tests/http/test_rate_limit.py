"""`rate_limit` of an action: requests by client address."""

from support.waiting import wait_for


def test_a_client_that_sends_too_many_requests_gets_429(run):
    limit = {"requests": 3, "per": "1h"}
    trusted = {"source": "127.0.0.1", "client_ip": "X-Forwarded-For"}
    server = run(
        {
            "listeners": {"127.0.0.1:{port}": {"pass": "routes", "forwarded": trusted}},
            "routes": [
                {"match": {"uri": "/login"}, "action": {"return": 204, "rate_limit": limit}},
                {"action": {"return": 200}},
            ],
        }
    )

    def statuses(client: str, target: str = "/login") -> list[int]:
        return [server.get(target, {"X-Forwarded-For": client}).status for _ in range(5)]

    assert statuses("192.0.2.1") == [204, 204, 204, 429, 429]
    assert statuses("192.0.2.2") == [204, 204, 204, 429, 429], "each client has its own count"
    assert statuses("192.0.2.1", "/other") == [200] * 5
    refused = server.get("/login", {"X-Forwarded-For": "192.0.2.1"})
    # One request each 20 minutes.
    assert 1190 <= int(refused.header("Retry-After")) <= 1200
    server.wait_for_log_line('WARN a client exceeds "rate_limit"; answering 429', "requests=3", "per=3600", "192.0.2.1")
    # All connections, and so all threads, share the count.
    with server.connect() as connection:
        assert connection.request("GET", "/login", {"X-Forwarded-For": "192.0.2.1"}).status == 429


def test_a_restart_and_a_change_elsewhere_leave_the_counts(run, folder):
    """Once, a neighbour who reloaded an application gave all clients of others new requests."""
    folder.php("index.php", "await(SCRATCH . '/go');")
    limits = {"rate_limit": {"requests": 1, "per": 3600}}
    routes = [
        {"match": {"uri": "/busy"}, "action": {"rewrite": "/", "pass": "applications/app", "connection_limit": 1}},
        {"action": {"return": 200, **limits}},
    ]
    application = {"type": "php", "root": str(folder.root), "index": "index.php", "processes": 2}
    server = run({"applications": {"app": application}, "routes": routes})
    assert [server.get("/login").status for _ in range(2)] == [200, 429]
    with server.connect() as busy:
        busy.send_request("GET", "/busy")
        wait_for(lambda: server.api("GET", "/status/applications/app/requests/active").json() == 1, "the request")
        assert server.api("GET", "/control/applications/app/restart").status == 200
        assert server.get("/busy").status == 429
        (folder.scratch / "go").touch()
        assert busy.response("GET").status == 200
    assert server.api("PUT", "/config/settings/http/server_version", "false").status == 200
    assert server.get("/login").status == 429
    assert server.api("PUT", "/config/routes/1/action/return", "204").status == 200
    assert server.get("/login").status == 204
