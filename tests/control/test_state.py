"""State that survives howdah, and the options of `howdah run`: state directory, pid file, log, user."""

import grp
import json
import os
import pwd
import signal
import stat
import subprocess

import pytest

from support.command_line import error_of, howdah
from support.control import INITIAL, start_in
from support.faults.file_systems import small_disk
from support.folders import readable
from support.http.client import Connection
from support.http.tls import Authority
from support.machine import NOBODY, needs_root
from support.processes import Process
from support.server import EXECUTABLE
from support.waiting import wait_for


@pytest.fixture
def place(socket_path):
    """A folder with a short name: sockets are in it."""
    return socket_path.parent


def application(folder, **options) -> dict:
    return {"type": "php", "root": str(folder.root), "index": "index.php", "processes": 1, **options}


def get(path) -> str:
    """The response of a listener on a unix socket to GET /."""
    with Connection(str(path)) as connection:
        return connection.request("GET", "/").text


# --- The stored configuration


def test_the_configuration_survives_a_restart(place, folder):
    folder.php("index.php", "echo 'hello';")
    listener = f"unix:{place}/s"
    config = {"listeners": {listener: {"pass": "applications/app"}}, "applications": {"app": application(folder)}}
    with start_in(place) as server:
        assert server.api("GET", "/config").json() == INITIAL
        assert server.api("PUT", "/config", config).status == 200
        assert server.api("PUT", "/config/applications/app/environment", {"A": "\xe4"}).status == 200
        expected = server.api("GET", "/config")
    with start_in(place) as server:
        again = server.api("GET", "/config")
        assert again.json() == expected.json() and again.header("ETag") == expected.header("ETag")
        server.workers(count=1)
        assert get(place / "s") == "hello"


def test_the_state_is_readable_by_its_owner_only(place):
    with start_in(place) as server:
        server.api("PUT", "/config/routes", [{"action": {"return": 200}}])
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (place / "state").iterdir()}
        assert modes["conf.json"] == 0o600 and not any(mode & 0o077 for mode in modes.values()), modes
        assert stat.S_IMODE((place / "state").stat().st_mode) == 0o700
        assert not list((place / "state").glob("*.new")), "no temporary file is left"


def test_a_given_configuration_replaces_the_stored_one(place):
    (place / "given.json").write_text('{"routes": [{"action": {"return": 204}}]}')
    with start_in(place) as server:
        server.api("PUT", "/config/routes", [{"action": {"return": 200}}])
    with start_in(place, "--config", str(place / "given.json")) as server:
        assert server.api("GET", "/config/routes/0/action/return").json() == 204
    with start_in(place) as server:
        assert server.api("GET", "/config/routes/0/action/return").json() == 204


@pytest.mark.parametrize(
    "stored, error",
    [
        ('{"routes": [', "the text ends too early"),
        ("", "there is no configuration"),
        ("\0" * 4096, "expected a value"),
        (b"\xff\xfe", "cannot read"),
        ('{"applications": {"x": {"type": "ruby"}}}', '"ruby"'),
        # An application that cannot start is no such failure: see test_failed_applications.py.
        ('{"listeners": {"*:1": {"pass": "routes", "tls": {"certificate": "none"}}}, "routes": []}', "none"),
    ],
)
def test_a_stored_configuration_that_fails_leaves_nothing_configured(place, stored, error):
    (place / "state").mkdir()
    file = place / "state/conf.json"
    file.write_bytes(stored.encode() if isinstance(stored, str) else stored)
    before = file.read_bytes()
    with start_in(place) as server:
        assert error in server.stderr and "empty" in server.stderr
        assert server.api("GET", "/config").json() == INITIAL
        assert file.read_bytes() == before, "the rejected configuration is kept for inspection"
        assert server.api("POST", "/config/routes", {"action": {"return": 200}}).status == 200
        kept = place / "state/conf.json.failed"
        assert kept.read_bytes() == before and str(kept) in server.stderr
    with start_in(place) as server:
        assert len(server.api("GET", "/config/routes").json()) == 1


LOGIN = {"realm": "x", "user_file": "PLACE/theirs/users"}
PARTS = {
    "listener": ({"listeners": {"unix:PLACE/theirs/s": {"pass": "routes"}}}, "s", "unix:PLACE/theirs/s: it works now"),
    "access log": ({"access_log": "PLACE/theirs/log"}, "log", "access_log: PLACE/theirs/log: it works now"),
    "page": ({"settings": {"http": {"error_pages": {"404": "PLACE/theirs/page.html"}}}}, "page.html", None),
    "users": ({"routes": [{"match": {"uri": "/x"}, "action": {"return": 200, "basic_auth": LOGIN}}, {"action": {"return": 204}}]}, "users", None),
}


@pytest.mark.parametrize("part", PARTS)
def test_a_start_and_changes_leave_out_what_a_user_has_taken_away(place, part):
    """Each of these files is in the folder of one user. Once, no site was served after the next start."""
    text, name, works_now = PARTS[part]
    config = {"listeners": {f"unix:{place}/ours": {"pass": "routes"}}, "routes": [{"action": {"return": 204}}]}
    for option, value in json.loads(json.dumps(text).replace("PLACE", str(place))).items():
        config[option] = {**config[option], **value} if option == "listeners" else value
    theirs = place / "theirs"
    theirs.mkdir()
    for file in ("page.html", "users"):
        (theirs / file).touch()

    def is_served() -> bool:
        with Connection(str(place / "ours")) as client:
            return client.request("GET", "/").status == 204

    with start_in(place) as server:
        assert server.api("PUT", "/config", config).status == 200
        assert is_served()
    (theirs / name).unlink(missing_ok=True)
    (theirs / name).mkdir()
    with start_in(place) as server:
        assert server.api("GET", "/config").json() == config
        assert is_served()
        assert str(theirs / name) in server.stderr
        assert server.api("PUT", "/config/settings/http/server_version", "false").status == 200
        assert is_served()
        (theirs / name).rmdir()
        if works_now:
            server.wait_for_log_line(works_now.replace("PLACE", str(place)))
            assert (theirs / name).exists()


def test_a_change_that_names_another_missing_file_is_refused(place):
    with start_in(place) as server:
        refused = server.api("PUT", "/config/settings/http/error_pages", {"404": f"{place}/none.html"})
        assert refused.status == 500 and "error_pages/404" in refused.json()["detail"]


def test_files_left_by_a_crash_are_ignored(place):
    (place / "state").mkdir()
    (place / "state/conf.json").write_text('{"routes": [{"action": {"return": 200}}]}')
    (place / "state/.conf.json.new").write_text("{")
    with start_in(place) as server:
        assert len(server.api("GET", "/config/routes").json()) == 1
        assert server.api("DELETE", "/config/routes").status == 200
        assert not list((place / "state").glob("*.new")), "no temporary file is left"


def test_a_killed_howdah_starts_again_with_its_configuration(place):
    server = start_in(place)
    assert server.api("POST", "/config/routes", {"action": {"return": 200}}).status == 200
    server.kill()
    with start_in(place) as server:
        assert len(server.api("GET", "/config/routes").json()) == 1


def test_two_howdahs_do_not_share_a_state(place):
    with start_in(place) as server:
        line = error_of(howdah("run", "--state-dir", place / "state", "--control", f"unix:{place}/other"))
        assert "another howdah uses the state directory" in line and str(place / "state") in line
        line = error_of(howdah("run", "--state-dir", place / "else", "--control", f"unix:{place}/c"))
        assert "in use" in line
        assert server.api("GET", "/config").json() == INITIAL


@pytest.mark.parametrize("option, word", [("--state-dir", "/proc/nowhere"), ("--control", "*:1"), ("--pid", "/no/pid")])
def test_an_impossible_option_is_an_error(place, option, word):
    options = {"--state-dir": place / "state", "--control": f"unix:{place}/c", option: word}
    line = error_of(howdah("run", *[part for pair in options.items() for part in pair]))
    assert option in line and word in line
    assert not (place / "c").exists()


# --- Full disks


@needs_root
@pytest.mark.parametrize("how", ["full", "read-only"])
def test_a_full_disk_rejects_a_change(place, folder, how):
    folder.php("index.php", "echo getmypid();")
    config = {"listeners": {}, "applications": {"app": application(folder)}}
    with small_disk(place / "state", "size=64k,mode=755") as disk, start_in(place) as server:
        assert server.api("PUT", "/config", config).status == 200
        workers = server.workers(count=1)
        if how == "read-only":
            subprocess.run(["mount", "--bind", str(disk), str(disk)], check=True)
            subprocess.run(["mount", "-o", "remount,bind,ro", str(disk)], check=True)
        answer = server.api("PUT", "/config/applications/app/environment", {"A": "x" * 100_000})
        assert answer.status == 500 and answer.json()["error"] == "Failed to apply new configuration."
        assert "conf.json" in answer.json()["detail"] and "make room" in answer.json()["detail"]
        assert server.api("GET", "/config").json() == config
        assert server.workers(count=1) == workers
        assert json.loads((disk / "conf.json").read_text()) == config
        assert not list(disk.glob("*.new"))
        assert "os error" not in answer.json()["detail"]
        if how == "full":
            assert server.api("PUT", "/config/routes", []).status == 200, "a small change has room"


@needs_root
def test_a_start_needs_no_space(place):
    """The folder of certificates does not exist yet, and cannot be made: there is no certificate in it."""
    with small_disk(place / "state", "size=64k,nr_inodes=3,mode=755") as disk:
        (disk / "conf.json").write_text(json.dumps({"routes": [{"action": {"return": 200}}]}))
        (disk / "lock").touch(0o600)
        with start_in(place) as server:
            assert not (disk / "certs").exists() and "cannot create the folder of certificates" in server.stderr
            assert server.api("GET", "/config/routes").json() == [{"action": {"return": 200}}]
            (place / "ca").mkdir()
            pem = Authority(place / "ca").bundle("shop.example")
            answer = server.api("PUT", "/certificates/shop", pem)
            assert answer.status == 500 and "make room" in answer.json()["detail"]
            subprocess.run(["mount", "-o", "remount,nr_inodes=20", str(disk)], check=True)
            assert server.api("PUT", "/certificates/shop", pem).status == 200
            assert (disk / "certs").stat().st_mode & 0o777 == 0o700


def test_a_missing_state_directory_rejects_a_change(place):
    with start_in(place) as server:
        (place / "state").rename(place / "elsewhere")
        answer = server.api("POST", "/config/routes", {"action": {"return": 200}})
        assert answer.status == 500 and "conf.json" in answer.json()["detail"]
        assert server.api("GET", "/config").json() == INITIAL
        (place / "elsewhere").rename(place / "state")
        assert server.api("POST", "/config/routes", {"action": {"return": 200}}).status == 200


# --- The pid file


def test_the_pid_file_exists_before_the_control_socket(place):
    pid, control = place / "howdah.pid", place / "c"
    command = [str(EXECUTABLE), "run", "--state-dir", str(place / "state"), "--control", f"unix:{control}", "--pid", str(pid)]
    process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], stdout=subprocess.DEVNULL)
    try:
        while not control.exists():
            assert process.poll() is None
        assert pid.read_text() == f"{process.pid}\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert not pid.exists() and not control.exists()
    finally:
        process.kill()
        process.wait()


def test_the_pid_file_of_another_process_is_kept(place):
    with start_in(place, "--pid", str(place / "pid")) as server:
        assert (place / "pid").read_text() == f"{server.pid}\n"
        (place / "pid").write_text("1\n")
    assert (place / "pid").read_text() == "1\n"


def test_a_start_that_fails_leaves_no_pid_file_and_no_socket(place):
    (place / "config.json").write_text('{"applications": {"x": {"type": "php", "root": "/no/such/root"}}}')
    options = ["--state-dir", place / "state", "--control", f"unix:{place}/c", "--pid", place / "pid"]
    assert "/no/such/root" in error_of(howdah("run", *options, "--config", place / "config.json"))
    assert not (place / "pid").exists() and not (place / "c").exists()


# --- The log


def test_messages_go_to_the_log_and_to_a_new_one_after_sigusr1(place):
    log, old = place / "log", place / "log.1"
    with start_in(place, "--log", str(log)) as server:

        def fail(root: str):
            answer = server.api("PUT", "/config/applications/x", {"type": "php", "root": root})
            assert answer.status == 500

        fail("/no/first")
        wait_for(lambda: "/no/first" in log.read_text())
        assert "/no/first" not in server.stderr
        log.rename(old)
        fail("/no/second")
        assert "/no/second" in old.read_text()
        server.send_signal(signal.SIGUSR1)
        wait_for(log.exists, "the new log")
        fail("/no/third")
        assert "/no/third" in log.read_text() and "/no/third" not in old.read_text()
        assert stat.S_IMODE(log.stat().st_mode) == 0o640


# --- Users and folders


@needs_root
@pytest.mark.parametrize("group", [None, "daemon"])
def test_router_and_php_run_as_another_user(place, folder, group):
    readable(place)
    folder.php("index.php", "echo 1;")
    options = ["--user", NOBODY, *(["--group", group] if group else [])]
    config = {"listeners": {f"unix:{place}/s": {"pass": "applications/app"}}, "applications": {"app": application(folder)}}
    with start_in(place, *options) as server:
        assert server.api("PUT", "/config", config).status == 200
        user = pwd.getpwnam(NOBODY)
        gid = grp.getgrnam(group).gr_gid if group else user.pw_gid
        for process in [server.router(), server.prototype(), *server.workers(count=1)]:
            assert process.status("Uid").split() == [str(user.pw_uid)] * 4, process
            assert process.status("Gid").split() == [str(gid)] * 4, process
        assert Process.of(server.pid).status("Uid").split() == [str(os.geteuid())] * 4


def test_a_user_that_does_not_exist_is_an_error(place):
    options = ["--state-dir", place / "state", "--control", f"unix:{place}/c"]
    assert "no-such-user" in error_of(howdah("run", *options, "--user", "no-such-user"))
    assert "no-group-at-all" in error_of(howdah("run", *options, "--group", "no-group-at-all"))


def test_temporary_files_are_in_the_configured_folder(place, folder):
    folder.php("index.php", "echo sys_get_temp_dir(), ' ', getenv('TMPDIR');")
    (place / "tmp").mkdir(mode=0o777)
    (place / "tmp").chmod(0o777)
    config = {"listeners": {f"unix:{place}/s": {"pass": "applications/app"}}, "applications": {"app": application(folder)}}
    with start_in(place, "--tmp-dir", str(place / "tmp")) as server:
        assert server.api("PUT", "/config", config).status == 200
        assert get(place / "s") == f"{place}/tmp {place}/tmp"
    line = error_of(howdah("run", "--tmp-dir", place / "missing"))
    assert "--tmp-dir" in line and str(place / "missing") in line
