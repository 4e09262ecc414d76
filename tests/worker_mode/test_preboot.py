"""`"worker": {"preboot": true}`: the worker script boots once in the prototype, and the workers are forked after it."""

import collections
import os
import signal
import socket

import pytest

from support.http.load import Load
from support.machine import needs_mounts
from support.server import Howdah, stop_all
from support.waiting import wait_for

LOOP = "while (howdah\\handle_request($handler)) { }"
COUNT_BOOTS = "file_put_contents(SCRATCH . '/boots', 'x', FILE_APPEND);"


def application(folder, code: str, **options) -> dict:
    folder.php("worker.php", code)
    worker = {"script": "worker.php", "preboot": True}
    return {"type": "php", "root": str(folder.root), "processes": 3, "worker": worker, **options}


@pytest.fixture
def problem(folder):
    """The API's answer about an application whose script cannot be booted in the prototype."""
    servers = []

    def answer(code: str, options=(), **how) -> str:
        servers.append(Howdah(lambda _: ["run"], ready=lambda server: "howdah" in server.stdout, **how))
        response = servers[-1].api("PUT", "/config/applications/app", application(folder, code) | dict(options))
        assert response.status == 500, response.text
        return response.json()["detail"]

    yield answer
    stop_all(servers)


def boots(folder) -> int:
    return len((folder.scratch / "boots").read_text())


def test_a_script_boots_once_for_all_workers(folder, run):
    code = (
        f"{COUNT_BOOTS} $state = new ArrayObject(); $booted = getmypid();"
        "$handler = function () use ($state, $booted) { $state[] = 1;"
        "    echo json_encode([getmypid(), $booted, count($state), mt_rand(), $_GET['n'] ?? null]); };"
    )
    server = run({"applications": {"app": application(folder, code + LOOP)}})
    workers = {worker.pid for worker in server.workers(count=3)}
    counts = collections.Counter()
    draws = set()
    for number in range(60):
        pid, booted, count, draw, sent = server.get(f"/?n={number}").json()
        counts[pid] += 1
        draws.add(draw)
        assert booted not in workers and pid in workers and sent == str(number)
        assert count == counts[pid], "each worker has its own copy of the state"
    assert len(draws) == 60, "each worker has its own random numbers"
    assert boots(folder) == 1


def test_a_worker_that_dies_is_replaced_without_a_boot(folder, run):
    code = f"{COUNT_BOOTS} $handler = function () {{ if (isset($_GET['die'])) {{ posix_kill(getmypid(), 9); }} echo getmypid(); }};"
    server = run({"applications": {"app": application(folder, code + LOOP, processes=1, limits={"requests": 5})}})
    first = server.get("/").text
    assert server.get("/?die").status == 502
    pids = [server.get("/").text for _ in range(11)]
    assert first not in pids and [pids.count(pid) for pid in dict.fromkeys(pids)] == [5, 5, 1]
    assert boots(folder) == 1


def test_a_prototype_that_dies_boots_again_and_no_request_is_lost(folder, run):
    code = f"{COUNT_BOOTS} $handler = function () {{ usleep(2000); echo 'x'; }};"
    server = run({"applications": {"app": application(folder, code + LOOP)}})
    check = lambda client, turn: client.get("/").text != "x" and "a wrong answer"
    with Load(server, check, clients=4) as load:
        os.kill(server.prototype().pid, signal.SIGKILL)
        wait_for(lambda: boots(folder) == 2, "the second boot")
        wait_for(lambda: len(server.workers(count=3)) == 3, "new workers")
    load.assert_flawless()


def test_a_restart_boots_the_new_release_and_keeps_the_old_one_if_it_fails(folder, run):
    server = run({"applications": {"app": application(folder, "$handler = fn () => print('old');" + LOOP)}})
    assert server.get("/").text == "old"
    folder.php("worker.php", "throw new Exception('broken release');")
    answer = server.api("POST", "/control/applications/app/restart")
    assert answer.status == 500 and "broken release" in answer.json()["detail"]
    assert server.get("/").text == "old"
    folder.php("worker.php", "$handler = fn () => print('new');" + LOOP)
    assert server.api("POST", "/control/applications/app/restart").status == 200
    assert server.get("/").text == "new"


def test_each_worker_ends_its_script_and_the_prototype_does_not(folder, run):
    code = (
        "register_shutdown_function(fn () => file_put_contents(SCRATCH . '/ends', getmypid() . ' ', FILE_APPEND));"
        "$handler = fn () => print('x');"
    )
    server = run({"applications": {"app": application(folder, code + LOOP)}})
    workers = {worker.pid for worker in server.workers(count=3)}
    assert server.get("/").text == "x"
    server.stop()
    assert {int(pid) for pid in (folder.scratch / "ends").read_text().split()} == workers


def test_a_boot_that_fails_is_answered_with_the_error_and_its_stack(problem):
    detail = problem("function connect() { throw new RuntimeException('no database'); } connect();")
    assert "the worker script" in detail and "before it asked for a request" in detail
    assert "Uncaught RuntimeException: no database" in detail and "connect()" in detail


def test_a_boot_that_hangs_is_named(problem):
    detail = problem("sleep(600);", time_divider=30)
    assert "does its worker script hang before it asks for a request?" in detail


def test_a_connection_that_all_workers_would_share_is_an_error(problem):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        detail = problem(f"$database = stream_socket_client('tcp://{address}'); $handler = fn () => 1;" + LOOP)
    assert f"applications/app/worker/preboot: the worker script has opened a connection (to {address})" in detail
    assert 'open it at its first use, or remove "preboot"' in detail


@pytest.mark.parametrize(
    "boot, what",
    [
        ("$helper = popen('cat', 'w');", "opened a pipe to another process, as proc_open() and popen() do,"),
        ("$helper = proc_open('cat', [['pipe', 'r'], ['pipe', 'w']], $pipes);", "opened a pipe to another process"),
        ("$pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);", "opened a connection (to a socket without a name"),
        ("$database = fopen(SCRATCH . '/data.db', 'r');", "/data.db) before it asked for a request"),
    ],
)
def test_other_descriptors_that_workers_must_not_share_are_errors(folder, problem, boot, what):
    # A database of SQLite, which Debian's PHP has no driver for, as it begins.
    (folder.scratch / "data.db").write_bytes(b"SQLite format 3\0" + bytes(84))
    detail = problem(f"{boot} $handler = fn () => 1;" + LOOP)
    assert "applications/app/worker/preboot: the worker script has" in detail and what in detail
    assert 'open it at its first use, or remove "preboot"' in detail


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("procfs", [True, False])
def test_connections_are_found_in_a_rootfs_without_proc_too(folder, problem, procfs):
    needs_mounts()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder.root / "server"))
        (folder.root / "server").chmod(0o777)
        listener.listen()
        isolation = {"rootfs": str(folder.root), "automount": {"procfs": procfs}}
        code = "$server = stream_socket_client('unix:///server'); $handler = fn () => 1;" + LOOP
        detail = problem(code, options={"root": "/", "isolation": isolation})
    assert "has opened a connection (to /" in detail and "/server) before" in detail


def test_standard_error_may_be_opened_by_the_boot(folder, run):
    code = "$log = fopen('php://stderr', 'w'); $handler = function () use ($log) { fwrite($log, 'to the log'); echo 'x'; };"
    server = run({"applications": {"app": application(folder, code + LOOP)}})
    assert server.get("/").text == "x"
    wait_for(lambda: "to the log" in server.stderr, "the line")


def test_files_that_the_boot_has_opened_stay_open(folder, run):
    code = (
        "$log = fopen(SCRATCH . '/log', 'a'); fwrite($log, \"boot\\n\");"
        "$handler = function () use ($log) { fwrite($log, \"request\\n\"); echo 'x'; };"
    )
    server = run({"applications": {"app": application(folder, code + LOOP)}})
    assert [server.get("/").text for _ in range(5)] == ["x"] * 5
    assert (folder.scratch / "log").read_text() == "boot\n" + "request\n" * 5


def test_signals_and_children_of_the_boot_do_not_confuse_the_prototype(folder, run):
    code = (
        "pcntl_signal(SIGCHLD, SIG_IGN); pcntl_alarm(1); exec('true'); if (pcntl_fork() === 0) { exit(0); }"
        f"{COUNT_BOOTS} $handler = fn () => print(getmypid());"
    )
    server = run({"applications": {"app": application(folder, code + LOOP)}})
    before = {worker.pid for worker in server.workers(count=3)}
    server.workers(count=3)[0].kill()
    wait_for(lambda: len(now := {worker.pid for worker in server.workers(count=3)}) == 3 and now != before, "a replacement")
    assert server.get("/").status == 200 and boots(folder) == 1


def test_a_signal_to_the_prototype_is_not_one_to_its_workers(folder, run):
    code = (
        "pcntl_async_signals(true); pcntl_signal(SIGTERM, fn () => file_put_contents(SCRATCH . '/got', getmypid() . ' ', FILE_APPEND));"
        f"{COUNT_BOOTS} $handler = fn () => print(getmypid());"
    )
    server = run({"applications": {"app": application(folder, code + LOOP, processes=1)}})
    first = int(server.get("/").text)
    # As in classic mode, it ends the prototype.
    os.kill(server.prototype().pid, signal.SIGTERM)
    wait_for(lambda: boots(folder) == 2, "the second boot")
    wait_for(lambda: int(server.get("/").text) != first, "a new worker")
    assert not (folder.scratch / "got").exists()
    worker = int(server.get("/").text)
    os.kill(worker, signal.SIGTERM)
    wait_for(lambda: (folder.scratch / "got").exists() or not server.get("/"), "the handler")
    assert int((folder.scratch / "got").read_text()) == worker


def test_howdah_serve_has_an_option(folder):
    folder.php("worker.php", f"{COUNT_BOOTS} $handler = fn () => print('x');" + LOOP)
    server = Howdah.serve(folder, "--worker", "worker.php", "--preboot", processes=2)
    assert server.get("/").text == "x" and boots(folder) == 1
    stop_all([server])
