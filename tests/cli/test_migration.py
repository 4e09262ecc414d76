"""The configurations of docs/migration.md are complete and valid, and serve an application of their kind.

The commands of the page run in test_documented_commands.py."""

import json
import re

import pytest

from support.command_line import howdah
from support.http_applications import http_application
from support.roadrunner_applications import roadrunner_application
from support.server import REPOSITORY
from support.waiting import wait_for

PAGE = (REPOSITORY / "docs/migration.md").read_text()
CONFIGURATIONS = re.findall(r"```json\n(.*?)```", PAGE, re.S)


def test_the_page_has_a_configuration_for_each_kind_of_server():
    kinds = [next(iter(json.loads(text)["applications"].values()))["type"] for text in CONFIGURATIONS]
    assert kinds == ["php", "php", "roadrunner", "http"]


@pytest.mark.parametrize("text", CONFIGURATIONS)
def test_a_configuration_is_valid(text):
    done = howdah("config", "check", "-", stdin=text)
    assert done.returncode == 0, done.stderr


def replaced(value, folder, log):
    """A value of a configuration with the folders of this test, and a port of its own."""
    if isinstance(value, dict):
        return {name.replace("*:8080", "127.0.0.1:{port}"): replaced(member, folder, log) for name, member in value.items()}
    if isinstance(value, list):
        return [replaced(member, folder, log) for member in value]
    if isinstance(value, str):
        return re.sub(r"^/srv/(shop|chat)", str(folder.root), value).replace("/var/log/howdah", str(log))
    return value


@pytest.fixture
def serve_section(run, folder):
    """Starts a server with the configuration of this place on the page."""

    def start(index: int):
        folder.write("public/file.txt", "a file")
        server = run(replaced(json.loads(CONFIGURATIONS[index]), folder, folder.scratch))
        assert server.get("/file.txt").text == "a file", "files need no PHP"
        return server

    return start


def test_an_application_of_fpm_moves(serve_section, folder):
    folder.php("public/index.php", "echo json_encode([getenv('APP_ENV'), ini_get('memory_limit'), date_default_timezone_get()]);")
    server = serve_section(0)
    assert server.get("/some/page").json() == ["production", "256M", "Europe/Berlin"]
    wait_for(lambda: "/some/page" in (folder.scratch / "access.log").read_text(), "a line of the access log")


def test_a_worker_of_frankenphp_moves(serve_section, folder):
    folder.php("public/index.php", "$left = (int) ($_SERVER['FRANKENPHP_LOOP_MAX'] ?? 0); $boot = microtime(true); do {"
               "$running = frankenphp_handle_request(function () use ($left, $boot): void {"
               "echo json_encode([$_SERVER['FRANKENPHP_WORKER'], $left, $boot, $_SERVER['REQUEST_URI']]); });"
               "} while ($running && --$left);")  # fmt: skip
    server = serve_section(1)
    first, second = server.get("/a").json(), server.get("/b.php").json()
    assert (first[0], first[3], second[3]) == ("1", "/a", "/b.php") and first[1] > 400, "it has counted its requests"


def test_a_worker_of_roadrunner_moves(serve_section, folder):
    roadrunner_application(folder)
    server = serve_section(2)
    assert server.get("/context?a=b").json()["context"]["rawQuery"] == "a=b"
    assert server.api("GET", "/status/applications/shop").json()["processes"]["running"] == 8


def test_an_http_server_in_php_moves(serve_section, folder):
    http_application(folder)
    server = serve_section(3)
    pids = {server.get("/").json()["pid"] for _ in range(4)}
    restarted = howdah("restart", "chat", "--control", f"unix:{server.control}")
    assert restarted.returncode == 0, restarted.stderr
    assert server.get("/").json()["pid"] not in pids
