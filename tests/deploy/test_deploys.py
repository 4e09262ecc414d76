"""Deploys: releases behind a symbolic link, warm-up, reload. No request sees two releases; a bad one is rejected."""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import time

import pytest

from support.background import Background
from support.client import ProtocolError
from support.file_systems import dead_file_system
from support.load import Load
from support.server import EXECUTABLE, Howdah
from support.waiting import wait_for

FATAL = "<?php missing_function();"
SYNTAX_ERROR = "<?php echo ("


class Site:
    """A folder of releases; the link `current` leads to one of them."""

    def __init__(self, folder):
        self.folder = folder
        self.base = folder.root
        self.current = self.base / "current"
        self.root = self.current / "public"

    def release(self, name, index=None, **files):
        """A release with its name in all its parts."""
        place = f"releases/{name}"
        index = index or (
            "<?php $part = require __DIR__ . '/../src/part.php'; "
            f"echo json_encode(['index' => '{name}', 'part' => $part, 'root' => $_SERVER['DOCUMENT_ROOT'], "
            "'marker' => file_get_contents($_SERVER['DOCUMENT_ROOT'] . '/version.txt'), "
            "'script' => $_SERVER['SCRIPT_FILENAME'], 'file' => __FILE__, 'cwd' => getcwd(), "
            "'late' => (function () { usleep(2000); return require $_SERVER['DOCUMENT_ROOT'] . '/../src/late.php'; })()]);"
        )
        self.folder.write(f"{place}/public/index.php", index)
        self.folder.write(f"{place}/public/version.txt", name)
        self.folder.write(f"{place}/src/part.php", f"<?php return '{name}';")
        self.folder.write(f"{place}/src/late.php", f"<?php return '{name}';")
        for path, content in files.items():
            self.folder.write(f"{place}/public/{path}.php", content)
        return self.base / place

    def swap(self, name):
        """Replaces the link in one step, as deploy tools do."""
        new = self.base / "current.new"
        new.symlink_to(f"releases/{name}")
        os.rename(new, self.current)

    def config(self, **application):
        return {
            "routes": [
                {"match": {"uri": "*.php"}, "action": {"pass": "applications/app"}},
                {"action": {"share": f"{self.root}$uri", "fallback": {"pass": "applications/app"}}},
            ],
            "applications": {
                "app": {
                    "type": "php",
                    "root": str(self.root),
                    "front_controller": "index.php",
                    "processes": 2,
                    **application,
                }
            },
        }


@pytest.fixture
def site(folder):
    site = Site(folder)
    site.release("1")
    site.release("2")
    site.swap("1")
    return site


def pids(server, count=2):
    return [worker.pid for worker in server.workers(count=count)]


def version(server):
    return server.get("/version.txt").text


def wait_for_version(server, name, timeout=20):
    wait_for(lambda: version(server) == name, f"release {name}", timeout)


def of_one_release(order):
    """Each page is of one release; a file that is requested after it is of the same or of a newer one."""

    def ask(client, _):
        answer = client.get("/")
        if answer.status != 200:
            return answer.status, answer.text[:300]
        page = answer.json()
        if len({page["index"], page["part"], page["late"], page["marker"], page["root"].split("/")[-2]}) != 1:
            return "mixed", page
        file = client.get("/version.txt")
        if file.status != 200 or order.index(file.text) < order.index(page["index"]):
            return "file", page["index"], file.status, file.text

    return ask


# --- Releases


def test_paths_of_a_release_are_resolved(site):
    with Howdah.run(site.config(working_directory=str(site.current))) as server:
        release = str(site.base / "releases/1")
        page = server.get("/some/path").json()
        assert page["root"] == f"{release}/public"
        assert page["script"] == page["file"] == f"{release}/public/index.php"
        assert version(server) == "1"
        prototype = server.prototype()
        assert os.readlink(f"/proc/{prototype.pid}/cwd") == release


def test_resolve_links_false_shows_paths_as_configured(site):
    with Howdah.run(site.config(resolve_links=False, reload="never")) as server:
        page = server.get("/").json()
        assert page["root"] == str(site.root) and page["script"] == f"{site.root}/index.php"
        site.swap("2")
        wait_for_version(server, "2")
        assert "reloaded" not in server.stderr


def test_twenty_swaps_under_load_are_never_half_seen(site):
    releases = [str(number) for number in range(1, 22)]
    for name in releases[2:]:
        site.release(name)
    with Howdah.run(site.config(warm_up=["/", "/warm"], working_directory=str(site.current))) as server:
        with Load(server, of_one_release(releases), clients=3) as load:
            for name in releases[1:]:
                site.swap(name)
                wait_for_version(server, name)
        load.assert_flawless()
        assert load.correct > 100
        wait_for(lambda: server.stderr.count("was reloaded in") == 20, "the last line")
        assert f"{site.root} now leads to {site.base}/releases/21/" in server.stderr
        server.workers(count=2)
        server.prototype()


def test_php_settings_with_paths_belong_to_the_same_release(site):
    for name in "12":
        site.folder.write(f"releases/{name}/src/prepended.php", f"<?php header('X-Prepended: {name}');")
    settings = {"auto_prepend_file": f"{site.current}/src/prepended.php", "open_basedir": f"{site.current}:/tmp/x"}
    with Howdah.run(site.config(options={"admin": settings}, reload="never")) as server:
        assert server.get("/").header("X-Prepended") == "1"
        site.swap("2")
        page = server.get("/")
        assert (page.status, page.header("X-Prepended"), page.json()["late"]) == (200, "1", "1")
        assert server.api("POST", "/control/applications/app/restart").status == 200
        page = server.get("/")
        assert (page.header("X-Prepended"), page.json()["late"]) == ("2", "2")


def test_with_reload_never_a_swap_waits_for_a_restart(site):
    with Howdah.run(site.config(reload="never")) as server:
        site.swap("2")
        time.sleep(1.5)
        assert version(server) == "1" and server.get("/").json()["late"] == "1"
        assert server.api("POST", "/control/applications/app/restart").status == 200
        assert version(server) == "2" and server.get("/").json()["late"] == "2"


def test_serve_follows_a_swap(site):
    with Howdah.serve(site.current, processes=1) as server:
        assert server.get("/").json()["index"] == "1"
        site.swap("2")
        wait_for_version(server, "2")
        assert server.get("/").json()["index"] == "2"


@pytest.mark.parametrize(
    "index, reason", [(SYNTAX_ERROR, "PHP Parse error"), (FATAL, "missing_function"), ("<?php http_response_code(503);", "503")]
)
def test_a_bad_release_is_rejected_and_the_next_good_one_is_loaded(site, index, reason):
    site.release("bad", index)
    with Howdah.run(site.config(warm_up=["/check?x=1"])) as server:
        workers = pids(server)
        site.swap("bad")
        wait_for(lambda: "was not reloaded" in server.stderr, "the refusal")
        assert "/check?x=1 was answered" in server.stderr and reason in server.stderr
        assert version(server) == "1" and server.get("/").json()["late"] == "1"
        assert pids(server) == workers
        time.sleep(1.2)
        assert server.stderr.count("was not reloaded") == 1, "it is logged once"
        site.swap("1")
        wait_for(lambda: "lead again to what runs" in server.stderr, "the return of the old release")
        assert pids(server) == workers
        site.swap("2")
        wait_for_version(server, "2")
        assert server.get("/").json()["index"] == "2"


def test_a_rejected_release_is_not_tried_again(site):
    site.release("slow", "<?php sleep(1); echo 'slow';")
    site.release("bad", FATAL)
    with Howdah.run(site.config(warm_up=["/"]), time_divider=5) as server:
        site.swap("slow")
        time.sleep(0.8)
        # howdah notices the swap during the warm-up of the other release, and again when that one runs.
        site.swap("bad")
        wait_for(lambda: "was not reloaded" in server.stderr, "the refusal")
        assert "was reloaded in" in server.stderr
        time.sleep(1.5)
        assert server.stderr.count("was not reloaded") == 1
        site.swap("nothing")
        wait_for(lambda: "is not known where the paths" in server.stderr, "the warning")
        site.swap("bad")
        wait_for(lambda: "lead again to the release that was refused" in server.stderr, "the return of the paths")
        assert server.stderr.count("was not reloaded") == 1 and server.get("/").text == "slow"
        site.swap("2")
        wait_for_version(server, "2")


def test_a_release_without_its_root_is_waited_for(site):
    with Howdah.run(site.config()) as server:
        site.swap("nothing")
        time.sleep(1.2)
        assert server.get("/").json()["index"] == "1" and version(server) == "1"
        site.swap("2")
        wait_for_version(server, "2")
        assert "is not known where the paths" not in server.stderr


def test_a_release_without_its_root_is_logged_once_and_so_is_its_return(site):
    with Howdah.run(site.config(), time_divider=5) as server:
        site.swap("nothing")
        wait_for(lambda: "is not known where the paths" in server.stderr, "the warning")
        assert "applications/app/root: " in server.stderr and "cannot be found" in server.stderr
        time.sleep(1.2)
        assert server.stderr.count("is not known where the paths") == 1
        site.swap("1")
        wait_for(lambda: 'the paths of the application "app" lead again to what runs' in server.stderr, "the end of it")
        assert server.get("/").json()["index"] == "1" and "was reloaded" not in server.stderr


def test_two_applications_behind_one_link_go_together(site):
    site.release("2", other="<?php echo 'other 2';")
    site.release("1", other="<?php echo 'other 1';")
    config = site.config()
    config["applications"]["other"] = {"type": "php", "root": str(site.root), "script": "other.php", "processes": 1}
    config["routes"].insert(0, {"match": {"uri": "/other"}, "action": {"pass": "applications/other"}})
    with Howdah.run(config) as server:
        assert server.get("/other").text == "other 1"
        site.swap("2")
        wait_for_version(server, "2")
        assert server.get("/other").text == "other 2" and server.get("/").json()["index"] == "2"


def test_hanging_folders_delay_only_their_own_change(folder):
    folder.write("index.php", "<?php echo 'ok';")
    with Howdah.run({"applications": {"app": application(folder)}}) as server, contextlib.ExitStack() as dead:
        hangs = dead.enter_context(dead_file_system(folder.scratch))
        other = {"type": "php", "root": str(hangs / "app")}
        change = Background(server.api, "PUT", "/config/applications/other", other)
        for _ in range(20):
            assert server.api("GET", "/status").status == 200 and server.get("/").status == 200
            time.sleep(0.02)
        assert not change.done()
        dead.close()
        answer = change.result()
        assert answer.status == 500 and "does not exist" in answer.json()["detail"], answer
        assert server.get("/").text == "ok"


def test_a_hanging_file_system_does_not_block_other_deploys(site):
    link = site.base / "to-hang"
    alive = site.base / "alive"
    alive.mkdir()
    link.symlink_to(alive)
    config = site.config()
    config["applications"]["hangs"] = {"type": "php", "root": str(link), "processes": 1}
    with Howdah.run(config, time_divider=5) as server, contextlib.ExitStack() as dead:
        hangs = dead.enter_context(dead_file_system(site.folder.scratch))
        link.unlink()
        link.symlink_to(hangs / "app")
        wait_for(lambda: re.search(r"has not answered for \d+ s", server.stderr), "the warning")
        site.swap("2")
        wait_for_version(server, "2")
        link.unlink()
        link.symlink_to(alive)
        dead.close()
        found = 'the paths of the application "hangs" lead again to what runs'
        wait_for(lambda: found in server.stderr, "the end of it, once the file system answers")
        site.swap("1")
        wait_for_version(server, "1")
        assert server.stderr.count("is not known where the paths") == 1


def test_a_file_system_that_recovers_is_followed_again(site):
    with Howdah.run(site.config(), time_divider=5) as server, contextlib.ExitStack() as dead:
        site.current.unlink()
        site.current.symlink_to(dead.enter_context(dead_file_system(site.folder.scratch)))
        wait_for(lambda: re.search(r"has not answered for \d+ s", server.stderr), "the warning")
        dead.close()
        site.swap("1")
        wait_for(lambda: "lead again to what runs" in server.stderr, "the return of the paths")
        site.swap("2")
        wait_for_version(server, "2")
        assert server.stderr.count("is not known where the paths") == 1


# --- Warm-up

LOGGING = "file_put_contents(SCRATCH . '/log', json_encode(array_intersect_key($_SERVER, array_flip(%s))) . PHP_EOL, FILE_APPEND); echo 'ok';"
SEEN = ["REQUEST_URI", "QUERY_STRING", "HTTP_HOST", "SERVER_NAME", "HTTP_X_A", "HTTPS", "HOWDAH_WARM_UP", "REMOTE_ADDR", "SCRIPT_NAME"]


def application(folder, **options):
    return {"type": "php", "root": str(folder.root), "front_controller": "index.php", "processes": 1, **options}


def test_warm_up_requests_are_neither_logged_nor_counted(folder):
    folder.php("index.php", LOGGING % SEEN)
    folder.php("other.php", LOGGING % SEEN)
    log = folder.scratch / "log"
    warm_up = [
        "/a?b=c",
        {"uri": "/other.php", "host": "Shop.example.com:8080", "scheme": "https", "headers": {"X-A": "1"}},
    ]
    access = folder.scratch / "access.log"
    config = {"applications": {"app": application(folder, warm_up=warm_up)}, "access_log": str(access)}
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
    app = application(folder, processes=processes, warm_up=["/a", "/b"])
    with Howdah.run({"applications": {"app": app}}) as server:
        assert (folder.scratch / "log").read_text().count("\n") == 2
        assert server.get("/").status == 200


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
        "if ($wish === 'hang') { touch(SCRATCH . '/hangs'); sleep(100); } "
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
    with Howdah.run({"applications": {"app": application(folder, warm_up=["/warm"], limits={"timeout": 60})}}) as server:
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
    with Howdah.run({"applications": {"app": application(folder)}}) as server:
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
    with Howdah.run({"applications": {"app": application(folder, warm_up=["/warm"])}}) as server:
        assert "the warm-up request /warm of \"app\" was answered 404" in server.stderr
        assert server.get("/").status == 200


def test_a_failed_warm_up_at_the_start_is_logged_and_served(folder):
    will = failing(folder)
    will("fail")
    with Howdah.run({"applications": {"app": application(folder, warm_up=["/warm"])}}) as server:
        assert "did not pass its warm-up: /warm was answered 500" in server.stderr
        assert server.get("/").status == 200


def test_a_hanging_warm_up_ends_with_the_timeout(folder):
    will = failing(folder)
    app = application(folder, warm_up=["/warm"], limits={"timeout": 1})
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
    with Howdah.run({"applications": {"app": application(folder, processes=2, warm_up=["/warm"])}}, time_divider=5) as server:
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
    app = application(folder, warm_up=["/warm"], limits={"timeout": 2})
    with Howdah.run({"applications": {"app": app}}) as server:
        will("hang")
        restart = restart_that_hangs(server, folder)
        assert server.get("/").status == 200, "the running generation serves meanwhile"
        will("")
        assert server.api("PUT", "/config/settings", {"http": {"idle_timeout": 10}}).status == 200
        assert restart.result().status == 500


def test_a_shutdown_during_a_warm_up_is_clean(folder):
    will = failing(folder)
    with Howdah.run({"applications": {"app": application(folder, warm_up=["/warm"])}}) as server:
        will("hang")
        restart = restart_that_hangs(server, folder)
        server.stop(signal.SIGTERM)
        with contextlib.suppress(ProtocolError):  # The connection is closed without an answer.
            assert restart.result().status >= 500


def test_a_prototype_that_dies_during_a_warm_up_fails_the_change(folder):
    will = failing(folder)
    with Howdah.run({"applications": {"app": application(folder, warm_up=["/warm"])}}) as server:
        known = server.prototype()
        will("hang")
        restart = restart_that_hangs(server, folder)
        new = [process for process in server.titled('howdah: "app" prototype') if process.pid != known.pid]
        new[0].kill()
        answer = restart.result()
        assert answer.status == 500 and "does not start" in answer.text
        assert server.get("/").status == 200
        assert server.prototype().pid == known.pid


# --- Development


def edit(path, content):
    path.write_text(content)


def test_with_on_change_an_edit_is_loaded_within_two_seconds(folder):
    # As in production, PHP reads no file twice: only a new generation sees the edit.
    options = {"admin": {"opcache.validate_timestamps": "0", "opcache.file_update_protection": "0"}}
    folder.write("public/index.php", "<?php echo require __DIR__ . '/../src/part.php';")
    part = folder.write("src/part.php", "<?php return 'one';")
    folder.write("composer.json", "{}")
    (folder.root / "var/cache").mkdir(parents=True)
    root = str(folder.root / "public")
    app = {"type": "php", "root": root, "script": "index.php", "processes": 1, "reload": "on-change", "options": options}
    with Howdah.run({"applications": {"app": {**app, "warm_up": ["/"]}}}) as server:
        assert server.get("/").text == "one"
        time.sleep(0.5)
        for text in ("two", "three"):
            edit(part, f"<?php return '{text}';")
            wait_for(lambda: server.get("/").text == text, text, timeout=2)
        edit(part, "<?php return (")
        wait_for(lambda: "was not reloaded" in server.stderr, "the refusal", timeout=2)
        assert server.get("/").text == "three"
        edit(part, "<?php return 'four';")
        wait_for(lambda: server.get("/").text == "four", "four", timeout=2)
        reloads = lambda: server.stderr.count("was reloaded in")
        wait_for(lambda: reloads() == 3, "the last line")
        edit(folder.root / "var/cache/x.php", "<?php")
        edit(folder.root / "src/note.txt", "x")
        time.sleep(1)
        assert reloads() == 3


def test_without_on_change_edits_reload_nothing(folder):
    folder.write("index.php", "<?php echo 'one';")
    with Howdah.run({"applications": {"app": application(folder)}}) as server:
        before = pids(server, 1)
        edit(folder.root / "index.php", "<?php echo 'two';")
        time.sleep(1)
        assert pids(server, 1) == before and "reloaded" not in server.stderr


def test_serve_reloads_on_change(folder):
    folder.write("index.php", "<?php echo 'one';")
    ini = {"opcache.validate_timestamps": "0"}
    with Howdah.serve(folder, "--reload", "on-change", processes=1, ini=ini) as server:
        assert server.get("/").text == "one"
        time.sleep(0.5)
        edit(folder.root / "index.php", "<?php echo 'two';")
        wait_for(lambda: server.get("/").text == "two", "two", timeout=2)


def test_swaps_survive_deaths_of_routers_and_prototypes(site):
    """Despite deaths in between, the last release is reached, and no process of the others is left."""
    chance = random.Random(20261121)
    with Howdah.run(site.config(warm_up=["/", "/warm"])) as server:
        for turn in range(12):
            site.swap(str(turn % 2 + 1))
            time.sleep(0.5 + chance.random() * 0.2)
            for process in server.processes():
                if process.title == "howdah: router" or process.title.endswith("prototype") and chance.random() < 0.3:
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
        site.release("last")
        site.swap("last")
        wait_for_version(server, "last")
        assert server.get("/").json()["late"] == "last"
        server.workers(count=2)
        server.prototype()


def test_exhausted_inotify_watches_are_logged(folder):
    folder.write("index.php", "<?php echo 'one';")
    for name in "abcdef":
        folder.write(f"{name}/x.php", "<?php")
    limit = 'echo 3 > /proc/sys/user/max_inotify_watches && exec "$0" "$@"'
    prefix = ["unshare", "--user", "--map-user=33", "--map-group=33", "--keep-caps", "sh", "-c", limit]
    if subprocess.run([*prefix, "true"], capture_output=True).returncode:
        pytest.skip("no user namespace, or no limit of its own")
    options = ["--reload", "on-change"]
    ini = {"opcache.validate_timestamps": "0"}
    with Howdah.serve(folder, *options, processes=1, ini=ini, prefix=prefix) as server:
        wait_for(lambda: "inotify watches ran out at" in server.stderr, "the warning")
        assert "sysctl fs.inotify.max_user_watches" in server.stderr
        edit(folder.root / "index.php", "<?php echo 'two';")
        wait_for(lambda: server.get("/").text == "two", "watched folders are still followed", timeout=5)
        assert server.stderr.count("ran out") == 1
