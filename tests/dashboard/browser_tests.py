"""The dashboard's page in headless Chromium: `make browser-tests`. ui/tests/browser.mjs has the scenarios.

Not part of `make test`: a browser and npm's packages are 350 MB that nothing else needs. Pictures are written to
ui/screenshots; the page of the docs uses some of them.
"""

import json
import os
import shutil
import subprocess

import pytest

from support.control_api import ControlApi, status
from support.dashboard import Dashboard
from support.folders import Folder, readable
from support.http.load import Load
from support.server import REPOSITORY, Howdah

SCREENSHOTS = REPOSITORY / "ui/screenshots"
PICTURES = REPOSITORY / "docs/pictures"
PAGE = """
function wait_for_the_report(): void { sleep(1); }
function prices(int $count): float {
    usleep(random_int(1000, 30000));
    $sum = 0;
    for ($i = 0; $i < $count; $i++) { $sum += sqrt($i); }
    return $sum;
}
if (isset($_GET['wait'])) { wait_for_the_report(); }
echo prices(random_int(1000, 60000));
"""
HOSTILE = "<img src=x onerror=alert(1)>\x1b[2J\u202e" + "a" * 8000
NAME = "<script>alert(1)</script>"


def drive(scenario: str, dashboard: Dashboard) -> None:
    SCREENSHOTS.mkdir(exist_ok=True)
    command = ["node", "ui/tests/browser.mjs", scenario, dashboard.url, str(SCREENSHOTS)]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)
    assert result.returncode == 0, result.stdout + result.stderr


def converse(scenario: str, dashboard: Dashboard, steps: dict) -> None:
    """The scenario prints the name of each step, and waits until it is done."""
    SCREENSHOTS.mkdir(exist_ok=True)
    command = ["node", "ui/tests/browser.mjs", scenario, dashboard.url, str(SCREENSHOTS)]
    driver = subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        for report, step in steps.items():
            assert driver.stdout.readline().strip() == report
            step()
            driver.stdin.write("\n")
            driver.stdin.flush()
        assert driver.wait(timeout=300) == 0
    finally:
        driver.kill()
        driver.wait()


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Two applications under load, and the dashboard of their howdah."""
    folder = Folder(readable(tmp_path_factory.mktemp("shop")))
    folder.php("index.php", PAGE)
    application = {"type": "php", "root": str(folder.root), "script": "index.php", "slow_log": {"threshold": 0.2}}
    config = {
        "listeners": {"127.0.0.1:{port}": {"pass": "routes"}},
        "routes": [{"match": {"uri": "/blog*"}, "action": {"pass": "applications/blog"}}, {"action": {"pass": "applications/shop"}}],
        "applications": {"blog": {**application, "processes": 2}, "shop": application},
        "upstreams": {"search": {"servers": {"127.0.0.1:9": {}, "127.0.0.1:10": {"weight": 2}}}},
    }

    def visit(client, turn):
        paths = ["/", f"/cart?id={turn}", "/blog/", "/search?q=<b>bold</b>", f"/long?{'x' * 2000}"]
        return client.get(paths[turn % len(paths)]).status != 200

    def report(client, _):
        return client.get("/report?wait=1").status != 200

    with Howdah.run(config) as server, Dashboard("--control", f"unix:{server.control}") as dashboard:
        with Load(server, visit, clients=2, turns_per_second=60), Load(server, report, clients=2):
            page = dashboard.log_in()
            page.wait("applications/shop/slow", lambda log: any(one[-1]["event"] == "end" for one in log["requests"]))
            dashboard.server = server
            yield dashboard


@pytest.mark.parametrize("scenario", ["views", "actions", "keyboard"])
def test_the_page(shop, scenario):
    drive(scenario, shop)


def test_golden_images(socket_path):
    """The answers are fixed in ui/tests/fixture.mjs; the session and the schema are the dashboard's."""
    with ControlApi(socket_path, {"/status": status({})}), Dashboard("--control", f"unix:{socket_path}") as dashboard:
        drive("golden", dashboard)


def test_a_router_is_killed_under_load(shop):
    converse("router", shop, {"kill": shop.server.router().kill})


def worker(**more) -> dict:
    common = {"pid": 7, "state": "busy", "running": 1, "seconds": 1.5, "cpu": 0.9, "memory": 1 << 20, "requests": 3}
    return {**common, "method": "GET", "url": HOSTILE, "script": HOSTILE, **more}


def test_hostile_texts(socket_path):
    slow = {"time": HOSTILE, "request": "1", "event": "end", "method": HOSTILE, "url": "javascript:alert(1)" + HOSTILE, "script": {},
            "elapsed": "x", "cpu": [], "held_requests": HOSTILE, "memory": {}, "pid": HOSTILE, "counters": {HOSTILE: 3}}  # fmt: skip
    sample = {**slow, "event": "sample", "elapsed": 1, "native": {"waits_in": HOSTILE},
              "backtrace": [{"function": HOSTILE, "class": HOSTILE, "file": HOSTILE, "line": HOSTILE}, {}, None]}  # fmt: skip
    log = json.dumps(sample).encode() + b"\n" + json.dumps(slow).encode() + b'\n{"request": "2", "url": "\xff\xfe<b>"}\nno JSON\n'
    chain = [{"subject": {"common_name": HOSTILE}, "issuer": {"common_name": HOSTILE}, "validity": {"until": HOSTILE}}]
    path = "/status/applications/%3Cscript%3Ealert(1)%3C%2Fscript%3E/"
    answers = {
        "/status": {**status({NAME: {}, "b": {"failure": HOSTILE}}), "upstreams": {HOSTILE: {"servers": {HOSTILE: {"state": "down", "reason": HOSTILE}}}}},
        path + "processes": {"workers": [worker(), worker(pid=8, url="/a", method=HOSTILE)]},
        path + "slow": log,
        "/config": {"applications": {NAME: {}}},
        "/config/listeners": {},
        "/certificates": {"<b>name</b>": {"key": HOSTILE, "chain": chain}},
    }
    with ControlApi(socket_path, answers), Dashboard("--control", f"unix:{socket_path}") as dashboard:
        drive("hostile", dashboard)


def test_200_applications(socket_path):
    names = [f"application-{number}" for number in range(200)]
    answers = {"/status": status(dict.fromkeys(names, {})), "/config": {}, "/config/listeners": {}}
    answers |= {f"/status/applications/{name}/processes": {"workers": [worker(url="/")]} for name in names}
    with ControlApi(socket_path, answers), Dashboard("--control", f"unix:{socket_path}") as dashboard:
        drive("many", dashboard)


def test_howdah_and_the_dashboard_end(socket_path):
    working = {"/status": status({"application-0": {}}), "/config": {}, "/config/listeners": {}}
    refused = (500, {"error": "Failed to get status.", "detail": "Failed to get status: the router does not answer"})
    api = ControlApi(socket_path, dict(working))
    dashboard = Dashboard("--control", f"unix:{socket_path}")
    steps = {
        "reachable": lambda: api.answers.update({"/status": refused}),
        "router": api.close,
        "gone": lambda: ControlApi(socket_path, working),
        "back": dashboard.stop,
    }
    try:
        converse("gone", dashboard, steps)
    finally:
        dashboard.kill()


def test_the_pictures_are_there():
    """The scenarios above have taken them. With UPDATE_DOCS=1, those of docs/dashboard.md are replaced."""
    taken = {path.name for path in SCREENSHOTS.glob("*.png")}
    pictures = {path.name for path in PICTURES.iterdir()}
    assert len(taken) > 30 and pictures <= taken, pictures - taken
    if os.environ.get("UPDATE_DOCS") == "1":
        for name in pictures:
            shutil.copyfile(SCREENSHOTS / name, PICTURES / name)
