"""A bug of howdah itself: a panic costs one request, and leaves no count behind. Builds with assertions panic on request."""

import json

import pytest

from support.http.client import ClosedWithoutResponse, ProtocolError
from support.http.upstream import Upstream, answers, ok
from support.server import Howdah
from support.waiting import wait_for


@pytest.fixture
def start(folder, run):
    folder.php("index.php", "echo 'here';")
    started = []

    def start(point: str, application: dict | None = None, path: str = "/panic"):
        config = {
            "applications": {"app": application or {"type": "php", "root": str(folder.root), "processes": 2}},
            "access_log": {"path": str(folder.scratch / "access.log"), "format": "$request_line $status"},
        }
        server = run(config, environ={"HOWDAH_TEST_FAULT": f"{point}={path}"})
        # The panics are expected here, and nowhere else.
        started.append(server)
        return server

    yield start
    for server in started:
        if not server.ended:
            server.send_signal(15)
            assert server.exit_code() == 0


def skip_without_assertions(server, response) -> None:
    if response is not None and response.status == 404:
        pytest.skip("this build has no assertions")


def test_the_line_about_a_panic_of_an_event_loop_reaches_a_pipe(application, anonymous_pipe):
    """In Docker and under `| tee`. The router aborts at once."""
    redirected = ["sh", "-c", 'exec "$@" 2>"$0"', str(anonymous_pipe.path)]
    anonymous_pipe.read()
    server = Howdah.run({"applications": {"app": application}}, environ={"HOWDAH_TEST_FAULT": "sweep=sweep 12"}, prefix=redirected)
    try:
        router = server.router()
        try:
            wait_for(lambda: not router.alive(), "the panic", 10)
        except AssertionError:
            pytest.skip("this build has no assertions")
        wait_for(lambda: "another one is started" in anonymous_pipe.text, "the line of the supervisor")
        text = anonymous_pipe.text
        assert text.index("howdah panicked at") < text.index("an event loop panicked") < text.index("another one is started")
    finally:
        # The panics are expected here.
        server.kill()


def counts(server) -> dict:
    status = server.api("GET", "/status").json()
    return {**status["connections"], "active_requests": status["applications"]["app"]["requests"]["active"]}


def test_a_panic_in_one_request_is_answered_500(folder, start):
    server = start("answer")
    router = server.router()
    with server.connect() as connection:
        assert connection.request("GET", "/").text == "here"
        response = connection.request("GET", "/panic?secret")
        skip_without_assertions(server, response)
        assert (response.status, response.header("Connection")) == (500, "close")
    line = wait_for(lambda: [line for line in server.stderr.splitlines() if "a bug of howdah" in line], "the line")[0]
    assert "/panic" in line and "secret" not in line and "ERROR" in line
    assert "howdah panicked at crates/router" in server.stderr
    log = folder.scratch / "access.log"
    wait_for(lambda: "GET /panic?secret HTTP/1.1 500" in log.read_text(), "the line of the access log")
    assert server.get("/").text == "here" and server.router() == router


def test_a_panic_behind_the_beginning_of_an_answer_ends_the_answer(folder, start):
    """The task of an exchange with a FastCGI server is not the one of the client."""
    folder.php("index.php", "echo 'here'; ob_end_flush(); flush(); sleep(1); echo ' and there';")
    behind = {"type": "php", "root": str(folder.root), "processes": 1}
    listener = {"pass": "applications/behind", "protocol": "fastcgi"}
    with Howdah.run({"applications": {"behind": behind}, "listeners": {"127.0.0.1:{port}": listener}}) as inner:
        application = {"type": "fastcgi", "address": f"127.0.0.1:{inner.port}", "root": str(folder.root)}
        server = start("exchange", application, "/begun")
        for _ in range(3):
            try:
                response = server.get("/")
            except (ClosedWithoutResponse, ProtocolError):
                continue
            if response.text == "here and there":
                pytest.skip("this build has no assertions")
            assert response.status >= 500
        wait_for(lambda: counts(server)["active"] == 0, "the end of the connections")
        assert counts(server)["active_requests"] == 0
        assert "howdah panicked at crates/router" in server.stderr


def test_a_panic_in_a_health_check_ends_no_event_loop(folder, run):
    folder.php("index.php", "echo 'here';")
    with Upstream(answers(lambda _: ok(b"upstream"))) as upstream:
        check = {"path": "/panic", "interval": "100ms"}
        server = run(
            {
                "applications": {"app": {"type": "php", "root": str(folder.root), "processes": 1}},
                "upstreams": {"u": {"servers": {upstream.address: {}}, "health_check": check}},
                "routes": [{"match": {"uri": "/up"}, "action": {"pass": "upstreams/u"}}, {"action": {"pass": "applications/app"}}],
            },
            environ={"HOWDAH_TEST_FAULT": "check=/panic"},
        )
        router = server.router()
        if wait_for(lambda: upstream.requests or "howdah panicked at" in server.stderr, "a check") is upstream.requests:
            pytest.skip("this build has no assertions")
        wait_for(lambda: server.stderr.count("howdah panicked at") > 1, "another one")
        assert server.get("/up").text == "upstream" and server.get("/").text == "here"
        assert server.router() == router
        # The panics are expected here.
        server.send_signal(15)
        assert server.exit_code() == 0


@pytest.mark.parametrize("point", ["answer", "connection"])
def test_panics_leave_no_count_behind(start, point):
    server = start(point)
    with server.connect() as kept:
        assert kept.request("GET", "/").text == "here"
        for _ in range(30):
            try:
                response = server.get("/panic")
            except (ClosedWithoutResponse, ConnectionResetError):
                response = None
            skip_without_assertions(server, response)
            assert (response is None) == (point == "connection")
        assert kept.request("GET", "/").text == "here"
        # One connection is open.
        expected = {"accepted": 31, "closed": 30}
        wait_for(lambda: expected.items() <= counts(server).items(), json.dumps(counts(server)))
        assert (counts(server)["active"], counts(server)["active_requests"]) == (0, 0)
