"""The control API of `howdah serve`: its socket, and the commands that find it."""

import json
import os
import pwd
import re
import signal
import stat
from pathlib import Path

import pytest

from support.command_line import error_of, howdah
from support.folders import Folder, readable
from support.machine import NOBODY, needs_root
from support.server import Howdah
from support.waiting import wait_for


def control_of(server: Howdah) -> str:
    """The address in the first lines."""
    wait_for(lambda: "control unix:" in server.stdout, "the address of the control API")
    return re.search(r"^control (unix:\S+)$", server.stdout, re.M)[1]


def ask(*arguments) -> str:
    result = howdah(*arguments)
    assert (result.returncode, result.stderr) == (0, ""), result
    return result.stdout


def test_the_commands_find_a_serve_by_its_folder(folder, serve, tmp_path):
    folder.php("index.php", "usleep((int) ($_GET['us'] ?? 0)); echo getmypid();")
    server = serve("--slow-log", "0.05", processes=1)
    here = ("--folder", folder.root)
    assert "app" in ask("status", *here)
    assert "idle" in ask("top", "--once", *here)
    before = server.get("/").text
    assert ask("restart", "app", *here) == 'The application "app" has restarted.\n'
    wait_for(lambda: server.get("/").text != before)
    server.get("/?us=200000")
    wait_for(lambda: "/?us=200000" in ask("slow", *here), "the slow request")
    # A profile needs a request that runs meanwhile.
    with server.connect() as connection:
        connection.send_request("GET", "/?us=5000000")
        result = howdah("profile", "app", "--seconds", "1", *here, cwd=tmp_path)
    assert result.returncode == 0 and (tmp_path / "app-profile.svg").exists(), result


def test_several_serves_are_found_by_their_folders(serve, tmp_path):
    sites = [Folder(readable(tmp_path) / name) for name in ("a", "b")]
    for site in sites:
        site.php("index.php", "echo 1;")
    with Howdah.serve(sites[0], processes=1) as first, Howdah.serve(sites[1], processes=2) as second:
        for site, server, count in ((sites[0], first, 1), (sites[1], second, 2)):
            server.workers(count=count)
            status = json.loads(ask("status", "--json", "--folder", site.root))
            assert status["applications"]["app"]["processes"]["running"] == count
        assert control_of(first) != control_of(second)
    assert "no `howdah serve` of this user serves" in error_of(howdah("status", "--folder", sites[0].root))


def test_two_serves_of_one_folder_are_named(folder, serve):
    folder.php("index.php", "echo 1;")
    servers = [serve(processes=1), serve(processes=1)]
    line = error_of(howdah("status", "--folder", folder.root))
    assert "2 `howdah serve` are running; choose one with --folder DIR, or with --control" in line
    for server in servers:
        assert control_of(server) in line
        assert "app" in ask("status", "--control", control_of(server))


def test_the_socket_is_private_and_removed_at_the_end(folder, serve):
    folder.php("index.php", "echo 1;")
    server = serve(processes=1)
    socket = Path(control_of(server).removeprefix("unix:"))
    for path, mode in ((socket, 0o600), (socket.parent, 0o700), (socket.parent.parent, 0o700)):
        assert stat.S_IMODE(path.stat().st_mode) == mode, path
    server.stop()
    assert not socket.parent.exists() and socket.parent.parent.exists()


def test_the_folder_of_a_killed_serve_is_removed_by_the_next_one(folder, serve):
    folder.php("index.php", "echo 1;")
    server = serve(processes=1)
    left = Path(control_of(server).removeprefix("unix:")).parent
    server.send_signal(signal.SIGKILL)
    server.kill()
    assert left.exists()
    serve(processes=1)
    assert not left.exists()


def test_the_address_can_be_chosen(folder, serve, socket_path):
    folder.php("index.php", "echo 1;")
    server = serve("--control", f"unix:{socket_path}", processes=1)
    assert control_of(server) == f"unix:{socket_path}"
    assert "app" in ask("status", "--control", f"unix:{socket_path}")


def test_a_change_beside_serve_names_its_option(folder, serve, tmp_path):
    folder.php("index.php", "echo 1;")
    server = serve(processes=1)
    (tmp_path / "root.json").write_text('"/no/such/folder"')
    result = howdah("config", "put", "applications/app/root", tmp_path / "root.json", "--control", control_of(server))
    assert result.returncode == 1 and "applications/app/root" in result.stderr
    (tmp_path / "action.json").write_text(json.dumps({"return": 418}))
    ask("config", "put", "routes/0/action", tmp_path / "action.json", "--control", control_of(server))
    assert server.get("/index.php").status == 418


@needs_root
def test_a_serve_without_a_private_folder_serves(folder, tmp_path):
    """For example a container's user without a home."""
    folder.php("index.php", "echo 1;")
    user = pwd.getpwnam(NOBODY)
    prefix = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    with Howdah.serve(folder, prefix=prefix, environ={"HOME": "/proc/no-such-home"}) as server:
        assert server.get("/").text == "1"
        assert "without --control, this howdah has no control API" in server.stderr


@needs_root
@pytest.mark.parametrize("owner", [NOBODY, None, 54321])
def test_a_printed_configuration_runs_as_the_same_users(folder, tmp_path, owner):
    """The owner of the folder is a user with a name, root, or a user without a name."""
    folder.php("index.php", "echo posix_getuid(), ' ', posix_getgid();")
    folder.write("hello.txt", "hello")
    if owner is not None:
        uid, gid = (owner, owner + 1) if isinstance(owner, int) else pwd.getpwnam(owner)[2:4]
        for path in [folder.root, *folder.root.iterdir()]:
            os.chown(path, uid, gid)
        folder.root.chmod(0o700)

    def users(server: Howdah, name: str) -> tuple:
        processes = [server.router(), server.prototype(name)]
        ids = [(process.status("Uid"), process.status("Gid"), process.status("Groups")) for process in processes]
        return server.get("/").text, server.get("/hello.txt").text, ids

    with Howdah.serve(folder, processes=1) as served:
        expected = users(served, "app")
    assert expected[1] == "hello"
    port = served.port
    printed = howdah("serve", folder.root, "--listen", f"127.0.0.1:{port}", "--processes", "1", "--print-config")
    path = tmp_path / "printed.json"
    path.write_text(printed.stdout)
    with Howdah(lambda _: ["run", "--config", str(path)], ready=lambda server: f":{port}" in server.stdout) as running:
        running.port = port
        assert users(running, "app") == expected


def test_a_printed_configuration_needs_no_root(folder, tmp_path):
    """Without root it has no user, because only root can choose one."""
    prefix = []
    if os.geteuid() == 0:
        user = pwd.getpwnam(NOBODY)
        prefix = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    folder.php("index.php", "echo 1;")
    printed = howdah("serve", folder.root, "--print-config", prefix=prefix, env={"HOME": str(tmp_path)})
    assert printed.returncode == 0 and not {"user", "group"} & set(json.loads(printed.stdout)["settings"])
