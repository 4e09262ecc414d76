"""`processes` and `limits`: the number and the lifetime of an application's workers."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.background import Background
from support.server import Howdah
from support.waiting import wait_for


@pytest.fixture
def site(folder):
    folder.php("pid.php", "echo getmypid();")
    folder.php("wait.php", "await(SCRATCH . '/go'); echo getmypid();")
    folder.php("sleep.php", "sleep(60); echo 'slept';")
    folder.php("spin.php", "while (true);")
    return folder


def application(folder, **options):
    return {"applications": {"app": {"type": "php", "root": str(folder.root), **options}}}


def processes(server):
    return server.api("GET", "/status/applications/app/processes").json()


def test_spare_processes_exist_before_they_are_needed(site):
    with Howdah.run(application(site, processes={"max": 6, "spare": 3, "idle_timeout": 1})) as server:
        wait_for(lambda: processes(server)["running"] == 3, "3 spare processes")
        held = [Background(server.get, "/wait.php") for _ in range(2)]
        # Two are busy; two more are started, so that three are spare.
        wait_for(lambda: processes(server)["running"] == 5, "two busy ones and three spare ones")
        (site.scratch / "go").touch()
        assert [request.result().status for request in held] == [200] * 2
        wait_for(lambda: processes(server)["running"] == 3, "idle ones beyond spare have left")


def test_there_are_never_more_processes_than_max(site):
    with Howdah.run(application(site, processes={"max": 3, "spare": 0, "idle_timeout": 1})) as server:
        held = [Background(server.get, "/wait.php") for _ in range(10)]
        wait_for(lambda: processes(server)["running"] == 3, "three processes")
        for _ in range(20):
            assert processes(server)["running"] <= 3
            time.sleep(0.02)
        (site.scratch / "go").touch()
        answers = [request.result() for request in held]
        assert [answer.status for answer in answers] == [200] * 10
        assert len({answer.text for answer in answers}) <= 3
        wait_for(lambda: processes(server)["running"] == 0, "no worker is needed")
        assert server.get("/pid.php").status == 200, "a worker starts on demand"


def test_short_requests_keep_a_worker(site):
    """A worker that is looked at only between its requests is not idle since the first look."""
    timeout, pause, tries = 2, 0.3, 10
    with Howdah.run(application(site, processes={"max": 4, "spare": 0, "idle_timeout": timeout})) as server:
        # On a busy machine the client may pause for too long, or a request may meet a worker that is not ready again.
        for _ in range(tries):
            pids = set()
            end = time.monotonic() + 2 * timeout
            while len(pids) < 2 and time.monotonic() < end:
                pids.add(server.get("/pid.php").text)
                time.sleep(pause)  # This is the pace of the client, not a wait.
            if len(pids) == 1:
                return
        pytest.fail("no worker outlived two timeouts")


def test_a_worker_exits_after_its_requests(site):
    with Howdah.run(application(site, processes=1, limits={"requests": 3})) as server:
        pids = [server.get("/pid.php").text for _ in range(9)]
        assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3, 3]


def test_no_request_is_lost_when_workers_exit_after_each_one(site):
    with Howdah.run(application(site, processes=2, limits={"requests": 1})) as server:
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: server.get("/pid.php"), range(200)))
        assert [answer.status for answer in answers] == [200] * 200
        assert len({answer.text for answer in answers}) == 200


@pytest.mark.parametrize("path", ["/sleep.php", "/spin.php"])
def test_a_request_beyond_its_timeout_is_killed(site, path):
    with Howdah.run(application(site, processes=2, limits={"timeout": 1})) as server:
        before = server.get("/pid.php").status
        began = time.monotonic()
        answer = server.get(path)
        assert (before, answer.status) == (200, 504)
        assert 1 <= time.monotonic() - began < 10
        assert 'limits/timeout' in server.stderr
        wait_for(lambda: processes(server)["running"] == 2, "another process")
        assert server.get("/pid.php").status == 200
