"""How a handler can end: exit and exceptions end the request, fatal errors end the worker after an answer."""

import pytest

WORKER_SITE = {
    "boot": "register_shutdown_function(function () {"
    "  if (($error = error_get_last()) && $error['type'] & (E_ERROR | E_USER_ERROR)) { echo 'sorry'; } });"
}


def test_exit_ends_the_request_only(worker_site):
    pid = worker_site.worker()
    for code, expected in [("echo 'a'; exit;", "a"), ("exit('text');", "text"), ("die(3);", "")]:
        answer = worker_site.get(code + " echo 'never';")
        assert (answer.status, answer.text) == (200, expected)
    nested = worker_site.get("array_map(function ($n) { if ($n == 2) { exit('deep'); } }, [1, 2, 3]); echo 'never';")
    assert nested.text == "deep"
    assert worker_site.worker() == pid


def test_an_uncaught_exception_is_answered_500_and_logged(worker_site):
    pid = worker_site.worker()
    answer = worker_site.get("throw new RuntimeException('oops-exception');")
    assert (answer.status, answer.text) == (500, "")
    worker_site.server.wait_for_log_line("ERROR", "Uncaught RuntimeException: oops-exception")
    sent = worker_site.get("echo 'part'; ob_flush(); flush(); throw new LogicException('late');")
    assert (sent.status, sent.text) == (200, "part")
    assert worker_site.worker() == pid


def test_an_exception_handler_answers(worker_site):
    pid = worker_site.worker()
    code = "set_exception_handler(function ($e) { http_response_code(503); echo 'handled ', $e->getMessage(); });"
    answer = worker_site.get(code + "throw new Exception('this');")
    assert (answer.status, answer.text) == (503, "handled this")
    assert worker_site.get("throw new Exception('this');").status == 500, "the handler was that of the request"
    assert worker_site.worker() == pid


def test_an_exception_of_the_exception_handler_is_answered_500_and_logged(worker_site):
    pid = worker_site.worker()
    code = "set_exception_handler(function () { throw new LogicException('of the handler'); }); throw new Exception('first');"
    assert worker_site.get(code).status == 500
    worker_site.server.wait_for_log_line("ERROR", "Uncaught LogicException: of the handler")
    assert worker_site.get("echo 'ok';").text == "ok" and worker_site.worker() == pid


def replaced(worker_site, code: str):
    """The answer of a page that ends its worker."""
    pid = worker_site.worker()
    answer = worker_site.get(code)
    assert worker_site.worker() != pid
    return answer


def test_a_fatal_error_ends_the_worker_after_an_answer(worker_site):
    answer = replaced(worker_site, "function twice() {} eval('function twice() {}');")
    assert answer.status == 500
    answer = replaced(worker_site, "trigger_error('user', E_USER_ERROR); echo 'never';")
    assert (answer.status, answer.text) == (500, "sorry"), "shutdown functions of the boot can answer"


def test_the_memory_limit_ends_the_worker_after_an_answer(worker_site):
    answer = replaced(worker_site, "ini_set('memory_limit', '16M'); $x = str_repeat('x', 100_000_000); echo 'never';")
    assert (answer.status, answer.text) == (500, "sorry")


def test_max_execution_time_counts_for_each_request(worker_site):
    answer = replaced(worker_site, "set_time_limit(1); while (true) { }")
    assert answer.status == 500
    assert worker_site.value("1 + 1") == 2


def test_a_crash_is_answered_502(worker_site):
    pid = worker_site.worker()
    assert worker_site.get("posix_kill(getmypid(), SIGSEGV); sleep(9);").status == 502
    assert worker_site.worker() != pid


def test_exit_ends_abandoned_generators(worker_site):
    code = "$abandoned = (function () { try { yield 1; } finally { echo ' finally'; } })(); $abandoned->current(); exit('exit');"
    pid = worker_site.worker()
    assert {worker_site.get(code).text for _ in range(3)} == {"exit finally"}
    assert worker_site.worker() == pid


def test_handle_request_is_for_the_worker_script_only(worker_site):
    answer = worker_site.get(
        "try { howdah\\handle_request(fn () => 1); } catch (Error $e) { echo $e->getMessage(); }"
    )
    assert answer.text == "howdah\\handle_request() can be called by the worker script only, outside of a request"


def test_a_child_process_of_a_handler_takes_no_request(worker_site):
    code = "$pid = pcntl_fork(); if ($pid === 0) { echo 'child'; return; } pcntl_waitpid($pid, $status); echo 'parent';"
    assert worker_site.get(code).text == "parent"
    assert worker_site.value("2 + 2") == 4


@pytest.mark.parametrize("keeps_fiber", [False, True])
def test_a_handler_that_suspends_the_fiber_of_the_loop_is_answered_500(start_worker, keeps_fiber):
    loop = r"""
    $handler = function () { if ($_SERVER['REQUEST_URI'] === '/suspend') { Fiber::suspend(); } echo 'answer'; };
    $loop = function () use ($handler) { while (howdah\handle_request($handler)) { } };
    """
    loop += "$fiber = new Fiber($loop); $fiber->start();" if keeps_fiber else "(new Fiber($loop))->start();"
    site = start_worker(loop=loop + "echo 'the script goes on';")
    assert site.server.get("/").text == "answer"
    answer = site.server.get("/suspend")
    assert (answer.status, answer.text) == (500, "")
    site.server.wait_for_log_line("ERROR", "The handler of a request called Fiber::suspend()")
    assert site.server.get("/").text == "answer"
