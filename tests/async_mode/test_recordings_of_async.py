"""The slow log, profiles and the leak finder in async mode."""

import json

from support.background import Background
from support.command_line import howdah
from support.otlp import Collector
from support.waiting import wait_for

HANDLER = """
class Visit { public array $data = []; }
$kept = [];
function nap(): void { usleep(600000); }
function hot(): void { for ($end = microtime(true) + 3; microtime(true) < $end;) { md5('x'); } }
serve(function (Request $request) use (&$kept): void {
    switch ($request->path()) {
        case '/block': nap(); break;
        case '/hot': hot(); break;
        case '/keep': $visit = new Visit(); $visit->data[] = str_repeat(random_bytes(64), 64); $kept[] = $visit; break;
        case '/wait': later(0.5, fn () => text($request, 'waited')); return;
    }
    text($request, 'x');
});
"""


def command(site, *arguments):
    return howdah(*arguments, "--control", f"unix:{site.server.control}", cwd=site.server.directory)


def test_slow_requests_are_logged_and_a_blocked_loop_with_its_stack(start):
    site = start(HANDLER, slow_log={"threshold": 0.2, "samples": 2})
    path = site.server.directory / "state/slow/app.jsonl"

    def events() -> list[dict]:
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    waiting = Background(site.server.get, "/wait?secret")
    assert waiting.result().text == "waited"
    assert site.server.get("/fast").text == "x"
    [end] = wait_for(lambda: [line for line in events() if line["event"] == "end"], "the end")
    assert (end["method"], end["url"], end["script"]) == ("GET", "/wait?secret", str(site.root / "server.php"))
    assert 0.5 <= end["elapsed"] < 5 and end["held_requests"] == 1 and end["memory"] > 0 and "cpu" not in end
    with_others = Background(site.server.get, "/wait")
    wait_for(lambda: site.server.api("GET", "/status/applications/app").json()["requests"]["active"] == 1, "it is held")
    assert site.server.get("/block").text == "x" and with_others.result().status == 200
    blocked = wait_for(lambda: [line for line in events() if line["url"] == "/block" and line["event"] == "sample"], "a sample")
    assert "nap" in [frame["function"] for frame in blocked[0]["backtrace"]] and blocked[0]["held_requests"] == 2, blocked
    [end] = wait_for(lambda: [line for line in events() if line["url"] == "/block" and line["event"] == "end"], "its end")
    assert end["request"] == blocked[0]["request"] and end["elapsed"] >= 0.6
    printed = command(site, "slow", "app").stdout
    assert "GET /block" in printed and "nap  " in printed and "which held 2 requests" in printed, printed
    assert "/fast" not in printed


def test_the_stack_of_a_blocked_loop_is_an_event_of_its_requests_span(start):
    site = start(HANDLER, slow_log={"threshold": 0.2, "samples": 2})
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    with Collector("http") as collector:
        settings = {"telemetry": {**collector.settings, "sampling_ratio": 1}}
        assert site.server.api("PUT", "/config/settings", json.dumps(settings)).status == 200
        waiting = Background(site.server.get, "/wait")
        wait_for(lambda: site.server.api("GET", "/status/applications/app").json()["requests"]["active"] == 1, "it is held")
        assert site.server.get("/block", [("traceparent", f"00-{trace}-00f067aa0ba902b7-01")]).text == "x"
        assert waiting.result().text == "waited"
        php = wait_for(lambda: collector.trace(trace).get("PHP"), "the span")
        [(at, name, attributes)] = php.events
        assert name == "slow" and php.begin + 0.15e9 < at < php.end and "nap " in attributes["code.stacktrace"], php
        other = wait_for(lambda: collector.with_path("/wait"), "the other span")[0]
        other = wait_for(lambda: collector.trace(other.trace).get("PHP"), "its span of PHP")
        assert other.seconds > 0.5 and other.events == [], "the stack belongs to the request that was used last"
    lines = [json.loads(line) for line in (site.server.directory / "state/slow/app.jsonl").read_text().splitlines()]
    traces = {line["url"]: line["trace_id"] for line in lines}
    assert {line["event"] for line in lines if line["url"] == "/block"} == {"sample", "end"}
    assert traces["/block"] == trace and traces["/wait"] == collector.with_path("/wait")[0].trace
    assert all(line["trace_id"] == traces[line["url"]] for line in lines), lines


def test_a_profile_has_the_functions_of_the_loop(start):
    site = start(HANDLER)
    asking = Background(site.server.get, "/hot")
    wait_for(lambda: site.server.api("GET", "/status/applications/app").json()["requests"]["active"] == 1, "it runs")
    result = command(site, "profile", "app", "--seconds", "1")
    assert asking.result().status == 200
    assert result.returncode == 0 and ("%  hot" in result.stdout or "%  md5" in result.stdout), result.stdout + result.stderr


def test_a_profile_begins_with_a_request_that_comes_later(start):
    site = start(HANDLER)
    recording = Background(command, site, "profile", "app", "--seconds", "2")
    wait_for(lambda: site.server.get("/").status == 200 and not recording.done() and site.server.get("/hot").text == "x", "a request")
    assert "%  hot" in recording.result().stdout or "%  md5" in recording.result().stdout, recording.result()


def test_routes_that_keep_memory_are_found(start):
    site = start(HANDLER)
    recording = Background(command, site, "leaks", "app", "--seconds", "2", "--json")
    while not recording.done():
        for path in ("/keep", "/fine"):
            assert site.server.get(path).text == "x"
    report = json.loads(recording.result().stdout)
    found = {route["route"]: route["leak"] for route in report["routes"]}
    assert found == {"GET /keep": True, "GET /fine": False}, report
    keep = next(route for route in report["routes"] if route["route"] == "GET /keep")
    assert keep["memory"]["mean"] > 4000 and 0.9 < keep["objects"]["Visit"]["mean"] < 1.1, keep


def test_requests_that_are_held_together_are_one_entry(start):
    site = start("$held = []; $kept = []; serve(function (Request $request) use (&$held, &$kept): void { $held[] = $request;"
                 "if (count($held) === 2) { $kept[] = str_repeat(random_bytes(64), 64);"
                 "foreach ($held as $one) { text($one, 'x'); } $held = []; } });")
    recording = Background(command, site, "leaks", "app", "--seconds", "2", "--json")
    while not recording.done():
        first = Background(site.server.get, "/a")
        assert site.server.get("/b").text == "x" and first.result().text == "x"
    report = json.loads(recording.result().stdout)
    assert [(route["route"], route["leak"]) for route in report["routes"]] == [("several requests together", True)], report
    assert report["requests"] >= 2 * report["routes"][0]["requests"]
