"""What goes wrong around howdah, and what its clients and its log get of it: docs/faults.md, line by line."""

import json
import os
import re
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import needs_root
from harness import Howdah, ProtocolError, wait_for

DEATHS = {
    "segfault": "posix_kill(getmypid(), SIGSEGV); sleep(60);",
    "killed": "posix_kill(getmypid(), SIGKILL); sleep(60);",
    "exits": "FFI::cdef('void _exit(int);')->_exit(1);",
    "exits-well": "FFI::cdef('void _exit(int);')->_exit(0);",
    "aborts": "FFI::cdef('void abort(void);')->abort();",
    "closes": "$c = FFI::cdef('int close(int);'); for ($fd = 0; $fd < 256; $fd++) { $c->close($fd); }",
}
"""Scripts that end their worker, or cut it off from the router."""


@pytest.fixture
def shop(folder, run):
    """Starts an application with these options, and others if it is told their configuration."""
    for name, code in DEATHS.items():
        folder.php(f"{name}.php", code)
    folder.php("pid.php", "echo getmypid();")
    folder.php("slow.php", "touch(SCRATCH . '/slow'); await(SCRATCH . '/go'); echo getmypid();")
    folder.write("file.txt", "a file")

    def start(*words, config={}, how={}, **options):
        application = {
            "type": "php",
            "root": str(folder.root),
            "processes": 2,
            "options": {"admin": {"ffi.enable": "1"}},
            **options,
        }
        return run({"applications": {"shop": application}, **config}, *words, **how)

    return start


def needs_ffi(server):
    if server.get("/exits.php").status == 500:
        pytest.skip("this PHP has no FFI")


# --- Workers


@pytest.mark.parametrize("death", [name for name in DEATHS if name != "closes"])
def test_a_worker_that_dies_costs_its_own_request(shop, death):
    server = shop()
    needs_ffi(server)
    before = server.workers("shop", count=2)
    with ThreadPoolExecutor(8) as pool:
        deaths = [pool.submit(server.get, f"/{death}.php") for _ in range(2)]
        others = [pool.submit(server.get, "/pid.php") for _ in range(50)]
    assert {answer.result().status for answer in deaths} == {502}
    assert {answer.result().status for answer in others} == {200}
    assert not {p.pid for p in before} & {p.pid for p in server.workers("shop", count=2)}
    wait_for(lambda: f"its request, GET /{death}.php, is answered 502" in server.stderr, "the line of the router")


def test_a_worker_without_descriptors_answers_its_request_and_goes(shop):
    server = shop(processes=1)
    needs_ffi(server)
    for _ in range(5):
        before = server.get("/pid.php").text
        began = time.monotonic()
        assert server.get("/closes.php").status in (200, 502)
        assert server.get("/pid.php").text != before
        assert time.monotonic() - began < 5
    wait_for(lambda: "exited with code 74" in server.stderr, "the line")
    assert "replaced" not in server.stderr, "no rule was broken"


@pytest.mark.parametrize("limits", [{}, {"requests": 1000}])
def test_a_script_that_kills_each_worker_does_not_starve_the_others(shop, limits):
    server = shop(limits=limits)
    needs_ffi(server)
    paths = [path for _ in range(10) for death in DEATHS for path in (f"/{death}.php", "/pid.php")]
    taken = []

    def ask(path):
        began = time.monotonic()
        answer = server.get(path)
        taken.append((path, time.monotonic() - began))
        return path, answer.status

    with ThreadPoolExecutor(6) as pool:
        statuses = list(pool.map(ask, paths))
    assert {status for path, status in statuses if path == "/pid.php"} == {200}
    assert {status for path, status in statuses if path not in ("/pid.php", "/closes.php")} == {502}
    assert max(seconds for path, seconds in taken if path == "/pid.php") < 5, sorted(taken, key=lambda it: it[1])[-5:]
    server.workers("shop", count=2)
    # It was a lasting fault, and costs little: no more than twenty new workers a second.
    assert server.get("/pid.php").status == 200


def test_a_request_that_may_run_twice_is_run_once_more(shop, folder):
    folder.php("once.php", "if (!file_exists(SCRATCH . '/died')) { touch(SCRATCH . '/died'); posix_kill(getmypid(), SIGKILL); } echo 'alive';")
    server = shop(retry="idempotent")
    again = lambda: (folder.scratch / "died").unlink()
    assert server.get("/once.php?secret").text == "alive"
    wait_for(lambda: "its request, GET /once.php, is run once more" in server.stderr, "the line")
    assert "answered 502" not in server.stderr.replace("if any, is answered 502", "")
    again()
    assert server.request("HEAD", "/once.php").status == 200
    again()
    assert server.post("/once.php", "x=1").status == 502, "it may have been ordered and paid"
    again()
    assert server.request("GET", "/once.php", body="x=1").status == 502, "its body is gone"
    # Once, not for ever.
    deaths = server.stderr.count("another worker is started")
    assert server.get("/segfault.php").status == 502
    wait_for(lambda: server.stderr.count("another worker is started") == deaths + 2, "two deaths")
    assert "its request, GET /segfault.php, is answered 502" in server.stderr


def test_what_has_begun_to_answer_is_not_run_twice(shop, folder):
    folder.php(
        "begun.php",
        "file_put_contents(SCRATCH . '/runs', 'x', FILE_APPEND); echo 'a'; ob_flush(); flush(); usleep(100000); posix_kill(getmypid(), SIGKILL);",
    )
    server = shop(retry="idempotent")
    with pytest.raises((ProtocolError, ConnectionError)):
        server.get("/begun.php")
    assert (folder.scratch / "runs").read_text() == "x"
    wait_for(lambda: "its request is cut off" in server.stderr, "the line")


def test_without_the_option_nothing_runs_twice(shop, folder):
    folder.php("count.php", "file_put_contents(SCRATCH . '/runs', 'x', FILE_APPEND); posix_kill(getmypid(), SIGKILL);")
    server = shop()
    assert server.get("/count.php").status == 502
    assert (folder.scratch / "runs").read_text() == "x"
