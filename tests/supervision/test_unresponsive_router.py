"""Unresponsive routers are replaced; the control API waits a limited time and shows the active configuration."""

import re
import signal

import pytest

from support.background import Background
from support.file_systems import dead_file_system
from support.processes import each_new_child
from support.server import Howdah
from support.waiting import wait_for

NO_STATUS = "Failed to get status."


@pytest.fixture
def server(folder, run) -> Howdah:
    folder.php("index.php", "echo getenv('COLOUR') ?: 'none';")
    return run({"applications": {"app": {"type": "php", "root": str(folder.root), "processes": 1}}}, time_divider=4)


COLOUR = "/config/applications/app/environment"


def test_the_status_is_an_error_while_the_router_is_unresponsive(server):
    router = server.router()
    router.kill(signal.SIGSTOP)
    try:
        for path in ("/status", "/"):
            answer = server.api("GET", path)
            assert (answer.status, answer.json()["error"]) == (500, NO_STATUS)
        assert server.api("GET", "/config").status == 200
    finally:
        router.kill(signal.SIGCONT)
    assert server.api("GET", "/status").status == 200


def test_a_router_with_a_hanging_event_loop_is_replaced(folder, run):
    folder.php("index.php", "echo 'here';")
    share = {"routes": [{"match": {"uri": "/dead*"}, "action": {"share": f"{folder.scratch}$uri"}}, {"action": {"pass": "applications/app"}}]}
    server = run({"applications": {"app": {"type": "php", "root": str(folder.root), "processes": 1}}, **share}, time_divider=5)
    router = server.router()
    with dead_file_system(folder.scratch):
        with server.connect() as client:
            client.send_request("GET", "/dead/file")
            wait_for(lambda: server.api("GET", "/status").status == 500, "that one of its threads is missed")
        wait_for(lambda: re.search(r"has not answered for \d+ s; it is killed", server.stderr), "its end", 90)
        wait_for(lambda: server.router() not in (None, router), "another one")
        assert server.get("/").text == "here" and server.api("GET", "/status").status == 200


def test_a_router_that_does_not_apply_a_configuration_is_replaced(server):
    assert server.get("/").text == "none"
    router = server.router()
    router.kill(signal.SIGSTOP)
    change = Background(server.api, "PUT", COLOUR, {"COLOUR": "red"})
    wait_for(lambda: len(server.titled('howdah: "app" prototype')) == 2, "the new generation")
    wait_for(lambda: len(server.titled('howdah: "app" worker')) == 2, "its worker")
    assert "COLOUR" not in server.api("GET", "/config").text, "it is not active yet"
    assert change.result().status == 200
    assert server.router() != router
    assert server.get("/").text == "red" and server.api("GET", COLOUR).json() == {"COLOUR": "red"}
    server.workers(count=1)
    assert server.api("PUT", COLOUR, {"COLOUR": "blue"}).status == 200 and server.get("/").text == "blue"


def test_a_change_that_no_router_applies_fails(folder, run):
    folder.php("index.php", "echo getenv('COLOUR') ?: 'none';")
    # A router needs some time to read these, so that each new one is stopped before it has taken over.
    routes = [{"match": {"uri": f"/{number}/*"}, "action": {"return": 204}} for number in range(10_000)]
    server = run(
        {
            "routes": [*routes, {"action": {"pass": "applications/app"}}],
            "applications": {"app": {"type": "php", "root": str(folder.root), "processes": 1}},
        },
        time_divider=4,
    )
    before = server.api("GET", "/config")
    server.router().kill(signal.SIGSTOP)
    with each_new_child(server.pid, "howdah: router", signal.SIGSTOP):
        answer = server.api("PUT", COLOUR, {"COLOUR": "red"})
    for router in server.titled("howdah: router"):
        router.kill(signal.SIGCONT)
    assert answer.status == 500 and "no router applied the configuration" in answer.json()["detail"], answer
    after = server.api("GET", "/config")
    assert (after.text, after.header("ETag")) == (before.text, before.header("ETag"))
    assert "COLOUR" not in (server.directory / "state" / "conf.json").read_text()
    assert server.get("/").text == "none"
    server.workers(count=1)
    assert server.api("PUT", COLOUR, {"COLOUR": "blue"}).status == 200 and server.get("/").text == "blue"
