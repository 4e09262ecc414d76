"""Several worker scripts in one application: which one handles a request, how many workers each has, boots, deaths and names."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.background import Background
from support.command_line import howdah
from support.exposition import Exposition
from support.server import Howdah, stop_all
from support.waiting import wait_for

COUNT = """
$requests = 0;
$handler = static function () use (&$requests): void {
    $requests++;
    match ($_GET['do'] ?? '') {
        'wait' => await($_GET['for']),
        'sleep' => sleep(30),
        'keep' => $GLOBALS['kept'][] = str_repeat(random_bytes(1024), 64),
        default => null,
    };
    echo json_encode(['script' => basename(__DIR__) . '/' . basename(__FILE__), 'pid' => getmypid(), 'requests' => $requests,
        'name' => $_SERVER['SCRIPT_NAME'], 'path_info' => $_SERVER['PATH_INFO'] ?? null, 'worker' => $_SERVER['HOWDAH_WORKER'] ?? null,
        'warm' => $_SERVER['HOWDAH_WARM_UP'] ?? null]);
};
"""
WORKER = COUNT + "while (howdah\\handle_request($handler)) { }"
CLASSIC = COUNT + "$handler();"
API = {"script": "api.php", "match": ["/api/*", "!/api/old/*"], "processes": 2}
ADMIN = {"script": "admin/index.php", "processes": 1}


def application(folder, worker=(API, ADMIN), **options) -> dict:
    return {
        "type": "php", "root": str(folder.root), "index": "index.php", "front_controller": "index.php", "processes": 1,
        "worker": list(worker), **options,
    }  # fmt: skip


@pytest.fixture
def scripts(folder):
    folder.php("index.php", CLASSIC)
    folder.php("other.php", CLASSIC)
    folder.php("api.php", WORKER)
    folder.php("admin/index.php", WORKER)
    return folder


@pytest.fixture
def start(scripts, run):
    def start(**options) -> Howdah:
        return run({"applications": {"app": application(scripts, **options)}})

    return start


def ask(server, path: str) -> dict:
    answer = server.get(path)
    assert answer.status == 200, answer.text
    return answer.json()


def workers(server) -> list[dict]:
    return server.api("GET", "/status/applications/app/processes").json()["workers"]


def test_a_request_goes_to_the_script_of_its_path_or_to_that_of_its_file_or_to_classic_mode(start):
    server = start()
    found = {path: ask(server, path) for path in ("/api/x", "/api/old/x", "/admin/", "/admin/index.php/a", "/api.php/b", "/other.php", "/")}
    assert {path: (answer["name"], answer["path_info"], answer["worker"]) for path, answer in found.items()} == {
        "/api/x": ("/api.php", None, "1"),
        "/api/old/x": ("/index.php", None, None),
        "/admin/": ("/admin/index.php", None, "1"),
        "/admin/index.php/a": ("/admin/index.php", "/a", "1"),
        "/api.php/b": ("/api.php", "/b", "1"),
        "/other.php": ("/other.php", None, None),
        "/": ("/index.php", None, None),
    }
    assert [ask(server, "/admin/")["requests"] for _ in range(3)] == [3, 4, 5], "one worker keeps its state"
    assert [ask(server, "/")["requests"] for _ in range(3)] == [1, 1, 1], "classic mode keeps none"


def test_the_front_controller_may_be_a_worker_script(start):
    server = start(worker=[{**API, "script": "admin/index.php"}, {"script": "api.php"}], front_controller="api.php")
    assert [ask(server, path)["name"] for path in ("/nothing", "/api/x", "/other.php")] == ["/api.php", "/admin/index.php", "/other.php"]


def test_each_script_has_its_number_of_workers_and_its_name_is_shown(start):
    server = start()
    names = sorted(str(worker["worker_script"]) for worker in workers(server))
    assert names == ["None", "admin/index.php", "api.php", "api.php"]
    status = server.api("GET", "/status/applications/app").json()
    assert status["processes"]["running"] == 4
    assert [(pool["script"], pool["processes"]["running"]) for pool in status["worker_scripts"]] == [
        (None, 1), ("api.php", 2), ("admin/index.php", 1),
    ]  # fmt: skip
    prototypes = {Path(f"/proc/{worker['pid']}/stat").read_text().rsplit(")", 1)[1].split()[1] for worker in workers(server)}
    assert len(prototypes) == 1, "one prototype"
    text = howdah("status", "--control", f"unix:{server.control}", cwd=server.directory).stdout
    assert "app: classic mode" in text and "app: api.php" in text and "app: admin/index.php" in text, text
    top = howdah("top", "--once", "--control", f"unix:{server.control}", cwd=server.directory).stdout
    assert top.count("app: api.php ") == 2, top


def test_metrics_name_the_script(start):
    server = start()
    ask(server, "/api/x")
    found = Exposition.of(server).samples
    wanted = {s.labels.get("worker_script"): s.value for s in found if s.name == "howdah_workers_wanted"}
    assert wanted == {None: 1, "api.php": 2, "admin/index.php": 1}
    for name in ("howdah_workers", "howdah_requests_active", "howdah_queue_length"):
        assert {s.labels.get("worker_script") for s in found if s.name == name} == {None, "api.php", "admin/index.php"}, name


def test_every_script_must_boot_before_the_generation_is_switched(scripts, start):
    server = start()
    before = {worker["pid"] for worker in workers(server)}
    scripts.php("admin/index.php", "throw new RuntimeException('no database');")
    answer = server.api("POST", "/control/applications/app/restart")
    assert answer.status == 500 and "admin/index.php" in answer.text and "no database" in answer.text, answer.text
    wait_for(lambda: {worker["pid"] for worker in workers(server)} == before, "the end of the new generation")
    assert ask(server, "/admin/")["pid"] in before
    scripts.php("admin/index.php", WORKER)
    assert server.api("POST", "/control/applications/app/restart").status == 200
    assert not {worker["pid"] for worker in workers(server) if worker["state"] != "leaving"} & before


def test_a_missing_script_is_named(scripts, start):
    server = start()
    missing = application(scripts, worker=[API, {"script": "none.php"}])
    answer = server.api("PUT", "/config/applications/app", missing)
    assert answer.status == 500 and "applications/app/worker/1/script" in answer.text and "does not exist" in answer.text


def test_killed_workers_cost_only_their_own_requests(start):
    server = start()
    admin = ask(server, "/admin/")["pid"]
    for path in ("/api/x", "/"):
        before = ask(server, path)["pid"]
        os.kill(before, signal.SIGKILL)
        wait_for(lambda path=path, before=before: server.get(path).status == 200 and ask(server, path)["pid"] != before, "another worker")
    assert ask(server, "/admin/")["pid"] == admin


def test_a_prototype_that_dies_starts_the_workers_of_all_scripts_again(start):
    server = start()
    before = {worker["pid"] for worker in workers(server)}
    prototype = int(Path(f"/proc/{min(before)}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(prototype, signal.SIGKILL)

    def all_are_new() -> bool:
        ready = [worker for worker in workers(server) if worker["state"] == "idle"]
        return len(ready) == 4 and not {worker["pid"] for worker in ready} & before

    wait_for(all_are_new, "new workers")
    assert [ask(server, path)["name"] for path in ("/api/x", "/admin/", "/")] == ["/api.php", "/admin/index.php", "/index.php"]


def test_a_new_router_finds_the_workers_of_all_scripts(start):
    server = start()
    before = {worker["pid"] for worker in workers(server)}
    router = server.router()
    router.kill()
    wait_for(lambda: not router.alive(), "its death")
    paths = ("/api/x", "/admin/", "/")
    wait_for(lambda: all(server.get(path).status == 200 for path in paths), "the next router")
    assert {ask(server, path)["pid"] for path in paths} <= before


def test_a_script_whose_workers_are_busy_delays_no_other(scripts, start):
    server = start(worker=[{**API, "processes": 1}, ADMIN])
    go = scripts.root / "go"
    waiting = Background(server.get, f"/api/x?do=wait&for={go}")
    wait_for(lambda: any(worker["state"] == "busy" for worker in workers(server)), "the request")
    assert ask(server, "/admin/")["requests"] == 1 and ask(server, "/")["requests"] == 1
    go.touch()
    assert waiting.result().status == 200


def test_the_workers_of_a_script_follow_its_load(scripts, start):
    server = start(worker=[{**API, "processes": {"max": 3, "spare": 1, "idle_timeout": 1}}, ADMIN])
    go = scripts.root / "go"
    with ThreadPoolExecutor(3) as pool:
        asking = [pool.submit(server.get, f"/api/x?do=wait&for={go}") for _ in range(3)]
        wait_for(lambda: sum(worker["worker_script"] == "api.php" and worker["state"] == "busy" for worker in workers(server)) == 3, "3 workers")
        go.touch()
        assert [answer.result().status for answer in asking] == [200] * 3
    assert sum(worker["worker_script"] == "admin/index.php" for worker in workers(server)) == 1
    wait_for(lambda: sum(worker["worker_script"] == "api.php" for worker in workers(server)) == 1, "idle workers to be retired")


def test_limits_timeout_ends_a_request_of_each_script(start):
    server = start(limits={"timeout": 1})
    for path in ("/api/x", "/admin/", "/"):
        assert server.get(f"{path}?do=sleep").status == 504
        assert ask(server, path)["pid"]


def test_a_restart_under_load_loses_no_request(start):
    server = start()
    ends = []

    def client(path: str) -> int:
        turn = 0
        while not ends:
            turn += 1
            assert server.get(path).status == 200
        return turn

    with ThreadPoolExecutor(3) as pool:
        clients = [pool.submit(client, path) for path in ("/api/x", "/admin/", "/")]
        try:
            for _ in range(3):
                assert server.api("POST", "/control/applications/app/restart").status == 200
        finally:
            ends.append(True)
        assert all(client.result() > 0 for client in clients)
    wait_for(lambda: len(workers(server)) == 4, "the end of the old generations")


def test_each_worker_of_each_script_runs_the_warm_up(start):
    server = start(warm_up=["/api/x", "/admin/"])
    assert ask(server, "/admin/")["requests"] >= 2
    assert all(ask(server, "/api/x")["requests"] >= 2 for _ in range(4))


def test_leaks_and_a_profile_are_those_of_all_scripts(start):
    server = start()
    control = ("--control", f"unix:{server.control}")
    with ThreadPoolExecutor(1) as pool:
        report = pool.submit(howdah, "leaks", "app", "--seconds", "2", "--json", *control, cwd=server.directory)
        while not report.done():
            for path in ("/api/x?do=keep", "/admin/", "/"):
                assert server.get(path).status == 200
    found = {(route["route"], route["leak"]) for route in json.loads(report.result().stdout)["routes"]}
    assert found == {("GET /api/x", True), ("GET /admin/", False)}, report.result()


def test_in_classic_mode_handle_request_throws(scripts, start):
    server = start()
    scripts.php("other.php", "try { howdah\\handle_request(fn () => 1); } catch (Error $error) { echo $error->getMessage(); }")
    assert "can be called by the worker script only" in server.get("/other.php").text


def test_a_change_of_another_option_keeps_the_scripts(scripts, start):
    server = start()
    pids = {worker["pid"] for worker in workers(server)}
    assert server.api("PUT", "/config/settings", {"http": {"max_body_size": 1000}}).status == 200
    assert {worker["pid"] for worker in workers(server)} == pids
    assert ask(server, "/api/x")["name"] == "/api.php"
    assert server.api("PUT", "/config/applications/app", application(scripts, worker=[ADMIN])).status == 200
    assert ask(server, "/api/x")["name"] == "/index.php"


@pytest.mark.parametrize("is_front_controller", [False, True])
def test_howdah_serve_has_several_worker_scripts(scripts, is_front_controller):
    scripts.write("api/file.txt", "a file")
    more = ["--worker", "index.php"] if is_front_controller else []
    if is_front_controller:
        scripts.php("index.php", WORKER)
    server = Howdah.serve(scripts, "--worker", "api.php=/api/*", "--worker", "admin/index.php", *more, processes=1)
    try:
        assert server.get("/api/file.txt").text == "a file"
        paths = ("/api/x", "/api/x.php", "/admin/", "/nothing")
        found = [(answer["name"], answer["worker"]) for answer in (ask(server, path) for path in paths)]
        last = ("/index.php", "1" if is_front_controller else None)
        assert found == [("/api.php", "1"), ("/api.php", "1"), ("/admin/index.php", "1"), last]
        assert "worker scripts api.php, admin/index.php" in server.stdout
    finally:
        stop_all([server])
