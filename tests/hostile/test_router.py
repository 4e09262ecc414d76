"""Processes of the router's user (by default also scripts) that stop it, or lower its limits."""

import os
import signal
import subprocess

import pytest

from support.machine import needs_root
from support.processes import Process, thread_states
from support.server import Howdah
from support.waiting import wait_for


def test_a_stopped_router_is_replaced(application, run):
    server = run({"applications": {"app": application}})
    router = server.router()
    router.kill(signal.SIGSTOP)
    # A thread that still runs could accept the connection. howdah waits for a second before it kills the router.
    wait_for(lambda: set(thread_states(router.pid)) == {"T"}, "all threads to stop")
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


SHARED = "`adduser --system howdah`"


@needs_root
def test_an_application_that_shares_the_routers_user_is_warned_of(application, run, folder):
    other = {**application, "user": "daemon"}
    server = run({"applications": {"app": application, "other": other}, "listeners": {"127.0.0.1:{port}": {"pass": "applications/app"}}})
    server.wait_for_log_line(SHARED, '"app"')
    assert '"other"' not in server.stderr
    assert SHARED not in run({"applications": {"other": other}}).stderr


@needs_root
def test_the_router_has_a_user_of_its_own_if_there_is_one(application, tmp_path):
    """The user `howdah`, and with --router-user another one: it cannot be stopped by scripts."""
    users = tmp_path / "passwd"
    users.write_text(open("/etc/passwd").read() + "howdah:x:47110:47110::/nonexistent:/usr/sbin/nologin\n")
    users.chmod(0o644)
    prefix = ["unshare", "--mount", "sh", "-c", f'mount --bind {users} /etc/passwd && exec "$@"', "sh"]
    if subprocess.run([*prefix, "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("nothing can be mounted")
    root = application["root"]
    stop = "echo json_encode([posix_kill((int) $_GET['pid'], SIGSTOP), posix_getuid()]);"
    with open(os.path.join(root, "stop.php"), "w") as script:
        script.write(f"<?php {stop}")
    for options, expected in ((), 47110), (("--router-user", "daemon"), 1):
        with Howdah.run({"applications": {"app": application}}, *options, prefix=prefix) as server:
            router = server.router()
            assert set(map(int, router.status("Uid").split())) == {expected}
            stopped, user = server.get(f"/stop.php?pid={router.pid}").json()
            assert not stopped and user not in (expected, 0)
            assert Process.of(router.pid).state != "T" and SHARED not in server.stderr
