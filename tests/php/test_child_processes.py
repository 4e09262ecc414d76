"""PHP code that uses processes and howdah's own sockets: it affects no other request."""

import json
import os
import signal
import socket
import subprocess

import pytest

from support.processes import Process
from support.server import EXECUTABLE, Howdah
from support.waiting import wait_for

# --- Messages from preloaded code to the supervisor


@pytest.fixture
def victim():
    """A process that has nothing to do with PHP."""
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def sending(*messages: object) -> str:
    """PHP code that sends this to the supervisor: preloaded code may use FFI."""
    lines = json.dumps([json.dumps(message) for message in messages])
    return f"""$c = FFI::cdef('long write(int, const char *, size_t);');
        foreach (json_decode({json.dumps(lines)}) as $message) {{ $c->write(3, $message, strlen($message)); }}"""


def started(pid: int, index: int = 0) -> dict:
    return {"WorkerStarted": {"worker": {"pool": 0, "worker": {"index": index, "incarnation": 0}}, "pid": pid}}


BOOTED = {"Booted": {"php_version": "8", "opcache": True}}


def test_preloaded_code_that_sends_no_message_breaks_the_rules(folder):
    preload = folder.php("preload.php", sending({"Nonsense": {}}) + "sleep(1);")
    with pytest.raises(AssertionError, match="exit code 1") as failure:
        Howdah.serve(folder, ini={"opcache.preload": preload})
    assert "its prototype broke the rules: it sent something that is no message; does preloaded code" in str(failure.value)


@pytest.mark.parametrize("version", ["", "8\x1b]0;title\a", "8\ncontrol /tmp/another", "8" * 1000])
def test_preloaded_code_cannot_write_to_the_terminal_as_howdah(folder, version):
    """The first lines show the version of PHP."""
    preload = folder.php("preload.php", sending({"Booted": {"php_version": version, "opcache": True}}) + "sleep(1);")
    with pytest.raises(AssertionError, match="exit code 1") as failure:
        Howdah.serve(folder, ini={"opcache.preload": preload})
    assert "broke the rules: it has loaded a PHP without a valid version" in str(failure.value)


@pytest.mark.parametrize("first", [[], [BOOTED]], ids=["before it has booted", "after it claims that it has"])
def test_preloaded_code_cannot_make_the_supervisor_kill_others(folder, victim, first):
    preload = folder.php("preload.php", sending(*first, started(victim.pid)) + "sleep(1);")
    with pytest.raises(AssertionError, match="exit code 1") as failure:
        Howdah.serve(folder, ini={"opcache.preload": preload})
    assert 'the application "app" does not start: its prototype broke the rules' in str(failure.value)
    assert victim.poll() is None, "it was killed"


FLOOD = json.dumps({"Failed": {"reason": "x" * 1000}})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_flood_of_messages_does_not_block_timers_or_signals(folder, number):
    preload = folder.php(
        "preload.php",
        f"""$c = FFI::cdef('long write(int, const char *, size_t);'); $message = '{FLOOD}';
        while (true) {{ $c->write(3, $message, strlen($message)); }}""",
    )
    server = Howdah.serve(
        folder, ini={"opcache.preload": preload}, ready=lambda server: "still waiting" in server.stderr, time_divider=10
    )
    try:
        server.send_signal(number)
        server.exit_code(5)
        assert "ERROR" not in server.stderr
        wait_for(lambda: server.leftovers() == [], "nothing to be left")
    finally:
        server.kill()


# --- Forks


def test_a_forked_child_does_not_write_to_the_response(folder, serve):
    """Its output, its headers and its end of the request stay in the child. Its exit code reaches its parent."""
    folder.php(
        "fork.php",
        """register_shutdown_function(function () { echo 'shutdown ', getmypid(); touch(SCRATCH . '/down-' . getmypid()); });
        echo "begin\\n";
        $child = pcntl_fork();
        if ($child === 0) {
            header('X-Child: 1'); http_response_code(500);
            echo str_repeat('child', 50000); flush(); fastcgi_finish_request(); file_get_contents('php://input');
            exit(3);
        }
        pcntl_waitpid($child, $status);
        header('X-Parent: 1');
        echo json_encode([pcntl_wexitstatus($status), file_exists(SCRATCH . "/down-$child")]), "\\n";""",
    )
    server = serve(processes=1, ini={"output_buffering": "4096"})
    (worker,) = server.workers(count=1)
    for _ in range(20):
        answer = server.post("/fork.php", b"x" * 100_000, {"Content-Type": "text/plain"})
        assert (answer.status, answer.header("X-Parent"), answer.header("X-Child")) == (200, "1", None)
        assert answer.text == f"begin\n[3,true]\nshutdown {worker.pid}"
    assert server.workers() == [worker]


def test_a_forked_child_that_outlives_its_request_takes_no_request(folder, serve):
    folder.php(
        "leave.php",
        """$child = pcntl_fork();
        if ($child === 0) { await(SCRATCH . '/go'); echo 'late'; file_put_contents(SCRATCH . '/done', getmypid()); exit; }
        echo $child;""",
    )
    folder.php("pid.php", "echo getmypid();")
    server = serve(processes=1)
    (worker,) = server.workers(count=1)
    child = int(server.get("/leave.php").text)
    for _ in range(50):
        assert server.get("/pid.php").text == str(worker.pid)
    (folder.scratch / "go").touch()
    wait_for((folder.scratch / "done").exists, "the child to finish")
    wait_for(lambda: Process.of(child) is None, "it to end and be reaped")
    assert server.get("/pid.php").text == str(worker.pid)


FORK_FOR_EVER = "if (pcntl_fork() === 0) { set_time_limit(0); while (true) { sleep(1); } } echo 'forked';"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_forked_child_is_left_at_the_end(folder, number):
    folder.php("fork.php", FORK_FOR_EVER)
    with Howdah.serve(folder, processes=2) as server:
        for _ in range(3):
            assert server.get("/fork.php").text == "forked"
        tree = server.processes()
        assert len(tree) == 3 + 2 + 3
        server.send_signal(number)
        server.exit_code()
        wait_for(lambda: not any(process.alive() for process in tree), "all to go")


def test_a_forked_child_lives_on_when_its_worker_dies(folder, serve):
    """Like a child of any other program."""
    folder.php("fork.php", FORK_FOR_EVER)
    server = serve(processes=1)
    (worker,) = server.workers(count=1)
    server.get("/fork.php")
    (child,) = [process for process in server.processes() if process.parent == worker.pid]
    worker.kill()
    wait_for(lambda: (p := Process.of(child.pid)) and p.parent == server.pid, "it to be adopted")
    server.workers(count=2)  # One of them, by its title, is the child.
    assert child.alive()


def test_a_fork_in_preloaded_code_does_not_make_a_second_prototype(folder, serve):
    preload = folder.php("preload.php", "if (pcntl_fork() === 0) { touch(SCRATCH . '/forked'); } function f() { return 1; }")
    folder.php("index.php", "echo f();")
    server = serve(processes=1, ini={"opcache.preload": str(preload)})
    wait_for((folder.scratch / "forked").exists)
    assert [server.get("/").text for _ in range(3)] == ["1"] * 3
    server.prototype()
    wait_for(lambda: len(server.processes()) == 4 and not server.zombies(), "the child to be gone")


# --- Background processes

BACKGROUND = {
    "of a shell": "exec('sleep 777 > /dev/null 2>&1 &');",
    "in a session of its own": "exec('setsid sleep 777 > /dev/null 2>&1 &');",
    "with children": "exec('(sh -c \"sleep 777; true\" & sleep 777; true) > /dev/null 2>&1 &');",
    "never waited for": "$p = proc_open(['sleep', '777'], [], $pipes);",
    "deaf": "exec('(trap \"\" TERM HUP INT; sleep 777; true) > /dev/null 2>&1 &');",
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("code", BACKGROUND.values(), ids=BACKGROUND.keys())
def test_processes_left_by_php_exit_with_howdah(folder, code, number):
    folder.php("start.php", code + "echo 'started';")
    with Howdah.serve(folder, processes=1) as server:
        assert server.get("/start.php").text == "started"
        wait_for(lambda: [p for p in server.processes() if p.title.startswith("sleep")], "it to run")
        started = [p for p in server.processes() if not p.title.startswith("howdah")]
        server.stop(number)
        assert not [process for process in started if process.alive()]


def test_processes_left_by_php_run_until_howdah_exits(folder, serve):
    folder.php("start.php", "exec('sleep 777 > /dev/null 2>&1 & echo $!', $lines); echo $lines[0];")
    server = serve(processes=1)
    background = Process.of(int(server.get("/start.php").text))
    for process in [*server.workers(), server.prototype()]:
        process.kill()
        wait_for(lambda: not process.alive())
        server.workers(count=1)
    assert background.alive() and server.get("/start.php").status == 200


def test_processes_of_the_parent_of_howdah_are_left_alone(folder):
    prefix = ["sh", "-c", 'setsid sleep 777 & exec "$@"', "sh"]
    with Howdah.serve(folder, prefix=prefix) as server:
        (other,) = wait_for(lambda: [p for p in server.processes() if p.title == "sleep 777"], "it to run")
        server.send_signal(signal.SIGTERM)
        assert server.exit_code() == 0
        assert other.alive()
        other.kill()


# --- Slow starts


def test_a_slow_start_logs_which_application_it_waits_for(folder):
    preload = folder.php("preload.php", "await(SCRATCH . '/go');")
    folder.php("index.php", "echo 'up';")
    with Howdah.serve(
        folder, ini={"opcache.preload": preload}, ready=lambda server: "still waiting" in server.stderr, time_divider=10
    ) as server:
        assert 'still waiting for PHP of the application "app" to start' in server.stderr
        (folder.scratch / "go").touch()
        wait_for(lambda: f":{server.port}" in server.stdout, "the start")
        assert server.get("/").text == "up"


# --- Two builds


def test_a_supervisor_of_another_build_gets_a_clear_error():
    """howdah-php answers a supervisor that it does not understand with one line that names the remedy."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    executable = sorted(EXECUTABLE.parent.glob("howdah-php8.*[0-9]"))[0]
    with ours, theirs:
        ours.settimeout(10)
        process = subprocess.Popen(
            [executable],
            preexec_fn=lambda: os.dup2(theirs.fileno(), 3),
            pass_fds=[3],
            stderr=subprocess.PIPE,
            text=True,
        )
        ours.send(json.dumps({"Boot": {"build": "0.0.1-0", "application": "app", "since": "the future"}}).encode())
        answer = json.loads(ours.recv(65536))
        assert process.wait(10) == 1 and process.stderr.read() == ""
    reason = answer["Failed"]["reason"]
    assert "not of the same build (howdah is 0.0.1-0, howdah-php 0." in reason and "restart howdah" in reason
    assert "\n" not in reason
