"""Users, privileges and sockets of each process."""

import os
import pwd
from pathlib import Path

import pytest

from support.machine import NOBODY, WWW_DATA, needs_root
from support.processes import Process, open_files
from support.server import Howdah
from support.waiting import wait_for


def ids(process: Process) -> tuple[set[int], set[int]]:
    return set(map(int, process.status("Uid").split())), set(map(int, process.status("Gid").split()))


@needs_root
@pytest.mark.parametrize("options, user", [((), "www-data"), (("--user", NOBODY), NOBODY)])
def test_privileges_are_dropped(scripts, serve, options, user):
    scripts.php(
        "who.php",
        "echo json_encode([posix_getuid(), posix_geteuid(), posix_getgid(), posix_getegid(), posix_getgroups(), @posix_setuid(0)]);",
    )
    server = serve(*options)
    entry = pwd.getpwnam(user)
    uid, gid = entry.pw_uid, entry.pw_gid
    *got, groups, regained = server.get("/who.php").json()
    assert got == [uid, uid, gid, gid] and not regained
    assert 0 not in groups
    assert ids(Process.of(server.pid))[0] == {0}
    for process in [server.prototype(), *server.workers()]:
        assert ids(process) == ({uid}, {gid})
    router = server.router()
    assert 0 not in ids(router)[0] | ids(router)[1]
    for process in [router, server.prototype(), *server.workers()]:
        assert int(process.status("CapEff"), 16) == 0 and int(process.status("CapPrm"), 16) == 0
        assert "0" not in process.status("Groups").split()


@needs_root
def test_the_owner_of_the_folder_is_the_default_user(scripts, serve):
    uid = pwd.getpwnam(NOBODY).pw_uid
    os.chown(scripts.root, uid, -1)
    scripts.php("who.php", "echo posix_geteuid();")
    assert serve().get("/who.php").text == str(uid)


@needs_root
def test_the_user_of_an_application(scripts, run):
    scripts.php("who.php", "echo posix_geteuid(), ' ', posix_getegid();")
    app = {"type": "php", "root": str(scripts.root), "user": NOBODY, "group": "www-data"}
    server = run({"applications": {"app": app}})
    uid, gid = pwd.getpwnam(NOBODY).pw_uid, pwd.getpwnam("www-data").pw_gid
    assert server.get("/who.php").text == f"{uid} {gid}"


@needs_root
@pytest.mark.parametrize("command", ["serve", "run"])
def test_no_php_runs_as_root_by_default(scripts, tmp_path, command):
    """A machine or a container without either default user."""
    users = tmp_path / "passwd"
    users.write_text("root:x:0:0:root:/root:/bin/sh\n")
    # systemd's NSS module would define the second one.
    lookups = tmp_path / "nsswitch.conf"
    lookups.write_text("passwd: files\ngroup: files\n")
    mounts = f"mount --bind {users} /etc/passwd && mount --bind {lookups} /etc/nsswitch.conf"
    hide = ["unshare", "--mount", "sh", "-c", mounts + ' && exec "$@"', "sh"]
    with pytest.raises(AssertionError, match="exit code 1") as failure:
        if command == "serve":
            Howdah.serve(scripts, prefix=hide)
        else:
            Howdah.run({"applications": {"app": {"type": "php", "root": str(scripts.root)}}}, prefix=hide)
    assert f"no user {WWW_DATA} and no user {NOBODY}" in str(failure.value) and "--user" in str(failure.value)
    with Howdah.serve(scripts, "--user", "root", prefix=hide) as server:
        assert server.get("/pid.php").status == 200


@needs_root
def test_php_cannot_reach_what_belongs_to_root(scripts, serve):
    scripts.write("../secret.txt", "secret").chmod(0o600)
    scripts.php(
        "reach.php",
        """echo json_encode([@file_get_contents(__DIR__ . '/../secret.txt'), @posix_kill(posix_getppid(), 0),
            @posix_kill((int) $_GET['supervisor'], 0), @file_put_contents('/proc/' . $_GET['supervisor'] . '/oom_score_adj', '0')]);""",
    )
    server = serve()
    secret, prototype, supervisor, written = server.get(f"/reach.php?supervisor={server.pid}").json()
    assert (secret, supervisor, written) == (False, False, False)


@needs_root
def test_howdah_runs_without_root(scripts):
    """Without root, howdah runs everything as its own user."""
    scripts.php("who.php", "echo posix_geteuid();")
    user = pwd.getpwnam(NOBODY)
    prefix = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    with Howdah.serve(scripts, prefix=prefix) as server:
        assert server.get("/who.php").text == str(user.pw_uid)
        assert {uid for process in server.processes() for uid in ids(process)[0]} == {user.pw_uid}
        server.workers()[0].kill()
        wait_for(lambda: server.get("/who.php").status == 200)


def test_a_worker_holds_no_socket_of_a_client_or_listener(scripts, serve):
    """A compromised worker must not be able to accept connections or to read those of others."""
    server = serve(processes=1)
    with server.connect() as connection:
        connection.request("GET", "/hello.txt")
        inodes = {
            line.split()[9]
            for table in ("tcp", "tcp6")
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
            if int(line.split()[1].split(":")[1], 16) == server.port
        }
        assert inodes
        for process in [server.prototype(), *server.workers()]:
            links = open_files(process.pid).values()
            assert not [link for link in links if link[8:-1] in inodes], f"{process.title}: {links}"


def test_a_worker_holds_no_socket_at_all(scripts, serve):
    """A worker has no socket to the supervisor, unlike the prototype."""
    server = serve(processes=2)
    for _ in range(10):
        server.get("/pid.php")
    for process in server.workers(count=2):
        links = open_files(process.pid).values()
        assert links and not [link for link in links if link.startswith("socket:")], links
    prototype = server.prototype()
    links = open_files(prototype.pid).values()
    assert len([link for link in links if link.startswith("socket:")]) == 1, "the prototype has one socket"
