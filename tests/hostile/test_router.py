"""Processes of the router's user (by default also scripts) that stop it, or lower its limits."""

import contextlib
import grp
import os
import pwd
import signal
import socket
import subprocess
import threading
import time

import pytest

from support.machine import WWW_DATA, needs_root
from support.processes import Process, thread_states
from support.server import Howdah
from support.waiting import wait_for


def test_a_stopped_router_is_replaced(application, run):
    server = run({"applications": {"app": application}})
    router = server.router()
    router.kill(signal.SIGSTOP)
    # A thread that still runs could accept the connection. After a second, howdah kills the router, and no thread is left.
    wait_for(lambda: set(thread_states(router.pid)) <= {"T"}, "all threads to stop")
    # Without any help: the client waits until another router accepts.
    assert server.get("/").text == "here"
    assert server.router() != router
    server.wait_for_log_line(f"the router (pid {router.pid}) was stopped by a signal; killing it")


def test_a_router_that_is_stopped_for_a_moment_goes_on(application, run):
    server = run({"applications": {"app": application}})
    router = server.router()
    router.kill(signal.SIGSTOP)
    router.kill(signal.SIGCONT)
    assert server.get("/").text == "here"
    assert server.router() == router and "was stopped by a signal" not in server.stderr


def test_a_router_that_is_stopped_again_and_again_is_replaced(application, run):
    server = run({"applications": {"app": application}})
    router = server.router()

    def is_replaced() -> bool:
        with contextlib.suppress(ProcessLookupError):
            router.kill(signal.SIGSTOP)
            time.sleep(0.5)
            router.kill(signal.SIGCONT)
        return not router.alive()

    wait_for(is_replaced, "its end")
    server.wait_for_log_line(f"the router (pid {router.pid}) was stopped by a signal; killing it")
    assert server.get("/").text == "here" and server.router() != router


@pytest.mark.parametrize("limit", [1, 3])
def test_a_router_without_descriptors_is_replaced(application, run, limit):
    server = run({"applications": {"app": application}})
    router = server.router()
    # As a script does that has the router's user.
    uid, gid = (router.status(key).split()[0] for key in ("Uid", "Gid"))
    user = ["setpriv", "--reuid", uid, "--regid", gid, "--clear-groups"] if os.geteuid() == 0 else []
    subprocess.run([*user, "prlimit", f"--nofile={limit}:{limit}", "--pid", str(router.pid)], check=True)
    assert server.get("/").text == "here"
    assert server.router() != router
    line = wait_for(lambda: [line for line in server.stderr.splitlines() if "cannot accept connections (" in line], "the line")[0]
    assert f"(pid {router.pid})" in line and "was lowered from" in line and f"to {limit})" in line


SHARED = "`adduser --system --group --no-create-home howdah`"


@needs_root
def test_an_application_that_shares_the_routers_user_is_warned_of(application, run, folder):
    other = {**application, "user": "daemon"}
    server = run({"applications": {"app": application, "other": other}, "listeners": {"127.0.0.1:{port}": {"pass": "applications/app"}}})
    server.wait_for_log_line(SHARED, '"app"')
    assert '"other"' not in server.stderr
    # With a single application, and with several that have other users, there is nothing to warn of; then a change adds one.
    server = run({"applications": {"other": other, "more": other}})
    assert server.api("DELETE", "/config/applications/more").status == 200
    assert SHARED not in server.stderr
    for name in ("app", "again"):
        assert server.api("PUT", f"/config/applications/{name}", application).status == 200
    server.wait_for_log_line(SHARED, '"app"')


@pytest.fixture
def with_user(tmp_path) -> list[str]:
    """The prefix of a command for which the machine has a user `howdah`."""
    users = tmp_path / "passwd"
    users.write_text(open("/etc/passwd").read() + "howdah:x:47110:47110::/nonexistent:/usr/sbin/nologin\n")
    users.chmod(0o644)
    prefix = ["unshare", "--mount", "sh", "-c", f'mount --bind {users} /etc/passwd && exec "$@"', "sh"]
    if subprocess.run([*prefix, "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("nothing can be mounted")
    return prefix


@needs_root
def test_the_router_has_a_user_of_its_own_if_there_is_one(application, with_user):
    """The user `howdah`, and with --router-user another one: it cannot be stopped by scripts."""
    root = application["root"]
    stop = "echo json_encode([posix_kill((int) $_GET['pid'], SIGSTOP), posix_getuid()]);"
    with open(os.path.join(root, "stop.php"), "w") as script:
        script.write(f"<?php {stop}")
    for options, expected in ((), 47110), (("--router-user", "daemon"), 1):
        config = {"applications": {"app": application, "another": application}}
        with Howdah.run(config, *options, prefix=with_user) as server:
            router = server.router()
            assert set(map(int, router.status("Uid").split())) == {expected}
            stopped, user = server.get(f"/stop.php?pid={router.pid}").json()
            assert not stopped and user not in (expected, 0)
            assert Process.of(router.pid).state != "T" and SHARED not in server.stderr


@needs_root
def test_the_routers_own_user_reaches_what_the_group_of_the_applications_may_reach(application, folder, socket_path, with_user):
    """Files, Unix sockets and a folder for bodies that admit the group www-data, and no other user."""
    group = grp.getgrnam(WWW_DATA).gr_gid
    file = folder.write("file.txt", "for the group")
    os.chown(file, 0, group)
    file.chmod(0o640)
    private = folder.write("private.txt", "for its owner")
    os.chown(private, pwd.getpwnam(WWW_DATA).pw_uid, group)
    private.chmod(0o600)
    folder.php("length.php", "echo strlen(file_get_contents('php://input'));")
    bodies = folder.scratch / "bodies"
    bodies.mkdir()
    os.chown(bodies, 0, group)
    bodies.chmod(0o770)
    routes = [
        {"match": {"uri": "/upstream"}, "action": {"proxy": f"http://unix:{socket_path}"}},
        {"match": {"uri": "*.txt"}, "action": {"share": f"{folder.root}$uri"}},
        {"action": {"pass": "applications/app"}},
    ]
    settings = {"http": {"body_temp_path": str(bodies), "body_buffer_size": 1024}}
    config = {"applications": {"app": application}, "routes": routes, "settings": settings}
    with socket.socket(socket.AF_UNIX) as upstream:
        upstream.bind(str(socket_path))
        os.chown(socket_path, 0, group)
        socket_path.chmod(0o660)
        upstream.listen()

        def answer() -> None:
            connection, _ = upstream.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nupstream")

        threading.Thread(target=answer, daemon=True).start()
        with Howdah.run(config, prefix=with_user) as server:
            assert set(map(int, server.router().status("Uid").split())) == {47110}
            server.wait_for_log_line(f"the router runs as user howdah, groups 47110 and {WWW_DATA}")
            assert server.get("/file.txt").text == "for the group"
            for _ in range(3):
                assert server.get("/private.txt").status == 403
            server.wait_for_log_line("the router's user may not read this file", "private.txt")
            assert server.stderr.count("the router's user may not read this file") == 1
            assert server.get("/upstream").text == "upstream"
            assert server.post("/length.php", b"x" * 100_000).text == "100000"
            # The folder is checked at a change, too.
            assert server.api("PUT", "/config/settings/http/body_temp_path", f'"{bodies}/"').status == 200
