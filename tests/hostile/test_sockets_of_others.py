"""Users of the machine who put links in the places of Unix sockets: of upstreams, FastCGI servers and listeners."""

import contextlib
import json
import os
import socket
from pathlib import Path

import pytest

from support.fastcgi import FakeServer, answer, fastcgi_application
from support.faults.file_systems import pausable_file_system
from support.http.client import Connection
from support.http.upstream import Upstream, answers, ok
from support.machine import NOBODY, needs_root
from support.server import Howdah
from support.waiting import wait_for

USER, OTHER = 65534, 1

pytestmark = needs_root


@pytest.fixture
def place(socket_path) -> Path:
    """A folder of root with a short path, and a folder of each user in it."""
    place = socket_path.parent
    place.chmod(0o755)
    for name, user in (("user", USER), ("other", OTHER)):
        (place / name).mkdir()
        os.chown(place / name, user, user)
    (place / "tmp").mkdir()
    (place / "tmp").chmod(0o1777)
    return place


def link(path: Path, target: Path | str, user: int) -> Path:
    path.symlink_to(target)
    os.chown(path, user, user, follow_symlinks=False)
    return path


@contextlib.contextmanager
def upstream(path: Path, user: int):
    """A server of this user, to which each user can connect. It answers with its name."""
    with Upstream(answers(ok(path.parent.name.encode(), b"Connection: close")), f"unix:{path}") as server:
        os.chown(path, user, user)
        path.chmod(0o666)
        yield server


@pytest.mark.parametrize("mounts", ["local", "hanging"])
def test_the_link_of_a_user_leads_to_no_socket_of_another_one(run, place, mounts, tmp_path):
    """With a file system that may hang, a thread connects to sockets behind links."""
    served = {
        "direct": (place / "other/s", "other"),
        "own": (link(place / "user/link", "s", USER), "user"),
        "own-folder": (link(place / "user/current", "../user", USER) / "s", "user"),
        "of-root": (link(place / "link", "other/s", 0), "other"),
        "folder-of-root": (link(place / "folder", "other", 0) / "s", "other"),
        "sticky": (place / "tmp/s", "tmp"),
        "to-sticky": (link(place / "user/to-sticky", "../tmp/s", USER), "tmp"),
    }
    refused = {
        "theirs": link(place / "user/theirs", place / "other/s", USER),
        "their-folder": link(place / "user/folder", place / "other", USER) / "s",
        "renamed": link(place / "user/of-root", place / "other/s", 0),
        "from-sticky": link(place / "tmp/link", place / "other/s", USER),
        "through-procfs": link(place / "user/procfs", f"/proc/self/root{place}/other/s", USER),
        "nested": link(place / "nested", "user/theirs", 0),
    }
    paths = {name: path for name, (path, _) in served.items()} | refused
    routes = [{"match": {"uri": f"/{name}"}, "action": {"proxy": f"http://unix:{path}"}} for name, path in paths.items()]
    with contextlib.ExitStack() as stack:
        if mounts == "hanging":
            stack.enter_context(pausable_file_system(tmp_path))
        servers = {name: stack.enter_context(upstream(place / name / "s", user)) for name, user in (("user", USER), ("other", OTHER), ("tmp", USER))}
        server = run({"routes": routes})
        for name, (_, expected) in served.items():
            assert server.get(f"/{name}").text == expected, name
        before = len(servers["other"].requests)
        for name in refused:
            assert server.get(f"/{name}").status == 502, name
        assert len(servers["other"].requests) == before
        target = f"{place}/user/theirs"
        server.wait_for_log_line("cannot forward a request", target, f"it is a symbolic link of user id {USER}", f"another user, id {OTHER}",
                                 "write the path of the socket itself into the configuration")
        # The owner of the link owns the socket now.
        os.chown(place / "other/s", USER, USER)
        assert server.get("/theirs").text == "other"


def test_a_health_check_follows_no_link_to_a_socket_of_another_user(run, place):
    path = link(place / "user/s", place / "other/s", USER)
    check = {"path": "/check", "interval": 0.1, "timeout": 1, "fails": 1, "passes": 1}
    with upstream(place / "other/s", OTHER) as other:
        server = run({"routes": [{"action": {"pass": "upstreams/u"}}], "upstreams": {"u": {"servers": {f"unix:{path}": {}}, "health_check": check}}})
        server.wait_for_log_line("WARN", str(path), f"it is a symbolic link of user id {USER}")
        assert server.get("/").status == 502 and other.requests == []


def test_the_link_of_a_user_leads_to_no_fastcgi_server_of_another_one(run, place, folder):
    folder.php("index.php", "")
    path = link(place / "user/fpm.sock", place / "other/fpm.sock", USER)
    fake = FakeServer(place / "other/fpm.sock", lambda _: answer(b"other"))
    os.chown(place / "other/fpm.sock", OTHER, OTHER)
    (place / "other/fpm.sock").chmod(0o666)
    applications = {
        "user": fastcgi_application(folder, f"unix:{path}", limits={"queue_timeout": 1}),
        "other": fastcgi_application(folder, fake.address),
    }
    step = {"match": {"uri": "/other/*"}, "action": {"rewrite": "/index.php", "pass": "applications/other"}}
    server = run({"routes": [step, {"action": {"pass": "applications/user"}}], "applications": applications})
    assert server.get("/other/").text == "other"
    assert server.get("/index.php").status == 503
    server.wait_for_log_line(f"it is a symbolic link of user id {USER}", f"another user, id {OTHER}")


def test_a_listener_takes_no_socket_of_another_user(place, application, folder):
    """At the start, all sockets are bound before the first one listens: that of the other listener looks like a stale one."""
    folder.php("index.php", "echo $_SERVER['SERVER_ADDR'];")
    others, users = place / "other/s", place / "user/run/s"
    link(place / "user/run", place / "other", USER)
    (place / "state").mkdir(mode=0o700)

    def arguments(port: int) -> list[str]:
        config = {
            "listeners": {
                f"127.0.0.1:{port}": {"pass": "routes"},
                f"unix:{others}": {"pass": "routes"},
                f"unix:{users}": {"pass": "applications/app", "socket": {"user": NOBODY, "mode": "0666"}},
            },
            "routes": [{"action": {"return": 202}}],
            "applications": {"app": application},
        }
        (place / "state/conf.json").write_text(json.dumps(config))
        return ["run", "--state-dir", str(place / "state"), "--control", f"unix:{place}/control"]

    def is_listening(path: Path) -> bool:
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(str(path)) == 0

    def answer_of(path: Path):
        with Connection(str(path)) as connection:
            return connection.request("GET", "/")

    def assert_the_other_listener_works() -> None:
        assert answer_of(others).status == 202
        assert (others.stat().st_uid, others.stat().st_mode & 0o777) == (0, 0o660)

    with Howdah(arguments) as server:
        server.control = place / "control"
        assert_the_other_listener_works()
        server.wait_for_log_line(f"cannot listen on unix:{users}", f"a symbolic link of user id {USER}", "howdah serves without it")
        # A folder in its place: the listener works, with the name that is configured.
        (place / "user/run").unlink()
        (place / "user/run").mkdir()
        os.chown(place / "user/run", USER, USER)
        # Its socket is bound before it listens.
        wait_for(lambda: is_listening(users), "its socket")
        assert answer_of(users).text == f"unix:{users}"
        assert (users.stat().st_uid, users.stat().st_mode & 0o777) == (USER, 0o666)
        # The user replaces the folder while howdah runs.
        (place / "user/run").rename(place / "user/moved")
        link(place / "user/run", place / "other", USER)
        assert server.api("DELETE", "/config/listeners/" + f"unix:{users}".replace("/", "%2F")).status == 200
        wait_for(lambda: not (place / "user/moved/s").exists(), "the end of its socket")
        assert_the_other_listener_works()
