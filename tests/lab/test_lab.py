"""`howdah lab`: races of howdah, nginx + PHP-FPM and php -S, in quick form; failures of stacks; Ctrl-C."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from support.command_line import error_of, howdah
from support.labs import processes_in, run_lab
from support.server import DISTRIBUTION_PHP, EXECUTABLE
from support.waiting import wait_for

pytestmark = pytest.mark.usefixtures("place")

PAGE = "<?php echo 'hello ', getmypid() > 0 ? 'world' : '';"
SHORT = {"name": "clients", "connections": 4, "duration": "300ms", "warm_up": "50ms"}


@pytest.fixture
def lab(folder):
    """Writes a lab.json for a folder with one page, with these changes; returns its path."""
    folder.write("index.php", PAGE)

    def write(**changes) -> Path:
        content = {
            "title": "A test",
            "application": {"root": str(folder.root), "front_controller": "index.php", "php": DISTRIBUTION_PHP},
            "workers": 2,
            "stacks": ["howdah", "nginx-fpm", "php-s"],
            "loads": [SHORT],
            "checks": {"status": [200], "contains": "hello world"},
            "rounds": 2,
            **changes,
        }
        path = folder.root.parent / "lab.json"
        path.write_text(json.dumps(content))
        return path

    return write


def test_a_lab_races_three_servers_and_writes_its_results(lab):
    rate = {"name": "rate", "schedule": "line(20, 40, 300ms) const(40, 300ms)", "warm_up": "0s"}
    path = lab(loads=[SHORT, rate])
    results, printed = run_lab(path)
    assert results["format"] == 1 and results["outcome"] == {"state": "complete"}
    assert results["skipped"] == []
    assert [stack["name"] for stack in results["stacks"]] == ["howdah", "nginx-fpm", "php-s"]
    # 3 stacks, 2 loads, 2 rounds; each stack once in each round.
    assert len(results["runs"]) == 12
    for round_ in (1, 2):
        stacks = [run["stack"] for run in results["runs"] if run["round"] == round_ and run["load"] == "rate"]
        assert sorted(stacks) == ["howdah", "nginx-fpm", "php-s"]
    for run in results["runs"]:
        # On a busy machine the load generator may be late; a run is void then, and that is right.
        assert run["state"] in ("complete", "voided"), run
        assert (run["failed"], set(run["statuses"])) == (0, {"200"}), run
        assert run["right"] == run["requests"] == sum(count for _, count in run["latency"]["buckets"])
        if run["load"] == "rate":
            assert run["requests"] == 9 + 12
        assert run["usage"]["pss_bytes"]["max"] > 1_000_000 and run["usage"]["processes"]["max"] >= 2, run["usage"]
    # One php.ini: what the servers' PHP reports is the same.
    by_name = {stack["name"]: stack for stack in results["stacks"]}
    fpm, ours = by_name["nginx-fpm"]["php"], by_name["howdah"]["php"]
    assert fpm["opcache"] and ours["opcache"] and fpm["version"] == ours["version"]
    assert fpm["ini_digest"] == ours["ini_digest"], [check for check in results["checks"] if check["name"] == "php.ini"]
    assert any(file["path"] == "nginx.conf" and file["is_configuration"] for file in by_name["nginx-fpm"]["files"])
    responses = [check for check in results["checks"] if check["name"] == "the same response"]
    assert [check["state"] for check in responses] == ["passed"]
    assert "nginx-fpm" in (path.parent / "out" / "report.html").read_text()
    for name in ("runs.csv", "summary.csv", "seconds.csv"):
        assert len((path.parent / "out" / name).read_text().splitlines()) > 1
    assert "requests/s" in printed.stdout and "nginx-fpm" in printed.stdout


def test_stacks_that_cannot_be_raced_are_results_with_reasons(lab, folder):
    stacks = folder.root.parent / "stacks"
    (stacks / "absent").mkdir(parents=True)
    program = {"label": "Absent", "names": ["no-such-program"], "version": ["-v"], "pattern": "(.)", "install": "get it"}
    manifest = {"label": "absent", "programs": {"absent": program}, "processes": []}
    (stacks / "absent" / "manifest.json").write_text(json.dumps(manifest))
    other = folder.root.parent / "other"
    other.mkdir(mode=0o755)
    (other / "index.php").write_text("<?php echo 'hello world, too';")
    dies = ["sh", "-c", "echo out of luck >&2; exit 7 # {{ port }}"]
    path = lab(
        stacks=[
            "php-s",
            "absent",
            {"name": "other", "command": [f"php{DISTRIBUTION_PHP}", "-S", "127.0.0.1:{{ port }}", "-t", str(other)]},
            {"name": "dies", "command": dies},
            "howdah-worker",
        ],
        rounds=1,
    )
    results, printed = run_lab(path, "--stacks-dir", str(stacks))
    skipped = {stack["name"]: stack for stack in results["skipped"]}
    assert [stack["name"] for stack in results["stacks"]] == ["php-s"]
    assert (skipped["absent"]["reason"], skipped["absent"]["remedy"]) == ("Absent is not installed", "get it")
    assert "another body" in skipped["other"]["reason"], skipped["other"]
    assert "ended" in skipped["dies"]["reason"] and skipped["dies"]["log"] == ["out of luck"], skipped["dies"]
    assert "application/scripts/howdah-worker" in skipped["howdah-worker"]["remedy"]
    assert "skipped: absent: Absent is not installed" in printed.stdout


def test_a_stack_that_dies_under_load_is_a_failed_run_with_its_log(lab, folder):
    # The first requests are those of the checks before the race.
    folder.write("server.py", DYING_SERVER)
    path = lab(
        stacks=[{"name": "dies", "command": ["python3", f"{folder.root}/server.py", "{{ port }}"]}, "php-s"],
        checks={"status": [200]},
        varies=["(?s).*"],
        loads=[{"name": "clients", "connections": 2, "requests": 100, "warm_up": "0s"}],
        rounds=1,
    )
    results, _ = run_lab(path)
    runs = {run["stack"]: run for run in results["runs"]}
    assert runs["dies"]["state"] == "failed", runs["dies"]
    assert "under load" in runs["dies"]["reason"] and "the end" in runs["dies"]["log"]
    assert runs["php-s"]["state"] in ("complete", "voided")


DYING_SERVER = """
import http.server, sys, os
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    count = 0
    def do_GET(self):
        Handler.count += 1
        if Handler.count > 40:
            print("the end", flush=True)
            os._exit(3)
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=UTF-8")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_ctrl_c_stops_all_servers_and_writes_what_was_measured(lab, place):
    long = {"name": "long", "connections": 2, "duration": "10m"}
    path = lab(loads=[SHORT, long], stacks=["nginx-fpm"])
    out = path.parent / "out"
    log = path.parent / "log"
    with open(log, "wb") as output:
        process = subprocess.Popen([EXECUTABLE, "lab", "run", path, "--out", out], stdout=output, stderr=output)
    try:
        wait_for(lambda: ", clients: " in log.read_text(), timeout=60)
        assert processes_in(place) != []
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 1, log.read_text()
    finally:
        process.kill()
        process.wait()
    results = json.loads((out / "results.json").read_text())
    assert results["outcome"] == {"state": "interrupted"}
    assert results["runs"][0]["load"] == "clients" and results["runs"][0]["right"] > 0
    assert "interrupted" in log.read_text()


def test_costs_by_job_and_bars(lab):
    def bar(figure, **limit):
        return {"loads": ["clients"], "stack": "nginx-fpm", "figure": figure, **limit}

    bars = [
        bar("failed", at_most=0),
        bar("php.cpu_microseconds", at_most=0.001),
        bar("requests_per_second", than=["php-s"], at_least=0.0001),
        {**bar("failed", at_most=0), "loads": ["other"]},
    ]
    path = lab(loads=[SHORT, {**SHORT, "name": "other"}], bars=bars, counts=True, rounds=1)
    options = ["--stacks", "nginx-fpm,php-s", "--loads", "clients", "--workers", "3", "--duration", "400ms"]
    out = path.parent / "out"
    printed = howdah("lab", "run", path, "--out", out, "--check", *options)
    results = json.loads((out / "results.json").read_text())
    runs = {run["stack"]: run for run in results["runs"]}
    roles = runs["nginx-fpm"]["usage"]["roles"]
    assert roles["php"]["processes"]["median"] == 3 and roles["front"]["processes"]["median"] >= 1, roles
    assert all(role["cpu_microseconds_per_request"] > 0 and role["pss_bytes"]["max"] > 100_000 for role in roles.values()), roles
    if shutil.which("perf"):
        # At least one call for a request, where this user can count them.
        assert roles["php"].get("system_calls_per_request", 9) > 1, roles
    else:
        assert "perf is not installed" in printed.stderr
    assert results["loads"][0]["duration_seconds"] == 0.4 and "400ms" in results["loads"][0]["label"]
    assert [bar["met"] for bar in results["bars"]] == [True, False, True], results["bars"]
    lines = printed.stdout.splitlines()
    assert any(line.startswith("MISSED") and "php.cpu_microseconds at most 0.001" in line for line in lines), printed.stdout
    assert any(line.split()[:2] == ["nginx-fpm", "front"] for line in lines), printed.stdout
    assert printed.returncode == 1 and printed.stderr.endswith("howdah: --check: 1 of 3 bars are not met\n"), printed.stderr
    assert "no bars for these stacks and loads" in error_of(howdah("lab", "run", path, "--stacks", "php-s", "--check"))


def test_rates_in_percent_and_a_stack_that_starts_again(lab):
    half = {"name": "half", "schedule": "const(50%, 300ms)", "warm_up": "0s", "fresh": True}
    stopped = {"name": "stopped", "connections": 1, "duration": "1m", "warm_up": "0s", "autostop": ["http(2xx, 1%, 1s)"]}
    capacity = {"targets": ["/"], "connections": 2, "duration": "300ms"}
    path = lab(loads=[SHORT, half, stopped], capacity=capacity, stacks=["php-s"], rounds=1)
    results, printed = run_lab(path)
    (finding,) = [check["finding"] for check in results["checks"] if check["name"] == "capacity"]
    rate = int(re.match(r"php-s completes ([0-9]+) requests/s", finding)[1])
    planned = results["loads"][1]["planned"]
    assert results["loads"][1]["label"] == "const(50%, 300ms)" and abs(planned - rate / 2 * 0.3) <= 2, (planned, rate)
    assert results["runs"][1]["requests"] == planned
    assert "capacity: php-s completes" in printed.stderr
    assert results["runs"][2]["state"] == "stopped" and "http(2xx, 1%, 1s)" in results["runs"][2]["reason"], results["runs"][2]
    assert "percents of a capacity" in error_of(howdah("lab", "k6", path))


def test_recorded_requests_are_sent(lab, folder):
    line = '127.0.0.1 - - [20/Nov/2026:23:14:01 +0000] "GET {} HTTP/1.1" 200 3 "-" "x"'
    (folder.root.parent / "access.log").write_text("\n".join(line.format(path) for path in ["/a", "/b?c=d", "/a"]))
    request = {"method": "POST", "url": "http://shop.example/form", "headers": [], "postData": {"mimeType": "text/plain", "text": "x=y"}}
    (folder.root.parent / "shop.har").write_text(json.dumps({"log": {"entries": [{"request": request, "response": {"status": 200}}]}}))
    loads = [{**SHORT, "name": kind, "targets": {kind: file}} for kind, file in (("access_log", "access.log"), ("har", "shop.har"))]
    loads[0]["name"] = "log"
    results, _ = run_lab(lab(loads=loads, stacks=["php-s"], rounds=1))
    targets = [{(target["method"], target["path"], target["weight"]) for target in load["targets"]} for load in results["loads"]]
    assert targets == [{("GET", "/a", 2), ("GET", "/b?c=d", 1)}, {("POST", "/form", 1)}]
    assert all(run["failed"] == 0 and run["right"] > 0 for run in results["runs"]), results["runs"]


def test_a_server_that_waits_for_the_end_of_each_connection_is_not_kept_waiting():
    """As Apache does. The generator once kept closed connections for 50 ms, and with each of them a process of the server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for _ in range(40):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
                    connection.shutdown(socket.SHUT_WR)
                    assert connection.recv(4096) == b""

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        began = time.monotonic()
        load = ("--connections", "1", "--requests", "40", "--no-keep-alive")
        run = json.loads(howdah("lab", "load", "--json", *load, f"http://127.0.0.1:{listener.getsockname()[1]}/").stdout)
        assert (run["right"], run["failed"]) == (40, 0), run
        server.join(10)
        assert not server.is_alive() and time.monotonic() - began < 1.5


def test_one_stack_serves_until_ctrl_c_and_gets_a_load(lab):
    process = subprocess.Popen([EXECUTABLE, "lab", "serve", lab(), "nginx-fpm", "--workers", "3", "--json"], stdout=subprocess.PIPE)
    try:
        served = json.loads(process.stdout.readline())
        assert len(served["processes"]["php"]) == 3 and Path(served["folder"], "nginx.conf").is_file(), served
        url = served["url"]
        many = ["--connections", "2", "--requests", "20"]
        sent = howdah("lab", "load", "--json", *many, "--expect", "hello world", f"9={url}/", f"{url}/index.php")
        run = json.loads(sent.stdout)
        assert (run["right"], run["failed"], run["statuses"]) == (20, 0, {"200": 20}), run
        other = howdah("lab", "load", "--schedule", "const(50, 200ms)", "--expect", "another text", f"{url}/").stdout
        assert "10 requests" in other and "0 right" in other and "status 200: 10" in other and "wrong body: 10" in other
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    for arguments, reason in [
        (["serve", lab(), "x"], "the lab has no stack"),
        (["load", *many, "http://192.0.2.1/"], "--allow-remote"),
        (["load", "http://127.0.0.1:1/"], "write a schedule, or connections"),
        (["load", *many, "http://127.0.0.1:1/", "http://127.0.0.1:2/"], "of one server"),
        (["load", "--schedule", "const(5%, 1s)", "http://127.0.0.1:1/"], "write requests per second"),
    ]:
        assert reason in error_of(howdah("lab", *arguments)), arguments
    refused = howdah("lab", "load", *many, "http://127.0.0.1:1/")
    assert refused.returncode == 0 and "connect refused: 20" in refused.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="PHP has the user of the lab")
def test_an_application_that_php_cannot_read_is_named(lab, folder):
    path = lab()
    folder.root.chmod(0o700)
    refused = howdah("lab", "run", path)
    assert refused.returncode == 1 and f"PHP's user, cannot read {folder.root}" in refused.stderr, refused.stderr


def test_other_machines_need_a_flag(lab):
    path = lab(stacks=[{"name": "remote", "url": "http://192.0.2.1:8080"}])
    assert "--allow-remote" in error_of(howdah("lab", "run", path))


def test_a_wrong_lab_is_rejected_with_the_path_of_the_value(lab):
    path = lab(loads=[{"name": "x", "schedule": "cosnt(1, 5s)"}])
    message = error_of(howdah("lab", "run", path))
    assert "lab.json: loads[0]/schedule: " in message and "const(rate, time)" in message
    assert "howdah lab init" in error_of(howdah("lab", "run", path.with_name("none.json")))
    assert "it has howdah, nginx-fpm, php-s" in error_of(howdah("lab", "run", lab(), "--stacks", "apache"))


def test_init_writes_a_lab_that_runs(lab, folder):
    lab()
    path = folder.root.parent / "new.json"
    printed = howdah("lab", "init", folder.root, "--out", path).stdout
    assert "stacks, 1 URLs" in printed and "without howdah-worker: it needs a worker script" in printed
    assert path.read_text().splitlines()[1].startswith('  "title": ')
    assert {"howdah", "nginx-fpm", "php-s"} <= {stack for stack in json.loads(path.read_text())["stacks"] if isinstance(stack, str)}
    assert "exists already" in error_of(howdah("lab", "init", folder.root, "--out", path))
    content = {**json.loads(path.read_text()), "loads": [SHORT], "rounds": 1}
    path.write_text(json.dumps(content))
    results, _ = run_lab(path, "--stacks", "php-s", "--quick")
    assert results["quick"] and len(results["runs"]) == 1


def test_find_limit_prints_the_highest_rate_that_a_stack_holds(lab):
    search = ["--stacks", "nginx-fpm", "--from", "50", "--to", "100", "--probe", "200ms"]
    out = lab().parent / "out"
    result = howdah("lab", "find-limit", lab(), *search, "--objective", "p99 < 60s, errors < 1%", "--out", out)
    assert result.returncode == 0, result.stderr
    (limit,) = json.loads((out / "results.json").read_text())["limits"]
    assert limit["probes"][0]["rate"] == 50 and limit["probes"][0]["error_share"] == 0
    # Unless a busy machine made the load generator late, it holds both rates.
    if not any(probe["voided"] for probe in limit["probes"]):
        assert (limit["held"], limit["missed"], len(limit["probes"])) == (100, None, 2)
        assert "nginx-fpm holds p99 < 60000 ms and errors <= 1 % at 100 requests/s" in result.stdout
    never = howdah("lab", "find-limit", lab(), *search, "--objective", "p99 < 1ms, errors < 1%", "--load", "x")
    assert "--load: the lab has clients" in error_of(never)


def test_k6_gets_the_loads_as_a_script_and_a_test_run(lab):
    path = lab()
    assert howdah("lab", "k6", path, "--name", "shop", "--parallelism", "4").returncode == 0
    script, run = path.with_name("lab.js").read_text(), path.with_name("testrun.yaml").read_text()
    assert '"executor": "constant-vus"' in script and '"contains": "hello world"' in script
    assert "parallelism: 4" in run and "kind: TestRun" in run


def test_stacks_prints_each_stack_with_its_version_or_its_remedy():
    lines = {line.split()[0]: line for line in howdah("lab", "stacks").stdout.splitlines()}
    assert "nginx 1." in lines["nginx-fpm"] and "PHP-FPM 8." in lines["nginx-fpm"]
    assert "not here" in lines["php-pm"] or "PHP-PM" in lines["php-pm"]
    listed = json.loads(howdah("lab", "stacks", "--json").stdout)
    assert {"stack", "installed"} <= set(listed[0])
