"""Details of NGINX Unit that scripts may rely on: responses of `return`, the form of /status, odd values."""

import os

import pytest

from support.machine import free_port, needs_root
from support.server import Howdah, stop_all


@pytest.fixture(scope="module")
def server():
    server = Howdah.run({"routes": [{"action": {"return": 204}}]})
    yield server
    stop_all([server])


def routed(server: Howdah, action: dict, **match):
    assert server.api("PUT", "/config/routes", [{"match": match, "action": action}]).status == 200
    return server.get("/")


@pytest.mark.parametrize("status, has_page", [(200, False), (299, False), (302, False), (404, True), (599, True), (601, False)])
def test_only_error_statuses_have_a_body(server, status, has_page):
    response = routed(server, {"return": status})
    assert response.status == status and "<none>" not in response.reason + response.text
    assert bool(response.body) == has_page
    assert response.header("Content-Length") == str(len(response.body))


@pytest.mark.parametrize("location, sent", [("/a%20b", "/a%20b"), ("%20 ", "%2520%20"), ("???", "?%3F%3F"), ("/\n|", "/%0A%7C")])
def test_a_location_is_percent_encoded(server, location, sent):
    assert routed(server, {"return": 301, "location": location}).header("Location") == sent


def test_an_empty_location_is_sent(server):
    assert routed(server, {"return": 301, "location": ""}).header("Location") == ""


@pytest.mark.parametrize(
    "match, met",
    [
        ({"uri": []}, True),
        ({"uri": "!"}, True),
        ({"uri": "~^/[]*+]?$"}, True),
        ({"arguments": {}}, True),
        ({"arguments": []}, True),
        ({"cookies": []}, True),
        ({"headers": {"host": []}}, True),
        ({"headers": {"blah": []}}, False),
        ({"source": []}, False),
        ({"destination": []}, False),
    ],
)
def test_a_condition_without_patterns_matches_except_for_addresses(server, match, met):
    assert routed(server, {"return": 218}, **match).status == (218 if met else 404)


def test_a_whole_number_with_a_decimal_point_is_accepted(server):
    for number in ("2.0", "2e0"):
        assert server.api("PUT", "/config/settings", '{"http": {"max_body_size": %s}}' % number).status == 200
    assert server.api("PUT", "/config/settings", {}).status == 200


def test_the_status_has_the_members_of_unit_in_order(server):
    status = server.api("GET", "/status").json()
    assert list(status) == ["modules", "connections", "requests", "applications", "draining", "upstreams"], "the last two members are howdah's own"
    assert list(status["connections"]) == ["accepted", "active", "idle", "closed"]
    php = status["modules"]["php"]
    for module in php if isinstance(php, list) else [php]:
        assert module["version"].startswith("8.") and os.access(module["lib"], os.X_OK)


def test_a_conflict_between_listeners_names_both(server):
    port = free_port()
    assert server.api("PUT", f"/config/listeners/127.0.0.1:{port}", {"pass": "routes"}).status == 200
    answer = server.api("PUT", f"/config/listeners/*:{port}", {"pass": "routes"})
    assert answer.status == 500
    assert f"howdah itself listens on 127.0.0.1:{port}; make two changes" in answer.json()["detail"]


def test_an_unusable_body_folder_is_rejected(server, tmp_path):
    file = tmp_path / "file"
    file.touch()
    for folder in (tmp_path / "none", file):
        answer = server.api("PUT", "/config/settings", {"http": {"body_temp_path": str(folder)}})
        assert answer.status == 500 and "settings/http/body_temp_path: " in answer.json()["detail"]
    assert "body_temp_path" not in server.api("GET", "/config").text


@needs_root
def test_an_unwritable_body_folder_is_rejected(server, tmp_path):
    answer = server.api("PUT", "/config/settings", {"http": {"body_temp_path": str(tmp_path)}})
    assert answer.status == 500 and "let the router's user write there" in answer.json()["detail"]
    assert "body_temp_path" not in server.api("GET", "/config").text
    assert server.api("PUT", "/config/settings", {}).status == 200
