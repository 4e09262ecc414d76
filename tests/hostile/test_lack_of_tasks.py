"""A machine or a unit without tasks for another thread: `pids.max`, `TasksMax`, `RLIMIT_NPROC`. An application that forks without end
causes it.

The tests lower the limit of the router's user, which is another one than that of scripts, so that the router can start no thread.
"""

import base64
import resource
import subprocess
from concurrent.futures import ThreadPoolExecutor

import brotli
import pytest

from support.faults.file_systems import pausable_file_system
from support.http.upstream import Upstream, answers, ok
from support.machine import needs_root
from support.server import Howdah
from support.waiting import wait_for

pytestmark = needs_root

# `password` as openssl prints it.
USERS = {"ann": "$apr1$8sFt66rZ$CwW5jnBTcCMb9M9VZMRdm/"}
TIMES = 20
"""More than the processors of which the router could lose one with each request."""


def without_tasks(server: Howdah) -> None:
    """From now on, the router can start no thread. Its own user lowers the limit: root may not, in some containers."""
    user = ["setpriv", "--reuid=daemon", "--regid=daemon", "--clear-groups"]
    subprocess.run([*user, "prlimit", "--nproc=1:1", "--pid", str(server.router().pid)], check=True)


@pytest.fixture
def start(application, run):
    def start(*routes: dict, **rest) -> Howdah:
        routes = [*routes, {"action": {"pass": "applications/app"}}]
        return run({"applications": {"app": application}, "routes": routes, **rest}, "--router-user", "daemon")

    return start


def statuses(server: Howdah, path: str, headers=()) -> set[int]:
    with ThreadPoolExecutor(TIMES) as pool:
        return {answer.status for answer in pool.map(lambda _: server.get(path, headers), range(TIMES))}


def assert_unharmed(server: Howdah, router) -> None:
    assert server.get("/").text == "here"
    assert server.router() == router and "panicked" not in server.stderr


def test_passwords_are_verified(start):
    server = start({"match": {"uri": "/private"}, "action": {"return": 204, "basic_auth": {"realm": "x", "users": USERS}}})
    router = server.router()
    without_tasks(server)

    def status(password: str) -> int:
        credentials = base64.b64encode(f"ann:{password}".encode()).decode()
        return server.get("/private", [("Authorization", f"Basic {credentials}")]).status

    # One client may have a part of the places only.
    with ThreadPoolExecutor(TIMES // 4) as pool:
        assert set(pool.map(status, (f"wrong {n}" for n in range(TIMES)))) == {401}
    assert status("password") == 204
    assert_unharmed(server, router)


def test_responses_are_compressed(start, folder):
    text = "".join(f"{n} {n * n}\n" for n in range(20_000))
    folder.write("text.txt", text)
    compression = {"types": ["text/*"], "compressors": [{"encoding": "br", "level": 11, "min_length": 100}]}
    share = {"match": {"uri": "/text.txt"}, "action": {"share": f"{folder.root}$uri"}}
    server = start(share, settings={"http": {"compression": compression}})
    router = server.router()
    without_tasks(server)
    for _ in range(5):
        answer = server.get("/text.txt", [("Accept-Encoding", "br")])
        assert answer.header("Content-Encoding") == "br" and brotli.decompress(answer.body).decode() == text
    assert_unharmed(server, router)


def test_files_that_need_a_thread_are_sent(start, folder):
    with pausable_file_system(folder.scratch, "remote") as remote:
        (remote.source / "file.txt").write_text("remote")
        server = start({"match": {"uri": "/file.txt"}, "action": {"share": f"{remote.point}$uri"}})
        router = server.router()
        without_tasks(server)
        # All places of the share, more than once.
        for _ in range(3):
            assert statuses(server, "/file.txt") == {200}
        assert_unharmed(server, router)
        server.stop()


def test_names_of_upstreams_are_resolved(start):
    with Upstream(answers(lambda _: ok(b"upstream"))) as upstream:
        name = upstream.address.replace("127.0.0.1", "localhost")
        group = {"servers": {name: {}}, "health_check": {"path": "/health", "interval": "1s"}}
        server = start({"match": {"uri": "/up"}, "action": {"pass": "upstreams/u"}}, upstreams={"u": group})
        # The first check comes within a second, the first request after it.
        router = server.router()
        without_tasks(server)
        wait_for(lambda: sum(request.line.startswith("GET /health") for request in upstream.requests) > 1, "the checks")
        assert server.get("/up").text == "upstream"
        assert_unharmed(server, router)


def test_a_router_that_can_start_no_thread_fails_with_a_reason(application, run):
    """It is not started half: another one is, when there are tasks again."""
    server = run({"applications": {"app": application}}, "--router-user", "daemon")
    before = resource.prlimit(server.pid, resource.RLIMIT_NPROC)
    # The next router inherits the limit, which does not apply to root.
    resource.prlimit(server.pid, resource.RLIMIT_NPROC, (1, before[1]))
    router = server.router()
    router.kill()
    wait_for(lambda: "cannot start its threads" in server.stderr and "see TasksMax or pids.max" in server.stderr, "the reason")
    resource.prlimit(server.pid, resource.RLIMIT_NPROC, before)
    assert server.get("/").text == "here" and server.router() != router
