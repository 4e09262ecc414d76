"""Timeouts, blocked loops and the number of workers in async mode."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from support.waiting import wait_for

BLOCKABLE = """
serve(function (Request $request): void {
    $query = $request->query();
    if ($request->path() === '/block') {
        touch(SCRATCH . '/blocks');
        await(SCRATCH . '/go');
    }
    if ($request->path() === '/hang') { global $hanging; $hanging[] = $request; return; }
    later((float) ($query['s'] ?? 0), fn () => text($request, (string) getmypid()));
});
"""


def test_a_request_that_takes_too_long_is_answered_504_and_its_worker_goes_on(start):
    site = start(BLOCKABLE, concurrency=4, limits={"timeout": 1})
    pid = site.server.workers(count=1)[0].pid
    # More of them than places: each gives its place back.
    with ThreadPoolExecutor(8) as pool:
        hanging = list(pool.map(lambda number: site.server.get(f"/hang?{number}"), range(8)))
    assert [answer.status for answer in hanging] == [504] * 8
    assert [site.server.get("/").text for _ in range(5)] == [str(pid)] * 5
    assert "GET /hang has taken 1." in site.server.stderr and "killed" not in site.server.stderr


def test_a_worker_whose_handlers_hang_is_replaced_before_it_keeps_more(start):
    site = start(BLOCKABLE, concurrency=16, limits={"timeout": 1})
    pid = site.server.workers(count=1)[0].pid
    with ThreadPoolExecutor(16) as pool:
        hanging = list(pool.map(lambda number: site.server.get(f"/hang?{number}"), range(16)))
    assert [answer.status for answer in hanging] == [504] * 16
    wait_for(lambda: site.server.get("/").text != str(pid), "another worker")
    assert "keeps 16 requests that have taken longer than limits/timeout" in site.server.stderr


def test_a_client_that_leaves_a_request_that_hangs_costs_no_worker(start):
    site = start(BLOCKABLE, concurrency=4, limits={"timeout": 1})
    pid = site.server.workers(count=1)[0].pid
    for _ in range(4):
        with site.server.connect() as connection:
            connection.send_request("GET", "/hang")
            wait_for(lambda: site.server.api("GET", "/status/applications/app").json()["requests"]["active"] > 0, "it runs")
    # All places are taken, until the requests have taken too long.
    assert site.server.get("/").text == str(pid)


def test_a_loop_that_is_blocked_is_reported_and_killed_at_the_timeout(start):
    site = start(BLOCKABLE, limits={"timeout": 3})
    pid = site.server.workers(count=1)[0].pid
    with ThreadPoolExecutor(4) as pool:
        others = [pool.submit(site.server.get, f"/wait?s={seconds}") for seconds in (60, 60, 60)]
        wait_for(lambda: site.server.api("GET", "/status/applications/app").json()["requests"]["active"] == 3, "three requests")
        assert site.server.get("/block?secret").status == 504
        assert {other.result().status for other in others} <= {502, 504}
    wait_for(lambda: "it is killed" in site.server.stderr, "its end")
    report = next(line for line in site.server.stderr.splitlines() if "blocked event loop" in line)
    assert "no howdah\\Async\\accept() for 1." in report and "requests: 4" in report
    assert "used last: GET /block, for" in report and "oldest: GET /wait, for" in report
    assert "await" in report and "server.php" in report and f"(pid {pid})" in report
    assert site.server.get("/").text != str(pid)


def test_the_requests_of_a_blocked_loop_go_to_another_worker(start):
    site = start(BLOCKABLE, processes=2)
    with ThreadPoolExecutor(1) as pool:
        blocked = pool.submit(site.server.get, "/block")
        wait_for((site.scratch / "blocks").exists, "a blocked loop")
        others = {site.server.get("/").text for _ in range(20)}
        assert not blocked.done()
        (site.scratch / "go").touch()
        assert len(others) == 1 and blocked.result().text not in others


def test_a_loop_that_runs_again_is_reported(start):
    site = start(BLOCKABLE)
    with ThreadPoolExecutor(1) as pool:
        blocked = pool.submit(site.server.get, "/block")
        wait_for(lambda: "blocked event loop" in site.server.stderr, "the report")
        (site.scratch / "go").touch()
        assert blocked.result().status == 200
    site.server.wait_for_log_line("runs its event loop again, which was blocked for")


@pytest.mark.parametrize("processes", [{"max": 3, "spare": 1, "idle_timeout": 3600}, {"auto": {"max": 3}}])
def test_workers_are_started_when_all_places_are_taken(start, processes):
    site = start(BLOCKABLE, concurrency=4, processes=processes)
    at_start = len(site.server.workers())
    with ThreadPoolExecutor(12) as pool:
        waiting = [pool.submit(site.server.get, "/wait?s=2") for _ in range(12)]
        wait_for(lambda: len(site.server.workers()) == 3, "three workers")
        pids = {client.result().text for client in waiting}
    assert at_start < 3 and len(pids) == 3


def test_a_free_place_needs_no_other_worker(start):
    site = start(BLOCKABLE, concurrency=50, processes={"max": 5, "spare": 1})
    with ThreadPoolExecutor(40) as pool:
        pids = {client.result().text for client in [pool.submit(site.server.get, "/wait?s=0.5") for _ in range(40)]}
    assert pids == {str(process.pid) for process in site.server.workers(count=1)}


def test_the_status_shows_the_oldest_request(start):
    site = start(BLOCKABLE)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(site.server.get, "/hold?s=1.5")

        def state(*names) -> list:
            processes = site.server.api("GET", "/status/applications/app/processes").json()["workers"]
            return [tuple(process[name] for name in names) for process in processes]

        wait_for(lambda: state("url") == [("/hold?s=1.5",)], "the first request")
        second = pool.submit(site.server.get, "/second?s=0.5")
        wait_for(lambda: state("running") == [(2,)], "the second request")
        assert state("state", "url", "method") == [("busy", "/hold?s=1.5", "GET")]
        assert (first.result().status, second.result().status) == (200, 200)
        wait_for(lambda: state("state", "running", "requests") == [("idle", 0, 2)], "an idle worker")
