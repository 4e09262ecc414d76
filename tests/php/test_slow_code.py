"""Slow code explained: the slow log, `limits/timeout`, live processes, profiles."""

import json
import re
import subprocess
import threading
import time
import xml.etree.ElementTree

import pytest

from support.background import Background
from support.http.client import Connection
from support.http.upstream import Upstream, ok
from support.server import EXECUTABLE, Howdah
from support.waiting import PATIENCE, wait_for

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


# --- The slow log


def test_a_sleeping_script_is_explained_and_its_sleep_is_not_cut_short(site):
    with Howdah.run(application(site, processes=1, slow_log={"threshold": 0.3})) as server:
        left, slept = server.get("/sleep.php?s=2").json()
        assert left == 0 and slept >= 2
        end = wait_for(lambda: of_url(server, "/sleep.php?s=2", "end"), "the line at the end")[0]
        samples = of_url(server, "/sleep.php?s=2")
        assert [line["sample"] for line in samples] == [1, 2, 3]
        for line, at in zip(samples, (0.3, 0.6, 1.2)):
            assert at <= line["elapsed"] < at + 1  # The machine may be busy.
            assert names(line) == ["sleep", "nap", "{main}"]
            assert line["native"]["function"] == "sleep" and "nanosleep" in line["native"]["waits_in"]
            assert (line["backtrace"][1]["line"], line["backtrace"][2]["line"]) == (2, 3)
            assert line["backtrace"][1]["file"] == line["script"] == str(site.root / "sleep.php")
            assert (line["application"], line["method"], line["pid"]) == ("app", "GET", server.workers()[0].pid)
            assert line["cpu"] < 0.2 and 2**18 < line["memory"] <= line["memory_peak"]
            assert line["counters"]["included_files"] == 1
            assert re.fullmatch(r"20\d\d-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\d\.\d{3}Z", line["time"])
        assert {line["request"] for line in samples} == {end["request"]} and end["elapsed"] >= 2


def test_fast_requests_are_not_logged(site):
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
        # On a busy machine the script gets little CPU time.
        assert samples[-1]["cpu"] >= 0.02


def test_a_slow_internal_function_is_named(site):
    with Howdah.run(application(site, processes=1, slow_log={"threshold": 0.05, "samples": 20}, options={"admin": {"memory_limit": "512M"}})) as server:
        assert server.get("/sort.php").status == 200
        wait_for(lambda: of_url(server, "/sort.php", "end"), "the end")
        sorting = [line for line in of_url(server, "/sort.php") if names(line) == ["sort", "{main}"]]
        assert sorting and sorting[0]["native"]["function"] == "sort"


@pytest.fixture
def slow_upstream():
    """An HTTP server that answers when its `go` is set."""
    go = threading.Event()

    def handler(visit):
        visit.request()
        go.wait(PATIENCE)
        visit.send(ok(b"late"))

    with Upstream(handler) as upstream:
        upstream.go = go
        yield upstream
        go.set()


def test_a_wait_for_another_server_is_explained(site, slow_upstream):
    with Howdah.run(application(site, processes=1, slow_log={"threshold": 0.2, "samples": 1})) as server:
        url = f"/fetch.php?url={slow_upstream.url}"
        asking = Background(server.get, url)
        line = wait_for(lambda: of_url(server, url), "a sample")[0]
        slow_upstream.go.set()
        assert asking.result().text == "late"
        assert names(line) == ["file_get_contents", "{main}"]
        assert line["native"]["function"] == "file_get_contents" and "poll" in line["native"]["waits_in"]


def test_samples_are_on_the_disk_when_a_worker_is_killed(site):
    with Howdah.run(application(site, processes=1, slow_log={"threshold": 0.1})) as server:
        asking = Background(server.get, "/sleep.php?s=20")
        wait_for(lambda: of_url(server, "/sleep.php?s=20"), "a sample")
        server.workers()[0].kill()
        asking.result()
        assert names(of_url(server, "/sleep.php?s=20")[0]) == ["sleep", "nap", "{main}"]


# --- limits/timeout


@pytest.mark.parametrize("how", ["sleep", "spin"])
def test_shutdown_functions_run_after_a_timeout(site, how):
    with Howdah.run(application(site, processes=1, limits={"timeout": 1}, slow_log={"threshold": 0.5, "samples": 1})) as server:
        pid = server.get("/pid.php").text
        began = time.monotonic()
        assert server.get(f"/shutdown.php?how={how}").status == 504
        assert 1 <= time.monotonic() - began < 10
        assert (site.scratch / "shutdown").read_text() == "2", "CONNECTION_TIMEOUT"
        report = re.search(r"limits/timeout of the application \"app\" ends a request: (.*)", server.stderr).group(1)
        assert re.search(rf"GET /shutdown\.php\?how={how}, script {site.root}/shutdown\.php, after \d\.", report), report
        assert f"in worker {pid}, at " in report and f"{{main}} {site.root}/shutdown.php:" in report and "KiB of memory" in report
        assert bool(re.search(r"sleep in \w*nanosleep < ", report)) == (how == "sleep")
        assert "killed" not in server.stderr
        assert names(of_url(server, f"/shutdown.php?how={how}", "limit")[0])[-1] == "{main}"
        assert server.get("/pid.php").text != pid, "another worker"


def test_the_report_of_a_timeout_is_one_json_object(site):
    options = application(site, processes=1, limits={"timeout": 1})
    with Howdah.run(options, "--log-format", "json") as server:
        pid = server.get("/pid.php").text
        assert server.get("/sleep.php?s=30&secret=1").status == 504
        logged = [json.loads(line) for line in server.stderr.splitlines()]
        [report] = [line for line in logged if line["message"] == "limits/timeout ends a request"]
        assert (report["level"], report["application"], report["method"], report["uri"]) == ("WARN", "app", "GET", "/sleep.php")
        assert report["script"] == f"{site.root}/sleep.php" and report["pid"] == int(pid)
        assert 1 <= report["elapsed"] < 20 and report["cpu"] >= 0 and report["memory"] > 0
        assert report["native"]["function"] == "sleep" and names(report) == ["sleep", "nap", "{main}"]
        # The fatal error of PHP follows, with its own stack in its message.
        assert all("time" in line and "level" in line for line in logged)


def test_a_script_that_ignores_its_timeout_is_killed(site):
    site.php("deaf.php", "pcntl_sigprocmask(SIG_SETMASK, array_merge(range(1, 31), range(34, 64))); sleep(60);")
    with Howdah.run(application(site, processes=2, limits={"timeout": 1})) as server:
        began = time.monotonic()
        assert server.get("/deaf.php").status == 504
        assert 1 <= time.monotonic() - began < 20
        assert re.search(r"did not end it within 2 s; it is killed", server.stderr)
        assert re.search(r"at sleep in \w*nanosleep < {main} ", server.stderr)
        server.workers(count=2)


def test_a_script_that_waits_for_another_server_is_killed(site, slow_upstream):
    """PHP's streams continue to wait after a signal."""
    with Howdah.run(application(site, processes=1, limits={"timeout": 1})) as server:
        assert server.get(f"/fetch.php?url={slow_upstream.url}").status == 504
        assert re.search(r"at file_get_contents in [\w.]*poll[\w.]* < {main} ", server.stderr)
        assert server.get("/pid.php").status == 200


def test_an_endless_shutdown_function_is_killed(site):
    site.php("stubborn.php", "register_shutdown_function(function () { while (true); }); sleep(60);")
    with Howdah.run(application(site, processes=1, limits={"timeout": 1})) as server:
        assert server.get("/stubborn.php").status == 504
        assert "it is killed" in server.stderr
        assert server.get("/pid.php").status == 200


def test_a_timeout_truncates_a_response_that_has_begun(site):
    site.php("begun.php", "echo str_repeat('x', 10000); flush(); sleep(60);")
    # The response can begin within this time on a busy machine, too.
    with Howdah.run(application(site, processes=1, limits={"timeout": 4})) as server:
        with server.connect() as connection:
            connection.send(b"GET /begun.php HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            rest = connection.rest()
        assert b" 200 OK" in rest and not rest.endswith(b"0\r\n\r\n")
        assert server.get("/pid.php").status == 200


def test_a_timeout_applies_after_the_client_disconnected(site):
    with Howdah.run(application(site, processes=1, limits={"timeout": 1})) as server:
        with server.connect() as connection:
            connection.send(b"GET /sleep.php?s=60 HTTP/1.1\r\nHost: x\r\n\r\n")
            wait_for(lambda: processes(server)["workers"][0]["state"] == "busy", "the request runs")
        wait_for(lambda: "ends a request: GET /sleep.php?s=60" in server.stderr, "its end")
        assert server.get("/pid.php").status == 200


def processes(server):
    return server.api("GET", "/status/applications/app/processes").json()


# --- howdah slow


def command(server, *arguments, expect=0):
    words = [str(EXECUTABLE), *arguments, "--control", f"unix:{server.control}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=server.directory)
    assert done.returncode == expect, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout if expect == 0 else done.stderr


def test_consecutive_slow_requests_are_both_sampled_in_time(site):
    with Howdah.run(application(site, processes=1, slow_log={"threshold": 0.3, "samples": 10})) as server:
        # The next sample of the first request would be taken 4.8 s after its start.
        server.get("/sleep.php?s=3")
        server.get("/busy.php?s=0.8")
        samples = wait_for(lambda: of_url(server, "/busy.php?s=0.8"), "its sample")
        assert 0.3 <= samples[0]["elapsed"] < 2


def test_the_slow_command_shows_the_last_slow_requests(site):
    with Howdah.run(application(site, processes=1, slow_log={"threshold": 0.1, "samples": 2})) as server:
        assert command(server, "slow") == "No request has been slow.\n"
        for turn in range(3):
            server.get(f"/sleep.php?s=1&turn={turn}&x=%1b[2J")
            wait_for(lambda: of_url(server, f"/sleep.php?s=1&turn={turn}&x=%1b[2J", "end"), "the end")
        text = command(server, "slow", "app", "--last", "2")
        assert "turn=0" not in text and text.index("turn=1") < text.index("turn=2")
        assert re.search(r"app  GET /sleep\.php\?s=1&turn=2&x=%1b\[2J\n  1\.\d{3} s, 0\.\d{3} s of CPU; memory .*, peak ", text)
        assert re.search(r"after 0\.1\d\d s:\n    sleep in \w+\n    nap  \S+/sleep\.php:2\n    {main}  \S+/sleep\.php:3\n  after 0\.\d+ s: the same\n", text)
        printed = [json.loads(line) for line in command(server, "slow", "--json", "--last", "1").splitlines()]
        assert [line["event"] for line in printed] == ["sample", "sample", "end"]


def test_without_a_slow_log_the_command_names_the_option(site):
    with Howdah.run(application(site, processes=1)) as server:
        assert 'set it to {"threshold": 1}' in command(server, "slow", expect=1)
        assert 'no application "shop"' in command(server, "slow", "shop", expect=1)
        assert server.get("/pid.php").status == 200


def test_a_slow_log_can_have_its_own_file(site, tmp_path):
    slow = {"threshold": 0.1, "path": str(tmp_path / "slow.jsonl")}
    with Howdah.run(application(site, processes=1, slow_log=slow)) as server:
        server.get("/sleep.php?s=1")
        wait_for(lambda: '"end"' in (tmp_path / "slow.jsonl").read_text(), "the line at the end")
        # The next configuration appends to it.
        answer = server.api("PUT", "/config/applications/app/slow_log/threshold", 0.2)
        assert answer.status == 200, answer.text
        server.get("/sleep.php?s=1")
        wait_for(lambda: (tmp_path / "slow.jsonl").read_text().count('"end"') == 2, "both")
        answer = server.api("PUT", "/config/applications/app/slow_log/path", json.dumps(str(tmp_path / "missing" / "slow.jsonl")))
        assert answer.status == 500 and "applications/app/slow_log: " in answer.text and "choose another file" in answer.text
        assert server.get("/pid.php").status == 200


# --- howdah top


def test_top_shows_the_state_of_each_worker(site):
    with Howdah.run(application(site, processes=2)) as server:
        assert server.get("/pid.php").status == 200
        asking = [Background(server.get, url) for url in ("/busy.php?s=4&n=1", "/sleep.php?s=4")]
        wait_for(lambda: all(worker["state"] == "busy" for worker in processes(server)["workers"]), "both are busy")
        text = command(server, "top", "--once")
        assert re.search(r"^application +requests/s +errors/s +median +95 % +99 % +running +queue +refused +processes\n"
                         r"app +0 +0 +- +- +- +2 +0 +0 +2\n\napplication +pid", text), text  # fmt: skip
        status = processes(server)
        for request in asking:
            request.result()
        assert (status["running"], status["starting"], status["idle"]) == (2, 0, 0)
        busy, idle = sorted(status["workers"], key=lambda worker: -worker["cpu"])
        assert {busy["pid"], idle["pid"]} == {worker.pid for worker in server.workers()}
        assert (busy["method"], busy["url"], busy["script"]) == ("GET", "/busy.php?s=4&n=1", str(site.root / "busy.php"))
        assert busy["cpu"] > 0.05 > idle["cpu"] and 0 < busy["seconds"] < 5 and busy["memory"] > 2**18
        assert sum(worker["requests"] for worker in status["workers"]) == 1
        assert re.search(rf"app +{busy['pid']} +busy +\d\.\d +\d+ +\S+ \S+ +\d  GET /busy\.php\?s=4&n=1  \({site.root}/busy\.php\)", text)
        wait_for(lambda: {worker["state"] for worker in processes(server)["workers"]} == {"idle"}, "both are idle")
        top = json.loads(command(server, "top", "app", "--once", "--json"))
        assert set(top) == {"app"} and top["app"]["rates"]["requests"] == 0 and len(top["app"]["workers"]) == 2
        assert server.api("GET", "/status").json()["applications"]["app"]["processes"] == {"running": 2, "starting": 0, "idle": 2}


def test_a_request_that_runs_after_its_response_is_shown_as_finishing(site):
    site.php("finish.php", "fastcgi_finish_request(); await(SCRATCH . '/go');")
    with Howdah.run(application(site, processes=1)) as server:
        assert server.get("/finish.php").status == 200
        wait_for(lambda: processes(server)["workers"][0]["state"] == "finishing", "it goes on")
        (site.scratch / "go").touch()
        wait_for(lambda: processes(server)["workers"][0]["state"] == "idle", "it ended")


def test_control_characters_of_a_client_do_not_reach_the_terminal(site):
    with Howdah.run(application(site, processes=1, slow_log={"threshold": 0.1, "samples": 1}, limits={"timeout": 1})) as server:
        target = "/sleep.php?s=3&x=\xc2\x9b31m\xe2\x80\xae\\"
        with server.connect() as connection:
            connection.send(b"GET " + target.encode("latin-1") + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            wait_for(lambda: processes(server)["workers"][0]["url"], "the request runs")
            text = command(server, "top", "--once")
            connection.response()
        wait_for(lambda: "ends a request" in server.stderr, "the limit")
        printed = text + command(server, "slow") + server.stderr
        assert "/sleep.php?s=3&x=\\u{9b}31m\\u{202e}\\" in printed
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", text + command(server, "slow"))
        assert "‮" not in text + command(server, "slow")


# --- howdah profile


def test_a_profile_finds_the_hot_function(site):
    with Howdah.run(application(site, processes=2)) as server:
        asking = Background(server.get, "/busy.php?s=3")
        report = command(server, "profile", "app", "--seconds", "2", "--rate", "199", "--output", "p.svg")
        asking.result()
        assert re.match(r"\d+ samples of 1 worker, 199/s each\.\n *\d+\.\d %  hot\n", report), report
        svg = (server.directory / "p.svg").read_text()
        assert xml.etree.ElementTree.fromstring(svg).tag.endswith("svg")
        assert "hot (" in svg and "Shop::order (" in svg and "{main} busy.php (" in svg and "<script" in svg
        scope = json.loads((server.directory / "p.speedscope.json").read_text())
        frames = [frame["name"] for frame in scope["shared"]["frames"]]
        samples = scope["profiles"][0]["samples"]
        assert len(samples) > 20 and len(samples) == len(scope["profiles"][0]["weights"])
        stacks = [[frames[place] for place in sample] for sample in samples]
        assert sum(stack[:4] == ["{main} busy.php", "Shop::order", "busy", "hot"] for stack in stacks) > 0.8 * len(stacks)


def test_a_profile_sees_internal_functions(site):
    site.php("hash.php", "$s = str_repeat('x', 4000000); for ($end = microtime(true) + 2; microtime(true) < $end;) md5($s);")
    with Howdah.run(application(site, processes=1)) as server:
        asking = Background(server.get, "/hash.php")
        report = command(server, "profile", "app", "--seconds", "1")
        asking.result()
        assert re.search(r"^ *(9\d|100)\.\d %  md5$", report, re.M), report


def test_a_profile_blocks_only_other_profiles(site):
    with Howdah.run(application(site, processes=1)) as server:
        profiling = Background(server.api, "POST", "/control/applications/app/profile", {"seconds": 3})
        wait_for(lambda: server.api("POST", "/control/applications/app/profile", {"seconds": 0}).status == 409, "it profiles")
        assert server.api("GET", "/status").status == 200
        assert server.api("PUT", "/config/settings", {"listen_threads": 1}).status == 200
        assert not profiling.done()
        assert server.api("POST", "/control/applications/none/profile").status == 404
        assert server.api("GET", "/control/applications/app/profile").status == 405
        profiling.result()
        answer = server.api("POST", "/control/applications/app/profile", {"rate": 0})
        assert (answer.status, answer.json()["detail"]) == (400, "rate: 0 is not a whole number from 1 to 1000, of samples a second")


def test_a_profile_ends_when_its_client_disconnects(site, tmp_path):
    with Howdah.run(application(site, processes=1)) as server:
        arguments = ["profile", "app", "--seconds", "60", "--control", f"unix:{server.control}"]
        client = subprocess.Popen([EXECUTABLE, *arguments], cwd=tmp_path)
        ask = lambda: server.api("POST", "/control/applications/app/profile", {"seconds": 0}).status
        wait_for(lambda: ask() == 409, "it profiles")
        client.terminate()
        client.wait()
        assert not [path for path in tmp_path.iterdir() if path.is_file()]
        wait_for(lambda: ask() == 400, "its end", 20)


def test_a_profile_ends_with_its_application(site):
    with Howdah.run(application(site, processes=1)) as server:
        profiling = Background(server.api, "POST", "/control/applications/app/profile", {"seconds": 20})
        wait_for(lambda: server.api("POST", "/control/applications/app/profile", {"seconds": 0}).status == 409, "it profiles")
        assert server.api("POST", "/control/applications/app/restart").status == 200
        answer = profiling.result()
        assert answer.status == 500 and "restarted meanwhile" in answer.text


def test_idle_workers_are_not_sampled_and_the_profile_reports_that(site):
    with Howdah.run(application(site, processes=2)) as server:
        report = command(server, "profile", "app", "--seconds", "0.5", expect=1)
        assert "no request of \"app\" ran within 0.5 s" in report
        assert "cannot write" in command(server, "profile", "app", "--output", "/nowhere/p.svg", expect=1)


# --- Sampling is harmless for any PHP code


STRANGE = {
    "fork": "$pid = pcntl_fork(); for ($end = microtime(true) + 0.3; microtime(true) < $end;) md5('x'); if (!$pid) exit(0); pcntl_waitpid($pid, $s); echo pcntl_wexitstatus($s);",
    "exit": "register_shutdown_function(function () { busy(0.1); echo 'bye'; }); busy(0.1); exit('0');",
    "fiber": "$f = new Fiber(function () { while (true) { busy(0.02); Fiber::suspend(1); } }); $f->start(); for ($i = 0; $i < 10; $i++) $f->resume(); echo 0;",
    "generator": "function g($d) { if ($d > 0) yield from g($d - 1); else for ($i = 0; $i < 20; $i++) { busy(0.01); yield $i; } } foreach (g(20) as $x); echo 0;",
    "deep": "function deep($n) { return $n ? 1 + deep($n - 1) : (busy(0.1) ?? 0); } echo deep(20000) - 20000;",
    "exception": "for ($end = microtime(true) + 0.2; microtime(true) < $end;) try { throw new Exception('x'); } catch (Exception $e) {} echo 0;",
    "callback": "for ($end = microtime(true) + 0.2; microtime(true) < $end;) { $a = range(1, 500); usort($a, fn($x, $y) => $y <=> $x); } echo 0;",
    "eval": "for ($end = microtime(true) + 0.2; microtime(true) < $end;) eval('$x = new class { function __call($n, $a) { return 1; } }; $x->y();'); echo 0;",
    "ticks": "pcntl_async_signals(true); $n = 0; pcntl_signal(SIGALRM, function () use (&$n) { $n++; }); pcntl_alarm(1); busy(1.5); echo $n - 1;",
    "error": "busy(0.1); http_response_code(200); echo 0; ini_set('display_errors', '0'); undefined_function();",
    "memory": "for ($end = microtime(true) + 0.2; microtime(true) < $end;) { $a = []; for ($i = 0; $i < 2000; $i++) { $o = new stdClass; $o->o = $o; $a[] = $o; } } echo 0;",
    "fibers_in_generators": "function g() { yield Fiber::suspend(busy(0.02)); } $f = new Fiber(function () { for ($i = 0; $i < 8; $i++) foreach (g() as $x); }); $f->start(); while (!$f->isTerminated()) $f->resume(); echo 0;",
}


@pytest.mark.parametrize("jit", ["", "tracing", "function"])
def test_sampling_does_no_harm(site, jit):
    for name, code in STRANGE.items():
        site.php(f"{name}.php", BUSY.replace("function hot", "function hot") + code)
    admin = {"opcache.jit_buffer_size": "32M", "opcache.jit": jit} if jit else {}
    slow = {"threshold": 0.01, "samples": 100}
    with Howdah.run(application(site, processes=2, slow_log=slow, options={"admin": admin})) as server:
        pids = {worker.pid for worker in server.workers(count=2)}
        profiling = Connection(str(server.control))
        profiling.send_request("POST", "/control/applications/app/profile", body='{"seconds": 120, "rate": 1000}')
        for _ in range(2):
            for name in STRANGE:
                answer = server.get(f"/{name}.php")
                assert answer.status == 200 and answer.text.rstrip()[:1] == "0" or name in ("error",), (name, answer.text)
        assert {worker.pid for worker in server.workers()} == pids, "none has died"
        assert "Allowed memory" not in server.stderr
        profiling.close()
        for line in lines(server):
            for frame in line.get("backtrace", []):
                assert re.fullmatch(r"[\w\\{}@:/.$-]+", frame["function"]), frame
