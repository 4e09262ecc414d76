"""The cost of metrics and traces, for each request of `hello`.

Each round measures howdah four times: plain, with its metrics scraped each second, with 1 % of the requests traced and sent
to a collector, and plain again. A ratio is that of the CPU per request of all of howdah's processes (and of their
instructions, where perf counts them) to the mean of the two plain ones. The order of the two in the middle alternates. The
benchmark measures CPU because the throughput depends on the rest of the machine: at saturation they are the same.

The bar: at most 1.02 with scrapes, and 1.05 with traces (median).
"""

import http.client
import http.server
import json
import os
import socket
import statistics
import threading
import time

from lib import load, pages, process_tree
from lib.options import add_measurement
from lib.ports import free_port
from lib.process_tree import BenchError
from lib.thread_counters import INSTRUCTIONS, Counters, PerfStat
from lib.verdict import print_verdict
from lib.workbench import Workbench

BARS = {"scraped": 1.02, "traced": 1.05}
SAMPLING_RATIO = 0.01
SCRAPE_SECONDS = 1
ATTEMPTS = 100


def add_options(parser):
    parser.add_argument("--pages", default="hello", help="comma-separated; default hello")
    add_measurement(parser, rounds=9, seconds=3, connections=20)


def run(options):
    chosen = pages.by_name(options.pages.split(","))
    with Workbench(["howdah"], chosen, php_version=options.php, processes=os.cpu_count()) as bench:
        with Collector() as collector:
            return all([measure(bench, page, collector, options) for page in chosen])


def measure(bench, page, collector, options):
    server = bench.servers[0]
    api = f"{bench.run_dir}/{server.name}.sock"
    ratios = {name: {"CPU": [], "instructions": []} for name in BARS}

    def per_request(settings, during=None):
        configure(api, settings)
        pids = process_tree.tree(server.roots)
        perf = PerfStat(pids, bench.run_dir)
        before = Counters.of(pids)
        try:
            figures = load.run("wrk", bench.url(server, page), options.connections, options.seconds, during=during)
        finally:
            counts = perf.stop()
        spent = Counters.of(pids) - before
        if not figures.good or figures.non_2xx:
            raise BenchError(f"{figures.non_2xx} responses are not 2xx")
        found = {"CPU": spent.cpu_seconds / figures.good * 1e6, "per_second": figures.good / figures.seconds}
        if INSTRUCTIONS in counts:
            found["instructions"] = counts[INSTRUCTIONS] / figures.good
        return found

    def scraped():
        port = free_port()
        with Scraper(port) as scraper:
            found = per_request({"metrics": {"listen": f"127.0.0.1:{port}"}}, during=scraper.start)
        if scraper.scrapes < options.seconds - 1:
            raise BenchError(f"only {scraper.scrapes} scrapes: {scraper.error}")
        return found

    def traced():
        before = collector.bodies
        telemetry = {"endpoint": collector.url, "protocol": "http", "sampling_ratio": SAMPLING_RATIO}
        found = per_request({"telemetry": telemetry})
        if collector.bodies == before:
            raise BenchError("the collector got no spans")
        return found

    per_request({})
    acts = {"scraped": scraped, "traced": traced}
    for number in range(options.rounds):
        first = per_request({})
        names = list(acts) if number % 2 == 0 else list(acts)[::-1]
        found = {name: acts[name]() for name in names}
        last = per_request({})
        parts = []
        for name in acts:
            for figure in ("CPU", "instructions"):
                if all(figure in each for each in (first, found[name], last)):
                    ratio = found[name][figure] / ((first[figure] + last[figure]) / 2)
                    ratios[name][figure].append(ratio)
                    parts.append(f"{name} {figure} {ratio:.3f}")
        print(f"{page.name}: plain {first['CPU']:.1f} and {last['CPU']:.1f} µs, {first['per_second']:,.0f}/s; "
              + ", ".join(parts), flush=True)
    met = []
    for name, bar in BARS.items():
        # Instructions do not depend on the load of the machine.
        figure = "instructions" if ratios[name]["instructions"] else "CPU"
        medians = {of: statistics.median(all_of) for of, all_of in ratios[name].items() if all_of}
        text = ", ".join(f"{median:.3f} of the {of}" for of, median in medians.items())
        met.append(print_verdict(medians[figure] <= bar, f"{page.name} {name}: {text} (medians of {options.rounds}); "
                                                         f"the bar is {bar} of the {figure}"))
    return all(met)


def configure(api, settings):
    """Sets `settings`, over the control socket. It is open before howdah is ready."""
    for _ in range(ATTEMPTS):
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(api)
        connection.request("PUT", "/config/settings", json.dumps(settings))
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        if response.status == 200:
            return
        if response.status != 503:
            break
        time.sleep(0.1)
    raise BenchError(f"the settings were refused: {text}")


class Scraper:
    """Reads /metrics each second, as Prometheus does, from `start` to the end of the context."""

    def __init__(self, port):
        self.port, self.scrapes, self.error = port, 0, None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def start(self):
        self._thread.start()

    def _run(self):
        while True:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", "/metrics", headers={"Accept": "application/openmetrics-text"})
                if connection.getresponse().read().endswith(b"# EOF\n"):
                    self.scrapes += 1
                connection.close()
            except OSError as error:
                self.error = error
            if self._stopped.wait(SCRAPE_SECONDS):
                return


class Collector:
    """Takes and drops spans over HTTP."""

    def __init__(self):
        self.bodies = 0

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(handler):
                handler.rfile.read(int(handler.headers["Content-Length"]))
                self.bodies += 1
                handler.send_response(200)
                handler.send_header("Content-Length", "0")
                handler.end_headers()

            def log_message(handler, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1/traces"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
