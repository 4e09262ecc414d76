"""`reload` on change: edits and swaps are loaded while processes die."""

import contextlib
import os
import random
import subprocess
import time

import pytest

from support.releases import front_controller_application, pids, wait_for_version
from support.server import Howdah
from support.waiting import wait_for


def edit(path, content):
    path.write_text(content)


@pytest.mark.load
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


def test_a_syntax_error_is_not_loaded(folder):
    """Each page includes the broken file, and gets the code before the edit."""
    folder.write("index.php", "<?php echo is_file(__DIR__ . '/part.php') ? include __DIR__ . '/part.php' : 'none';")
    part = folder.write("part.php", "<?php return 'one';")
    # By default, PHP would read the broken file two seconds after it was written.
    always = {"admin": {"opcache.revalidate_freq": "0"}}
    app = front_controller_application(folder, reload="on-change", options=always)
    with Howdah.run({"applications": {"app": app}}) as server:
        assert server.get("/").text == "one"
        edits = 0
        for text, problem in (("<?php return 1 2;", "syntax error"), ("<?php break;", "'break' not in the")):
            edit(part, text)
            edits += 1
            refusals = lambda: [line for line in server.stderr.splitlines() if "was not reloaded, although" in line]
            wait_for(lambda: len(refusals()) == edits, "the refusal")
            assert f"PHP cannot compile {part}" in refusals()[-1] and problem in refusals()[-1]
            assert server.get("/").text == "one"
        # Another edit does not hide the broken file.
        folder.write("other.php", "<?php return 1;")
        wait_for(lambda: len(refusals()) == edits + 1, "the refusal of the other edit")
        assert server.get("/").text == "one"
        edit(part, "<?php return 'two';")
        wait_for(lambda: server.get("/").text == "two", "the corrected file")


def test_php_may_look_for_changes_itself(folder):
    folder.write("index.php", "<?php echo include __DIR__ . '/vendor/part.php';")
    part = folder.write("vendor/part.php", "<?php return 'one';")
    os.utime(part, (1, 1))
    options = {"admin": {"opcache.validate_timestamps": "1", "opcache.revalidate_freq": "0"}}
    app = front_controller_application(folder, reload="on-change", options=options)
    with Howdah.run({"applications": {"app": app}}) as server:
        assert server.get("/").text == "one"
        edit(part, "<?php return 'two';")
        wait_for(lambda: server.get("/").text == "two", "a file that howdah does not watch")


def test_an_error_at_run_time_is_found_by_a_warm_up(folder):
    folder.write("index.php", "<?php require __DIR__ . '/one.php'; require __DIR__ . '/two.php'; echo (new One)->name;")
    folder.write("one.php", "<?php class One { public $name = 'one'; }")
    two = folder.write("two.php", "<?php class Two {}")
    app = front_controller_application(folder, reload="on-change", warm_up=["/"])
    with Howdah.run({"applications": {"app": app}}) as server:
        assert server.get("/").text == "one"
        edit(two, "<?php class One {}")
        server.wait_for_log_line("was not reloaded, although", str(two), "warm-up")
        assert server.get("/").text == "one"


def test_without_on_change_edits_reload_nothing(folder):
    folder.write("index.php", "<?php echo 'one';")
    with Howdah.run({"applications": {"app": front_controller_application(folder)}}) as server:
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
        wait_for(lambda: server.get("/").text == "two", "two")


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
