"""Users of the machine who put folders, links and servers where a howdah of another user will look."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Iterator

import pytest

from support.command_line import error_of, howdah
from support.folders import readable
from support.http_applications import http_application, pids
from support.machine import free_port
from support.processes import Process
from support.roadrunner_applications import PYTHON
from support.server import EXECUTABLE
from support.waiting import wait_for

VICTIM, ATTACKER = 65534, 33


@pytest.fixture
def place() -> Path:
    """The folder for temporary files of all users."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as two users")
    place = Path(tempfile.mkdtemp(prefix="howdah-users-"))
    place.chmod(0o1777)
    yield place
    shutil.rmtree(place)


def owned(path: Path, user: int) -> Path:
    path.mkdir()
    os.chown(path, user, user)
    return path


def start(place: Path, *words: str) -> subprocess.Popen:
    """A howdah of the victim, who has no HOME: its folders are those for temporary files."""
    command = ["setpriv", f"--reuid={VICTIM}", f"--regid={VICTIM}", "--clear-groups", "--pdeathsig=KILL", str(EXECUTABLE)]
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(place)}
    output = open(place / "output", "wb")
    with output:
        return subprocess.Popen([*command, *words], env=environment, cwd="/", stdout=output, stderr=output)


def end(process: subprocess.Popen) -> None:
    process.terminate()
    process.wait()


def test_serve_removes_nothing_through_the_link_of_another_user(place, folder):
    folder.write("index.html", "here")
    victim = owned(place / "victim", VICTIM)
    kept = owned(victim / "documents", VICTIM)
    (kept / "file").write_text("kept")
    base = owned(place / "howdah", ATTACKER)
    (base / "serve").symlink_to(victim)
    os.chown(base / "serve", ATTACKER, ATTACKER, follow_symlinks=False)
    process = start(place, "serve", str(folder.root), "--listen", f"127.0.0.1:{free_port()}")
    try:
        text = lambda: (place / "output").read_text()
        wait_for(lambda: "is ready" in text() or process.poll() is not None, "its start")
        assert (kept / "file").exists(), text()
        assert "other users may write to the folder" in text()
    finally:
        end(process)


def test_run_does_not_take_the_configuration_of_another_user(place):
    proof = place / "proof"
    state = owned(place / "howdah", ATTACKER)
    # Open to the victim, and looks private.
    state.chmod(0o777)
    command = ["sh", "-c", f"id > {proof}; sleep 1000"]
    (state / "conf.json").write_text('{"applications": {"app": {"type": "http", "command": %s}}}' % str(command).replace("'", '"'))
    process = start(place, "run")
    try:
        wait_for(lambda: process.poll() is not None or proof.exists(), "its end")
        assert not proof.exists(), proof.read_text()
        assert process.returncode == 1 and "belongs to" in (place / "output").read_text()
    finally:
        end(process)


def test_serve_takes_no_account_of_another_user_for_its_certificates(place, folder):
    """The key of the account is enough to obtain certificates for the domains that it has proven."""
    folder.write("index.html", "here")
    accounts = owned(place / "howdah", ATTACKER)
    accounts.chmod(0o777)
    for name in ("acme", "accounts"):
        accounts = owned(accounts / name, ATTACKER)
    account = {"directory": "http://127.0.0.1:1/directory", "key_id": None, "credentials": "the attacker's key"}
    (accounts / "http___127_0_0_1_1_directory").write_text(json.dumps(account))
    names = ("--domain", "shop.example", "--email", "ops@example.org", "--acme-directory", "http://127.0.0.1:1/directory")
    process = start(place, "serve", str(folder.root), "--listen", f"127.0.0.1:{free_port()}", *names)
    try:
        text = lambda: (place / "output").read_text()
        wait_for(lambda: "is ready" in text() or process.poll() is not None, "its start")
        assert process.poll() == 1 and f"it belongs to user id {ATTACKER}" in text(), text()
    finally:
        end(process)


def test_a_command_sends_nothing_to_a_howdah_of_another_user(place):
    base = owned(place / "howdah", ATTACKER)
    base.chmod(0o777)
    listen = "import socket; s = socket.socket(socket.AF_UNIX); s.bind(%r); s.listen(); print(flush=True)\n" % str(base / "control.sock")
    receive = "while True:\n  c, _ = s.accept(); c.settimeout(1); data = c.recv(100); data and print(data, flush=True)"
    attacker = ["setpriv", f"--reuid={ATTACKER}", f"--regid={ATTACKER}", "--clear-groups", PYTHON, "-c", listen + receive]
    with subprocess.Popen(attacker, stdout=subprocess.PIPE) as attacker:
        try:
            attacker.stdout.readline()
            (base / "control.sock").chmod(0o777)
            (place / "new.json").write_text('{"secret": 1}')
            process = start(place, "config", "put", str(place / "new.json"))
            wait_for(lambda: process.poll() is not None, "its end", timeout=5)
            assert process.returncode == 1 and f"user id {ATTACKER} runs the howdah" in (place / "output").read_text()
        finally:
            process.kill()
            attacker.kill()
        assert attacker.stdout.read() == b""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as two users")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_command_sends_nothing_to_another_user_on_the_port_of_howdah(host, place):
    port = str(free_port())
    (place / "new.json").write_text('{"secret": 1}')
    with thief_at(port, user=ATTACKER) as thief:
        process = start(place, "config", "put", str(place / "new.json"), "--control", f"{host}:{port}")
        try:
            wait_for(lambda: process.poll() is not None, "its end", timeout=5)
        finally:
            process.kill()
        assert thief.stdout.readline() == "b''\n"
    output = (place / "output").read_text()
    assert process.returncode == 1 and f"nothing was sent to {host}:{port}: user id {ATTACKER} listens there" in output, output


def test_a_backlog_that_another_user_keeps_full_stops_no_command(place):
    control = owned(place / "howdah", ATTACKER) / "control.sock"
    control.parent.chmod(0o777)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as waiting:
        listener.bind(str(control))
        control.chmod(0o777)
        listener.listen(0)
        waiting.connect(str(control))
        for words in (["status"], ["status", "--control", f"unix:{control}"]):
            process = start(place, *words)
            try:
                wait_for(lambda: process.poll() is not None, "its end", timeout=10)
                assert process.returncode == 1
                assert f"too many connections wait for howdah on unix:{control}" in (place / "output").read_text()
            finally:
                process.kill()
                process.wait()


SERVER = """
import os, pathlib, socket, sys, time
place, port = pathlib.Path(sys.argv[1]), os.environ["PORT"]
(place / "new").write_text(port)
(place / "new").rename(place / "port")
while not (place / "listen").exists():
    time.sleep(0.01)
with socket.create_server(("127.0.0.1", int(port))) as server:
    server.settimeout(0.01)
    while not (place / "close").exists():
        try:
            client, _ = server.accept()
        except TimeoutError:
            continue
        with client:
            if client.recv(10000):
                client.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 4\\r\\nConnection: close\\r\\n\\r\\nhere")
(place / "closed").touch()
time.sleep(1000)
"""
# It prints the bytes of each connection.
THIEF = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
with socket.socket() as server:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if sys.argv[3:]:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, sys.argv[3].encode())
    server.bind(("127.0.0.1", int(sys.argv[1])))
    server.listen()
    print("listens", flush=True)
    while True:
        client, _ = server.accept()
        print(client.recv(10000), flush=True)
        client.close()
"""


@contextlib.contextmanager
def thief_at(port: str, *interface: str, user=65534) -> Iterator[subprocess.Popen]:
    """A server of this user, for all interfaces or this one."""
    command = [sys.executable, "-c", THIEF, port, str(user), *interface]
    thief = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert thief.stdout.readline() == "listens\n"
        yield thief
    finally:
        thief.kill()
        thief.communicate()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as two users")
@pytest.mark.parametrize("interface", [[], ["lo"]], ids=["all interfaces", "lo"])
def test_a_port_that_another_user_has_bound_gets_no_requests(interface, run, folder):
    place = folder.scratch
    command = [PYTHON, str(folder.write("server.py", SERVER)), str(place)]
    application = {"type": "http", "address": "port", "command": command, "stop_timeout": 0.5, "connect_timeout": 1}
    routes = [{"match": {"uri": "/other"}, "action": {"return": 200}}, {"action": {"pass": "applications/app"}}]
    server = run({"applications": {"app": http_application(folder)}, "routes": routes})
    with ThreadPoolExecutor() as pool:
        changed = pool.submit(server.api, "PUT", "/config/applications/app", application)
        port = wait_for(lambda: (place / "port").exists() and (place / "port").read_text(), "the process")
        with thief_at(port, *interface) as thief:
            # The process is checked again and again: the other server is not taken for it.
            for _ in range(3):
                assert thief.stdout.readline() == "b''\n"
            assert not changed.done()
        (place / "listen").touch()
        assert changed.result().status == 200, changed.result().text
    assert server.get("/").text == "here"
    (place / "close").touch()
    wait_for((place / "closed").exists, "the end of the listener")
    with thief_at(port, *interface) as thief:
        assert server.get("/").status == 502
        assert thief.stdout.readline() == "b''\n"
        server.wait_for_log_line("user id 65534 listens there, and not")
        # The next process gets another port.
        for name in ("port", "close"):
            (place / name).unlink()
        Process.of(pids(server)[0]).kill()
        wait_for(lambda: server.get("/").status == 200, "another process")
        assert (place / "port").read_text() != port


def test_a_folder_that_becomes_a_link_leads_no_log_elsewhere(run, folder, tmp_path):
    """The application's user owns the folder above its logs: it must not have root write into a folder of root."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as two users")
    private, home = tmp_path / "private", folder.root / "home"
    private.mkdir(mode=0o700)
    logs = home / "logs"
    logs.mkdir(parents=True)
    for each in (home, logs):
        os.chown(each, ATTACKER, ATTACKER)
    folder.php("index.php", "usleep(20000); error_log('a message'); echo 'here';")
    application = {"type": "php", "root": str(folder.root), "processes": 1, "stderr": str(logs / "stderr")}
    application["slow_log"] = {"threshold": 0.01, "path": str(logs / "slow")}
    server = run({"applications": {"app": application}, "access_log": str(logs / "access")})
    assert server.get("/").text == "here"
    wait_for(lambda: (logs / "access").read_text(), "a line")
    logs.rename(home / "former")
    logs.symlink_to(private)
    os.chown(logs, ATTACKER, ATTACKER, follow_symlinks=False)
    server.send_signal(signal.SIGUSR1)
    wait_for(lambda: f"is a symbolic link of user id {ATTACKER}" in server.stderr, "the refusal")
    assert server.get("/").text == "here"
    logs.unlink()
    (home / "former").rename(logs)
    server.send_signal(signal.SIGUSR1)
    assert server.get("/").text == "here"
    assert not list(private.iterdir())


MOUNTED = "mount --bind {victim} {log} && echo mounted && exec cat"


def test_mounts_of_another_user_lead_no_log_elsewhere(run, folder, tmp_path):
    """In its own mount namespace, the owner of the logs' folder gives a file of root the name of the log."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as two users")
    victim, home = tmp_path / "victim", owned(folder.root / "home", VICTIM)
    victim.write_text("of root")
    logs, real = owned(home / "logs", VICTIM), owned(home / "real", VICTIM)
    (real / "access").touch()
    folder.php("index.php", "echo 'here';")
    application = {"type": "php", "root": str(folder.root), "processes": 1}
    server = run({"applications": {"app": application}, "access_log": str(logs / "access")})
    assert server.get("/").text == "here"
    script = MOUNTED.format(victim=victim, log=real / "access")
    command = ["setpriv", f"--reuid={VICTIM}", f"--regid={VICTIM}", "--clear-groups", "unshare", "-Urm", "sh", "-c", script]
    attacker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        if attacker.stdout.readline() != "mounted\n":
            pytest.skip(f"no mounts of users here: {attacker.communicate()[1].strip()}")
        logs.rename(home / "former")
        logs.symlink_to(f"/proc/{attacker.pid}/root{real}")
        os.chown(logs, VICTIM, VICTIM, follow_symlinks=False)
        assert (logs / "access").read_text() == "of root", "the attack works"
        server.send_signal(signal.SIGUSR1)
        server.wait_for_log_line("leads to a link in /proc, which is not followed")
        assert server.get("/").text == "here"
    finally:
        attacker.kill()
        attacker.wait()
    assert victim.read_text() == "of root"


def test_serve_takes_no_user_by_the_link_of_another_user(place, folder):
    """The link leads to the code of its owner later."""
    site = folder.root / "site"
    site.mkdir()
    (site / "index.php").write_text("<?php echo posix_geteuid();")
    os.chown(site, ATTACKER, ATTACKER)
    link = owned(place / "home", VICTIM) / "link"
    link.symlink_to(site)
    os.chown(link, VICTIM, VICTIM, follow_symlinks=False)
    command = [str(EXECUTABLE), "serve", str(link), "--listen", f"127.0.0.1:{free_port()}", "--print-config"]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 1 and "name the user with --user" in refused.stderr, refused
    assert f"is a symbolic link of user id {VICTIM} to {site}, which belongs to another user" in refused.stderr
    # A way up from the current folder leads through the same link.
    inside = owned(place / "home" / "app", VICTIM)
    relative = subprocess.run([*command[:2], "../link", *command[3:]], cwd=inside, capture_output=True, text=True)
    assert relative.returncode == 1 and relative.stderr == refused.stderr
    named = subprocess.run([*command, "--user", "www-data"], capture_output=True, text=True)
    assert json.loads(named.stdout)["settings"]["user"] == "www-data"
    # Its owner may lead to its own folder, unless another user can rename it.
    os.chown(link, ATTACKER, ATTACKER, follow_symlinks=False)
    renamed = subprocess.run(command, capture_output=True, text=True)
    assert f"is a symbolic link of user id {ATTACKER} in a folder of user id {VICTIM} to {site}" in renamed.stderr
    os.chown(link.parent, 0, 0)
    own = subprocess.run(command, capture_output=True, text=True)
    assert own.returncode == 0, own.stderr


def test_an_access_log_above_the_current_folder_is_not_behind_the_link_of_another_user(place, folder):
    folder.write("index.html", "here")
    victim = place / "victim"
    victim.write_text("of root")
    inside = owned(owned(place / "home", ATTACKER) / "app", ATTACKER)
    (place / "home" / "access.log").symlink_to(victim)
    os.chown(place / "home" / "access.log", ATTACKER, ATTACKER, follow_symlinks=False)
    command = [str(EXECUTABLE), "serve", str(folder.root), "--listen", f"127.0.0.1:{free_port()}", "--access-log", "../access.log"]
    done = subprocess.run(command, cwd=inside, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and f"it is a symbolic link of user id {ATTACKER}, which is not followed" in done.stderr
    assert victim.read_text() == "of root"


def test_a_rootfs_does_not_become_that_of_another_user(run, folder, place):
    """Its owner puts a link in its place, and kills the own prototype."""
    rootfs = owned(owned(place / "home", ATTACKER) / "rootfs", ATTACKER)
    other = owned(owned(place / "private", VICTIM) / "rootfs", VICTIM)
    other.parent.chmod(0o700)
    for root, text in ((rootfs, "own"), (other, "of another user")):
        (root / "app").mkdir()
        (root / "app" / "index.php").write_text(f"<?php echo '{text}';")
    application = {"type": "php", "root": "/app", "processes": 1, "user": "www-data", "isolation": {"rootfs": str(rootfs)}}
    server = run({"applications": {"app": application}})
    assert server.get("/index.php").text == "own"
    rootfs.rename(place / "home" / "former")
    rootfs.symlink_to(other)
    os.chown(rootfs, ATTACKER, ATTACKER, follow_symlinks=False)
    server.prototype().kill()
    # There is a line for each attempt.
    reason = f"a symbolic link of user id {ATTACKER} to {other}, which belongs to another user"
    wait_for(lambda: reason in server.stderr, "the reason")
    assert sorted(entry.name for entry in other.iterdir()) == ["app"]
    rootfs.unlink()
    (place / "home" / "former").rename(rootfs)
    wait_for(lambda: server.get("/index.php").text == "own", "its own rootfs")


def test_a_page_of_errors_shows_no_file_of_another_user(run, folder, tmp_path):
    """The owner of a site puts a link in the place of its page. The router may read the files of several sites."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as two users")
    site, secret = folder.root / "site", folder.write("secret", "of another site")
    site.mkdir()
    page = site / "404.html"
    page.write_text("not here")
    for each in (site, page):
        os.chown(each, VICTIM, VICTIM)
    pages = {"settings": {"http": {"error_pages": {"404": str(page)}}}, "routes": [{"action": {"return": 404}}]}
    server = run(pages)
    assert server.get("/").text == "not here"

    def replace_by_link(target: str) -> None:
        page.unlink()
        page.symlink_to(target)
        os.chown(page, VICTIM, VICTIM, follow_symlinks=False)

    def apply(buffer: int):
        return server.api("PUT", "/config/settings/http", {"error_pages": {"404": str(page)}, "body_buffer_size": buffer})

    (site / "own.html").write_text("of its own")
    os.chown(site / "own.html", VICTIM, VICTIM)
    replace_by_link("own.html")
    assert apply(8192).status == 200 and server.get("/").text == "of its own"
    replace_by_link(str(secret))
    assert apply(16384).status == 200 and "404" in server.get("/").text and "of another site" not in server.get("/").text
    server.wait_for_log_line(f"a symbolic link of user id {VICTIM}", "these errors have howdah's own page")
    added = server.api("PUT", "/config/settings/http/error_pages", {"404": str(page), "403": str(page.with_name("none.html"))})
    assert added.status == 500 and "error_pages/403" in added.text, "a page that was not there before"


def become_link(path: Path, target: Path | str, owner: int) -> None:
    """As the owner of the folder above can do it."""
    path.rename(path.with_name("former"))
    path.symlink_to(target)
    os.chown(path, owner, owner, follow_symlinks=False)


@pytest.fixture
def sites(folder) -> tuple[Path, Path]:
    """Two sites, whose files the router may read."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as two users")
    ours, other = owned(folder.root / "ours", VICTIM), owned(folder.root / "other", ATTACKER)
    for site, text in ((ours, "own"), (other, "of another site")):
        for name in ("releases", "releases/1", "releases/2", "public"):
            owned(site / name, site.stat().st_uid)
        for name in ("public", "releases/1", "releases/2"):
            (site / name / "file.txt").write_text(f"{text}: {name}")
    return ours, other


def test_a_share_that_becomes_a_link_sends_no_files_of_another_user(run, sites):
    ours, other = sites
    share = {"action": {"share": f"{ours}/public$uri"}}
    server = run({"routes": [share]})
    assert server.get("/file.txt").text == "own: public"
    become_link(ours / "public", other / "public", VICTIM)
    assert server.get("/file.txt").status == 404
    line = f"not served: the files of {ours}/public"
    reason = f"is a symbolic link of user id {VICTIM} to {other}/public, which belongs to another user, id {ATTACKER}"
    server.wait_for_log_line(reason)
    assert all(server.get("/file.txt").status == 404 for _ in range(20))
    assert server.stderr.count(line) == 1, "once a minute"
    for target in ("/proc/self", "/proc", f"/proc/{server.router().pid}/root{other}/public"):
        (ours / "public").unlink()
        (ours / "former").rename(ours / "public")
        become_link(ours / "public", target, VICTIM)
        names = ("environ", "status", "self/status", "version", "file.txt")
        assert {server.get(f"/{name}").status for name in names} == {404}, target
    # The operator may allow it.
    (ours / "public").unlink()
    (ours / "public").symlink_to(other / "public")
    os.chown(ours, 0, 0)
    wait_for(lambda: server.get("/file.txt").text == "of another site: public", "the link of root")
    os.chown(ours / "public", VICTIM, VICTIM, follow_symlinks=False)
    wait_for(lambda: server.get("/file.txt").status == 404, "the owner's again")
    server.api("PUT", "/config/routes", [{"action": {**share["action"], "chroot": str(ours.parent)}}])
    assert server.get("/file.txt").text == "of another site: public"
    server.api("PUT", "/config/routes", [{"action": {**share["action"], "chroot": str(ours)}}])
    assert server.get("/file.txt").status == 404


def test_a_link_of_root_that_another_user_renames_leads_nowhere_else(run, sites, tmp_path):
    ours, other = sites
    (ours / "backup").symlink_to(other)
    (ours / "log").symlink_to(tmp_path / "private")
    (ours / "current").symlink_to(ours / "releases/1")
    shares = [{"match": {"uri": f"/{name}/*"}, "action": {"share": f"{ours}/{name}/public/file.txt"}} for name in ("site", "backup")]
    current = {"match": {"uri": "/current/*"}, "action": {"share": f"{ours}$uri"}}
    server = run({"routes": [*shares, current], "access_log": str(ours / "access.log")})
    (ours / "public").rename(ours / "former")
    (ours / "backup").rename(ours / "site")
    assert server.get("/site/").status == 404
    server.wait_for_log_line(f"a symbolic link in a folder of user id {VICTIM} to {other}, which belongs to another user, id {ATTACKER}")
    assert server.get("/current/file.txt").text == "own: releases/1"
    (ours / "log").rename(ours / "access.log")
    server.send_signal(signal.SIGUSR1)
    server.wait_for_log_line(f"it is a symbolic link in a folder of user id {VICTIM}, which is not followed")
    assert not (tmp_path / "private").exists()


def test_a_link_of_root_that_another_user_moves_leads_nowhere_else(run, sites, place, tmp_path):
    """Into a folder to which all users can write. The pid file would be emptied."""
    ours, other = sites
    secret = tmp_path / "secret"
    secret.write_text("of root")
    for name, target in (("log", secret), ("share", other / "public")):
        (ours / name).symlink_to(target)
        (ours / name).rename(place / name)
    share = {"action": {"share": f"{place}/share$uri"}}
    refused = howdah("run", "--config", "-", "--state-dir", str(tmp_path / "s"), "--pid", str(place / "log"), stdin=json.dumps({"routes": [share]}))
    assert "it is a symbolic link in a folder to which all users can write, which is not followed" in error_of(refused)
    server = run({"routes": [share]})
    assert server.get("/file.txt").status == 404
    server.wait_for_log_line("a symbolic link in a folder to which all users can write to", "it is not followed")
    assert secret.read_text() == "of root"


def test_users_of_a_file_are_not_those_behind_the_link_of_another_user(run, sites):
    ours, other = sites
    users = other / "users"
    users.write_text("ann:$apr1$8sFt66rZ$CwW5jnBTcCMb9M9VZMRdm/\n")
    readable(users)
    (ours / "users").symlink_to(users)
    os.chown(ours / "users", VICTIM, VICTIM, follow_symlinks=False)
    action = {"return": 200, "basic_auth": {"realm": "x", "user_file": str(ours / "users")}}
    server = run({"routes": [{"action": action}]})
    get = lambda: server.get("/", {"Authorization": "Basic YW5uOnBhc3N3b3Jk"}).status
    assert get() == 500
    server.wait_for_log_line(f"cannot be read: it is a symbolic link of user id {VICTIM}, which is not followed", "answering 500")
    os.chown(ours, 0, 0)
    os.chown(ours / "users", 0, 0, follow_symlinks=False)
    assert get() == 200


def test_a_deploy_of_the_owner_switches_a_share(run, sites):
    """The release may belong to the user of PHP."""
    ours, _ = sites
    server = run({"routes": [{"action": {"share": f"{ours}/current$uri"}}]})
    os.chown(ours / "releases" / "2", ATTACKER, ATTACKER)
    for release in ("1", "2", "1"):
        (ours / "new").symlink_to(f"releases/{release}")
        os.chown(ours / "new", VICTIM, VICTIM, follow_symlinks=False)
        (ours / "new").rename(ours / "current")
        assert server.get("/file.txt").text == f"own: releases/{release}"


def test_a_root_that_becomes_a_link_sends_no_files_of_another_user(run, sites):
    """A new generation is planned by root, and its shares would begin behind the link."""
    ours, other = sites
    for site in sites:
        (site / "public" / "index.php").write_text("<?php echo 'here';")
        (site / "public" / "send.php").write_text("<?php header('X-Accel-Redirect: /files/file.txt');")
    root = str(ours / "public")
    application = {"type": "php", "root": root, "processes": 1, "send_file": {"/files/": root}}
    script = {"match": {"uri": "*.php"}, "action": {"pass": "applications/app"}}
    server = run({"applications": {"app": application}, "routes": [script, {"action": {"share": f"{root}$uri"}}]})
    assert server.get("/file.txt").text == server.get("/send.php").text == "own: public"
    become_link(ours / "public", other / "public", VICTIM)
    server.wait_for_log_line("leads to")
    assert server.get("/index.php").text == "here"
    statuses = lambda: [server.get(path).status for path in ("/file.txt", "/send.php")]
    assert statuses() == [404, 404]
    assert server.api("POST", "/control/applications/app/restart").status < 300
    assert statuses() == [404, 404]


def test_the_configuration_is_not_edited_in_a_folder_of_another_user(run, place):
    server = run({"routes": []})
    editor = place / "editor"
    editor.write_text("#!/bin/sh\nset -eu\necho started > $0.log\nprintf '%s' '{}' > \"$1\"\n")
    editor.chmod(0o755)
    command = [EXECUTABLE, "config", "edit", "--control", f"unix:{server.control}"]

    def edit(folder: Path):
        environment = {**os.environ, "TMPDIR": str(folder), "VISUAL": str(editor)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)

    theirs = owned(place / "theirs", ATTACKER)
    for folder in (theirs, owned(theirs / "of-root", 0)):
        refused = edit(folder)
        assert refused.returncode == 1 and not (place / "editor.log").exists()
        assert f'the folder "{theirs}" belongs to user id {ATTACKER}; set TMPDIR' in refused.stderr
        assert not [path for path in folder.iterdir() if path.name.startswith("howdah")]
    assert edit(place).returncode == 0 and server.api("GET", "/config").json() == {}
    assert not [path for path in place.iterdir() if path.name.startswith("howdah-")]


@pytest.mark.parametrize("lock", ["flock(file, LOCK_EX)", "lockf(file, LOCK_SH)"])
def test_a_lock_on_the_pid_file_does_not_prevent_the_start(run, place, lock):
    """All users can read the file, and so lock it: one that waits for the lock gets it when howdah is killed."""
    pid_file = place / "pid"
    pid_file.write_text("99999999\n")
    pid_file.chmod(0o644)
    code = f"from fcntl import *; file = open({str(pid_file)!r}); {lock}; print(flush=True); input()"
    with subprocess.Popen(
        ["setpriv", f"--reuid={ATTACKER}", f"--regid={ATTACKER}", "--clear-groups", sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as attacker:
        attacker.stdout.readline()
        server = run({"routes": [{"action": {"return": 204}}]}, "--pid", str(pid_file))
        assert server.get("/").status == 204
        assert pid_file.read_text() == f"{server.process.pid}\n" and pid_file.stat().st_mode & 0o777 == 0o644
        second = subprocess.run(
            [EXECUTABLE, "run", "--pid", pid_file, "--state-dir", owned(place / "state", 0), "--control", f"unix:{place}/control"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert second.returncode != 0 and "belongs to another howdah that is running" in second.stderr
        attacker.stdin.close()
    server.stop()
    assert not pid_file.exists()
