"""The replacement of workers by `limits/requests` and `limits/memory`."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.waiting import wait_for


@pytest.fixture
def shop(folder, run):
    """Starts an application with these options; `/leak.php?mib=N` leaks N MiB in its worker."""
    # PHP frees its own memory after a request, but not the memory of a C library.
    folder.php(
        "leak.php",
        """$c = FFI::cdef('void *malloc(size_t); void *memset(void *, int, size_t);');
        $bytes = (int) ((float) $_GET['mib'] * 1048576); $c->memset($c->malloc($bytes), 7, $bytes); echo getmypid();""",
    )
    folder.php("pid.php", "echo getmypid();")
    folder.php("slow.php", "usleep(20000); echo getmypid();")

    def start(**options):
        application = {
            "type": "php",
            "root": str(folder.root),
            "processes": 1,
            "options": {"admin": {"ffi.enable": "1"}},
            **options,
        }
        return run({"applications": {"shop": application}})

    return start


def needs_ffi(server):
    answer = server.get("/leak.php?mib=0")
    if answer.status != 200:
        pytest.skip("this PHP has no FFI")
    return answer.text


def test_a_worker_beyond_its_memory_limit_is_replaced_after_its_request(shop):
    server = shop(limits={"memory": "64M"})
    first = needs_ffi(server)
    assert server.get("/leak.php?mib=100").text == first, "the request is answered"
    # Another worker runs right after it.
    second = wait_for(lambda: (pid := server.get("/slow.php").text) != first and pid, "another worker")
    assert server.get("/pid.php").text == second, "the worker is kept"
    line = wait_for(
        lambda: re.search(rf'worker of "shop" \(pid {first}\) grew (\d+) MiB in (\d) requests.*', server.stderr), "the line"
    )
    assert 95 <= int(line[1]) <= 110
    assert line[0].endswith("; replacing it")
    assert "exited with" not in server.stderr, "no error was logged"


def test_a_worker_below_its_memory_limit_is_kept(shop):
    server = shop(limits={"memory": "64M"})
    assert len({server.get("/pid.php").text for _ in range(100)}) == 1


def test_no_request_is_lost_while_workers_are_recycled(shop):
    server = shop(limits={"memory": "48M", "requests": 40}, processes=3)
    needs_ffi(server)
    paths = ["/leak.php?mib=4", "/pid.php", "/pid.php"] * 150
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(server.get, paths))
    assert {answer.status for answer in answers} == {200}
    assert len({answer.text for answer in answers}) >= 450 // 40


def test_workers_do_not_reach_their_limits_together(shop):
    """Both reach their limits at the same time; the second waits until the successor of the first serves."""
    server = shop(limits={"requests": 20}, processes=4)
    lives = {}
    with ThreadPoolExecutor(4) as pool:
        for answer in pool.map(server.get, ["/slow.php"] * 80):
            lives[answer.text] = lives.get(answer.text, 0) + 1
    assert max(lives.values()) <= 20, "never more than its limit"
    assert len(lives) >= 5


def test_a_leak_is_logged_without_a_limit(shop):
    server = shop()
    pid = needs_ffi(server)
    for _ in range(10):
        server.get("/leak.php?mib=3.5")
        for _ in range(5):
            assert server.get("/slow.php").text == pid
    line = wait_for(lambda: re.search(r'worker of "shop" \(pid \d+\) grew (\d+) MiB in (\d+) requests.*', server.stderr), "the line")
    assert 32 <= int(line[1]) <= 40 and 40 <= int(line[2]) <= 61
    assert server.get("/leak.php?mib=40").text == pid
    wait_for(lambda: len(re.findall(" grew ", server.stderr)) == 2, "the limit has doubled")


def test_request_limits_are_exact_for_small_numbers(shop):
    server = shop(limits={"requests": 3})
    pids = [server.get("/pid.php").text for _ in range(9)]
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3, 3]


@pytest.mark.parametrize("limit", [128, "64MB", -1])
def test_a_wrong_limit_is_named(shop, limit):
    server = shop()
    answer = server.api("PUT", "/config/applications/shop/limits", {"memory": limit})
    assert answer.status == 400
    assert answer.json()["detail"].startswith("applications/shop/limits/memory: ")
