"""`howdah dashboard`: what it answers, and to which browsers."""

import contextlib
import itertools
import json
import signal
import socket
import time

import pytest

from support.command_line import error_of, howdah
from support.control_api import ControlApi, status
from support.dashboard import URL, Dashboard
from support.folders import Folder, readable
from support.http.client import Connection
from support.processes import Process
from support.server import Howdah, stop_all
from support.waiting import wait_for

pytestmark = pytest.mark.xdist_group("dashboard")
HOSTILE = "<script>alert(1)</script>"


PAGE = """
function wait_here(string $end) {
    while (!file_exists($end)) { usleep(1000); clearstatcache(); }
}
usleep(1000 * (int) ($_GET['ms'] ?? 0));
if (isset($_GET['q'])) { wait_here(__DIR__ . '/release'); }
echo 'shop';
"""


class Shop:
    """A server with an application that waits, and its dashboard."""

    def __init__(self, path):
        folder = Folder(path)
        folder.php("index.php", PAGE)
        self.release = folder.root / "release"
        application = {"type": "php", "root": str(folder.root), "processes": 3, "script": "index.php"}
        slow = {**application, "slow_log": {"threshold": 0.05}}
        self.config = {"applications": {"shop": slow, HOSTILE: application}}
        self.config["listeners"] = {"127.0.0.1:{port}": {"pass": "applications/shop"}}
        self.server = Howdah.run(self.config)
        self.dashboard = Dashboard("--control", f"unix:{self.server.control}")
        self.page = self.dashboard.log_in()


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    shop = Shop(readable(tmp_path_factory.mktemp("shop")))
    yield shop
    with shop.dashboard:
        stop_all([shop.server])


@pytest.fixture
def held(shop):
    """A request that runs for the time of the test."""
    with shop.server.connect() as connection:
        connection.send_request("GET", f"/?q={HOSTILE}")
        yield
        shop.release.touch()
        assert connection.response().status == 200
        shop.release.unlink()


def test_the_page_is_complete_and_strict(shop):
    for path, kind in (("/", "text/html"), ("/app.js", "text/javascript"), ("/app.css", "text/css"), ("/icon.svg", "image/svg+xml")):
        response = shop.dashboard.request("GET", path)
        assert response.status == 200 and response.header("Content-Type").startswith(kind) and response.body, path
        policy = response.header("Content-Security-Policy")
        assert policy.startswith("default-src 'none'; script-src 'self'; ") and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy and response.header("X-Content-Type-Options") == "nosniff"


def test_data_needs_the_token(shop):
    dashboard, page = shop.dashboard, shop.page
    (_, cookie), (_, key) = page.headers[1:]
    for headers in ([], [("Cookie", cookie)], [("X-Howdah-Key", key)], [("Cookie", cookie), ("X-Howdah-Key", cookie)]):
        for path in ("now", "config", "about", "certificates", "applications/shop/slow"):
            response = dashboard.request("GET", f"/api/{path}", headers)
            assert response.status == 401 and "howdah dashboard" in response.json()["error"], path
    origin = [("Origin", page.origin)]
    for wrong in ("", "0" * 64, dashboard.token[:-1]):
        assert dashboard.request("POST", "/api/login", origin, wrong).status == 401
    assert page.get("now").status == 200


def test_other_pages_and_other_names_are_refused(shop):
    dashboard, page = shop.dashboard, shop.page
    secrets = page.headers[1:]
    for headers in (
        [("Host", "evil.example"), *secrets],
        [("Host", f"evil.example:{dashboard.port}"), *secrets],
        [*page.headers, ("Origin", "http://evil.example")],
        [*page.headers, ("Origin", "null")],
        [*page.headers, ("Origin", f"http://localhost:{dashboard.port}")],
        [*page.headers, ("Sec-Fetch-Site", "cross-site")],
        [*page.headers, ("Sec-Fetch-Site", "same-site")],
    ):
        assert dashboard.request("GET", "/api/now", headers).status == 403, headers
        assert dashboard.request("POST", "/api/login", headers, dashboard.token).status == 403, headers
    assert dashboard.request("GET", "/", [("Host", "evil.example")]).status == 403
    # Without an Origin, nothing is changed.
    assert dashboard.request("POST", "/api/applications/shop/restart", page.headers).status == 403


def test_only_listed_requests_reach_howdah(shop):
    for method, path in (("GET", "status"), ("GET", "config/applications"), ("PUT", "certificates/x"), ("GET", "../config"),
                         ("GET", "applications/shop"), ("POST", "applications/shop/memory")):  # fmt: skip
        assert shop.page.send(method, path).status == 404, path
    for method, path in (("DELETE", "config"), ("POST", "now"), ("GET", "applications/shop/restart")):
        assert shop.page.send(method, path).status == 405, path


def test_running_requests_are_shown_with_their_stacks(shop, held):
    def running(now):
        return [worker for worker in now["workers"]["shop"] if worker["method"]]

    (worker,) = shop.page.wait("now", running, "the request")
    assert worker["url"] == "/?q=%3Cscript%3Ealert(1)%3C/script%3E"
    stack = shop.page.send("POST", "applications/shop/stack", {"pid": worker["pid"]}).json()["frames"]
    assert ["wait_here", "{main}"] == [frame["name"] for frame in stack][-2:], stack
    assert stack[-1]["file"].endswith("/index.php") and stack[-1]["line"] > 0
    absent = shop.page.send("POST", "applications/shop/stack", {"pid": 1})
    assert absent.status == 404 and "ran no request" in absent.json()["error"]
    assert shop.page.send("POST", "applications/shop/stack", {"pid": "x"}).status == 400


def test_slow_requests_are_shown(shop):
    assert shop.server.get("/?ms=120").status == 200
    requests = shop.page.wait(
        "applications/shop/slow", lambda log: [one for one in log["requests"] if one[-1]["event"] == "end"], "the slow request"
    )
    assert requests[0][-1]["elapsed"] >= 0.12 and requests[0][0]["backtrace"]
    name = HOSTILE.replace("/", "%2F").replace("<", "%3C").replace(">", "%3E")
    refused = shop.page.get(f"applications/{name}/slow")
    assert refused.status == 404 and "slow_log is not set" in refused.json()["detail"]


def test_a_profile_has_the_functions(shop, held):
    profile = shop.page.send("POST", "applications/shop/profile", {"seconds": 0.5, "rate": 50}).json()
    names = {frame["name"] for frame in profile["frames"]}
    assert "wait_here" in names and profile["samples"] > 0 and profile["complete"], profile
    assert sum(count for _, count in profile["stacks"]) == profile["samples"]
    wrong = shop.page.send("POST", "applications/shop/profile", {"seconds": 0, "rate": 50})
    assert wrong.status == 400 and wrong.json()["detail"].startswith("seconds: 0"), wrong


def test_leaks_need_worker_mode(shop):
    refused = shop.page.send("POST", "applications/shop/leaks", {"seconds": 0.2})
    assert refused.status == 404 and "no worker script" in refused.json()["detail"]


def test_the_configuration_is_checked_and_applied(shop):
    page = shop.page
    loaded = page.get("config").json()
    config = json.loads(loaded["text"])
    checked = page.send("POST", "config/check", '{\n  "rutes": []}').json()
    assert (checked["valid"], checked["line"], checked["column"]) == (False, 2, 3) and "rutes" in checked["detail"]
    assert page.send("POST", "config/check", loaded["text"]).json()["valid"]

    config["settings"] = {"http": {"max_body_size": 1000}}
    applied = page.send("PUT", "config", {"text": json.dumps(config), "etag": loaded["etag"]})
    assert applied.status == 200 and applied.json()["success"], applied
    assert json.loads(shop.server.api("GET", "/config/settings").text)["http"]["max_body_size"] == 1000

    outdated = page.send("PUT", "config", {"text": loaded["text"], "etag": loaded["etag"]})
    assert outdated.status == 412 and "was changed since" in outdated.json()["detail"]
    etag = page.get("config").json()["etag"]
    wrong = json.dumps({**config, "rutes": []}, indent=2)
    refused = page.send("PUT", "config", {"text": wrong, "etag": etag})
    assert refused.status == 400 and refused.json()["line"] == wrong.split("rutes")[0].count("\n") + 1
    assert page.send("PUT", "config", {"text": loaded["text"]}).status == 400
    assert page.send("PUT", "config", {"text": loaded["text"], "etag": etag}).status == 200


def test_an_application_is_restarted(shop):
    before = {worker.pid for worker in shop.server.workers("shop", count=3)}
    restarted = shop.page.send("POST", "applications/shop/restart")
    assert restarted.status == 200, restarted
    wait_for(lambda: not before & {worker.pid for worker in shop.server.workers("shop")}, "new workers")
    assert shop.page.send("POST", "applications/nothing/restart").status == 404


def test_a_server_is_drained(run):
    servers = {"127.0.0.1:1": {"weight": 2}, "[::1]:1": {}}
    with run({"listeners": {"127.0.0.1:{port}": {"pass": "upstreams/<b>%2Fu"}}, "upstreams": {"<b>/u": {"servers": servers}}}) as server:
        with Dashboard("--control", f"unix:{server.control}") as dashboard:
            page = dashboard.log_in()

            def drain(drains: bool, upstream="<b>/u", address="[0::1]:1"):
                return page.send("POST", "drain", {"upstream": upstream, "server": address, "drain": drains})

            for drains, expected in ((True, "drained"), (False, "up")):
                assert drain(drains).json()["success"]
                state = page.wait("now", lambda now: now["status"]["upstreams"]["<b>/u"]["servers"]["[::1]:1"]["state"] == expected)
                assert state, expected
            assert drain(True, address="127.0.0.1:2").status == 404 and drain(True, upstream="").status == 400
            assert drain(True, upstream="none").status == 404 and page.send("POST", "drain", {"drain": 1}).status == 400


def test_an_application_is_drained(run, folder):
    folder.php("index.php", "echo 1;")
    with run({"applications": {"<b>a": {"type": "php", "root": str(folder.root), "processes": 1}}}) as server:
        with Dashboard("--control", f"unix:{server.control}") as dashboard:
            page = dashboard.log_in()
            for drains in (True, False):
                assert page.send("POST", "drain", {"application": "<b>a", "drain": drains}).json()["success"]
                page.wait("now", lambda now: now["status"]["applications"]["<b>a"].get("drained", False) is drains)
            assert page.send("POST", "drain", {"application": "none", "drain": True}).status == 404
            both = {"application": "<b>a", "upstream": "u", "server": "[::1]:1", "drain": True}
            assert page.send("POST", "drain", both).status == 400


def test_a_read_only_dashboard_changes_nothing(shop):
    with Dashboard("--control", f"unix:{shop.server.control}", "--read-only") as dashboard:
        page = dashboard.log_in()
        assert page.get("about").json()["read_only"]
        loaded = page.get("config").json()
        for method, path in (("PUT", "config"), ("POST", "applications/shop/restart"), ("POST", "drain")):
            refused = page.send(method, path, loaded)
            assert refused.status == 403 and "--read-only" in refused.json()["error"]
        assert page.send("POST", "config/check", loaded["text"]).json()["valid"]


def test_the_dashboard_waits_for_a_howdah(folder, run):
    folder.php("index.php", "echo 1;")
    config = {"applications": {"app": {"type": "php", "root": str(folder.root), "processes": 1}}}
    server = run(config)
    with Dashboard("--control", f"unix:{server.control}") as dashboard:
        page = dashboard.log_in()
        page.wait("now", lambda now: now["reachable"])
        # A router that dies is replaced; the dashboard goes on.
        router = server.router()
        router.kill()
        wait_for(lambda: server.router().pid != router.pid, "a new router")
        page.wait("now", lambda now: now["reachable"], "the status after the router's death")
        control = server.control
        server.stop()
        gone = page.wait("now", lambda now: not now["reachable"] and now)
        assert "no howdah listens on" in gone["reason"] and gone["since"] <= gone["time"]
        assert page.get("config").status == 502
        # Another howdah with the same socket.
        control.parent.mkdir(exist_ok=True)
        with run(config, "--state-dir", str(control.parent / "state"), "--control", f"unix:{control}"):
            page.wait("now", lambda now: now["reachable"], "the new howdah")


def test_an_address_of_other_machines_needs_an_option(shop):
    control = ("--control", f"unix:{shop.server.control}")
    refused = error_of(howdah("dashboard", "--listen", "0.0.0.0:0", *control))
    assert "--allow-remote" in refused and "ssh -L" in refused
    with Dashboard(*control, "--allow-remote", "--allow-host", "ops.example", listen="0.0.0.0:0") as dashboard:
        assert "not encrypted" in dashboard.text
        assert dashboard.request("GET", "/", [("Host", "ops.example")]).status == 200
        assert dashboard.request("GET", "/", [("Host", "other.example")]).status == 403
    in_use = error_of(howdah("dashboard", "--listen", f"127.0.0.1:{shop.dashboard.port}", *control))
    assert f"port {shop.dashboard.port} is in use" in in_use and "--listen" in in_use


def test_a_browser_that_asks_without_end_is_limited(shop):
    """More connections than the dashboard serves wait; those that it serves are answered."""
    # Each sends its request at once: one that is silent for a tenth of a second gives way to others.
    with contextlib.ExitStack() as stack:
        browsers = [stack.enter_context(shop.page.ask("now")) for _ in range(100)]
        assert [browser.response("GET").status for browser in browsers] == [200] * 100
    assert shop.page.send("POST", "config/check", b"x" * (10 << 20)).status == 413


@pytest.mark.parametrize("begun", [b"", b"G", b"POST /api/login HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nContent-Length: 9\r\n\r\n"])
def test_clients_that_wait_keep_no_browser_out(shop, begun):
    """Any user of the machine can open connections."""
    waiting = [socket.create_connection(("127.0.0.1", shop.dashboard.port)) for _ in range(80)]
    try:
        for client in waiting:
            client.sendall(begun)
        began = time.monotonic()
        assert shop.page.get("now").status == 200
        assert time.monotonic() - began < 10
    finally:
        for client in waiting:
            client.close()


def test_a_token_is_short(shop):
    origin = [("Origin", shop.page.origin)]
    assert shop.dashboard.request("POST", "/api/login", origin, b"x" * 2000).status == 413


def test_the_history_has_rates_and_marks_and_survives_a_restart(shop, tmp_path):
    folder = tmp_path / "history"
    control = ("--control", f"unix:{shop.server.control}", "--history", str(folder))

    def kinds(history: dict) -> list[str]:
        return [mark["kind"] for mark in history["marks"]]

    with Dashboard(*control) as dashboard:
        page = dashboard.log_in()
        page.wait("history", lambda history: "configuration" in kinds(history), "the first reading")
        assert page.get("about").json()["history"] == {"place": str(folder), "is_kept": True, "hours": 24}
        loaded = page.get("config").json()
        config = json.loads(loaded["text"])
        config["settings"] = {"http": {"max_body_size": 2000}}
        assert page.send("PUT", "config", {"text": json.dumps(config), "etag": loaded["etag"]}).status == 200

        def rates(history: dict):
            # The first reading of the numbers may come after all requests so far.
            assert shop.server.get("/").status == 200
            return kinds(history).count("configuration") == 2 and any(history["series"]["finished"]) and history

        history = page.wait("history?application=shop", rates, "the second reading")
        changes = history["marks"][-1]["changes"]
        assert changes == [{"path": "settings", "before": None, "after": '{"http":{"max_body_size":2000}}'}], changes
        assert history["applications"][0]["name"] == "shop" and any(history["requests"])
        assert history["series"]["processes"][-2] == 3 or 3 in history["series"]["processes"]
        # A second dashboard of the same howdah does not write there.
        with Dashboard(*control) as second:
            about = second.log_in().get("about").json()["history"]
            assert not about["is_kept"] and "another dashboard" in about["place"]
    assert {path.name for path in folder.iterdir()} == {"history.jsonl", "lock"}
    assert (folder / "history.jsonl").stat().st_mode & 0o077 == 0
    with Dashboard(*control) as dashboard:
        again = dashboard.log_in().get("history?application=shop").json()
        assert any(again["series"]["finished"]) and kinds(again).count("dashboard") == 2


def test_times_and_errors_come_from_the_metrics(socket_path):
    readings = itertools.count(1)

    def metrics() -> bytes:
        """Each reading has 100 answers more, 5 errors among them, all of which took 5 to 10 ms."""
        number = next(readings)
        lines = [f'howdah_requests_total{{application="a",status="5xx"}} {5 * number}']
        lines += [f'howdah_request_duration_seconds_bucket{{application="a",le="{le}"}} {100 * number}' for le in ("0.01", "0.025", "+Inf")]
        slow = 'application="a",route="routes/1"'
        lines += [f'howdah_requests_refused_total{{{slow},cause="queue"}} {10 * number}', f'howdah_requests_total{{{slow},status="2xx"}} {10 * number}']
        lines += [f'howdah_request_duration_seconds_bucket{{{slow},le="{le}"}} {10 * number}' for le in ("0.5", "+Inf")]
        return "\n".join(lines).encode()

    def deployed() -> dict:
        generation = {"number": next(readings), "release": {"/srv/<b>": f"/srv/{next(readings)}", "/srv/lib": "/srv/lib"}}
        return status({"a": {"generation": generation}})

    api = {"/status": deployed, "/config": {}, "/config/listeners": {}, "/metrics": metrics}
    with ControlApi(socket_path, api), Dashboard("--control", f"unix:{socket_path}") as dashboard:
        page = dashboard.log_in()
        now = page.wait("now", lambda now: now["rates"] and now["rates"]["applications"]["a"], "two readings")
        assert 0.005 < now["p50"] < 0.01 and 0 < now["errors"] < now["refused"]["queue"] < now["requests"]
        history = page.wait("history?application=a", lambda history: any(history["series"]["p50"]) and history)
        series = history["series"]
        medians = [value for value in series["p50"] if value]
        assert 0.005 < min(medians) <= max(medians) < 0.01 < max(value or 0 for value in series["p99"]) <= 0.5
        errors, refused, answered = (max(value or 0 for value in values) for values in (series["errors"], history["refused_by"]["queue"], series["answered"]))
        assert 0 < errors < refused < answered
        assert [(one["route"], one["p50"]) for one in history["routes"]] == [("", 0.0075), ("routes/1", 0.375)]
        route = page.get("history?application=a&route=routes%2F1").json()
        assert {value for value in route["series"]["p50"] if value} == {0.375} and not any(route["series"]["errors"])
        # A deploy has the difference of its paths.
        (deploy,) = [mark for mark in history["marks"] if mark["kind"] == "deploy"][:1]
        (change,) = deploy["changes"]
        assert change["path"] == "/srv/<b>" and change["before"] != change["after"] and deploy["application"] == "a"


def test_a_history_without_a_folder_is_in_memory(shop):
    with Dashboard("--control", f"unix:{shop.server.control}", "--history", "/proc/none") as dashboard:
        assert "the history is in memory only" in dashboard.text
        page = dashboard.log_in()
        assert not page.get("about").json()["history"]["is_kept"]
        page.wait("history", lambda history: history["marks"])


def dashboard_of(server: Howdah) -> Process:
    """The child that is a command."""
    processes = [process for process in server.processes() if " dashboard " in f" {process.title} "]
    assert len(processes) == 1, server.processes()
    return processes[0]


def test_serve_starts_a_dashboard_that_ends_with_it(folder, serve):
    folder.php("index.php", "echo 1;")
    server = serve("--dashboard")
    url = wait_for(lambda: URL.search(server.stdout), "the dashboard's URL")
    dashboard = dashboard_of(server)
    with Connection((url[1], int(url[2]))) as connection:
        assert connection.request("GET", "/").status == 200
    # Its death does not concern howdah.
    dashboard.kill()
    wait_for(lambda: not dashboard.alive(), "the end of the dashboard")
    assert server.get("/").text == "1"
    other = serve("--dashboard=127.0.0.1:0")
    wait_for(lambda: URL.search(other.stdout), "the dashboard's URL")
    # The fixture checks that no process is left.
    other.stop()
    assert "background processes" not in other.final_output["stderr"]


def test_the_dashboard_of_a_killed_serve_ends(folder, serve):
    folder.php("index.php", "echo 1;")
    server = serve("--dashboard", processes=1)
    wait_for(lambda: URL.search(server.stdout), "the dashboard's URL")
    dashboard = dashboard_of(server)
    server.send_signal(signal.SIGKILL)
    wait_for(lambda: not dashboard.alive(), "the end of the dashboard")
    server.kill()
    refused = error_of(howdah("serve", folder.root, "--dashboard=0.0.0.0:0"))
    assert "other machines reach this address" in refused
