"""A change is checked: scripts that are missing or unreadable for the application's user reject it."""

import pytest

from support.machine import needs_root
from support.waiting import wait_for

NOT_APPLIED = "Failed to apply new configuration."


def application(folder, **options) -> dict:
    return {"type": "php", "root": str(folder.root), "processes": 1, **options}


@pytest.fixture
def server(folder, run):
    folder.php("index.php", "echo 'old';")
    server = run({"applications": {"app": application(folder)}})
    yield server
    assert server.get("/").text == "old"


def refusal(server, name: str, body: dict) -> str:
    before = server.api("GET", "/config").json()
    answer = server.api("PUT", f"/config/applications/{name}", body)
    assert (answer.status, answer.json().get("error")) == (500, NOT_APPLIED), answer
    assert server.api("GET", "/config").json() == before
    return answer.json()["detail"]


@pytest.mark.parametrize("option", ["script", "front_controller"])
def test_a_missing_script_is_rejected(folder, server, option):
    detail = refusal(server, "app", application(folder, **{option: "none.php"}))
    path = f"{folder.root}/none.php"
    assert f'applications/app/{option}: "{path}" does not exist; create the script or correct the path' in detail


def test_a_folder_instead_of_a_script_is_rejected(folder, server):
    folder.write("sub/x.txt")
    assert "is not a script that can be read" in refusal(server, "app", application(folder, script="sub"))


def test_the_script_of_each_target_is_checked(folder, server):
    root = str(folder.root)
    targets = {"good": {"root": root, "script": "index.php"}, "bad": {"root": root, "script": "none.php"}}
    detail = refusal(server, "other", {"type": "php", "targets": targets})
    assert "applications/other/targets/bad/script: " in detail


@needs_root
def test_a_script_that_the_user_cannot_read_is_rejected(folder, server):
    folder.php("closed.php", "echo 1;").chmod(0o600)
    detail = refusal(server, "app", application(folder, script="closed.php"))
    assert f'applications/app/script: the user "www-data" may not read "{folder.root}/closed.php"' in detail


@needs_root
def test_a_folder_that_the_user_cannot_enter_is_rejected(folder, server):
    folder.php("private/sub/index.php", "echo 1;")
    (folder.root / "private").chmod(0o700)
    for root in ["private", "private/sub"]:
        detail = refusal(server, "other", {"type": "php", "root": f"{folder.root}/{root}"})
        assert 'applications/other/root: the user "www-data" ' in detail
    assert f'because "{folder.root}/private" does not let it pass; ' in detail


def test_a_script_that_is_removed_while_its_application_runs(folder, server):
    """A checked application restarts even if its script is gone: the requests report the error."""
    folder.php("script.php", "echo 'old';")
    assert server.api("PUT", "/config/applications/app", application(folder, script="script.php")).status == 200
    script = folder.root / "script.php"
    text = script.read_text()
    script.unlink()
    before = server.prototype()
    before.kill()
    wait_for(lambda: server.titled('howdah: "app" prototype') not in ([], [before]), "another prototype")
    assert server.get("/").status == 404
    folder.write("script.php", text)
