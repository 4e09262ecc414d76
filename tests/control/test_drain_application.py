"""`howdah drain APP`: an application finishes its requests, and others are answered 503 until `--end`."""

import json
import shutil
from contextlib import closing

import pytest

from support.background import Background
from support.command_line import error_of, howdah
from support.control import start_in
from support.exposition import Exposition
from support.fastcgi import FakeServer, answer, fastcgi_application
from support.folders import Folder
from support.http.client import Connection
from support.http.load import Load
from support.server import Howdah
from support.waiting import wait_for


@pytest.fixture
def site(tmp_path):
    folder = Folder(tmp_path)
    folder.php("index.php", "echo 'hello';")
    # It runs until the file is there.
    folder.php("hold.php", f"while (!file_exists('{folder.root}/go')) {{ usleep(5000); clearstatcache(); }} echo 'held';")
    folder.write("file.txt", "text")
    return folder


def configuration(site: Folder, **shop) -> dict:
    application = {"type": "php", "root": str(site.root), "processes": 1}
    return {
        "routes": [
            {"match": {"uri": "/file.txt"}, "action": {"share": f"{site.root}$uri"}},
            {"match": {"uri": "/blog/*"}, "action": {"rewrite": "/index.php", "pass": "applications/blog"}},
            {"action": {"pass": "applications/shop"}},
        ],
        "applications": {"shop": {**application, **shop}, "blog": application},
    }


def drain(server: Howdah, *arguments: str):
    return howdah("drain", *arguments, "--control", f"unix:{server.control}")


def of(server: Howdah, path: str) -> dict:
    return server.api("GET", f"/status/{path}").json()


def test_running_and_waiting_requests_finish_and_others_are_answered_503(site):
    with Howdah.run(configuration(site)) as server:
        running, waiting = Background(server.get, "/hold.php"), Background(server.get, "/hold.php")
        wait_for(lambda: of(server, "applications/shop")["requests"]["active"] == 2, "both requests")

        def others(client, turn):
            path = ("/blog/", "/file.txt")[turn % 2]
            return client.get(path).status != 200 and path

        with Load(server, others, clients=2) as load:
            assert drain(server, "shop", "--timeout", "0").stdout == 'The application "shop" drains: it gets no more requests.\n'
            refused = server.get("/index.php")
            assert (refused.status, refused.header("Retry-After")) == (503, "10")
            assert "still has requests; it gets no others" in error_of(drain(server, "shop", "--timeout", "1"))
            status = of(server, "applications/shop")
            assert status["drained"] is True and status["processes"]["running"] == 0 and "failure" not in status
            assert of(server, "draining")["shop"]["generations"] == 1
            assert not running.done() and not waiting.done()
            site.write("go", "")
            assert [one.result().text for one in (running, waiting)] == ["held", "held"]
            assert drain(server, "shop").stdout == 'The application "shop" drains: it has no requests.\n'
            assert not server.workers("shop") and server.workers("blog")
            found = Exposition.of(server)
            assert found.sum("howdah_requests_refused_total", application="shop", cause="drained") == 1
            up, drained = "howdah_application_up", "howdah_application_drained"
            assert [found.values(name, application="shop") for name in (up, drained)] == [[0], [1]]
            assert [found.values(name, application="blog") for name in (up, drained)] == [[1], [0]]
            for command in (["top", "--once"], ["status"]):
                assert "shop: answers 503: it drains" in howdah(*command, "--control", f"unix:{server.control}").stdout
            refused = server.api("POST", "/control/applications/shop/restart")
            assert refused.status == 409 and "drains" in refused.json()["detail"]
            assert drain(server, "shop", "--end").stdout == 'The application "shop" gets requests again.\n'
            assert server.get("/index.php").text == "hello" and "drained" not in of(server, "applications/shop")
            wait_for(lambda: load.correct >= 20, "answers")
        load.assert_flawless()


def test_a_change_loses_no_request(site):
    """Each request is answered by the application, or with an honest 503."""
    with Howdah.run(configuration(site, processes=2)) as server:
        answers = []

        def check(client, _):
            response = client.get("/index.php")
            answers.append(response.status)
            return (response.status, response.text) != (200, "hello") and response.status != 503 and f"{response.status}"

        with Load(server, check, clients=4) as load:
            for drains in (True, False) * 3:
                goal = len(answers) + 50
                wait_for(lambda: len(answers) >= goal, "answers")
                assert server.api("PUT", "/config/applications/shop/drain", json.dumps(drains)).status == 200
                assert server.get("/index.php").status == (503 if drains else 200)
        load.assert_flawless()
        assert {200, 503} == set(answers)


def test_it_stays_drained_until_it_starts_again(site, socket_path):
    # A folder with a short name: sockets are in it.
    place = socket_path.parent
    listener = f"unix:{place}/s"

    def get(path: str):
        with Connection(str(place / "s")) as connection:
            return connection.request("GET", path)

    with start_in(place) as server:
        assert server.api("PUT", "/config", {**configuration(site), "listeners": {listener: {"pass": "routes"}}}).status == 200
        assert drain(server, "shop").returncode == 0
        # Its options can be changed meanwhile: nothing starts.
        assert server.api("PUT", "/config/applications/shop/processes", "2").status == 200
        assert get("/index.php").status == 503
    with start_in(place) as server:
        assert get("/index.php").status == 503 and get("/blog/").text == "hello"
        assert "it drains" in server.stdout
        moved = site.root.with_name("moved")
        site.root.rename(moved)
        try:
            reason = error_of(drain(server, "shop", "--end"))
            assert "applications/shop/root" in reason and "does not exist" in reason
            assert of(server, "applications/shop")["drained"] is True and get("/index.php").status == 503
        finally:
            shutil.move(moved, site.root)
        assert drain(server, "shop", "--end").returncode == 0
        assert get("/index.php").text == "hello" and of(server, "applications/shop")["processes"]["running"] == 2


def test_a_fastcgi_application_drains(site):
    with closing(FakeServer(site.scratch / "fcgi", lambda _: answer())):
        (site.scratch / "fcgi").chmod(0o777)
        with Howdah.run({"applications": {"shop": fastcgi_application(site, f"unix:{site.scratch}/fcgi")}}) as server:
            assert server.get("/index.php").status == 200
            assert drain(server, "shop").returncode == 0
            assert server.get("/index.php").status == 503
            assert drain(server, "shop", "--end").returncode == 0
            assert server.get("/index.php").status == 200


def test_an_unknown_application_is_named(site):
    with Howdah.run(configuration(site)) as server:
        reason = error_of(drain(server, "x"))
        assert 'the configuration has no application "x"' in reason and "write the address of a server" in reason
        refused = server.api("PUT", "/config/applications/shop/drain", '"yes"')
        assert refused.status == 400 and "expected true or false" in refused.json()["detail"]
