"""Full disks, exhausted descriptors, failed forks, and what clients and the log see of them: see docs/faults.md."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.background import Background
from support.faults.file_systems import fill, small_disk
from support.folders import Folder
from support.http.client import ProtocolError
from support.machine import needs_root
from support.processes import cpu_seconds
from support.server import Howdah
from support.waiting import wait_for

# --- Disks


@needs_root
def test_a_full_disk_costs_lines_of_the_access_log_and_no_request(shop, tmp_path):
    with small_disk(tmp_path / "disk") as disk:
        log = disk / "access.log"
        server = shop(config={"access_log": {"path": str(log), "format": "$request_line $status end"}})
        for outage in (1, 2):
            assert server.get("/file.txt?before").status == 200
            wait_for(lambda: log.read_text().count("before") == outage)
            ballast = fill(disk)
            assert {server.get(f"/pid.php?{'lost' * 500}").status for _ in range(20)} == {200}
            wait_for(lambda: server.stderr.count("cannot write the access log") >= outage, "the line")
            ballast.unlink()
        assert server.get("/file.txt?after").status == 200
        wait_for(lambda: "after" in log.read_text())
        whole = re.compile(r"GET /\S+ HTTP/1.1 200 end")
        torn = [line for line in log.read_text().splitlines() if not whole.fullmatch(line)]
        threads = int(server.router().status("Threads"))
        assert len(torn) <= 2 * threads, "a truncated line is a separate line"
        assert server.stderr.count("cannot write the access log") <= 2 * threads, "it is logged once per outage"


@needs_root
def test_a_full_disk_rejects_a_large_body(shop, folder, tmp_path):
    folder.php("size.php", "echo strlen(file_get_contents('php://input'));")
    with small_disk(tmp_path / "disk") as disk:
        http = {"body_temp_path": str(disk), "body_buffer_size": 1000, "max_body_size": 10_000_000}
        server = shop(config={"settings": {"http": http}})
        assert server.post("/size.php", b"x" * 100_000).text == "100000"
        ballast = fill(disk)
        try:
            assert server.post("/size.php", b"x" * 500_000).status == 500
        except (ProtocolError, ConnectionError):
            pass  # It was answered before the body was read.
        wait_for(lambda: "cannot write a request's body to a temporary file" in server.stderr, "the line")
        assert server.post("/size.php", b"x" * 900).text == "900", "a body that fits into memory needs no disk"
        ballast.unlink()
        assert server.post("/size.php", b"x" * 100_000).text == "100000"
        assert os.statvfs(disk).f_bfree == os.statvfs(disk).f_blocks, "nothing is left behind"


def write_large(folder: Folder) -> None:
    """A page of 40.1 MB, whose larger part waits for the file `go`."""
    folder.php("large.php", "echo str_repeat('x', 100000); flush(); while (!file_exists(SCRATCH . '/go')) { usleep(2000); } "
                            "for ($n = 0; $n < 400; $n++) { echo str_repeat('x', 100000); }")  # fmt: skip


@needs_root
def test_a_response_that_its_client_does_not_read_leaves_room_on_the_disk(shop, folder, tmp_path):
    write_large(folder)
    with small_disk(tmp_path / "disk", "size=16m,mode=1777") as disk:
        server = shop(config={"settings": {"http": {"body_temp_path": str(disk)}}})
        with server.connect() as client:
            client.send_request("GET", "/large.php")
            _, body = client.stream()
            size = len(next(body))
            (folder.scratch / "go").touch()

            def used() -> int:
                state = os.statvfs(disk)
                return (state.f_blocks - state.f_bfree) * state.f_frsize

            wait_for(lambda: used() > 1_000_000, "its file")
            time.sleep(0.5)
            assert used() < 4_000_000
            assert size + sum(map(len, body)) == 40_100_000, "PHP has waited for its client"
        assert "cannot keep a response" not in server.stderr


@needs_root
def test_with_a_full_disk_php_waits_for_a_client_that_does_not_read(shop, folder, tmp_path):
    write_large(folder)
    with small_disk(tmp_path / "disk") as disk:
        server = shop(config={"settings": {"http": {"body_temp_path": str(disk)}}})
        with server.connect() as client:
            client.send_request("GET", "/large.php")
            _, body = client.stream()
            size = len(next(body))
            ballast = fill(disk)
            (folder.scratch / "go").touch()
            time.sleep(0.5)
            assert server.get("/pid.php").status == 200, "others are served"
            assert size + sum(map(len, body)) == 40_100_000
        assert "cannot keep a response" not in server.stderr
        ballast.unlink()
        assert os.statvfs(disk).f_bfree == os.statvfs(disk).f_blocks


@needs_root
def test_a_log_on_a_full_disk_does_not_stop_howdah(shop, tmp_path):
    with small_disk(tmp_path / "disk") as disk:
        log = disk / "howdah.log"
        server = shop("--log", str(log), stderr=str(disk / "php.log"))
        ballast = fill(disk)
        for _ in range(3):
            assert server.get("/killed.php").status == 502
            assert server.get("/pid.php").status == 200
        ballast.unlink()
        before = log.stat().st_size
        assert server.get("/killed.php").status == 502
        wait_for(lambda: log.stat().st_size > before, "it is written again")
        assert "panicked" not in log.read_text()


@needs_root
def test_a_restart_needs_no_disk(folder, tmp_path):
    folder.php("pid.php", "echo getmypid();")
    with small_disk(tmp_path / "s") as disk:
        config = {"applications": {"shop": {"type": "php", "root": str(folder.root), "processes": 1}}}
        with Howdah.run(config, "--state-dir", str(disk), "--control", f"unix:{tmp_path}/c") as server:
            server.control = tmp_path / "c"
            before = server.get("/pid.php").text
            ballast = fill(disk)
            assert server.api("PUT", "/config/applications/shop/processes", "2").status == 500
            assert server.api("GET", "/control/applications/shop/restart").status == 200
            assert server.get("/pid.php").text != before
            ballast.unlink()
            assert 'the application "shop" was restarted after' in server.stderr
            assert "the configuration change failed (PUT /config/applications/shop/processes): " in server.stderr


def test_missing_logs_do_not_stop_requests(folder, tmp_path):
    folder.php("pid.php", "echo getmypid();")
    logs = tmp_path / "logs"
    logs.mkdir()
    slow_log = {"threshold": 1, "path": str(logs / "slow")}
    options = {"processes": 1, "slow_log": slow_log, "stderr": str(logs / "stderr")}
    config = {"applications": {"shop": {"type": "php", "root": str(folder.root), **options}}}
    with Howdah.run(config) as server:
        shutil.rmtree(logs)
        before = server.get("/pid.php").text
        server.prototype("shop").kill()
        wait_for(lambda: server.get("/pid.php").text != before, "another worker")
        assert "cannot be opened" not in server.stderr, "the open logs are still written"
        answer = server.api("POST", "/control/applications/shop/restart")
        assert answer.status == 500 and "applications/shop/stderr: " in answer.json()["detail"]


@needs_root
def test_a_read_only_state_is_loaded_and_changes_are_rejected(folder, tmp_path):
    folder.php("index.php", "echo 'hello';")
    with small_disk(tmp_path / "state") as disk:
        application = {"type": "php", "root": str(folder.root), "processes": 1, "slow_log": {"threshold": 1}}
        config = {"applications": {"shop": application}}
        state = ("--state-dir", str(disk))

        def start(words):
            control = f"unix:{tmp_path}/c"
            server = Howdah(lambda _: ["run", *state, "--control", control, *words], ready=lambda it: "howdah" in it.stdout)
            server.control = tmp_path / "c"
            return server

        with start([]) as server:
            assert server.api("PUT", "/config", {"listeners": {}, **config}).status == 200
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with start([]) as server:
            server.workers("shop", count=1)
            assert "slow requests are not logged" in server.stderr
            assert "is on a read-only file system" in server.stderr and "--state-dir" in server.stderr
            answer = server.api("PUT", "/config/applications/shop/processes", "2")
            assert answer.status == 500 and "Read-only file system" in answer.json()["detail"]
            assert server.api("GET", "/config/applications/shop/processes").json() == 1
            server.workers("shop", count=1)
            assert server.api("PUT", "/certificates/x", "x").status >= 400
            assert server.api("GET", "/control/applications/shop/restart").status == 200, "requests that store nothing work"
        # A configuration that is given at the start does not have to be stored.
        application.pop("slow_log")
        given = tmp_path / "given.json"
        given.write_text(json.dumps({"listeners": {}, **config}))
        with start(["--config", str(given)]) as server:
            server.workers("shop", count=1)


# --- Descriptors


def few_descriptors(soft: int, hard: int) -> dict:
    return {"prefix": ("prlimit", f"--nofile={soft}:{hard}")}


def test_clients_that_hold_all_descriptors_do_not_end_the_router(shop, folder):
    """Messages of the supervisor for a new generation have descriptors."""
    server = shop(how=few_descriptors(256, 256))
    with open(folder.root / "file.txt", "wb") as file:
        file.truncate(64 << 20)
    router = server.router()
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(server.connect()) for _ in range(170)]
        for client in held:
            # A connection and a file.
            client.send_request("GET", "/file.txt")
        wait_for(lambda: len(os.listdir(f"/proc/{router.pid}/fd")) >= 235, "the descriptors to be used up")
        restart = Background(server.api, "POST", "/control/applications/shop/restart")
        assert restart.result().status == 200, restart.result().text
        assert server.router() == router
    assert server.get("/pid.php").status == 200 and server.router() == router


def test_connections_beyond_the_descriptor_limit_wait(shop):
    server = shop(how=few_descriptors(256, 256))
    router = server.router().pid
    held = [server.connect() for _ in range(300)]
    try:
        wait_for(lambda: "as many as the limit of descriptors allows; others wait in the backlog" in server.stderr, "the line")
        before = cpu_seconds(router)
        time.sleep(1)  # This sets the interval of the samples; it is not a wait.
        assert cpu_seconds(router) - before < 0.4, "it waits without using the CPU"
        # Accepted connections are served, including files and bodies.
        assert held[0].request("GET", "/pid.php").status == 200
        assert held[1].request("GET", "/file.txt").status == 200
        assert held[2].request("POST", "/pid.php", body=b"x" * 3_000_000).status == 200
        assert server.stderr.count("as many as the limit") == 1, "it is logged once while it lasts"
        held[-1].send_request("GET", "/pid.php")
        for client in held[:200]:
            client.close()
        assert held[-1].response("GET").status == 200, "the connection only waited"
    finally:
        for client in held:
            client.close()
    assert len(os.listdir(f"/proc/{router}/fd")) <= 256
    assert server.get("/pid.php").status == 200


def test_idle_connections_are_closed_at_the_descriptor_limit(shop):
    server = shop(how=few_descriptors(256, 256))
    clients = []
    try:
        for _ in range(400):
            clients.append(server.connect())
            assert clients[-1].request("GET", "/pid.php").status == 200
    finally:
        for client in clients:
            client.close()


def limit_of(pid: int) -> tuple[int, int]:
    text = Path(f"/proc/{pid}/limits").read_text()
    soft, hard = re.search(r"Max open files\s+(\d+)\s+(\d+)", text).groups()
    return int(soft), int(hard)


def test_the_descriptor_limit_is_raised_for_howdah_but_not_for_php(shop):
    server = shop(how=few_descriptors(500, 5000))
    assert limit_of(server.pid) == (5000, 5000)
    assert limit_of(server.router().pid) == (4744, 5000), "the rest is for messages of the supervisor"
    assert limit_of(server.prototype("shop").pid) == limit_of(server.workers("shop")[0].pid) == (500, 5000)
    assert "descriptors" not in server.stderr


def test_a_low_descriptor_limit_is_logged_at_the_start(shop):
    server = shop(how=few_descriptors(1000, 1000))
    assert "at most 1000 descriptors may be open" in server.stderr and "ulimit -Hn" in server.stderr


@needs_root
def test_a_short_backlog_is_logged_at_the_start(shop):
    script = 'echo 128 > /proc/sys/net/core/somaxconn && exec "$@"'
    if subprocess.run(["unshare", "--net", "sh", "-c", script, "sh", "true"], capture_output=True).returncode:
        pytest.skip("no network namespaces here")
    server = shop(how={"prefix": ("unshare", "--net", "sh", "-c", script, "sh")})
    assert "at most 128 connections may wait" in server.stderr
    assert "sysctl -w net.core.somaxconn=4096" in server.stderr


# --- Failed forks


@needs_root
def test_without_forks_live_workers_serve_and_requests_wait(shop):
    server = shop(user="www-data")
    first, second = server.workers("shop", count=2)
    prototype = server.prototype("shop").pid
    # Only a privileged root may change the limits of another user's process.
    like_php = ("setpriv", "--reuid=www-data", "--regid=www-data", "--clear-groups")
    limit = lambda most: subprocess.run([*like_php, "prlimit", "--pid", str(prototype), f"--nproc={most}:"], check=True)
    usual = re.search(r"Max processes\s+(\S+)", Path(f"/proc/{prototype}/limits").read_text())[1]
    limit(1)
    first.kill()
    wait_for(lambda: 'cannot fork a worker of "shop"' in server.stderr, "the line")
    assert {server.get("/pid.php").text for _ in range(20)} == {str(second.pid)}
    second.kill()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(server.get, "/pid.php")
        wait_for(lambda: server.stderr.count("cannot fork") > 4, "more attempts")
        limit(usual)
        assert waiting.result().status == 200
    server.workers("shop", count=2)
    assert server.stderr.count("cannot fork") < 40, "the pause between attempts grows"
