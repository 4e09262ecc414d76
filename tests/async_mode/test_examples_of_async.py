"""examples/async: the same server with three event loops."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.server import REPOSITORY

EXAMPLES = REPOSITORY / "examples/async"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.php"))
AMPHP = Path("/usr/share/php/Amp/autoload.php")


@pytest.fixture(params=SCRIPTS)
def example(request, folder, run):
    if request.param == "amphp.php" and not AMPHP.exists():
        pytest.skip("php-amphp-amp is not installed: tests/apps/install-packages.sh")
    folder.copy(EXAMPLES)
    worker = {"script": request.param, "concurrency": 100}
    yield run({"applications": {"app": {"type": "php", "root": str(folder.root), "processes": 1, "worker": worker}}})


def test_an_example_serves(example):
    assert example.get("/").text == "Hello\n"
    events = example.get("/events")
    assert events.text == "data: 1\n\ndata: 2\n\ndata: 3\n\n" and events.header("Content-Type") == "text/event-stream"
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda number: example.get(f"/wait?ms={100 + number}").text, range(50)))
    assert answers == [f"waited {100 + number} ms\n" for number in range(50)]


def test_a_restart_ends_its_loop_and_loses_no_request(example):
    with ThreadPoolExecutor(10) as pool:
        waiting = [pool.submit(example.get, "/wait?ms=500") for _ in range(10)]
        while example.api("GET", "/status/applications/app").json()["requests"]["active"] < 10:
            pass
        before = example.workers(count=1)[0]
        assert example.api("POST", "/control/applications/app/restart").status == 200
        assert {client.result().text for client in waiting} == {"waited 500 ms\n"}
    assert example.workers(count=1)[0].pid != before.pid
    assert "unanswered" not in example.stderr


def test_all_examples_are_tested():
    assert SCRIPTS == ["amphp.php", "fibers.php", "stream_select.php"]
