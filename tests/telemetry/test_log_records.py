"""`settings/telemetry/logs`: the lines of the access log and of howdah's own log reach a collector, over both protocols."""

import json

import pytest

from support.exposition import Exposition
from support.folders import Folder
from support.otlp import Collector
from support.server import Howdah
from support.waiting import wait_for

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CONTEXT = [("traceparent", f"00-{TRACE}-00f067aa0ba902b7-00")]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = Folder(tmp_path_factory.mktemp("shop"))
    folder.php("index.php", "echo 'hello';")
    return folder


@pytest.fixture(params=["http", "grpc"])
def collector(request):
    with Collector(request.param) as collector:
        yield collector


def start(site: Folder, collector: Collector, **settings) -> Howdah:
    telemetry = {**collector.settings, "logs": True, "sampling_ratio": 0, **settings}
    return Howdah.run(
        {
            "routes": [
                {"match": {"uri": "/gone"}, "action": {"proxy": "http://127.0.0.1:1"}},
                {"match": {"uri": "/static*"}, "action": {"return": 204}},
                {"action": {"pass": "applications/shop"}},
            ],
            "applications": {"shop": {"type": "php", "root": str(site.root), "processes": 1}},
            "settings": {"telemetry": telemetry, "http": {"request_id": {}}},
            "access_log": {"path": str(site.scratch / "access.log"), "format": "json"},
        }
    )


def lines(collector: Collector, log: str) -> list:
    with collector.lock:
        return [line for line in collector.lines if line.attributes["howdah.log"] == log]


def outcomes(server: Howdah) -> dict[str, float]:
    found = Exposition.of(server)
    names = ("sent", "dropped", "lost")
    sums = {name: found.sum("howdah_telemetry_log_records_total", outcome=name) for name in names}
    return {**sums, "recorded": found.sum("howdah_telemetry_log_records_recorded_total")}


def test_lines_of_both_logs_arrive_with_their_trace(site, collector):
    with start(site, collector, service_name="the shop") as server:
        server.get("/index.php?a=1", [*CONTEXT, ("X-Request-Id", "abc-1")])
        server.get("/gone", CONTEXT)
        access = wait_for(lambda: len(found := lines(collector, "access")) == 2 and found, "the access log")
        content = json.loads(access[0].text)
        assert (content["method"], content["uri"], content["status"]) == ("GET", "/index.php?a=1", 200)
        assert content["trace_id"] == access[0].trace == access[1].trace == TRACE
        expected = {"howdah.application": "shop", "howdah.request_id": "abc-1", "http.response.status_code": 200}
        assert expected.items() <= access[0].attributes.items()
        assert access[0].severity == "INFO" and access[0].resource["service.name"] == "the shop"
        error = wait_for(lambda: [line for line in lines(collector, "error") if "howdah.uri" in line.attributes], "an error")[0]
        assert (error.trace, error.severity, error.attributes["howdah.uri"]) == (TRACE, "ERROR", "/gone")
        assert collector.spans == [], "no request is sampled"
        settled = lambda: (o := outcomes(server))["recorded"] == o["sent"] >= 3
        wait_for(settled, "an outcome of each line")


def test_lines_wait_for_a_collector_that_is_away(site, collector):
    with start(site, collector) as server:
        server.get("/static")
        wait_for(lambda: lines(collector, "access"), "the first line")
        collector.stop()
        for n in range(50):
            server.get(f"/static/{n}")
        wait_for(lambda: "does not take log records" in server.stderr, "a log line")
        collector.start()
        uris = lambda: {json.loads(line.text)["uri"] for line in lines(collector, "access")}
        wait_for(lambda: uris() >= {f"/static/{n}" for n in range(50)}, "all lines")
        assert outcomes(server)["lost"] == outcomes(server)["dropped"] == 0


def test_texts_of_clients_are_texts(site, collector):
    with start(site, collector) as server:
        path = "/static/" + "x" * 7000
        head = f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nReferer: <script>\x1b[2J\t\\\"".encode("latin-1")
        server.raw(head.replace(b"\x1b", b"\xc3\xa9") + b"\xff\xfe\r\n\r\n")
        line = wait_for(lambda: lines(collector, "access"), "the line")[0]
        assert line.attributes["howdah.cut"] is True and '"uri":"/static/xxx' in line.text
        assert len(line.text.encode()) <= 3072


def test_wrong_settings_are_named(site, collector):
    if collector.protocol == "grpc":
        pytest.skip("gRPC has no path")
    with start(site, collector) as server:
        settings = {**collector.settings, "endpoint": "http://127.0.0.1:1/x", "logs": True}
        refused = server.api("PUT", "/config/settings/telemetry", json.dumps(settings))
        assert refused.status == 400 and "end it with /v1/traces: the lines are sent to /v1/logs" in refused.text
        refused = server.api("PUT", "/config/settings/telemetry/logs", '"yes"')
        assert refused.status == 400 and "settings/telemetry/logs" in refused.text
