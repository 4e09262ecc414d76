"""Deploys: releases behind a symbolic link. No request sees two releases; a bad one is rejected."""

import contextlib
import os
import re
import time

import pytest

from support.background import Background
from support.faults.file_systems import dead_file_system
from support.http.load import Load
from support.releases import (
    front_controller_application,
    pids,
    version,
    wait_for_version,
)
from support.server import Howdah
from support.waiting import wait_for

FATAL = "<?php missing_function();"
SYNTAX_ERROR = "<?php echo ("


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


def test_a_deploy_repeats_no_warning_of_the_configuration(site):
    config = site.config()
    config["routes"] = [{"match": {"uri": "/never"}, "action": {"proxy": "https://127.0.0.1:1", "tls": {"verify": False}}}, *config.get("routes", [])]
    with Howdah.run(config) as server:
        warnings = server.stderr.count("/tls/verify")
        assert warnings > 0
        site.swap("2")
        wait_for(lambda: "was reloaded in" in server.stderr, "the reload")
        assert server.stderr.count("/tls/verify") == warnings


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


def generation(server) -> dict:
    (application,) = server.api("GET", "/status").json()["applications"].values()
    return application["generation"]


def test_with_reload_never_a_swap_waits_for_a_restart(site):
    with Howdah.run(site.config(reload="never")) as server:
        before = generation(server)
        site.swap("2")
        time.sleep(1.5)
        assert version(server) == "1" and server.get("/").json()["late"] == "1" and generation(server) == before
        assert server.api("POST", "/control/applications/app/restart").status == 200
        assert version(server) == "2" and server.get("/").json()["late"] == "2"
        after = generation(server)
        assert after["number"] != before["number"]
        assert before["release"][str(site.root)] == str(site.base / "releases/1/public")
        assert after["release"][str(site.root)] == str(site.base / "releases/2/public")


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
        wait_for(lambda: "lead again to the rejected release" in server.stderr, "the return of the paths")
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
    with Howdah.run({"applications": {"app": front_controller_application(folder)}}) as server, contextlib.ExitStack() as dead:
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
