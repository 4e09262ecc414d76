"""`howdah leaks`: which routes of an application in worker mode keep memory with each request."""

import json
import re

import pytest

from support.background import Background
from support.command_line import howdah
from support.http.load import Load
from support.waiting import wait_for

SCRIPT = r"""
class Kept { public $bytes; function __construct() { $this->bytes = random_bytes(2000); } }
class Freed { }
class Cycle { public $self; public $bytes; function __construct() { $this->self = $this; $this->bytes = random_bytes(2000); } }
$kept = []; $cache = []; $files = [];
$handler = function () use (&$kept, &$cache, &$files) {
    match (parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH)) {
        '/objects' => $kept[] = new Kept(),
        '/freed' => [new Freed(), new Kept()],
        '/cycles' => new Cycle(),
        '/cache' => $cache[$_GET['n'] % 10] = new Kept(),
        '/files' => $files[] = fopen('/dev/null', 'r'),
        default => null,
    };
    echo 'x';
};
while (howdah\handle_request($handler)) { }
"""


@pytest.fixture
def server(run, folder):
    folder.php("worker.php", SCRIPT)
    application = {"type": "php", "root": str(folder.root), "processes": 2, "worker": {"script": "worker.php"}}
    folder.write("classic/index.php", "<?php echo 'x';")
    classic = {"type": "php", "root": str(folder.root / "classic"), "processes": 1}
    return run(
        {
            "applications": {"app": application, "classic": classic},
            "listeners": {"127.0.0.1:{port}": {"pass": "applications/app"}},
        }
    )


def leaks(server, *options, application="app"):
    return howdah("leaks", application, "--control", f"unix:{server.control}", *options)


# Two workers, whose caches of 10 entries are full after 20 requests: most requests must come later.
ENOUGH_REQUESTS = 150


def report(server, *targets) -> dict:
    """The routes of the JSON report, while clients request these targets: on a slow machine for a longer time."""

    def check(client, turn):
        return any(client.get(target.format(turn=turn)).status != 200 for target in targets) and "not 200"

    for seconds in (4, 8, 16, 32):
        measuring = Background(leaks, server, "--seconds", str(seconds), "--json")
        with Load(server, check, clients=2, turns_per_second=100) as load:
            done = measuring.result()
        load.assert_flawless()
        assert done.returncode == 0, done.stderr
        routes = {route["route"]: route for route in json.loads(done.stdout)["routes"]}
        if len(routes) == len(set(targets)) and min(route["requests"] for route in routes.values()) > ENOUGH_REQUESTS:
            return routes
    raise AssertionError(f"too few requests: {routes}")


def test_routes_that_keep_memory_are_found_and_others_are_not(server):
    routes = report(server, "/objects", "/freed", "/cycles?n=1", "/cache?n={turn}", "/user/{turn}")
    assert {name for name, route in routes.items() if route["leak"]} == {"GET /objects"}, json.dumps(routes)
    assert set(routes) == {"GET /objects", "GET /freed", "GET /cycles", "GET /cache", "GET /user/*"}
    leak = routes["GET /objects"]
    assert 2000 <= leak["memory"]["median"] <= 2600 and leak["requests"] > ENOUGH_REQUESTS
    assert leak["objects"]["Kept"]["mean"] == pytest.approx(1) and set(leak["objects"]) == {"Kept"}
    assert routes["GET /freed"]["objects"] == {} and routes["GET /cycles"]["objects"] == {}


def test_what_stays_until_the_next_request_is_no_leak(run, folder):
    folder.php(
        "worker.php",
        "$last = null; $handler = function () use (&$last) {"
        "    $last = str_repeat('x', isset($_GET['big']) ? 20000 : 10); echo 'x'; };"
        "while (howdah\\handle_request($handler)) { }",
    )
    application = {"type": "php", "root": str(folder.root), "processes": 2, "worker": {"script": "worker.php"}}
    routes = report(run({"applications": {"app": application}}), "/big?big", "/small", "/small", "/other")
    assert len(routes) == 3 and not any(route["leak"] for route in routes.values()), routes


def test_an_anonymous_class_is_named_with_its_place(run, folder):
    folder.php(
        "worker.php",
        "$kept = []; $other = new class { };\n"
        "$handler = function () use (&$kept) { $kept[] = new class { }; new class { }; echo 'x'; };\n" + "while (howdah\\handle_request($handler)) { }",
    )
    application = {"type": "php", "root": str(folder.root), "processes": 1, "worker": {"script": "worker.php"}}
    objects = report(run({"applications": {"app": application}}), "/")["GET /"]["objects"]
    [(name, growth)] = objects.items()
    assert re.fullmatch(r"class@anonymous /.*/worker\.php:\d\$\w+", name) and growth["mean"] == pytest.approx(1)


def test_descriptors_that_stay_open_are_a_leak(server):
    routes = report(server, "/files", "/")
    assert routes["GET /files"]["leak"] and routes["GET /files"]["descriptors"]["mean"] == pytest.approx(1)
    assert not routes["GET /"]["leak"]


def test_the_text_names_what_leaks(server):
    measuring = Background(leaks, server, "--seconds", "3")
    check = lambda client, turn: client.get("/objects").status != 200 and "not 200"
    with Load(server, check, turns_per_second=60):
        done = measuring.result()
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stdout.splitlines() if line.endswith("GET /objects")]
    assert "leaks" in line and "KiB" in line
    assert "Objects that stay after each request of GET /objects:\n     +1.00  Kept\n" in done.stdout
    assert "opcache: " in done.stdout and done.stdout.endswith("1 route leaks.\n")


def test_code_between_two_requests_belongs_to_the_request_before(run, folder):
    folder.php(
        "worker.php",
        "$kept = []; $handler = function () use (&$kept) { $kept[] = str_repeat('x', 3000); echo 'x'; };"
        "while (howdah\\handle_request($handler)) { $kept = []; }",
    )
    application = {"type": "php", "root": str(folder.root), "processes": 1, "worker": {"script": "worker.php"}}
    server = run({"applications": {"app": application}})
    assert not report(server, "/")["GET /"]["leak"]


def test_a_measurement_does_not_change_what_workers_answer(server):
    assert server.get("/objects").text == "x"
    routes = report(server, "/objects")
    assert routes["GET /objects"]["leak"]
    # The workers are the same, and a second measurement starts from zero.
    again = report(server, "/", "/freed")
    assert set(again) <= {"GET /", "GET /freed", "GET /objects"} and not again["GET /"]["leak"]
    assert server.get("/objects").text == "x"


def test_without_requests_it_fails_with_advice(server):
    done = leaks(server, "--seconds", "0.3")
    assert done.returncode == 1
    assert 'no worker of "app" ran two requests within 0.3 s; measure it while it answers requests' in done.stderr


def test_an_application_in_classic_mode_is_refused_with_the_reason(server):
    done = leaks(server, application="classic")
    assert done.returncode == 1
    assert '"classic" has no worker script: PHP frees all of its memory after each request' in done.stderr


def test_one_recording_is_made_at_a_time(server):
    measuring = Background(leaks, server, "--seconds", "3")
    path = "/control/applications/app/profile"
    wait_for(lambda: server.api("POST", path, {"seconds": 0}).status == 409, "it measures")
    answer = server.api("POST", "/control/applications/app/memory")
    assert answer.status == 409 and 'another client records "app" already; try again in' in answer.json()["detail"]
    assert measuring.result().returncode == 1, "no request ran"
    assert server.api("POST", "/control/applications/app/memory", {"rate": 9}).status == 400
    assert server.api("GET", "/control/applications/app/memory").status == 405


def test_wrong_options_are_named(server):
    done = leaks(server, "--seconds", "0")
    assert done.returncode == 2 and "write 0.1 to 600" in done.stderr
