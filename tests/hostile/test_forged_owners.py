"""A user who mounts a FUSE file system over a folder of the user, with `user_allow_other` in /etc/fuse.conf. It claims other owners."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from support.command_line import howdah
from support.dashboard import Dashboard
from support.faults.file_systems import forged_file_system
from support.machine import NOBODY, free_port, needs_root
from support.server import EXECUTABLE

USER, OTHER = 65534, 1

pytestmark = needs_root


@pytest.fixture
def home(socket_path) -> Path:
    """The folder of the user, in one to which all users can write."""
    home = socket_path.parent / "howdah"
    socket_path.parent.chmod(0o1777)
    home.mkdir()
    os.chown(home, USER, USER)
    return home


def test_links_that_claim_to_be_roots_lead_to_no_file_of_another_user(run, home, folder):
    private = folder.root / "private"
    private.mkdir()
    (private / "file").write_text("private")
    (private / "log").touch()
    entries = {"log": f"{private}/log", "public": str(private)}
    with forged_file_system(home, USER, 0, entries):
        assert (home / "public").lstat().st_uid == 0 and (home / "public/file").read_text() == "private", "the attack works"
        server = run({"routes": [{"action": {"share": f"{home}/public$uri"}}]})
        assert server.get("/file").status == 404
        server.wait_for_log_line("not served", f"a symbolic link of user id {USER} to {private}")
        refused = server.api("PUT", "/config/access_log", json.dumps(f"{home}/log"))
        assert refused.status == 500 and f"it is a symbolic link of user id {USER}, which is not followed" in refused.text, refused
    assert (private / "log").read_text() == ""


def test_a_file_system_of_root_has_the_owners_that_it_reports(run, home, folder):
    public = folder.root / "public"
    public.mkdir()
    (public / "file").write_text("public")
    with forged_file_system(home, 0, 0, {"public": str(public)}):
        server = run({"routes": [{"action": {"share": f"{home}/public$uri"}}]})
        assert server.get("/file").text == "public"


def test_serve_takes_no_user_that_a_file_system_claims(home, folder):
    folder.php("index.php", "")
    with forged_file_system(home, USER, OTHER, {"index.php": f"{folder.root}/index.php"}):
        command = [str(EXECUTABLE), "serve", str(home), "--listen", f"127.0.0.1:{free_port()}", "--print-config"]
        printed = subprocess.run(command, capture_output=True, text=True)
        assert f'"user": "{NOBODY}"' in printed.stdout, printed


def test_run_takes_no_state_directory_that_claims_to_be_its_own(home):
    with forged_file_system(home, USER, OTHER, {}):
        command = ["setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups", str(EXECUTABLE), "run"]
        environment = {"PATH": os.environ["PATH"], "TMPDIR": str(home.parent)}
        refused = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert refused.returncode == 1 and f"it belongs to user id {USER}" in refused.stderr, refused


def test_a_configuration_is_edited_in_no_folder_that_claims_to_be_roots(run, home):
    server = run({"routes": []})
    with forged_file_system(home, USER, 0, {}, 0o700):
        environment = {"PATH": os.environ["PATH"], "TMPDIR": str(home), "EDITOR": "true"}
        refused = howdah("config", "edit", "--control", f"unix:{server.control}", env=environment)
    assert refused.returncode == 1 and f"the folder \"{home}\" belongs to user id {USER}; set TMPDIR" in refused.stderr, refused


def test_a_dashboard_has_no_history_in_a_folder_that_claims_to_be_roots(home):
    with forged_file_system(home, USER, 0, {}, 0o700), Dashboard("--history", str(home)) as dashboard:
        assert "other users can enter the folder; choose another with --history" in dashboard.text
