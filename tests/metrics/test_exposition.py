"""`GET /metrics`: its format, its numbers, and that they agree with what clients have counted."""

import signal

import pytest

from support.control import returning
from support.exposition import OPENMETRICS, Exposition, Families
from support.folders import Folder
from support.http.load import Load
from support.machine import free_port
from support.server import Howdah, stop_all
from support.waiting import wait_for

PAGES = {
    "index.php": "echo 'hello';",
    "slow.php": "usleep(30000); echo 'slow';",
    "busy.php": "$end = microtime(true) + 0.03; while (microtime(true) < $end); echo 'busy';",
    "dies.php": "posix_kill(getmypid(), 9);",
}


def configuration(folder: Folder) -> dict:
    return {
        "routes": {
            "main": [
                {"match": {"uri": "/file.txt"}, "action": {"share": f"{folder.root}$uri"}},
                {"match": {"uri": "/teapot"}, "action": {"return": 418}},
                {"match": {"uri": "/upstream"}, "action": {"proxy": f"http://127.0.0.1:{free_port()}"}},
                {"action": {"pass": "applications/shop"}},
            ]
        },
        "listeners": {"127.0.0.1:{port}": {"pass": "routes/main"}},
        "applications": {"shop": {"type": "php", "root": str(folder.root), "processes": 2}},
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = Folder(tmp_path_factory.mktemp("shop"))
    for name, code in PAGES.items():
        folder.php(name, code)
    folder.write("file.txt", "text")
    return folder


@pytest.fixture
def server(folder):
    server = Howdah.run(configuration(folder))
    yield server
    stop_all([server])


def test_each_request_is_counted_by_application_route_method_and_status(server):
    for target in ("/index.php", "/index.php", "/none.php", "/file.txt", "/teapot", "/upstream"):
        server.get(target)
    server.post("/index.php", "body")
    server.request("BREW", "/index.php")
    assert server.raw(b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400")
    found = Exposition.of(server)

    def requests(**labels):
        return found.sum("howdah_requests_total", **labels)

    shop = {"application": "shop", "route": "routes/main/3", "responder": "application"}
    assert requests(**shop, method="GET", status="2xx") == 2
    assert requests(**shop, method="GET", status="4xx") == 1
    assert requests(**shop, method="POST", status="2xx") == 1
    assert requests(**shop, method="other", status="2xx") == 1
    assert requests(application="", route="routes/main/0", responder="file") == 1
    assert requests(application="", route="routes/main/1", responder="return", status="4xx") == 1
    assert requests(application="", route="routes/main/2", responder="proxy", status="5xx") == 1
    assert found.sum("howdah_requests_refused_total", responder="proxy", cause="bad_gateway") == 1
    assert found.sum("howdah_requests_refused_total", responder="howdah", cause="bad_request") == 1
    assert requests() == 9
    assert found.sum("howdah_response_body_bytes_total", **shop) >= 4 * len("hello")
    assert found.sum("howdah_connections_accepted_total") == 9


def test_the_times_of_a_request_are_in_its_histograms(server):
    for _ in range(3):
        assert server.get("/slow.php").text == "slow"
        assert server.get("/busy.php").text == "busy"
    found = Exposition.of(server)

    def at_least(phase: str, seconds: str) -> float:
        """How many requests took longer than this bound of a bucket."""
        name = f"howdah_request_{phase}_seconds"
        return found.sum(f"{name}_count") - found.sum(f"{name}_bucket", le=seconds)

    assert found.sum("howdah_request_php_seconds_count") == 6
    assert at_least("php", "0.025") == at_least("duration", "0.025") == at_least("first_byte", "0.025") == 6
    assert found.sum("howdah_request_queue_seconds_count") == 6
    # Another program may keep a script from its processor, but a script that sleeps never uses one.
    assert found.sum("howdah_request_cpu_seconds_bucket", le="0.025") >= 3
    assert found.sum("howdah_request_php_seconds_sum") >= 0.18
    assert 0 < found.sum("howdah_request_cpu_seconds_sum") <= found.sum("howdah_request_php_seconds_sum")


def test_sums_agree_with_the_clients_through_reloads_and_deaths_of_the_router_and_of_workers(server, folder):
    answered = []

    def check(client, _turn):
        response = client.get("/index.php")
        answered.append(response.status)
        return response.status not in (200, 502) and f"{response.status}"

    before = Exposition.of(server).counters()
    deaths = 0

    def counters_grew(text: str) -> None:
        nonlocal before
        after = Exposition.of(server).counters()
        shrunk = {key: (value, after.get(key)) for key, value in before.items() if after.get(key, -1) < value}
        assert not shrunk, f"after {text}: {shrunk}"
        before = after

    def wait_for_answers() -> None:
        goal = len(answered) + 200
        wait_for(lambda: len(answered) >= goal, "answers")

    cut_off = 0
    for round in range(2):
        with Load(server, check, clients=2) as load:
            wait_for_answers()
            assert server.api("POST", "/control/applications/shop/restart").status == 200
            counters_grew("a restart")
            wait_for_answers()
            server.workers("shop")[0].kill()
            deaths += 1
            wait_for(lambda: Exposition.of(server).sum("howdah_worker_deaths_total", cause="signal") >= deaths, "a death")
            assert server.api("PUT", "/config/settings", {"http": {"server_version": bool(round)}}).status == 200
            counters_grew("a change")
            wait_for_answers()
        load.assert_flawless()
        # The number of a request is there before its response: nothing is lost with the router.
        router = server.router()
        router.kill()
        wait_for(lambda: server.titled("howdah: router") not in ([], [router]), "another router")
        wait_for(lambda: server.get("/index.php").status == 200, "an answer")
        cut_off += 1
        counters_grew("the router's death")
    found = Exposition.of(server)
    counted = found.sum("howdah_requests_total", application="shop")
    assert counted == len(answered) + cut_off, f"{len(answered)} answers of the load"
    assert found.sum("howdah_requests_total", application="shop", status="2xx") == answered.count(200) + cut_off
    assert found.sum("howdah_router_starts_total") == 3
    assert found.sum("howdah_router_up") == 1


def test_a_request_that_kills_its_worker_is_counted_with_its_cause(server):
    assert server.get("/dies.php").status == 502
    found = wait_for(
        lambda: (found := Exposition.of(server)).sum("howdah_worker_deaths_total", cause="signal") and found, "a death"
    )
    assert found.sum("howdah_requests_refused_total", application="shop", cause="worker_died") == 1
    wait_for(lambda: Exposition.of(server).sum("howdah_worker_starts_total", application="shop") == 3, "a worker")


def test_labels_are_those_of_the_configuration_whatever_clients_send(server):
    known = len(Exposition.of(server).samples)
    for n in range(30):
        server.request(f"HACK{n}", f'/a{n}%0a"}}?x={n}', [("Host", f"h{n}.example"), ("X-Request-Id", f"{n}")])
    found = Exposition.of(server)
    allowed = {"", "shop", *(f"routes/main/{n}" for n in range(4))}
    values = {s.labels[label] for s in found.samples for label in ("application", "route") if label in s.labels}
    assert values <= allowed
    # One row of requests, with its histograms, and no more for the second client than for the first.
    assert len(found.samples) - known < 120


def test_a_scrape_has_both_formats_and_the_processes(server):
    prometheus = server.api("GET", "/metrics")
    assert prometheus.header("Content-Type") == "text/plain; version=0.0.4; charset=utf-8"
    text = Exposition(prometheus.text)
    openmetrics = Exposition.of(server)
    for found in (text, openmetrics):
        assert found.sum("howdah_build_info") == 1
        assert found.sum("howdah_workers", application="shop") == 2
        assert found.values("howdah_application_up") == [1]
        assert found.sum("howdah_process_memory_bytes", process="router") > 1 << 20
        assert found.sum("howdah_process_open_descriptors", process="supervisor") > 3
        assert found.sum("howdah_application_memory_bytes", application="shop") > 1 << 20
    server.send_signal(signal.SIGUSR1)
    assert server.api("POST", "/metrics").status == 405
    assert server.api("GET", "/metrics/x", headers=OPENMETRICS).status == 404


def test_protocol_buffers_have_the_same_numbers_and_native_histograms(server):
    for target in ["/slow.php"] * 5 + ["/index.php", "/file.txt", "/teapot"]:
        server.get(target)
    found, text = Families.of(server), Exposition(server.api("GET", "/metrics").text)
    of_text = {(s.name, *sorted(s.labels.items())): s.value for s in text.samples if "howdah_request_" not in s.name}
    assert found.values.keys() == of_text.keys()
    counters = {key: value for key, value in of_text.items() if key[0].startswith(("howdah_requests", "howdah_response"))}
    assert counters and all(found.values[key] == value for key, value in counters.items())
    names = {"queue", "php", "cpu", "first_byte", "duration"}
    assert {histogram.name for histogram in found.histograms} == {f"howdah_request_{name}_seconds" for name in names}
    for one in found.histograms:
        assert one.count == text.sum(f"{one.name}_count", **one.labels) == one.zero_count + sum(one.native.values())
        assert one.sum == pytest.approx(text.sum(f"{one.name}_sum", **one.labels))
        assert {le: text.sum(f"{one.name}_bucket", **one.labels, le=bound) for le, bound in bounds(text, one.name)} == one.classic
        # A native bucket lies within classic ones, or a bound of those divides it.
        for le, below in one.classic.items():
            least = one.zero_count + sum(count for index, count in one.native.items() if 2 ** (index / 8) <= le)
            most = one.zero_count + sum(count for index, count in one.native.items() if 2 ** ((index - 1) / 8) < le)
            assert least <= below <= most, (one, le)
    [php] = [one for one in found.histograms if one.name == "howdah_request_php_seconds"]
    assert (php.schema, php.zero_threshold, php.count) == (3, 2**-19, 6)
    # 30 ms and more.
    assert sum(count for index, count in php.native.items() if 2 ** (index / 8) >= 0.03) == 5


def bounds(text: Exposition, name: str) -> set[tuple[float, str]]:
    return {(float(s.labels["le"]), s.labels["le"]) for s in text.samples if s.name == f"{name}_bucket"}


def test_a_router_that_does_not_answer_leaves_the_other_numbers(server):
    server.get("/index.php")
    router = server.router()
    router.kill()
    found = Exposition.of(server)
    assert found.sum("howdah_requests_total", application="shop") == 1
    wait_for(lambda: Exposition.of(server).values("howdah_router_up") == [1], "another router")


def test_a_removed_listener_and_an_application_that_does_not_start_are_no_error(server, folder):
    server.get("/index.php")
    bare = {"listeners": {f"127.0.0.1:{server.port}": {"pass": "routes"}}, "routes": [returning(204)]}
    assert server.api("PUT", "/config", bare).status == 200
    server.get("/")
    found = Exposition.of(server)
    assert found.sum("howdah_requests_total", application="shop") == 1, "a counter stays"
    assert found.sum("howdah_requests_total", route="routes/0") == 1
    assert not found.values("howdah_application_up")
