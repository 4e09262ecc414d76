"""Servers of upstreams that fail requests or checks, and the state that howdah reports of them."""

import json
import time
from collections import Counter

import pytest

from support.command_line import howdah
from support.http.proxying import upstream_group
from support.http.tls import Authority
from support.http.upstream import Upstream, answers, ok
from support.machine import free_port
from support.waiting import wait_for

QUICK = {"path": "/health", "interval": "100ms", "timeout": "1s"}


class Server(Upstream):
    """Answers its name, and /health with `status`; 0 closes connections without an answer."""

    def __init__(self, name: str, **how):
        self.status = self.health = 200
        super().__init__(answers(self._answer), **how)
        self.name = name.encode()

    def _answer(self, request) -> bytes:
        is_check = request.line.startswith("GET /health")
        status = self.health if is_check else self.status
        if status == 0:
            raise EOFError
        return ok(self.name).replace(b"200 OK", b"%d X" % status)

    @property
    def checks(self) -> list:
        return [request for request in self.requests if request.line.startswith("GET /health")]

    @property
    def visits(self) -> int:
        return len(self.requests) - len(self.checks)


@pytest.fixture
def pair():
    with Server("a") as a, Server("b") as b:
        yield a, b


def group(*servers, **options) -> dict:
    config = upstream_group(*((server, 1) for server in servers))
    config["upstreams"]["u"].update(options)
    return config


def state(server, upstream) -> str:
    return server.api("GET", "/status").json()["upstreams"]["u"]["servers"][getattr(upstream, "address", upstream)]["state"]


def wait_for_state(server, upstream, expected: str) -> None:
    wait_for(lambda: state(server, upstream) == expected)


def answered(server, count: int) -> Counter:
    return Counter(server.get("/").text for _ in range(count))


# --- Failed requests


def test_a_server_is_down_after_as_many_failures_as_configured(run, pair):
    a, b = pair
    server = run(group(a, b, max_fails=3, fail_timeout="60s"))
    a.status = 0
    assert set(answered(server, 20)) == {"b"}, "a GET is sent to the other server"
    assert a.visits == 3
    assert (state(server, a), state(server, b)) == ("down", "up")
    server.wait_for_log_line("WARN a server of an upstream is down; it gets no requests for 60 s", a.address, 'group="u"', "before its response")
    reason = server.api("GET", "/status").json()["upstreams"]["u"]["servers"][a.address]["reason"]
    assert reason.startswith("it closed the connection before its response")
    table = howdah("status", "--control", f"unix:{server.control}").stdout
    assert f"u         {a.address}  down          0\n" in table and f"u: {a.address} is down: it closed" in table


def test_a_server_that_answers_again_is_up(run, pair):
    a, b = pair
    server = run(group(a, b, max_fails=1, fail_timeout="100ms"))
    a.status = 0
    answered(server, 2)
    assert state(server, a) == "down"
    a.status = 500
    wait_for(lambda: "a" in answered(server, 2))
    assert state(server, a) == "up", "any response shows that it works"
    server.wait_for_log_line("INFO a server of an upstream answers again", a.address)


def test_without_the_option_only_connections_count(run, pair):
    a, b = pair
    dead = f"127.0.0.1:{free_port()}"
    server = run(group(a, b, dead))
    a.status = 0
    assert set(answered(server, 20)) == {"b"}
    assert a.visits > 5, "a closed connection does not make it down"
    assert (state(server, a), state(server, dead)) == ("up", "down")


def test_a_server_may_never_be_down(run, pair):
    a, _ = pair
    dead = f"127.0.0.1:{free_port()}"
    server = run(group(a, dead, max_fails=0))
    assert set(answered(server, 10)) == {"a"}
    assert state(server, dead) == "up"


# --- Checks


def test_an_unhealthy_server_gets_no_requests(run, pair):
    a, b = pair
    server = run(group(a, b, health_check={**QUICK, "fails": 2, "passes": 2}))
    wait_for(lambda: a.checks and b.checks)
    assert set(answered(server, 8)) == {"a", "b"}
    a.health = 503
    wait_for_state(server, a, "unhealthy")
    server.wait_for_log_line("WARN a server of an upstream is unhealthy; it gets no requests", a.address, "failed_checks=2", 'group="u"', "it answered 503")
    before = a.visits
    assert answered(server, 8) == {"b": 8}
    assert a.visits == before
    a.health = 204
    wait_for_state(server, a, "up")
    server.wait_for_log_line("INFO a server of an upstream is healthy again", a.address)
    assert set(answered(server, 8)) == {"a", "b"}


def test_a_check_is_a_request_of_its_own(run, pair):
    a, _ = pair
    server = run(group(a, health_check={**QUICK, "path": "/health?deep=1", "host": "shop.example"}))
    wait_for(lambda: len(a.checks) > 2)
    first = a.checks[0]
    assert first.line == "GET /health?deep=1 HTTP/1.1"
    assert (first.header("host"), first.header("connection")) == ("shop.example", "close")
    assert first.header("user-agent").startswith("howdah") and "health check" in first.header("user-agent")
    assert server.get("/").text == "a"


@pytest.mark.parametrize("trouble", ["refused", "silent", "closed"])
def test_a_server_without_a_response_is_unhealthy(run, pair, trouble):
    a, b = pair
    reasons = {"refused": "no connection", "silent": "no response within 0.2 s", "closed": "no valid response"}
    with Upstream(lambda visit: visit.until_closed() if trouble == "silent" else visit.some()) as upstream:
        bad = f"127.0.0.1:{free_port()}" if trouble == "refused" else upstream.address
        server = run(group(b, bad, health_check={**QUICK, "timeout": "200ms", "fails": 1}))
        wait_for_state(server, bad, "unhealthy")
        server.wait_for_log_line("is unhealthy; it gets no requests", bad, "failed_checks=1", reasons[trouble])
        assert answered(server, 4) == {"b": 4}


def test_all_servers_are_tried_if_all_are_unhealthy(run, pair):
    a, b = pair
    a.health = b.health = 500
    server = run(group(a, b, health_check={**QUICK, "fails": 1}))
    wait_for_state(server, a, "unhealthy")
    wait_for_state(server, b, "unhealthy")
    assert set(answered(server, 8)) == {"a", "b"}


def test_checks_use_tls(run, tmp_path):
    context = Authority(tmp_path).server_context("127.0.0.1")
    with Server("a", tls=context) as a, Server("b", tls=context) as b:
        server = run(group(a, b, tls={"verify": False}, health_check=QUICK))
        wait_for(lambda: a.checks and b.checks)
        a.health = 500
        wait_for_state(server, a, "unhealthy")
        assert answered(server, 4) == {"b": 4}


def test_a_change_of_the_configuration_keeps_the_state(run, pair):
    a, b = pair
    server = run(group(a, b, health_check={**QUICK, "fails": 1, "passes": 1000}))
    a.health = 500
    wait_for_state(server, a, "unhealthy")
    a.health = 200
    with Server("c") as c:
        servers = {one.address: {} for one in (a, b, c)}
        assert server.api("PUT", "/config/upstreams/u/servers", json.dumps(servers)).status == 200
        wait_for(lambda: c.checks)
        assert state(server, a) == "unhealthy"
        assert set(answered(server, 8)) == {"b", "c"}
        assert server.api("DELETE", "/config/upstreams/u/health_check").status == 200
        assert state(server, a) == "up", "no check would make it healthy again"
        assert set(answered(server, 9)) == {"a", "b", "c"}


def test_a_removed_check_sends_no_more_requests(run, pair):
    a, b = pair
    server = run(group(a, b, health_check=QUICK))
    wait_for(lambda: a.checks)
    server.api("PUT", f"/config/upstreams/u/servers/{a.address}", '{"weight": 0}')
    assert state(server, a) == "drained"
    count, other = len(a.checks), len(b.checks)
    wait_for(lambda: len(b.checks) > other + 5)
    assert len(a.checks) <= count + 1, "one check may have been under way"


def test_one_thread_checks_a_server(run, pair):
    """With several event loops, there is one check for each interval."""
    a, b = pair
    began = time.monotonic()
    run({**group(a, b, health_check={**QUICK, "interval": "300ms"}), "settings": {"listen_threads": 4}})
    wait_for(lambda: len(a.checks) >= 10 and len(b.checks) >= 10)
    most = (time.monotonic() - began) / 0.27 + 1
    assert len(a.checks) <= most and len(b.checks) <= most
