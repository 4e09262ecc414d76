"""`settings/telemetry`: spans and numbers reach a collector over both protocols; contexts go in and out; and what is lost."""

import json
import os
import re
import subprocess

import pytest

from support.exposition import Exposition
from support.folders import Folder
from support.http.upstream import Upstream, answers, ok
from support.otlp import Collector
from support.processes import thread_states
from support.server import Howdah, stop_all
from support.waiting import wait_for

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
SERVER, CLIENT = 2, 3
TITLE = "howdah: metrics"


def parent(flags: str = "01") -> list:
    return [("traceparent", f"00-{TRACE}-{CALLER}-{flags}")]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = Folder(tmp_path_factory.mktemp("shop"))
    names = "['TRACEPARENT', 'HTTP_TRACEPARENT', 'HTTP_TRACESTATE']"
    folder.php("index.php", f"echo json_encode(array_map(fn($n) => $_SERVER[$n] ?? null, {names}));")
    folder.php("nap.php", "function nap() { usleep(500000); }\nnap(); echo 'slept';")
    folder.php("slow.php", "usleep(120000); http_response_code(500);")
    return folder


def settings_of(collector: Collector, **settings) -> dict:
    return {"telemetry": {**collector.settings, **settings}}


def start(site: Folder, collector: Collector, *options: str, steps=(), **settings) -> Howdah:
    return Howdah.run(
        {
            "routes": [
                {"match": {"uri": "/static"}, "action": {"return": 204}},
                *steps,
                {"action": {"pass": "applications/shop"}},
            ],
            "applications": {"shop": {"type": "php", "root": str(site.root), "processes": 1}},
            "settings": settings_of(collector, **settings),
            "access_log": {"path": str(site.scratch / "access.log"), "format": "json"},
        },
        *options,
    )


@pytest.fixture(params=["http", "grpc"])
def collector(request):
    with Collector(request.param) as collector:
        yield collector


@pytest.fixture
def http_collector():
    with Collector("http") as collector:
        yield collector


def spans_of(collector: Collector, trace: str, count: int) -> dict:
    return wait_for(lambda: len(found := collector.trace(trace)) == count and found, f"{count} spans")


def outcomes(server: Howdah) -> dict[str, float]:
    exposition = Exposition.of(server)
    found = {name: exposition.sum("howdah_telemetry_spans_total", outcome=name) for name in ("sent", "dropped", "lost")}
    return {**found, "recorded": exposition.sum("howdah_telemetry_spans_recorded_total")}


def wait_for_outcomes(server: Howdah) -> dict[str, float]:
    """Waits until each span has an outcome."""

    def settled():
        found = outcomes(server)
        return found["recorded"] == found["sent"] + found["dropped"] + found["lost"] and found

    return wait_for(settled, "an outcome of each span")


def test_a_request_has_spans_and_its_context_goes_on(site, collector):
    (site.scratch / "access.log").unlink(missing_ok=True)
    with start(site, collector, service_name="the shop") as server:
        headers = [*parent(), ("tracestate", "a=1"), ("tracestate", "b=2"), ("User-Agent", "test")]
        php, http, state = server.get("/index.php?secret=1", headers).json()
        spans = spans_of(collector, TRACE, 3)
        root, queue, php_span = spans["GET shop"], spans["queue"], spans["PHP"]
        assert php == http == f"00-{TRACE}-{php_span.id}-01" and state == "a=1, b=2"
        assert (root.parent, root.kind, root.state) == (CALLER, SERVER, "a=1,b=2")
        assert {queue.parent, php_span.parent} == {root.id}
        assert root.begin <= queue.begin <= queue.end == php_span.begin <= php_span.end <= root.end
        assert (root.resource["service.name"], root.resource["telemetry.sdk.name"]) == ("the shop", "howdah")
        expected = {
            "http.request.method": "GET", "url.path": "/index.php", "url.scheme": "http", "client.address": "127.0.0.1",
            "server.address": "127.0.0.1", "server.port": server.port, "user_agent.original": "test",
            "network.protocol.version": "1.1", "http.response.status_code": 200, "howdah.application": "shop",
            "howdah.route": "routes/1", "howdah.responder": "application",
        }  # fmt: skip
        assert expected.items() <= root.attributes.items()
        assert "secret" not in json.dumps(root.attributes), "the query may be a secret"
        log = (site.scratch / "access.log").read_text().splitlines()
        assert [json.loads(line)["trace_id"] for line in log] == [TRACE]

        assert server.get("/slow.php").status == 500
        slow = wait_for(lambda: collector.with_path("/slow.php"), "the span")[0]
        others = spans_of(collector, slow.trace, 3)
        assert (slow.parent, slow.status, slow.attributes["error.type"]) == ("", 2, "500")
        assert 0.1 < others["PHP"].seconds < 10 and "howdah.php.cpu_seconds" in others["PHP"].attributes
        assert server.get("/static").status == 204
        static = wait_for(lambda: collector.with_path("/static"), "the span")[0]
        assert (static.name, static.attributes["howdah.responder"], static.status) == ("GET", "return", 0)
        assert wait_for_outcomes(server) == {"sent": 7, "dropped": 0, "lost": 0, "recorded": 7}
        ids = [span.id for span in collector.spans]
        assert len(set(ids)) == len(ids) == 7


@pytest.mark.parametrize(
    "settings, flags, is_recorded",
    [
        ({"sampling_ratio": 0}, "01", True),
        ({"sampling_ratio": 1}, "00", False),
        ({"sampling_ratio": 0, "parent_based": False}, "01", False),
        ({"sampling_ratio": 1, "parent_based": False}, "00", True),
    ],
)
def test_the_caller_or_the_ratio_decides(site, http_collector, settings, flags, is_recorded):
    with start(site, http_collector, **settings) as server:
        context = server.get("/index.php", parent(flags)).json()[0]
        version, trace, span, sent = context.split("-")
        assert (version, trace, sent) == ("00", TRACE, "01" if is_recorded else "00") and span != CALLER
        assert wait_for_outcomes(server)["sent"] == (3 if is_recorded else 0)


def test_a_context_that_is_not_valid_begins_a_trace(site, http_collector):
    with start(site, http_collector) as server:
        for value in ("", "00-" + "0" * 32 + f"-{CALLER}-01", f"00-{TRACE}-{CALLER}", "\u00ff" * 55, "a" * 5000):
            sent = [("traceparent", value.encode("latin-1").decode("latin-1")), ("tracestate", "a=1")]
            context, _, state = server.get("/index.php", sent).json()
            assert context.split("-")[1] != TRACE and context.endswith("-01") and state is None, value
        twice = server.get("/index.php", [*parent(), *parent()]).json()[0]
        assert twice.split("-")[1] != TRACE


def test_without_the_setting_a_context_is_passed_on_unchanged(site):
    with Howdah.serve(site) as server:
        context = f"00-{TRACE}-{CALLER}-01"
        assert server.get("/index.php", parent()).json() == [context, context, None]
        assert server.get("/index.php", [("traceparent", "x")]).json() == [None, "x", None]


def test_a_slow_request_has_phps_stack_in_its_span_and_its_trace_in_the_slow_log(site, collector):
    with start(site, collector) as server:
        assert server.api("PUT", "/config/applications/shop/slow_log", json.dumps({"threshold": 0.2})).status == 200
        assert server.get("/nap.php", parent()).text == "slept"
        assert server.get("/index.php").status == 200
        php = spans_of(collector, TRACE, 3)["PHP"]
        at, name, attributes = php.events[0]
        assert name == "slow" and php.begin + 0.15e9 < at < php.end
        assert len(php.events) == 1 and "nap" in attributes["code.stacktrace"] and "nap.php:2" in attributes["code.stacktrace"]
        other = wait_for(lambda: collector.with_path("/index.php"), "the other request")[0]
        assert spans_of(collector, other.trace, 3)["PHP"].events == [], "a stack belongs to one request"
        slow_log = server.directory / "state" / "slow" / "shop.jsonl"
        lines = wait_for(lambda: len(found := slow_log.read_text().splitlines()) >= 2 and found, "the slow log")
        assert {json.loads(line)["trace_id"] for line in lines} == {TRACE}
        # A request of a client without a trace is in one, too.
        server.get("/nap.php")
        wait_for(lambda: len({json.loads(line)["trace_id"] for line in slow_log.read_text().splitlines()}) == 2, "its trace")


def test_an_upstream_gets_the_context_of_the_proxy_span(site, http_collector):
    with Howdah.serve(site) as upstream:
        steps = [{"match": {"uri": "/proxied/*"}, "action": {"rewrite": "/index.php", "proxy": f"http://127.0.0.1:{upstream.port}"}}]
        with start(site, http_collector, steps=steps) as server:
            context = server.get("/proxied/1", parent()).json()[0]
            spans = spans_of(http_collector, TRACE, 2)
            assert context == f"00-{TRACE}-{spans['proxy'].id}-01"
            assert (spans["proxy"].kind, spans["proxy"].parent) == (CLIENT, spans["GET"].id)


def test_a_client_cannot_remove_howdahs_own_headers(http_collector):
    """Once, those that `Connection` named were taken for the client's, and an upstream did not get them."""
    with Upstream(answers(ok())) as upstream:
        settings = {**settings_of(http_collector), "http": {"request_id": {}}}
        with Howdah.run({"routes": [{"action": {"proxy": upstream.url}}], "settings": settings}) as server:
            names = [("Connection", "x-request-id, Traceparent, x-hop"), ("X-Hop", "1")]
            server.get("/", [*names, ("X-Request-Id", "order-7"), *parent()])
            server.get("/", names)
            for ours in ({}, {"http": {"request_id": {}}}):
                assert server.api("PUT", "/config/settings", ours).status == 200
                server.get("/", [*names, ("X-Request-Id", "order-8"), *parent()])
    sent = [(request.header("x-request-id"), request.header("traceparent")) for request in upstream.requests]
    assert all(request.header("x-hop") is None for request in upstream.requests)
    assert sent[0][0] == "order-7" and sent[0][1].startswith(f"00-{TRACE}-") and CALLER not in sent[0][1]
    assert re.fullmatch("[0-9a-f]{32}", sent[1][0]) and re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]", sent[1][1])
    assert sent[2:] == [(None, None), ("order-8", None)], "without a setting, the header is the client's"


def test_texts_of_clients_are_valid_and_short(site, http_collector):
    with start(site, http_collector) as server:
        path = "/" + "x" * 4000
        head = f"PUT_{'M' * 200} {path} HTTP/1.1\r\nHost: {'h' * 900}\r\ntracestate: {'s' * 3000}\r\nConnection: close\r\n"
        server.raw(head.encode() + b"User-Agent: \xff\xfe<script>" + b"\xe2\x82" * 500 + b"\r\n\r\n")
        server.get("/static?" + "q" * 4000)
        wait_for(lambda: http_collector.with_path("/static"), "the spans")
        hostile = wait_for(lambda: [s for s in http_collector.spans if s.attributes["url.path"].startswith("/xxx")], "it")[0]
        assert (hostile.name.split()[0], hostile.attributes["http.request.method"]) == ("HTTP", "_OTHER")
        assert all(len(value.encode()) <= 512 for value in hostile.attributes.values() if isinstance(value, str))
        assert hostile.attributes["user_agent.original"].startswith("\ufffd\ufffd<script>") and hostile.state == ""


def test_spans_wait_for_a_collector_that_is_away(site, collector):
    with start(site, collector, batch_size=2) as server:
        server.get("/static")
        wait_for(lambda: collector.with_path("/static"), "the first span")
        collector.stop()
        for n in range(50):
            assert server.get("/index.php", [("User-Agent", str(n))]).status == 200
        wait_for(lambda: "does not take spans" in server.stderr, "a log line")
        collector.start()
        wait_for(lambda: len(collector.with_path("/index.php")) >= 50, "all spans")
        assert wait_for_outcomes(server) == {"sent": 151, "dropped": 0, "lost": 0, "recorded": 151}
        assert {span.attributes["user_agent.original"] for span in collector.with_path("/index.php")} == set(map(str, range(50)))
        assert server.stderr.count("telemetry:") == 1, "one line a minute"


def test_a_collector_that_is_overloaded_gets_spans_again_and_one_that_refuses_does_not(site, collector):
    temporary, final = (503, 400) if collector.protocol == "http" else (14, 16)
    with start(site, collector) as server:
        collector.status = temporary
        server.get("/static")
        wait_for(lambda: "does not take spans" in server.stderr, "a log line")
        collector.status = None
        wait_for(lambda: collector.with_path("/static"), "the span")
        collector.status = final
        server.get("/index.php")
        assert wait_for(lambda: (found := outcomes(server))["dropped"] and found, "drops")["dropped"] == 3
        collector.status = None
        server.get("/index.php")
        wait_for(lambda: collector.with_path("/index.php"), "the next span")
        assert wait_for_outcomes(server) == {"sent": 4, "dropped": 3, "lost": 0, "recorded": 7}


def test_spans_outlive_the_process_that_sends_the_router_and_changes(site, collector):
    with start(site, collector) as server:
        process = lambda: wait_for(lambda: len(found := server.titled(TITLE)) == 1 and found[0], TITLE)
        first = process()
        # It cannot take them, but the pipe can.
        os.kill(first.pid, 19)
        wait_for(lambda: set(thread_states(first.pid)) == {"T"}, "all of its threads")
        for n in range(20):
            server.get("/index.php")
        first.kill()
        wait_for(lambda: len(collector.with_path("/index.php")) == 20, "the spans of the pipe")
        assert process().pid != first.pid
        server.router().kill()
        wait_for(lambda: server.get("/static").status == 204, "another router")
        wait_for(lambda: collector.with_path("/static"), "its span")
        wait_for_outcomes(server)
        for size in (1, 2, 3):
            server.get("/index.php")
            assert server.api("PUT", "/config/settings/telemetry/batch_size", str(size)).status == 200
        wait_for(lambda: len(collector.with_path("/index.php")) == 23, "the spans of all settings")
        assert server.api("DELETE", "/config/settings/telemetry").status == 200
        wait_for(lambda: not server.titled(TITLE), "no process")
        assert server.get("/index.php").json() == [None, None, None]


def test_the_last_spans_are_sent_before_howdah_ends(site, collector):
    server = start(site, collector, batch_size=1000)
    for _ in range(10):
        server.get("/index.php")
    stop_all([server])
    assert len(collector.with_path("/index.php")) == 10


def test_a_collector_that_hangs_does_not_keep_howdah_from_ending(site):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        with Collector("http") as collector:
            settings = {**collector.settings, "endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces"}
        fake = type("Silent", (), {"settings": settings})
        server = start(site, fake)
        server.get("/index.php")
        stop_all([server])


def test_metrics_are_those_of_prometheus(site, collector):
    with start(site, collector, metrics_interval=1, sampling_ratio=0) as server:
        for _ in range(7):
            server.get("/index.php")

        def requests():
            points = [p for p in collector.points if p.name == "howdah_requests" and p.attributes["application"] == "shop"]
            return points and points[-1].value == 7 and points[-1]

        found = wait_for(requests, "the requests")
        assert found.attributes == {"application": "shop", "route": "routes/1", "responder": "application", "method": "GET", "status": "2xx"}
        times = [p for p in collector.points if p.name == "howdah_request_php_seconds"][-1]
        assert times.value == sum(times.buckets) == 7 and times.unit == "s" and len(times.buckets) == 15
        names = {p.name for p in collector.points}
        families = {family.name for family in Exposition.of(server).families}
        assert {"howdah_build", "howdah_workers", "howdah_connections_accepted"} <= names <= families
        assert collector.spans == []


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_tls_and_secret_headers(site, protocol, tmp_path):
    files = (str(tmp_path / "cert.pem"), str(tmp_path / "key.pem"))
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *names, "-out", files[0], "-keyout", files[1]]
    subprocess.run(command, check=True, capture_output=True)
    headers = tmp_path / "headers"
    headers.write_text("# the key\nAuthorization: Bearer very-secret\n")
    headers.chmod(0o600)
    with Collector(protocol, files) as collector:
        with start(site, collector, ca_file=files[0], headers_file=str(headers)) as server:
            server.get("/static")
            wait_for(lambda: collector.with_path("/static"), "the span")
            assert collector.headers[0]["authorization"] == "Bearer very-secret"
            for path in ("/", "/config", "/status"):
                assert "very-secret" not in server.api("GET", path).text
            assert "very-secret" not in server.stderr
            headers.write_text("very-secret")
            refused = server.api("PUT", "/config/settings/telemetry/batch_size", "5")
            assert refused.status == 500 and "headers_file" in refused.text and "line 1 is not a header" in refused.text
            assert "very-secret" not in refused.text
        with start(site, collector) as server:
            server.get("/static")
            wait_for(lambda: "no TLS with" in server.stderr, "a certificate that is not trusted")


def test_a_connection_has_a_span_of_its_handshake(site, http_collector, tmp_path):
    bundle = tmp_path / "bundle.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *names, "-out", str(bundle), "-keyout", str(tmp_path / "key")]
    subprocess.run(command, check=True, capture_output=True)
    bundle.write_text(bundle.read_text() + (tmp_path / "key").read_text())
    with start(site, http_collector) as server:
        assert server.api("PUT", "/certificates/bundle", bundle.read_bytes()).status == 200
        listener = {"pass": "routes", "tls": {"certificate": "bundle"}}
        assert server.api("PUT", f"/config/listeners/127.0.0.1:{server.port}", listener).status == 200
        url = f"https://127.0.0.1:{server.port}/static"
        # Two requests on one connection.
        subprocess.run(["curl", "-sk", url, "-H", ": ".join(parent()[0]), url], check=True)
        requests = wait_for(lambda: len(found := http_collector.with_path("/static")) == 2 and found, "both requests")
        first = min(requests, key=lambda span: span.begin)
        assert first.attributes["url.scheme"] == "https"
        handshake = wait_for(lambda: http_collector.named("TLS handshake"), "the handshake")[0]
        assert handshake.parent == first.id and handshake.begin < handshake.end <= first.end
        wait_for_outcomes(server)
        assert len(http_collector.named("TLS handshake")) == 1, "once for a connection"
