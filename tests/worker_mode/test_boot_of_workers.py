"""The boot of worker scripts: readiness, failures, and the loop's end."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.server import Howdah, stop_all
from support.waiting import wait_for
from support.worker_site import LOOP


@pytest.fixture
def empty():
    """Starts servers with an empty configuration."""
    servers = []

    def start(**how) -> Howdah:
        servers.append(Howdah(lambda _: ["run"], ready=lambda server: "howdah" in server.stdout, **how))
        return servers[-1]

    yield start
    stop_all(servers)


def application(folder, **options) -> dict:
    return {"type": "php", "root": str(folder.root), "processes": 1, "worker": {"script": "worker.php"}, **options}


def answer_of(folder, server, boot: str) -> dict:
    """The control API's answer about an application whose worker script is this code."""
    folder.php("worker.php", boot)
    answer = server.api("PUT", "/config/applications/app", application(folder))
    assert answer.status == 500, answer.text
    return answer.json()["detail"]


def test_a_boot_that_fails_is_answered_with_the_error_and_its_stack(folder, empty):
    detail = answer_of(folder, empty(), "function connect() { throw new RuntimeException('no database'); } connect();")
    assert "its worker script" in detail and "before it asked for a request" in detail
    assert "Uncaught RuntimeException: no database" in detail and "connect()" in detail


def test_a_script_without_a_loop_is_an_error_that_explains_itself(folder, empty):
    detail = answer_of(folder, empty(), "echo \"I am a classic script\\n\";")
    assert "I am a classic script" in detail and "must call howdah\\handle_request() in a loop" in detail
    assert "howdah\\Async needs \"concurrency\"" in detail


@pytest.mark.parametrize("preboot", [False, True])
@pytest.mark.parametrize(
    "handler, error",
    [
        ("throw new LogicException('broken handler');", "Uncaught LogicException: broken handler"),
        ("ob_start(); return '';", "Cannot use output buffering in output buffering display handlers"),
        (LOOP + "return '';", "howdah\\handle_request() cannot be called in an output handler"),
    ],
)
def test_an_output_handler_of_the_boot_that_fails_is_an_error_of_the_boot(folder, empty, handler, error, preboot):
    server = empty()
    folder.php("worker.php", f"ob_start(function ($text) {{ {handler} }}); echo 'booting';" + LOOP)
    worker = {"script": "worker.php", "preboot": preboot}
    answer = server.api("PUT", "/config/applications/app", application(folder, worker=worker))
    assert answer.status == 500, answer.text
    detail = answer.json()["detail"]
    assert error in detail and "before it asked for a request" in detail


def test_the_session_of_the_boot_is_not_that_of_the_first_request(folder, run):
    session = "session_save_path(SCRATCH); session_start(); $_SESSION['user'] = 'boot'; "
    folder.php("worker.php", session + "while (howdah\\handle_request(fn () => print(json_encode($_SESSION ?? null)))) { }")
    server = run({"applications": {"app": application(folder)}})
    assert [server.get("/").text for _ in range(2)] == ["null", "null"]


def test_a_missing_script_is_named(folder, empty):
    server = empty()
    answer = server.api("PUT", "/config/applications/app", application(folder))
    assert answer.status in (400, 500)
    assert "applications/app/worker/script" in answer.json()["detail"] and "does not exist" in answer.json()["detail"]


def test_a_boot_that_hangs_fails(folder, empty):
    server = empty(time_divider=30)
    folder.php("worker.php", "sleep(600);" + LOOP)
    answer = server.api("PUT", "/config/applications/app", application(folder))
    assert answer.status == 500 and "was killed by signal 9" in answer.json()["detail"]


def test_slow_boots_one_after_the_other_do_not_hold_up_a_change(folder, empty):
    """Each has its 60 s, here 3 s. Together they have 130 s."""
    server = empty(time_divider=20)
    folder.php("worker.php", "sleep(1);" + LOOP)
    began = time.monotonic()
    # One first, and then two at a time for each processor.
    answer = server.api("PUT", "/config/applications/app", application(folder, processes=24 * os.cpu_count()))
    assert answer.status == 200 and 6 < time.monotonic() - began < 10, answer.text
    server.wait_for_log_line("not all of its processes are ready in time")


def test_a_worker_that_is_ready_and_dies_fails(folder, empty):
    server = empty()
    folder.php("worker.php", "exec('(sleep 0.03; kill -ALRM ' . getmypid() . ') > /dev/null 2>&1 &'); usleep(10_000);" + LOOP)
    answer = server.api("PUT", "/config/applications/app", application(folder, processes=100))
    assert answer.status == 500 and "was killed by signal 14" in answer.json()["detail"], answer.text


def test_a_generation_switches_when_all_workers_are_ready(folder, run):
    folder.php("worker.php", "const RELEASE = 1;" + "while (howdah\\handle_request(fn () => print(RELEASE))) { }")
    server = run({"applications": {"app": application(folder, processes=3)}})
    assert server.get("/").text == "1"
    folder.php(
        "worker.php",
        "touch(SCRATCH . '/boots-' . getmypid()); await(SCRATCH . '/go');"
        "while (howdah\\handle_request(fn () => print(2))) { }",
    )
    with ThreadPoolExecutor(1) as pool:
        restart = pool.submit(server.api, "POST", "/control/applications/app/restart")
        wait_for(lambda: len(list(folder.scratch.glob("boots-*"))) == 1, "the first boot")
        assert [server.get("/").text for _ in range(10)] == ["1"] * 10, "the old workers answer meanwhile"
        (folder.scratch / "go").touch()
        assert restart.result().status == 200
    assert len(list(folder.scratch.glob("boots-*"))) == 3, "each worker has booted before the switch"
    assert server.get("/").text == "2"


def test_a_worker_that_boots_counts_as_starting(folder, run):
    folder.php(
        "worker.php",
        "if (!@mkdir(SCRATCH . '/first') && !@mkdir(SCRATCH . '/second')) { await(SCRATCH . '/go'); }"
        "while (howdah\\handle_request(fn () => print('x'))) { }",
    )
    server = run({"applications": {"app": application(folder, processes=2)}})

    def counts():
        processes = server.api("GET", "/status/applications/app").json()["processes"]
        return processes["running"], processes["starting"]

    assert counts() == (2, 0)
    server.workers(count=2)[0].kill()
    wait_for(lambda: counts() == (1, 1), "a worker that boots")
    assert server.get("/").text == "x"
    (folder.scratch / "go").touch()
    wait_for(lambda: counts() == (2, 0), "two workers")


def test_a_restart_that_does_not_boot_leaves_the_old_workers(folder, run):
    folder.php("worker.php", "while (howdah\\handle_request(fn () => print('old'))) { }")
    server = run({"applications": {"app": application(folder)}})
    folder.php("worker.php", "throw new Exception('broken release');")
    answer = server.api("POST", "/control/applications/app/restart")
    assert answer.status == 500 and "broken release" in answer.json()["detail"]
    assert server.get("/").text == "old"


def test_the_script_ends_in_good_order(start_worker):
    site = start_worker(
        boot="register_shutdown_function(fn () => file_put_contents(SCRATCH . '/shutdown', 'ran'));",
        loop="while (howdah\\handle_request(fn () => print('x'))) { } touch(SCRATCH . '/after-the-loop');",
    )
    assert site.server.get("/").text == "x"
    site.server.stop()
    assert (site.scratch / "after-the-loop").exists()
    assert (site.scratch / "shutdown").read_text() == "ran"


def test_a_script_may_end_its_loop_itself(start_worker):
    site = start_worker(loop="for ($n = 0; $n < 3 && howdah\\handle_request(fn () => print(getmypid())); $n++) { }")
    pids = [site.server.get("/").text for _ in range(12)]
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3, 3, 3]


def test_limits_requests_ends_the_loop(folder, run):
    folder.php("worker.php", "while (howdah\\handle_request(fn () => print(getmypid()))) { } touch(SCRATCH . '/end');")
    server = run({"applications": {"app": application(folder, limits={"requests": 5})}})
    pids = [server.get("/").text for _ in range(20)]
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [5, 5, 5, 5]
    assert (folder.scratch / "end").exists()


def test_limits_timeout_ends_the_request_and_its_worker(folder, run):
    handler = "function () { if (isset($_GET['slow'])) { sleep(60); } echo getmypid(); }"
    folder.php("worker.php", f"while (howdah\\handle_request({handler})) {{ }}")
    server = run({"applications": {"app": application(folder, limits={"timeout": 1})}})
    pid = server.get("/").text
    assert server.get("/?slow").status == 504
    assert server.get("/").text != pid
    assert "did not boot" not in server.stderr


@pytest.mark.parametrize("option", ["script", "index", "front_controller"])
def test_worker_mode_excludes_options_that_choose_a_script(folder, empty, option):
    server = empty()
    folder.php("worker.php", LOOP)
    answer = server.api("PUT", "/config/applications/app", application(folder, **{option: "a.php"}))
    assert answer.status == 400 and 'the script of "worker" handles every request' in answer.json()["detail"]
