"""The end of a request, of the loop and of the worker in async mode: boots, errors, limits, restarts."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from support.command_line import howdah
from support.server import Howdah, stop_all
from support.waiting import wait_for

HOLD_ALL = "$held = []; serve(function (Request $request) use (&$held): void { $held[] = $request; "


def answers_of(site, paths) -> list:
    with ThreadPoolExecutor(len(paths)) as pool:
        return list(pool.map(site.server.get, paths))


def test_a_request_that_is_freed_without_an_answer_is_answered_500_and_named(start):
    site = start("serve(function (Request $request): void { if ($request->path() === '/x') { text($request, 'x'); } });")
    answer = site.server.get("/forgotten?secret=1")
    assert answer.status == 500 and "text/html" in answer.header("Content-Type")
    site.server.wait_for_log_line("has freed the object of GET /forgotten before the response was complete: answered 500")
    assert site.server.get("/x").text == "x"
    assert "secret" not in site.server.stderr


def test_a_response_that_is_freed_before_its_end_is_cut_off(start):
    site = start("serve(function (Request $request): void { $request->start(); $request->write('half'); later(0.1, fn () => $request); });")
    with site.server.connect() as connection:
        connection.send_request("GET", "/half")
        parts = connection.stream()[1]
        assert next(parts) == b"half"
        with pytest.raises(AssertionError):
            list(parts)
    site.server.wait_for_log_line("has freed the object of GET /half before the response was complete: cut off")


@pytest.mark.parametrize(
    "end, log",
    [
        ("exit(0);", "has ended its script with"),
        ("throw new Exception('broken');", "PHP Fatal error:  Uncaught Exception: broken"),
        ("undefined();", "Call to undefined function undefined()"),
        ("ini_set('memory_limit', '8M'); $x = str_repeat('x', 99 << 20);", "Allowed memory size"),
    ],
)
def test_the_end_of_the_script_answers_all_of_its_requests(start, end, log):
    site = start(HOLD_ALL + f"if (count($held) === 5) {{ {end} }} }});")
    before = site.server.workers(count=1)[0].pid
    answers = answers_of(site, [f"/{number}" for number in range(5)])
    assert [answer.status for answer in answers] == [500] * 5
    wait_for(lambda: log in site.server.stderr, log)
    wait_for(lambda: site.server.workers(count=1)[0].pid != before, "another worker")


def test_shutdown_functions_may_answer(start):
    site = start("$last = null; register_shutdown_function(function () use (&$last): void { text($last, 'at the end', 503); });"
                 "serve(function (Request $request) use (&$last): void { $last = $request; exit; });")
    answer = site.server.get("/")
    assert (answer.status, answer.text) == (503, "at the end")


def test_a_crash_costs_only_the_requests_of_its_worker(start):
    site = start(HOLD_ALL + "if ($request->path() === '/kill') { posix_kill(getmypid(), 9); } });")
    with ThreadPoolExecutor(5) as pool:
        waiting = [pool.submit(site.server.get, f"/{number}") for number in range(4)]
        wait_for(lambda: site.server.api("GET", "/status/applications/app").json()["requests"]["active"] == 4, "four requests")
        assert site.server.get("/kill").status == 502
        assert [client.result().status for client in waiting] == [502] * 4
    site.server.wait_for_log_line("was killed by signal 9")


@pytest.fixture
def empty():
    servers = []

    def start_empty() -> Howdah:
        servers.append(Howdah(lambda _: ["run"], ready=lambda server: "howdah" in server.stdout))
        return servers[-1]

    yield start_empty
    stop_all(servers)


@pytest.mark.parametrize(
    "boot, error",
    [
        ("throw new RuntimeException('no database');", "Uncaught RuntimeException: no database"),
        ("echo 'no loop';", "it must call howdah\\Async\\stream(), and run an event loop that calls howdah\\Async\\accept()"),
        ("while (howdah\\handle_request(fn () => 1)) { }", "Call to undefined function howdah\\handle_request()"),
        ("ob_start(function ($text) { howdah\\Async\\stream(); return ''; }); echo 'x'; ob_end_flush();",
         "howdah\\Async\\stream() cannot be called in an output handler"),
    ],
)
@pytest.mark.parametrize("preboot", [False, True])
def test_a_boot_that_fails_is_the_answer_to_the_change(folder, empty, boot, error, preboot):
    folder.php("server.php", boot)
    worker = {"script": "server.php", "concurrency": 10, "preboot": preboot}
    application = {"type": "php", "root": str(folder.root), "processes": 1, "worker": worker}
    answer = empty().api("PUT", "/config/applications/app", application)
    assert answer.status == 500 and error in answer.json()["detail"], answer.text


def test_the_functions_do_not_exist_in_worker_mode(folder, run):
    folder.php("worker.php", "while (howdah\\handle_request(fn () => print(json_encode([function_exists('howdah\\Async\\stream'),"
               "class_exists('howdah\\Async\\Request')])))) { }")
    worker = {"script": "worker.php"}
    server = run({"applications": {"app": {"type": "php", "root": str(folder.root), "worker": worker}}})
    assert server.get("/").json() == [False, False]


def test_more_places_than_an_application_can_have_are_an_error(folder, empty):
    worker = {"script": "server.php", "concurrency": 4096}
    folder.php("server.php", "")
    answer = empty().api("PUT", "/config/applications/app",
                         {"type": "php", "root": str(folder.root), "processes": 8, "worker": worker})
    assert answer.status == 500
    assert "applications/app/worker/concurrency: 8 processes with 4096 requests each" in answer.json()["detail"]
    assert "write at most 2048" in answer.json()["detail"]


@pytest.mark.parametrize("preboot", [False, True])
def test_limits_and_restarts_lose_no_request(start, preboot):
    site = start("$count = 0; serve(function (Request $request) use (&$count): void { $count++;"
                 "later(0.01, function () use ($request, &$count): void { $count--; text($request, $request->path()); }); },"
                 "function () use (&$count): bool { return $count > 0; });",
                 processes=2, limits={"requests": 50}, preboot=preboot)
    before = {process.pid for process in site.server.workers(count=2)}

    def client(number: int) -> None:
        for turn in range(100):
            answer = site.server.get(f"/{number}-{turn}")
            assert (answer.status, answer.text) == (200, f"/{number}-{turn}")

    with ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(client, number) for number in range(8)]
        for _ in range(3):
            assert site.server.api("POST", "/control/applications/app/restart").status == 200
        for one in clients:
            one.result()
    assert not before & {process.pid for process in site.server.workers()}
    assert "unanswered" not in site.server.stderr and "freed the object" not in site.server.stderr


def test_a_worker_that_ends_is_not_taken_for_a_blocked_one(start):
    # It does not watch the stream while it answers its last request.
    site = start("$count = 0; serve(function (Request $request) use (&$count): void { $count++;"
                 "later(4.5, function () use ($request, &$count): void { text($request, 'late'); $count--; }); });"
                 "while ($count > 0) { usleep(10000); Timers::run(); }")
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(site.server.get, "/")
        wait_for(lambda: site.server.api("GET", "/status/applications/app").json()["requests"]["active"] == 1, "the request")
        assert site.server.api("POST", "/control/applications/app/restart").status == 200
        assert late.result().text == "late"
    assert "blocked" not in site.server.stderr


def test_a_worker_that_keeps_too_much_is_replaced_without_a_lost_request(start):
    site = start("$count = 0; serve(function (Request $request) use (&$count): void { $count++;"
                 "$GLOBALS['kept'][] = str_repeat(random_bytes(1024), 2048);"
                 "later(0.01, function () use ($request, &$count): void { $count--; text($request, (string) getmypid()); }); },"
                 "function () use (&$count): bool { return $count > 0; });", limits={"memory": "32M"})
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: site.server.get("/"), range(60)))
    assert [answer.status for answer in answers] == [200] * 60
    assert len({answer.text for answer in answers}) >= 2
    assert "MiB in" in site.server.stderr and "unanswered" not in site.server.stderr


def test_each_worker_is_warmed_up(start):
    site = start("serve(function (Request $request): void { if (isset($request->server()['HOWDAH_WARM_UP'])) {"
                 "touch(SCRATCH . '/warm-' . getmypid()); echo \"warm\\n\"; } text($request, 'x'); });",
                 processes=3, warm_up=["/warm"])
    warm = {path.name for path in site.scratch.glob("warm-*")}
    assert warm == {f"warm-{process.pid}" for process in site.server.workers(count=3)}


def test_another_router_goes_on_with_the_workers(start):
    site = start("serve(function (Request $request): void { if ($request->path() === '/hold') {"
                 "$GLOBALS['held'] = $request; touch(SCRATCH . '/holds'); return; }"
                 "text($request, json_encode([getmypid(), ($GLOBALS['held'] ?? $request)->isOpen()])); });")
    pid = site.server.workers(count=1)[0].pid
    with site.server.connect() as connection:
        connection.send_request("GET", "/hold")
        wait_for((site.scratch / "holds").exists, "a request")
        assert site.server.get("/").json() == [pid, True]
        router = site.server.router()
        router.kill()
        wait_for(lambda: not router.alive(), "its death")
    wait_for(lambda: site.server.router(), "another router")
    assert site.server.get("/").json() == [pid, False], "the client has lost its connection"


def test_a_worker_whose_script_does_not_end_at_its_limits_is_ended_and_replaced(start):
    # The script of the first worker does not look at is_running().
    site = start("$is_first = !file_exists(SCRATCH . '/first'); touch(SCRATCH . '/first'); $stream = howdah\\Async\\stream();"
                 "while ($is_first || howdah\\Async\\is_running()) { $read = [$stream]; $none = null;"
                 "stream_select($read, $none, $none, 60);"
                 "while ($request = howdah\\Async\\accept()) { text($request, (string) getmypid()); } }",
                 limits={"requests": 3})
    pids = [site.server.get("/").text for _ in range(4)]
    assert len(set(pids[:3])) == 1 and pids[3].isdigit() and pids[3] != pids[0]
    site.server.wait_for_log_line("event loop must end when howdah\\Async\\is_running() is false")
