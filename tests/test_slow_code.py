"""Slow code explained: the slow log, `limits/timeout`, live processes, profiles."""

import json
import re
import subprocess
import threading
import time
import xml.etree.ElementTree
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from harness import EXECUTABLE, Connection, Howdah, wait_for

BUSY = """function hot(int $turns): int { for ($n = 0, $i = 0; $i < $turns; $i++) { $n += $i % 7; } return $n; }
function busy(float $seconds): void { for ($end = microtime(true) + $seconds; microtime(true) < $end;) hot(20000); }
"""


@pytest.fixture
def site(folder):
    folder.php("pid.php", "echo getmypid();")
    folder.php("busy.php", BUSY + "class Shop { function order() { busy((float) ($_GET['s'] ?? 1)); } }\n(new Shop)->order(); echo 'done';")
    folder.php("sleep.php", "function nap($s) { return sleep($s); }\n$t = microtime(true); $left = nap($_GET['s'] ?? 1); echo json_encode([$left, microtime(true) - $t]);")
    folder.php("sort.php", "$a = range(1, 1500000); mt_srand(5); shuffle($a);\n$t = microtime(true); sort($a); echo microtime(true) - $t;")
    folder.php("fetch.php", "echo file_get_contents($_GET['url']);")
    folder.php("shutdown.php", "register_shutdown_function(function () { file_put_contents(SCRATCH . '/shutdown', connection_status()); });\n$_GET['how'] == 'sleep' ? sleep(30) : busy(30);\n" + BUSY)
    return folder


def application(folder, **options):
    return {"applications": {"app": {"type": "php", "root": str(folder.root), **options}}}


def lines(server):
    path = server.directory / "state" / "slow" / "app.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def of_url(server, url, event="sample"):
    return [line for line in lines(server) if line["url"] == url and line["event"] == event]


def names(line):
    return ["::".join(filter(None, [frame.get("class"), frame["function"]])) for frame in line["backtrace"]]


def in_background(act):
    thread = threading.Thread(target=act)
    thread.start()
    return thread


# --- The slow log


def test_a_sleeping_script_is_explained_and_its_sleep_is_not_cut_short(site):
    with Howdah.run(application(site, processes=1, slow_log={"threshold": 0.3})) as server:
        left, slept = server.get("/sleep.php?s=2").json()
        assert left == 0 and slept >= 2
        end = wait_for(lambda: of_url(server, "/sleep.php?s=2", "end"), "the line at the end")[0]
        samples = of_url(server, "/sleep.php?s=2")
        assert [line["sample"] for line in samples] == [1, 2, 3]
        for line, at in zip(samples, (0.3, 0.6, 1.2)):
            assert at <= line["elapsed"] < at + 0.25
            assert names(line) == ["sleep", "nap", "{main}"]
            assert line["native"]["function"] == "sleep" and "nanosleep" in line["native"]["waits_in"]
            assert (line["backtrace"][1]["line"], line["backtrace"][2]["line"]) == (2, 3)
            assert line["backtrace"][1]["file"] == line["script"] == str(site.root / "sleep.php")
            assert (line["application"], line["method"], line["pid"]) == ("app", "GET", server.workers()[0].pid)
            assert line["cpu"] < 0.2 and 2**18 < line["memory"] <= line["memory_peak"]
            assert line["counters"]["included_files"] == 1
            assert re.fullmatch(r"20\d\d-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\d\.\d{3}Z", line["time"])
        assert {line["request"] for line in samples} == {end["request"]} and end["elapsed"] >= 2


def test_what_is_not_slow_is_not_written(site):
    with Howdah.run(application(site, processes=1, slow_log={"threshold": 1})) as server:
        for _ in range(200):
            assert server.get("/pid.php").status == 200
        server.get("/sleep.php?s=2")
        wait_for(lambda: of_url(server, "/sleep.php?s=2", "end"), "the line at the end")
        assert {line["url"] for line in lines(server)} == {"/sleep.php?s=2"}


def test_a_busy_loop_is_explained(site):
    with Howdah.run(application(site, processes=1, slow_log={"threshold": 0.2, "samples": 2})) as server:
        assert server.get("/busy.php?s=1").text == "done"
        samples = wait_for(lambda: of_url(server, "/busy.php?s=1"), "samples")
        assert len(samples) == 2
        for line in samples:
            assert names(line)[-3:] == ["busy", "Shop::order", "{main}"]
            assert line["cpu"] > 0.05


def test_a_long_function_of_phps_own_is_named(site):
    with Howdah.run(application(site, processes=1, slow_log={"threshold": 0.05, "samples": 20}, options={"admin": {"memory_limit": "512M"}})) as server:
        assert server.get("/sort.php").status == 200
        wait_for(lambda: of_url(server, "/sort.php", "end"), "the end")
        sorting = [line for line in of_url(server, "/sort.php") if names(line) == ["sort", "{main}"]]
        assert sorting and sorting[0]["native"]["function"] == "sort"


class Slow(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.set()
        self.server.go.wait(30)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"late")

    def log_message(self, *_):
        pass


@pytest.fixture
def slow_server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    server.asked, server.go = threading.Event(), threading.Event()
    server.url = f"http://127.0.0.1:{server.server_port}/"
    threading.Thread(target=server.serve_forever).start()
    yield server
    server.go.set()
    server.shutdown()
    server.server_close()


def test_a_wait_for_another_server_is_explained(site, slow_server):
    with Howdah.run(application(site, processes=1, slow_log={"threshold": 0.2, "samples": 1})) as server:
        url = f"/fetch.php?url={slow_server.url}"
        answers = []
        asking = in_background(lambda: answers.append(server.get(url).text))
        line = wait_for(lambda: of_url(server, url), "a sample")[0]
        slow_server.go.set()
        asking.join()
        assert answers == ["late"]
        assert names(line) == ["file_get_contents", "{main}"]
        assert line["native"]["function"] == "file_get_contents" and "poll" in line["native"]["waits_in"]


def test_what_was_seen_is_on_the_disk_when_a_worker_is_killed(site):
    with Howdah.run(application(site, processes=1, slow_log={"threshold": 0.1})) as server:
        asking = in_background(lambda: server.get("/sleep.php?s=20"))
        wait_for(lambda: of_url(server, "/sleep.php?s=20"), "a sample")
        server.workers()[0].kill()
        asking.join()
        assert names(of_url(server, "/sleep.php?s=20")[0]) == ["sleep", "nap", "{main}"]


# --- limits/timeout


@pytest.mark.parametrize("how", ["sleep", "spin"])
def test_shutdown_functions_run_when_a_request_takes_too_long(site, how):
    with Howdah.run(application(site, processes=1, limits={"timeout": 1}, slow_log={"threshold": 0.5, "samples": 1})) as server:
        pid = server.get("/pid.php").text
        began = time.monotonic()
        assert server.get(f"/shutdown.php?how={how}").status == 504
        assert 1 <= time.monotonic() - began < 3
        assert (site.scratch / "shutdown").read_text() == "2", "CONNECTION_TIMEOUT"
        said = re.search(r"limits/timeout of the application \"app\" ends a request: (.*)", server.stderr).group(1)
        assert f"GET /shutdown.php?how={how}, script {site.root}/shutdown.php, after 1." in said
        assert f"in worker {pid}, at " in said and f"{{main}} {site.root}/shutdown.php:" in said and "KiB of memory" in said
        assert bool(re.search(r"sleep in \w*nanosleep < ", said)) == (how == "sleep")
        assert "killed" not in server.stderr
        assert names(of_url(server, f"/shutdown.php?how={how}", "limit")[0])[-1] == "{main}"
        assert server.get("/pid.php").text != pid, "another worker"


def test_who_ignores_the_end_is_killed(site):
    site.php("deaf.php", "pcntl_sigprocmask(SIG_SETMASK, array_merge(range(1, 31), range(34, 64))); sleep(60);")
    with Howdah.run(application(site, processes=2, limits={"timeout": 1})) as server:
        began = time.monotonic()
        assert server.get("/deaf.php").status == 504
        assert 1 <= time.monotonic() - began < 8
        assert re.search(r"did not end it within 2 s; it is killed", server.stderr)
        assert re.search(r"at sleep in \w*nanosleep < {main} ", server.stderr)
        server.workers(count=2)


def test_a_shutdown_function_without_end_is_killed_too(site):
    site.php("stubborn.php", "register_shutdown_function(function () { while (true); }); sleep(60);")
    with Howdah.run(application(site, processes=1, limits={"timeout": 1})) as server:
        assert server.get("/stubborn.php").status == 504
        assert "it is killed" in server.stderr
        assert server.get("/pid.php").status == 200


def test_a_response_that_has_begun_is_cut_off(site):
    site.php("begun.php", "echo str_repeat('x', 10000); flush(); sleep(60);")
    with Howdah.run(application(site, processes=1, limits={"timeout": 1})) as server:
        with server.connect() as connection:
            connection.send(b"GET /begun.php HTTP/1.1\r\nHost: x\r\n\r\n")
            rest = connection.rest()
        assert b" 200 OK" in rest and not rest.endswith(b"0\r\n\r\n")
        assert server.get("/pid.php").status == 200


def test_a_request_whose_client_has_left_is_ended_too(site):
    with Howdah.run(application(site, processes=1, limits={"timeout": 1})) as server:
        with server.connect() as connection:
            connection.send(b"GET /sleep.php?s=60 HTTP/1.1\r\nHost: x\r\n\r\n")
            wait_for(lambda: processes(server)["workers"][0]["state"] == "busy", "the request runs")
        wait_for(lambda: "ends a request: GET /sleep.php?s=60" in server.stderr, "its end")
        assert server.get("/pid.php").status == 200


def processes(server):
    return server.api("GET", "/status/applications/app/processes").json()
