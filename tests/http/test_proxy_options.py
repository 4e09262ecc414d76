"""The options of forwarded requests: headers about the client, and timeouts."""

import socket
import time

import pytest

from support.http.proxying import proxy_configuration, upstream_group
from support.http.upstream import Upstream, answers, ok

FORWARDED = ("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto")


def configuration(kind: str, upstream: Upstream, listener: dict = {}, **options) -> dict:
    """An action `proxy`, or an upstream group, with these options."""
    if kind == "proxy":
        config = {**proxy_configuration({"proxy": upstream.url, **options})}
        return {**config, "listeners": {"127.0.0.1:{port}": {"pass": "routes", **listener}}}
    config = upstream_group((upstream, 1))
    config["upstreams"]["u"].update(options)
    return config


@pytest.mark.parametrize("kind", ["proxy", "upstream"])
def test_a_server_gets_headers_about_the_client(run, kind):
    """The client's own are replaced: it may write anything."""
    with Upstream(answers(ok())) as upstream:
        server = run(configuration(kind, upstream, forwarded_headers=True))
        sent = {"Host": "shop.example:81", "X-Forwarded-For": "1.2.3.4", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "x"}
        assert server.get("/", sent).status == 200
        [request] = upstream.requests
        assert [request.all(name) for name in FORWARDED] == [["127.0.0.1"], ["shop.example:81"], ["http"]]


def test_a_chain_of_trusted_proxies_is_kept(run):
    with Upstream(answers(ok())) as upstream:
        trusted = {"source": "127.0.0.1", "client_ip": "X-Forwarded-For", "protocol": "X-Forwarded-Proto"}
        server = run(configuration("proxy", upstream, {"forwarded": trusted}, forwarded_headers=True))
        server.get("/", [("X-Forwarded-For", "192.0.2.1, 10.0.0.2"), ("X-Forwarded-Proto", "https")])
        [request] = upstream.requests
        assert request.all("x-forwarded-for") == ["192.0.2.1, 10.0.0.2, 127.0.0.1"]
        assert request.all("x-forwarded-proto") == ["https"]


def test_without_the_option_headers_pass_unchanged(run):
    with Upstream(answers(ok())) as upstream:
        server = run(configuration("proxy", upstream))
        server.get("/", {"X-Forwarded-For": "1.2.3.4"})
        [request] = upstream.requests
        assert [request.all(name) for name in FORWARDED] == [["1.2.3.4"], [], []]


@pytest.mark.parametrize("kind", ["proxy", "upstream"])
def test_the_timeout_of_a_response_can_be_set(run, kind):
    with Upstream(lambda visit: (visit.request(), visit.until_closed())) as upstream:
        server = run(configuration(kind, upstream, response_timeout="500ms"))
        began = time.monotonic()
        assert server.get("/").status == 504
        assert 0.4 < time.monotonic() - began < 20
        server.wait_for_log_line("cannot forward a request", "no response for 0.5 s")


def test_the_timeout_of_a_body_is_the_same(run):
    def stops(visit):
        visit.request()
        visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
        visit.until_closed()

    with Upstream(stops) as upstream:
        server = run(configuration("proxy", upstream, response_timeout=0.5))
        answer = server.raw(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.endswith(b"\r\n\r\nhello")
        server.wait_for_log_line("an upstream's response broke off", "it sent nothing for 0.5 s")


def test_the_timeout_of_a_connection_can_be_set(run):
    """A server whose backlog is full accepts nothing."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        waiting = []
        try:
            for _ in range(3):
                client = socket.socket()
                client.setblocking(False)
                client.connect_ex(address)
                waiting.append(client)
            action = {"proxy": f"http://127.0.0.1:{address[1]}", "connect_timeout": "300ms"}
            server = run(proxy_configuration(action))
            assert server.get("/").status == 504
            server.wait_for_log_line("cannot forward a request", "no connection within 0.3 s")
        finally:
            for client in waiting:
                client.close()
