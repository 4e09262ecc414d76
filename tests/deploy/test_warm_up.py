"""Warm-up: requests to a new generation before clients reach it."""

import contextlib
import json
import signal
import subprocess

import pytest

from support.background import Background
from support.http.client import ProtocolError
from support.releases import front_controller_application
from support.server import EXECUTABLE, Howdah
from support.waiting import wait_for

LOGGING = "file_put_contents(SCRATCH . '/log', json_encode(array_intersect_key($_SERVER, array_flip(%s))) . PHP_EOL, FILE_APPEND); echo 'ok';"
SEEN = ["REQUEST_URI", "QUERY_STRING", "HTTP_HOST", "SERVER_NAME", "HTTP_X_A", "HTTPS", "HOWDAH_WARM_UP", "REMOTE_ADDR", "SCRIPT_NAME"]


def test_warm_up_requests_are_neither_logged_nor_counted(folder):
    folder.php("index.php", LOGGING % SEEN)
    folder.php("other.php", LOGGING % SEEN)
    log = folder.scratch / "log"
    warm_up = [
        "/a?b=c",
        {"uri": "/other.php", "host": "Shop.example.com:8080", "scheme": "https", "headers": {"X-A": "1"}},
    ]
    access = folder.scratch / "access.log"
    config = {"applications": {"app": front_controller_application(folder, warm_up=warm_up)}, "access_log": str(access)}
    with Howdah.run(config) as server:
        first, second = [json.loads(line) for line in log.read_text().splitlines()]
        assert first == {
            "REQUEST_URI": "/a?b=c", "QUERY_STRING": "b=c", "HTTP_HOST": "localhost", "SERVER_NAME": "localhost",
            "HOWDAH_WARM_UP": "1", "REMOTE_ADDR": "127.0.0.1", "SCRIPT_NAME": "/index.php",
        }  # fmt: skip
        assert second["HTTP_HOST"] == "Shop.example.com:8080" and second["SERVER_NAME"] == "shop.example.com"
        assert (second["HTTPS"], second["HTTP_X_A"], second["SCRIPT_NAME"]) == ("on", "1", "/other.php")
        assert server.api("GET", "/status/requests/total").json() == 0
        log.unlink()
        assert server.get("/x", {"Howdah-Warm-Up": "1"}).text == "ok"
        assert "HOWDAH_WARM_UP" not in json.loads(log.read_text())
        assert server.api("GET", "/status/requests/total").json() == 1
        wait_for(lambda: access.exists() and "/x" in access.read_text(), "the access log")
        assert access.read_text().count("\n") == 1


def test_an_application_with_on_demand_workers_is_warmed(folder):
    folder.php("index.php", LOGGING % SEEN)
    processes = {"max": 2, "spare": 0, "idle_timeout": 1}
    app = front_controller_application(folder, processes=processes, warm_up=["/a", "/b"])
    with Howdah.run({"applications": {"app": app}}) as server:
        assert (folder.scratch / "log").read_text().count("\n") == 2
        assert server.get("/").status == 200


def test_in_worker_mode_each_worker_is_warmed(folder):
    handler = "function () { file_put_contents(SCRATCH . '/log', $_SERVER['REQUEST_URI'] . ' ' . getmypid() . PHP_EOL, FILE_APPEND); }"
    folder.php("worker.php", f"$handler = {handler}; while (howdah\\handle_request($handler)) {{ }}")
    application = {
        "type": "php", "root": str(folder.root), "processes": 6, "worker": {"script": "worker.php"}, "warm_up": ["/a", "/b"],
    }  # fmt: skip
    for preboot in (False, True):
        application["worker"]["preboot"] = preboot
        (folder.scratch / "log").unlink(missing_ok=True)
        with Howdah.run({"applications": {"app": application}}) as server:
            ran = {line for line in (folder.scratch / "log").read_text().splitlines()}
            workers = {worker.pid for worker in server.workers(count=6)}
            assert ran == {f"{uri} {pid}" for uri in ("/a", "/b") for pid in workers}


def test_targets_are_warmed_by_name(folder):
    folder.php("a.php", "file_put_contents(SCRATCH . '/a', ''); echo 'a';")
    folder.php("b.php", "file_put_contents(SCRATCH . '/b', ''); echo 'b';")
    targets = {name: {"root": str(folder.root), "script": f"{name}.php"} for name in "ab"}
    warm_up = [{"target": name, "uri": "/"} for name in "ab"]
    config = {
        "listeners": {"127.0.0.1:{port}": {"pass": "applications/app/a"}},
        "applications": {"app": {"type": "php", "targets": targets, "warm_up": warm_up}},
    }
    with Howdah.run(config):
        assert (folder.scratch / "a").exists() and (folder.scratch / "b").exists()


def failing(folder):
    """A script that fails, or hangs, when the test wants it."""
    folder.php(
        "index.php",
        "$wish = @file_get_contents(SCRATCH . '/wish'); "
        "if (isset($_SERVER['HOWDAH_WARM_UP'])) { "
        "if ($wish === 'fail') { error_log('the database is away'); http_response_code(500); exit; } "
        "if ($wish === 'fatal') { missing_function(); } "
        "if ($wish === 'die') { error_log('last words'); posix_kill(getmypid(), 9); } "
        "if ($wish === 'hang') { touch(SCRATCH . '/hangs'); while (true) { sleep(100); } } "
        "if ($wish === '404') { http_response_code(404); } } "
        "echo getmypid();",
    )
    return lambda wish: (folder.scratch / "wish").write_text(wish)


@pytest.mark.parametrize(
    "wish, reasons",
    [
        ("fail", ["/warm was answered 500", "the database is away"]),
        ("fatal", ["/warm was answered 500", "missing_function"]),
        ("die", ["the worker that ran /warm ended", "last words"]),
    ],
)
def test_a_restart_with_a_failed_warm_up_is_rejected_with_the_reason(folder, wish, reasons):
    will = failing(folder)
    with Howdah.run({"applications": {"app": front_controller_application(folder, warm_up=["/warm"], limits={"timeout": 60})}}) as server:
        pid = server.get("/").text
        will(wish)
        answer = server.api("POST", "/control/applications/app/restart")
        assert answer.status == 500, answer.text
        for reason in reasons:
            assert reason in answer.json()["detail"], answer.text
        command = [EXECUTABLE, "restart", "app", "--control", f"unix:{server.control}"]
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == 1 and reasons[0] in result.stderr, result.stderr
        assert server.get("/").text == pid, "the running generation continues"
        will("")
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        assert server.get("/").text != pid


def test_a_configuration_with_a_failed_warm_up_is_rejected(folder):
    will = failing(folder)
    with Howdah.run({"applications": {"app": front_controller_application(folder)}}) as server:
        before, pid = server.api("GET", "/config").json(), server.get("/").text
        will("fail")
        answer = server.api("PUT", "/config/applications/app/warm_up", ["/warm"])
        assert answer.status == 500 and "/warm was answered 500" in answer.text
        assert server.api("GET", "/config").json() == before and server.get("/").text == pid
        will("")
        assert server.api("PUT", "/config/applications/app/warm_up", ["/warm"]).status == 200


def test_a_4xx_during_warm_up_logs_a_warning(folder):
    will = failing(folder)
    will("404")
    with Howdah.run({"applications": {"app": front_controller_application(folder, warm_up=["/warm"])}}) as server:
        assert "the warm-up request /warm of \"app\" was answered 404" in server.stderr
        assert server.get("/").status == 200


def test_a_failed_warm_up_at_the_start_is_logged_and_served(folder):
    will = failing(folder)
    will("fail")
    with Howdah.run({"applications": {"app": front_controller_application(folder, warm_up=["/warm"])}}) as server:
        assert "did not pass its warm-up: /warm was answered 500" in server.stderr
        assert server.get("/").status == 200


def test_a_hanging_warm_up_ends_with_the_timeout(folder):
    will = failing(folder)
    app = front_controller_application(folder, warm_up=["/warm"], limits={"timeout": 1})
    with Howdah.run({"applications": {"app": app}}) as server:
        pid = server.get("/").text
        will("hang")
        answer = server.api("POST", "/control/applications/app/restart")
        assert answer.status == 500 and 'took longer than \\"limits/timeout\\" allows' in answer.text
        assert server.get("/").text == pid


def restart_that_hangs(server, folder) -> Background:
    """A restart over the API whose warm-up hangs."""
    restart = Background(server.api, "POST", "/control/applications/app/restart")
    wait_for((folder.scratch / "hangs").exists, "the warm-up to hang")
    return restart


def test_a_warm_up_survives_the_death_of_the_router(folder):
    will = failing(folder)
    with Howdah.run({"applications": {"app": front_controller_application(folder, processes=2, warm_up=["/warm"])}}, time_divider=5) as server:
        pid = server.get("/").text
        will("hang")
        restart = restart_that_hangs(server, folder)
        will("")
        old = server.router()
        old.kill()
        assert restart.result().status == 200, "the next router repeats the warm-up"
        assert server.router().pid != old.pid
        assert server.get("/").text != pid


def test_changes_wait_for_a_warm_up(folder):
    will = failing(folder)
    app = front_controller_application(folder, warm_up=["/warm"], limits={"timeout": 2})
    with Howdah.run({"applications": {"app": app}}) as server:
        will("hang")
        restart = restart_that_hangs(server, folder)
        assert server.get("/").status == 200, "the running generation serves meanwhile"
        will("")
        assert server.api("PUT", "/config/settings", {"http": {"idle_timeout": 10}}).status == 200
        assert restart.result().status == 500


def test_a_shutdown_during_a_warm_up_is_clean(folder):
    will = failing(folder)
    with Howdah.run({"applications": {"app": front_controller_application(folder, warm_up=["/warm"])}}) as server:
        will("hang")
        restart = restart_that_hangs(server, folder)
        server.stop(signal.SIGTERM)
        with contextlib.suppress(ProtocolError):  # The connection is closed without an answer.
            assert restart.result().status >= 500


def test_a_prototype_that_dies_during_a_warm_up_fails_the_change(folder):
    will = failing(folder)
    with Howdah.run({"applications": {"app": front_controller_application(folder, warm_up=["/warm"])}}) as server:
        known = server.prototype()
        will("hang")
        restart = restart_that_hangs(server, folder)
        new = [process for process in server.titled('howdah: "app" prototype') if process.pid != known.pid]
        new[0].kill()
        answer = restart.result()
        assert answer.status == 500 and "does not start" in answer.text
        assert server.get("/").status == 200
        assert server.prototype().pid == known.pid
