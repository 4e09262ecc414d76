"""opcache's numbers in `GET /metrics`: PHP workers report them, and may report anything."""

import pytest

from support.exposition import Exposition
from support.folders import Folder
from support.server import Howdah
from support.waiting import wait_for

RESTARTS = "howdah_opcache_restarts_total"
HITS = "howdah_opcache_hits_total"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = Folder(tmp_path_factory.mktemp("shop"))
    folder.php("index.php", "include 'part.php'; echo 'hello';")
    folder.php("part.php", "function part() { return 1; }")
    folder.php("reset.php", "var_dump(opcache_reset());")
    return folder


def start(folder: Folder, **application) -> Howdah:
    settings = {"type": "php", "root": str(folder.root), "processes": 2, **application}
    return Howdah.run({"routes": [{"action": {"pass": "applications/shop"}}], "applications": {"shop": settings}})


def wait_for_numbers(server: Howdah, condition, path: str = "/index.php") -> Exposition:
    """Requests bring reports, at most one a second."""

    def find():
        server.get(path)
        found = Exposition.of(server)
        return condition(found) and found

    return wait_for(find, "the numbers")


def test_workers_report_opcache(folder):
    with start(folder) as server:
        found = wait_for_numbers(server, lambda found: found.sum(HITS, application="shop") >= 4)
        memory = {s: found.sum("howdah_opcache_memory_bytes", application="shop", state=s) for s in ("used", "free", "wasted")}
        assert memory["used"] > 1_000_000 and memory["free"] > 1_000_000 and memory["wasted"] == 0, memory
        assert found.sum("howdah_opcache_scripts", application="shop") == 2
        assert found.sum("howdah_opcache_misses_total", application="shop") >= 2
        assert found.values(RESTARTS, application="shop") == [0]
        # A restart sets opcache's own counters back, and a restart of the application makes another opcache.
        hits = found.sum(HITS)
        assert "true" in server.get("/reset.php").text
        found = wait_for_numbers(server, lambda found: found.sum(RESTARTS, application="shop") == 1)
        assert found.sum(HITS) >= hits
        assert server.api("POST", "/control/applications/shop/restart").status == 200
        hits = found.sum(HITS)
        found = wait_for_numbers(server, lambda found: found.sum(HITS) > hits)
        assert found.sum(RESTARTS) == 1


def test_a_worker_script_reports_opcache(folder):
    folder.php("worker.php", "while (frankenphp_handle_request(function () { include __DIR__ . '/part2.php'; echo 'x'; }));")
    folder.php("part2.php", "return 1;")
    with start(folder, worker={"script": "worker.php"}) as server:
        wait_for_numbers(server, lambda found: found.sum(HITS, application="shop") >= 2, "/")


@pytest.mark.parametrize("setting", [{"disable_functions": "opcache_get_status"}, {"opcache.restrict_api": "/nowhere"}])
def test_an_application_that_hides_opcache_has_no_numbers_and_no_warnings(folder, setting):
    code = "set_error_handler(function () { echo 'warning'; }); usleep(20000); echo 'hello';"
    folder.php("handler.php", code)
    with start(folder, options={"admin": setting}) as server:
        assert {server.get("/handler.php").text for _ in range(5)} == {"hello"}
        found = Exposition.of(server)
        assert found.sum(HITS) == 0 and found.sum("howdah_opcache_memory_bytes", state="used") == 0


