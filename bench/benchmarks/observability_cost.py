"""The cost of metrics and traces, for each request of `hello`.

Each round measures howdah four times: plain, with its metrics scraped each second, with 1 % of the requests traced and sent
to a collector, and plain again. A ratio is that of the CPU per request of all of howdah's processes to the mean of the two plain ones. The order of the two in the middle alternates. The
benchmark measures CPU because the throughput depends on the rest of the machine: at saturation they are the same.

The bar: at most 1.02 with scrapes, and 1.05 with traces (median).
"""

import http.client
import http.server
import json
import socket
import statistics
import threading
import time

from lib import process_tree
from lib.lab import flawless, serve
from lib.options import add_measurement
from lib.ports import free_port
from lib.process_tree import BenchError
from lib.verdict import print_verdict

BARS = {"scraped": 1.02, "traced": 1.05}
SAMPLING_RATIO = 0.01
SCRAPE_SECONDS = 1
ATTEMPTS = 100


def add_options(parser):
    parser.add_argument("--pages", default="hello", help="comma-separated; default hello")
    add_measurement(parser, rounds=9, seconds=3, connections=20)


def run(options):
    with serve("howdah") as server, Collector() as collector:
        return all([measure(server, page, collector, options) for page in options.pages.split(",")])


def measure(server, page, collector, options):
    api = f"{server.folder}/control.sock"
    ratios = {name: [] for name in BARS}

    def per_request(settings, during=None):
        """CPU microseconds per request, and requests per second."""
        configure(api, settings)
        before = process_tree.cpu_seconds(server.roots)
        figures = flawless(f"{server.url}/{page}.php", connections=options.connections, seconds=options.seconds, during=during)
        return (process_tree.cpu_seconds(server.roots) - before) / figures.good * 1e6, figures.per_second

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
        plain = (first[0] + last[0]) / 2
        for name in acts:
            ratios[name].append(found[name][0] / plain)
        parts = ", ".join(f"{name} {of[-1]:.3f}" for name, of in ratios.items())
        print(f"{page}: plain {first[0]:.1f} and {last[0]:.1f} µs, {first[1]:,.0f}/s; {parts}", flush=True)
    met = []
    for name, bar in BARS.items():
        median = statistics.median(ratios[name])
        met.append(print_verdict(median <= bar, f"{page} {name}: {median:.3f} (median of {options.rounds}); the bar is {bar}"))
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
