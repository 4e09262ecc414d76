"""Applications that cannot start: the others are served, and they are tried again."""

import json
import shutil

import pytest

from support.command_line import howdah
from support.folders import Folder, readable
from support.server import Howdah
from support.waiting import wait_for


def application(root, **options) -> dict:
    return {"type": "php", "root": str(root), "index": "index.php", "processes": 1, **options}


def two_sites(folder, other: dict) -> dict:
    """`good` answers /good, `bad` everything else."""
    return {
        "listeners": {"127.0.0.1:{port}": {"pass": "routes"}},
        "routes": [
            {"match": {"uri": "/good"}, "action": {"rewrite": "/", "pass": "applications/good"}},
            {"action": {"pass": "applications/bad"}},
        ],
        "applications": {"good": application(folder.root), "bad": other},
    }


def failure(server: Howdah) -> str | None:
    return server.api("GET", "/status/applications/bad").json().get("failure")


@pytest.fixture
def missing(tmp_path):
    return readable(tmp_path) / "late"


def test_a_missing_folder_holds_no_other_application_down(folder, run, missing):
    folder.php("index.php", "echo 'good';")
    server = run(two_sites(folder, application(missing)))
    assert server.get("/good").text == "good"
    answer = server.get("/")
    assert answer.status == 503 and answer.header("Retry-After") == "10"
    server.wait_for_log_line("applications/bad/root", "does not exist", 'the requests of "bad" are answered 503')
    assert "applications/bad/root" in failure(server) and "applications/bad/root" in server.stdout
    assert 'bad: answers 503: applications/bad/root' in howdah("status", "--control", f"unix:{server.control}").stdout
    # The folder comes, and no command is needed.
    site = Folder(missing.parent / "new")
    site.php("index.php", "echo 'late';")
    site.root.rename(missing)
    wait_for(lambda: server.get("/").text == "late", "the next attempt")
    assert failure(server) is None
    server.wait_for_log_line('the application "bad" has started')


def test_a_php_that_does_not_boot_holds_no_other_application_down(folder, run):
    folder.php("index.php", "echo 'good';")
    marker = folder.scratch / "works"
    preload = folder.php("preload.php", f"if (!file_exists('{marker}')) {{ throw new Exception('not yet'); }}")
    options = {"admin": {"opcache.preload": str(preload)}}
    server = run(two_sites(folder, application(folder.root, options=options)))
    assert server.get("/good").text == "good" and server.get("/").status == 503
    assert 'the application "bad" does not start' in failure(server)
    marker.touch()
    wait_for(lambda: server.get("/").text == "good", "the next attempt")


def test_other_applications_can_be_changed_meanwhile(folder, run, missing):
    folder.php("index.php", "echo $_SERVER['COLOUR'] ?? 'none';")
    server = run(two_sites(folder, application(missing)))
    assert server.api("PUT", "/config/applications/good/environment", {"COLOUR": "blue"}).status == 200
    assert server.get("/good").text == "blue" and server.get("/").status == 503
    # A request that is about the application itself gets the reason.
    for method, path in (("POST", "/control/applications/bad/restart"), ("PUT", "/config/applications/bad/index")):
        answer = server.api(method, path, '"x.php"' if method == "PUT" else None)
        assert answer.status == 500 and "applications/bad/root" in answer.text, path
    assert server.api("DELETE", "/config/routes/1").status == 200
    assert server.api("DELETE", "/config/applications/bad").status == 200
    assert server.api("GET", "/status/applications").json().keys() == {"good"}


def test_a_stored_configuration_survives_a_missing_folder(folder, tmp_path):
    folder.php("index.php", "echo 'good';")
    state = readable(tmp_path) / "state"
    root = tmp_path / "only"
    shutil.copytree(folder.root, root)
    config = {"applications": {"bad": application(root)}}
    with Howdah.run(config, "--state-dir", str(state), "--control", f"unix:{tmp_path}/c") as server:
        assert server.get("/").text == "good"
    shutil.move(root, tmp_path / "away")
    words = ["run", "--state-dir", str(state), "--control", f"unix:{tmp_path}/c"]
    with Howdah(lambda _: words, ready=lambda again: again.stdout.startswith("howdah")) as again:
        again.port, again.control = server.port, tmp_path / "c"
        assert again.get("/").status == 503 and "applications/bad/root" in failure(again)
        shutil.move(tmp_path / "away", root)
        wait_for(lambda: again.get("/").text == "good", "the next attempt")


# --- howdah config check --full


def check(tmp_path, config: dict, *options: str, state=None):
    path = tmp_path / "checked.json"
    path.write_text(json.dumps(config))
    return howdah("config", "check", *options, path, "--state-dir", state or tmp_path / "state")


def test_a_full_check_starts_the_applications(folder, tmp_path):
    folder.php("index.php", "echo 'good';")
    config = {"applications": {"shop": application(folder.root)}}
    result = check(tmp_path, config, "--full")
    assert (result.returncode, result.stderr) == (0, ""), result
    assert "the configuration is valid, and its applications start on this machine" in result.stdout
    assert not (tmp_path / "state").exists(), "a check stores nothing"


def test_a_full_check_works_beside_the_running_howdah(folder, run, tmp_path):
    folder.php("index.php", "echo 'good';")
    server = run({"applications": {"shop": application(folder.root)}})
    config = server.api("GET", "/config").json()
    result = check(tmp_path, config, "--full", state=server.directory / "state")
    assert result.returncode == 0, result
    assert server.get("/").text == "good"


def test_a_full_check_names_everything_that_is_wrong(folder, tmp_path):
    folder.php("index.php", "echo 'good';")
    preload = folder.php("preload.php", "throw new Exception('no preload');")
    applications = {
        "folder": application("/no/such/folder"),
        "user": application(folder.root, user="no-such-user"),
        "version": application(folder.root, type="php 5.3"),
        "boot": application(folder.root, options={"admin": {"opcache.preload": str(preload)}}),
        "good": application(folder.root),
    }
    assert check(tmp_path, {"applications": applications}).returncode == 0, "all of it is valid"
    result = check(tmp_path, {"applications": applications}, "--full")
    assert result.returncode == 1 and result.stdout == ""
    line = result.stderr.splitlines()[-1]
    for part in ("applications/folder/root", "applications/user/user", "applications/version/type", '"boot" does not start'):
        assert part in line, part
    assert "no preload" in result.stderr and '"good"' not in line
