"""A real Prometheus scrapes a howdah with 100 applications while they restart, its configuration changes and its router is
killed: `make prometheus-tests` (Debian's package takes longer to install than `make test` has time)."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
import urllib.parse
import urllib.request
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from support.fastcgi import FakeServer, answer, fastcgi_application
from support.folders import Folder
from support.http.load import Load
from support.machine import free_port
from support.server import REPOSITORY, Howdah, stop_all
from support.waiting import wait_for

RULES = REPOSITORY / "contrib/prometheus/howdah.rules.yml"
APPLICATIONS = 100
PHP_APPLICATIONS = 4
CLIENTS = 4


class Prometheus:
    """Debian's Prometheus, which scrapes a port each second."""

    def __init__(self, folder: Path, target: int, *options: str):
        self.port = free_port()
        configuration = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [{"job_name": "howdah", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}],
        }
        # JSON is YAML.
        folder.mkdir(exist_ok=True)
        (folder / "prometheus.yml").write_text(json.dumps(configuration))
        self.log = (folder / "prometheus.log").open("w")
        command = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
        command += [f"--web.listen-address=127.0.0.1:{self.port}", *options]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)
        wait_for(self.is_ready, "Prometheus")

    def __enter__(self) -> Prometheus:
        return self

    def __exit__(self, *_) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        self.log.close()

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready") as response:
                return response.status == 200
        except OSError:
            assert self.process.poll() is None, "Prometheus has ended"
            return False

    def api(self, path: str, **arguments: str) -> dict:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        with urllib.request.urlopen(url) as response:
            answer = json.load(response)
        assert answer["status"] == "success", answer
        return answer["data"]

    def by(self, label: str, expression: str) -> dict[str, float]:
        found = self.api("query", query=expression)["result"]
        return {sample["metric"].get(label, ""): float(sample["value"][1]) for sample in found}

    def number(self, expression: str) -> float:
        return sum(self.by("", expression).values())


def names() -> list[str]:
    return [f"application-{number:03}" for number in range(APPLICATIONS)]


def configuration(folder: Folder, metrics: int) -> dict:
    """Some run PHP. The others, which are there for their number, have a FastCGI server."""

    def application(number: int) -> dict:
        if number < PHP_APPLICATIONS:
            return {"type": "php", "root": str(folder.root), "processes": {"max": 2, "spare": 1}}
        return fastcgi_application(folder, f"unix:{folder.scratch}/fcgi")

    routes = [
        {"match": {"uri": f"/{name}/*"}, "action": {"rewrite": "/index.php", "pass": f"applications/{name}"}}
        for name in names()
    ]
    return {
        "routes": [*routes, {"action": {"return": 204}}],
        "applications": {name: application(number) for number, name in enumerate(names())},
        "settings": {"metrics": {"listen": f"127.0.0.1:{metrics}"}},
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = Folder(tmp_path_factory.mktemp("shop"))
    folder.php("index.php", "if (isset($_GET['fail'])) http_response_code(500); echo 'hello';")
    with closing(FakeServer(folder.scratch / "fcgi", lambda _: answer())):
        (folder.scratch / "fcgi").chmod(0o777)
        yield folder


def test_the_sums_of_prometheus_agree_with_the_clients_to_the_request(folder, tmp_path):
    metrics = free_port()
    server = Howdah.run(configuration(folder, metrics))
    answered: Counter[tuple[str, str]] = Counter()
    lock = threading.Lock()

    def check(client, turn):
        # All applications get requests; those with PHP most of them.
        number = turn % APPLICATIONS if turn % 10 == 0 else turn % PHP_APPLICATIONS
        name = names()[number]
        fails = turn % 7 == 0 and number < PHP_APPLICATIONS
        status = client.get(f"/{name}/x?turn={turn}" + "&fail" * fails).status
        with lock:
            answered[name, f"{status // 100}xx"] += 1
        return status != (500 if fails else 200) and f"{name}: {status}"

    def wait_for_answers(more: int) -> None:
        goal = answered.total() + more
        wait_for(lambda: answered.total() >= goal, "answers")

    kills = reloads = 0
    try:
        with Prometheus(tmp_path, metrics) as prometheus:
            for turn in range(3):
                with Load(server, check, clients=CLIENTS) as load:
                    for name in names()[:PHP_APPLICATIONS]:
                        wait_for_answers(200)
                        assert server.api("POST", f"/control/applications/{name}/restart").status == 200
                        reloads += 1
                    settings = {"server_version": bool(turn % 2)}
                    assert server.api("PUT", "/config/settings/http", json.dumps(settings)).status == 200
                    wait_for_answers(500)
                load.assert_flawless()
                # Between requests: of a request that runs then, only the router knows how far it came.
                router = server.router()
                router.kill()
                kills += 1
                wait_for(lambda: server.titled("howdah: router") not in ([], [router]), "another router")
            total = answered.total()
            requests = "howdah_requests_total{responder='application'}"
            wait_for(lambda: prometheus.number(f"sum({requests})") >= total, "a scrape of the last request")
            # The last request may have been in a scrape before the router's death.
            wait_for(lambda: prometheus.number("howdah_router_starts_total") >= kills + 1, "a scrape after the last death")
            expected: Counter[str] = Counter()
            for (name, _), count in answered.items():
                expected[name] += count
            assert prometheus.by("application", f"sum by (application) ({requests})") == dict(expected)
            for status in ("2xx", "5xx"):
                found = prometheus.number(f"sum(howdah_requests_total{{responder='application',status='{status}'}})")
                assert found == sum(count for (_, s), count in answered.items() if s == status)
            assert prometheus.number(f"sum({requests})") == total
            # A counter never went backwards: not in any family, and not between any two scrapes.
            names_of_all = prometheus.api("label/__name__/values")
            counters = [name for name in names_of_all if re.fullmatch("howdah_.*_(total|count|sum|bucket)", name)]
            resets = {name: prometheus.number(f"sum(resets({name}[1h]))") for name in counters}
            assert len(resets) > 20 and set(resets.values()) == {0}, resets
            assert prometheus.number("howdah_router_starts_total") == kills + 1
            # No scrape failed, not even while there was no router, and none was slow.
            assert prometheus.number("min_over_time(up{job='howdah'}[1h])") == 1
            slowest = prometheus.number("max_over_time(scrape_duration_seconds[1h])")
            own = prometheus.number("quantile_over_time(0.5, howdah_scrape_duration_seconds[1h])")
            samples = prometheus.number("scrape_samples_scraped")
            rules = [rule for group in prometheus.api("rules")["groups"] for rule in group["rules"]]
            assert rules and all(rule["health"] == "ok" for rule in rules), rules
            scrapes = prometheus.number("count_over_time(up{job='howdah'}[1h])")
            print(
                f"\n{total} requests in {APPLICATIONS} applications, {reloads} reloads, {kills} killed routers: all sums agree; "
                f"{scrapes:.0f} scrapes of {samples:.0f} samples, the slowest {slowest * 1000:.0f} ms, "
                f"the supervisor's text {own * 1000:.1f} ms (median); {len(rules)} alerts evaluated"
            )
    finally:
        stop_all([server])


def test_quantiles_of_native_and_classic_histograms_agree(folder, tmp_path):
    """Debian's Prometheus takes one kind of buckets of a scrape: two of them scrape the same howdah."""
    folder.php("sleeps.php", "usleep(1000 * (int) $_GET['ms']); echo 'slept';")
    metrics = free_port()
    application = {"type": "php", "root": str(folder.root), "processes": 4}
    server = Howdah.run({"applications": {"shop": application}, "settings": {"metrics": {"listen": f"127.0.0.1:{metrics}"}}})
    milliseconds = [1, 2, 3, 4, 6, 8, 12, 20, 30, 45, 70, 110]

    def check(client, turn):
        status = client.get(f"/sleeps.php?ms={milliseconds[turn % len(milliseconds)]}").status
        return status != 200 and f"{status}"

    def answers(more: int) -> None:
        with Load(server, check, clients=4) as load:
            wait_for(lambda: load.correct >= more, "answers")
        load.assert_flawless()
        nonlocal total
        total += load.correct

    total, phases = 0, ["duration", "first_byte", "php", "queue", "cpu"]
    native_only = Prometheus(tmp_path / "native", metrics, "--enable-feature=native-histograms")
    try:
        with native_only as native, Prometheus(tmp_path / "classic", metrics) as classic:
            for _ in range(2):
                answers(600)
                # Between requests, as above.
                router = server.router()
                router.kill()
                wait_for(lambda: server.titled("howdah: router") not in ([], [router]), "another router")
            answers(600)
            count, of_classic = "sum(histogram_count(howdah_request_{}_seconds))", "sum(howdah_request_{}_seconds_count)"
            for phase in phases:
                wait_for(lambda: native.number(count.format(phase)) == total, f"{total} times of {phase}: native")
                wait_for(lambda: classic.number(of_classic.format(phase)) == total, f"{total} times of {phase}: classic")
                sums = native.number(f"sum(histogram_sum(howdah_request_{phase}_seconds))"), classic.number(f"sum(howdah_request_{phase}_seconds_sum)")
                assert sums[0] == pytest.approx(sums[1], rel=1e-6), phase
            names = native.api("label/__name__/values")
            assert "howdah_request_php_seconds" in names and "howdah_request_php_seconds_bucket" not in names
            bounds = [0, *sorted(float(le) for le in classic.api("label/le/values") if le != "+Inf")]
            print(f"\n{total} requests; quantiles of the time in PHP, native and classic:", end=" ")
            for phase in phases:
                for quantile in (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99):
                    found = native.number(f"histogram_quantile({quantile}, sum(howdah_request_{phase}_seconds))")
                    coarse = classic.number(f"histogram_quantile({quantile}, sum by (le) (howdah_request_{phase}_seconds_bucket))")
                    # Both are in the classic bucket of the true quantile, or within the width of a native bucket from it.
                    lower = max(bound for bound in bounds if bound < coarse)
                    upper = min(bound for bound in bounds if bound >= coarse)
                    assert lower / 2 ** (1 / 8) <= found <= upper * 2 ** (1 / 8), (phase, quantile, found, coarse)
                    if phase == "php":
                        print(f"{quantile}: {found * 1000:.2f} and {coarse * 1000:.2f} ms", end="; ")
            # A third of the requests sleeps for 30 ms or longer: the native buckets show how much longer.
            slept = native.number("histogram_quantile(0.7, sum(howdah_request_php_seconds))")
            assert 0.030 / 2 ** (1 / 8) <= slept <= 0.045
            resets = native.number("sum(resets(howdah_request_php_seconds[1h]))")
            assert resets == 0 and native.number("min_over_time(up{job='howdah'}[1h])") == 1
            scraped = {name: one.number("avg_over_time(scrape_duration_seconds[1h])") for name, one in (("native", native), ("classic", classic))}
            print(f"scrapes take {scraped['native'] * 1000:.1f} ms with native buckets, {scraped['classic'] * 1000:.1f} ms without")
    finally:
        stop_all([server])


def test_a_router_that_dies_under_load_loses_only_the_requests_that_it_had(folder, tmp_path):
    metrics = free_port()
    server = Howdah.run(configuration(folder, metrics))
    answered, cut_off = Counter(), Counter()
    lock = threading.Lock()

    def check(client, turn):
        name = names()[turn % PHP_APPLICATIONS]
        try:
            status = client.get(f"/{name}/x").status
        except Exception:
            with lock:
                cut_off[name] += 1
            client.close()
            return None
        with lock:
            answered[name] += 1
        return status not in (200, 502, 503) and f"{name}: {status}"

    try:
        with Prometheus(tmp_path, metrics) as prometheus:
            with Load(server, check, clients=CLIENTS) as load:
                for _ in range(3):
                    goal = answered.total() + 300
                    wait_for(lambda: answered.total() >= goal, "answers")
                    router = server.router()
                    router.kill()
                    wait_for(lambda: server.titled("howdah: router") not in ([], [router]), "another router")
                goal = answered.total() + 300
                wait_for(lambda: answered.total() >= goal, "answers")
            load.assert_flawless()
            requests = "sum(howdah_requests_total{responder='application'})"
            wait_for(lambda: prometheus.number(requests) >= answered.total(), "a scrape of the last request")
            counted = prometheus.number(requests)
            assert answered.total() <= counted <= answered.total() + cut_off.total()
            print(f"\n{answered.total()} answers and {cut_off.total()} requests cut off; counted: {counted:.0f}")
    finally:
        stop_all([server])
