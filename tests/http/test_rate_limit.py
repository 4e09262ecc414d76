"""`rate_limit` of an action: requests by client address."""


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
