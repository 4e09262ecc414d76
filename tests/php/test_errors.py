"""Scripts that end early or fail: each fails only its own request, and clients see no details."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.processes import Process
from support.waiting import wait_for

SITE = {"ini": {"display_errors": "0", "log_errors": "1", "memory_limit": "64M", "output_buffering": "0"}}


# --- exit and the shutdown of a request


@pytest.mark.parametrize(
    "code, text",
    [
        ("echo 'a'; exit; echo 'b';", "a"),
        ("echo 'a'; exit('bye'); echo 'b';", "abye"),
        ("echo 'a'; exit(3);", "a"),
        ("function f() { ob_start(); echo 'deep '; die('end'); } f();", "deep end"),
        ("try { exit('x'); } finally { echo 'not run'; }", "x"),
        ("eval('exit(\"evil\");');", "evil"),
        ("return; echo 'b';", ""),
    ],
)
def test_exit_ends_the_script_and_keeps_its_output(site, server, code, text):
    path = site.page(code)
    with server.connect() as connection:
        for _ in range(3):
            response = connection.request("GET", path)
            assert (response.status, response.text) == (200, text)


def test_shutdown_functions_run_in_order_and_may_still_answer(site):
    code = """
        register_shutdown_function(function () { echo ' one'; register_shutdown_function(function () { echo ' three'; }); });
        register_shutdown_function(function () { echo ' two'; header('X-Shutdown: 1'); });
        ob_start(); echo 'body'; exit;"""
    response = site.get(code)
    assert response.text == "body one two three"
    assert response.header("X-Shutdown") == "1"


def test_destructors_run_at_the_end(site):
    code = "class D { function __destruct() { echo ' destroyed'; } } $d = new D; echo 'body'; exit;"
    assert site.get(code).text == "body destroyed"


def test_a_shutdown_function_sees_the_fatal_error(site):
    code = """
        register_shutdown_function(function () { header('HTTP/1.1 503 Later'); echo error_get_last()['type'] === E_ERROR ? 'seen' : 'no'; });
        undefined_function();"""
    response = site.get(code)
    assert (response.status, response.text) == (503, "seen")


def test_an_exception_handler_can_answer(site):
    code = "set_exception_handler(function ($e) { http_response_code(418); echo 'handled ', $e->getMessage(); }); throw new Exception('it');"
    response = site.get(code)
    assert (response.status, response.text) == (418, "handled it")


# --- Errors that PHP survives

FATAL = {
    "exception": ("throw new RuntimeException('secret 4711');", "secret 4711"),
    "undefined function": ("secret_4711();", "secret_4711"),
    "type error": ("(function (int $x) {})('secret_4711');", "must be of type int"),
    "user error": ("trigger_error('secret 4711', E_USER_ERROR);", "secret 4711"),
    "memory": ("$secret = ''; while (true) { $secret .= str_repeat('x', 1 << 20); }", "Allowed memory size"),
    "recursion": ("function secret($n) { return secret($n + 1) + 1; } secret(0);", "Allowed memory size"),
    "missing file": ("require '/does/not/exist/secret.php';", "Failed opening required"),
    "in a destructor": ("class D { function __destruct() { throw new Exception('secret 4711'); } } $d = new D; unset($d);", "secret 4711"),
}  # fmt: skip


@pytest.mark.parametrize("code, logged", FATAL.values(), ids=FATAL.keys())
def test_a_fatal_error_gives_a_500_without_details(site, server, code, logged):
    before = len(server.stderr)
    path = site.page(code)
    response = server.get(path)
    assert (response.status, response.body) == (500, b"")
    wait_for(lambda: logged in server.stderr[before:], f"{logged} in the log")
    assert path in server.stderr[before:] or logged == "Allowed memory size"
    assert server.get("/server.php").status == 200


def test_a_fatal_error_leaves_the_worker_alive(site, server):
    pids = {worker.pid for worker in server.workers()}
    for code, _ in FATAL.values():
        path = site.page(code)
        for _ in range(4):
            assert server.get(path).status == 500
    assert {worker.pid for worker in server.workers()} == pids


def test_a_syntax_error_gives_500(site):
    site.write("broken.php", "<?php this is not PHP(")
    response = site.server.get("/broken.php")
    assert (response.status, response.body) == (500, b"")
    wait_for(lambda: "broken.php" in site.server.stderr, "the parse error in the log")


def test_a_fatal_error_after_output_keeps_what_was_sent(site):
    response = site.get("echo 'begun'; flush(); undefined_function();")
    assert (response.status, response.text) == (200, "begun")


@pytest.mark.parametrize("key", ["exception", "undefined function", "memory"])
def test_display_errors_shows_errors(folder, serve, key):
    code, message = FATAL[key]
    folder.php("index.php", code)
    server = serve(ini={"display_errors": "1", "html_errors": "0", "memory_limit": "64M"})
    assert message in server.get("/").text


def test_a_memory_limit_does_not_persist_to_the_next_request(site):
    for _ in range(4):
        site.get("ini_set('memory_limit', '4M'); $x = str_repeat('x', 8 << 20);")
        assert site.get("echo ini_get('memory_limit'), strlen(str_repeat('x', 16 << 20));").text == "64M16777216"


# --- Time limits

SPIN = "for (;;) { $x = sqrt(2); }"


@pytest.mark.parametrize("code", [SPIN, "set_time_limit(1);" + SPIN, "ini_set('max_execution_time', '1');" + SPIN])
def test_max_execution_time_ends_a_script(folder, serve, code):
    folder.php("index.php", code)
    folder.php("pid.php", "echo getmypid();")
    server = serve(processes=1, ini={"max_execution_time": "1", "display_errors": "0", "log_errors": "1"})
    pid = server.get("/pid.php").text
    response = server.get("/")
    assert (response.status, response.body) == (500, b"")
    wait_for(lambda: "Maximum execution time" in server.stderr, "the error in the log")
    assert server.get("/pid.php").text == pid


@pytest.mark.parametrize("method, body", [("GET", b""), ("POST", b"x=1")])
def test_max_input_time_does_not_replace_max_execution_time(folder, serve, method, body):
    folder.php("spin.php", SPIN)
    folder.php("index.php", "echo ini_get('max_input_time'), ' ', ini_get('max_execution_time');")
    server = serve(processes=1, ini={"max_execution_time": "1", "max_input_time": "60"})
    form = {"Content-Type": "application/x-www-form-urlencoded"} if body else {}
    for _ in range(2):
        assert server.request(method, "/spin.php", form, body).status == 500
        assert server.request(method, "/", form, body).text == "60 1"
    assert server.stderr.count("Maximum execution time of 1 second exceeded") == 2


def test_the_time_limit_of_one_request_does_not_apply_to_the_next(folder, serve):
    folder.php("short.php", "set_time_limit(1); echo 'short';")
    folder.php("long.php", "$end = microtime(true) + 2.5; while (microtime(true) < $end) { sqrt(2); } echo 'long';")
    server = serve(processes=1, ini={"max_execution_time": "30"})
    assert server.get("/short.php").text == "short"
    assert server.get("/long.php").text == "long"


@pytest.mark.parametrize("options", [[], ["--worker", "worker.php"]], ids=["classic", "worker"])
def test_a_request_has_the_whole_time_limit_directly_after_others(folder, serve, options):
    """PHP's timer may keep running between requests that follow each other quickly."""
    folder.php("worker.php", "while (howdah\\handle_request(fn () => require __DIR__ . $_SERVER['REQUEST_URI'])) { }")
    folder.php("fast.php", "echo 'fast';")
    folder.php(
        "busy.php",
        """$part = fn ($now, $name) => $now["ru_$name.tv_sec"] + $now["ru_$name.tv_usec"] / 1e6;
        $used = fn () => $part($now = getrusage(), 'utime') + $part($now, 'stime');
        for ($end = $used() + 0.6; $used() < $end;) { } echo 'done';""",
    )
    folder.php("spin.php", SPIN)
    server = serve(*options, processes=1, ini={"max_execution_time": "1"})
    pages = ["fast"] * 20 + ["busy", "busy"] + ["fast"] * 20 + ["spin"]
    requests = [f"GET /{page}.php HTTP/1.1\r\nHost: a\r\n" for page in pages]
    answers = server.raw(("\r\n".join(requests) + "Connection: close\r\n\r\n").encode())
    assert (answers.count(b"fast"), answers.count(b"done"), answers.count(b"HTTP/1.1 500")) == (40, 2, 1)
    wait_for(lambda: "Maximum execution time of 1 second exceeded" in server.stderr, "the error in the log")


def test_an_idle_worker_is_not_subject_to_the_last_time_limit(folder, serve):
    folder.php("index.php", "set_time_limit(1); echo getmypid();")
    server = serve(processes=1)
    pid = server.get("/").text
    cpu = time.monotonic() + 1.5
    wait_for(lambda: time.monotonic() > cpu)  # This waits for the limit itself.
    assert server.get("/").text == pid


# --- Deaths of a worker

DEATHS = {
    "segmentation fault": "posix_kill(getmypid(), 11);",
    "kill -9": "posix_kill(getmypid(), 9);",
    "abort": "posix_kill(getmypid(), 6);",
    "stack overflow": "ini_set('memory_limit', -1); function f() { array_map('f', [1]); } f();",
    "a real segmentation fault": "FFI::cdef('void *memset(void *, int, size_t);')->memset(FFI::cast('void *', 8), 0, 8);",
}


@pytest.mark.parametrize("code", DEATHS.values(), ids=DEATHS.keys())
def test_the_death_of_a_worker_costs_one_request(folder, serve, code):
    folder.php("index.php", code)
    folder.php("pid.php", "echo getmypid();")
    server = serve(processes=1, ini={"ffi.enable": "1", "display_errors": "0"})
    pid = int(server.get("/pid.php").text)
    response = server.get("/")
    # Since 8.3, PHP notices a nearly full stack and throws.
    assert response.status == 502 or ("array_map" in code and response.status == 500)
    after = int(server.get("/pid.php").text)
    if response.status == 502:
        assert after != pid and Process.of(pid) is None
    assert [worker.pid for worker in server.workers(count=1)] == [after]


def test_a_concurrent_request_survives_the_death_of_another_worker(site, server):
    assert len(server.workers()) >= 2
    site.php("die.php", "posix_kill(getmypid(), 11);")
    started, go = site.scratch / "neighbour", site.scratch / "neighbour-go"
    with ThreadPoolExecutor(1) as pool:
        neighbour = pool.submit(server.get, f"/wait.php?started={started}&until={go}")
        wait_for(started.exists)
        for _ in range(3):
            assert server.get("/die.php").status == 502
        assert not neighbour.done()
        go.touch()
        assert neighbour.result().status == 200


def test_a_queued_request_survives_the_death_of_a_worker(folder, serve):
    """One worker: the other requests are in the queue when it dies."""
    folder.php(
        "die.php",
        "touch(SCRATCH . '/dying'); await(SCRATCH . '/die'); posix_kill(getmypid(), 9);",
    )
    folder.php("ok.php", "echo 'ok';")
    server = serve(processes=1)
    with ThreadPoolExecutor(9) as pool:
        dying = pool.submit(server.get, "/die.php")
        wait_for((folder.scratch / "dying").exists)
        queued = [server.connect() for _ in range(8)]
        for connection in queued:
            connection.send_request("GET", "/ok.php")
        (folder.scratch / "die").touch()
        assert dying.result().status == 502
        for connection in queued:
            assert connection.response().text == "ok"
            connection.close()


def test_a_502_keeps_the_connection_usable(site, server):
    site.php("die2.php", "posix_kill(getmypid(), 9);")
    with server.connect() as connection:
        response = connection.request("GET", "/die2.php")
        assert response.status == 502
        if (response.header("Connection") or "").lower() != "close":
            assert connection.request("GET", "/server.php").json()["SCRIPT_NAME"] == "/server.php"


def test_the_death_of_a_worker_is_logged(site, server):
    before = len(server.stderr)
    assert site.get("posix_kill(getmypid(), 11);").status == 502
    wait_for(
        lambda: "SIGSEGV" in server.stderr[before:] or "signal" in server.stderr[before:].lower(), "a line about it"
    )


def test_a_script_cannot_ignore_its_time_limit(site, server):
    """A worker that gets SIGTERM, from PHP or from outside, is replaced."""
    site.get(f"posix_kill(getmypid(), {int(signal.SIGTERM)}); echo 'x';")
    for _ in range(6):
        assert server.get("/server.php").status == 200
    server.workers(count=2)


# --- Where errors go


def test_error_log_goes_to_standard_error_by_default(site, server):
    site.get("error_log('a message of the application');")
    wait_for(lambda: "a message of the application" in server.stderr, "the message")
    (line,) = [line for line in server.stderr.splitlines() if "a message of the application" in line]
    assert "\x00" not in line


def test_warnings_are_logged_and_not_shown(site, server):
    assert site.get("echo $undefined_4712, 'ok';").text == "ok"
    wait_for(lambda: "undefined_4712" in server.stderr, "the warning")


def test_error_log_goes_to_the_file_that_php_ini_names(folder, serve):
    log = folder.scratch / "php.log"
    folder.php("index.php", "error_log('to the file'); fail();")
    server = serve(ini={"error_log": str(log), "log_errors": "1"})
    assert server.get("/").status == 500
    wait_for(lambda: log.exists() and "fail()" in log.read_text(), "the error in the file")
    assert "to the file" in log.read_text()
    assert "to the file" not in server.stderr


def test_php_writes_to_the_standard_error_of_howdah(site, server):
    site.get("file_put_contents('php://stderr', \"written to stderr 4713\\n\");")
    wait_for(lambda: "written to stderr 4713" in server.stderr, "the line")
