"""CPU time that howdah adds to a request, over PHP's own request start-up and shut-down.

The floor is `howdah-php8.2 --floor`: php_request_startup, execution and php_request_shutdown in one process, nothing
around it. The added time is the CPU of all howdah processes, divided by the requests that were completed, minus the
floor. The bar: at most 20 µs for `hello`.
"""

import statistics
import subprocess

from lib import process_tree
from lib.lab import BENCH, PHP, executable, flawless, serve
from lib.options import add_measurement
from lib.verdict import print_verdict

BAR_MICROSECONDS = 20
FLOOR_REQUESTS = 50_000


def add_options(parser):
    add_measurement(parser, rounds=5, seconds=3, connections=100)


def run(options):
    added = []
    with serve("howdah") as server:
        url = f"{server.url}/hello.php"
        flawless(url, connections=options.connections, seconds=1)
        for _ in range(options.rounds):
            floor = floor_microseconds("hello")
            before = process_tree.cpu_seconds(server.roots)
            figures = flawless(url, connections=options.connections, seconds=options.seconds)
            whole = (process_tree.cpu_seconds(server.roots) - before) / figures.good * 1e6
            added.append(whole - floor)
            print(f"whole {whole:6.1f} µs   floor {floor:6.1f} µs   added {whole - floor:6.1f} µs per request", flush=True)
    median = statistics.median(added)
    return print_verdict(median <= BAR_MICROSECONDS,
                         f"{median:.1f} µs added (median of {options.rounds}); the bar is {BAR_MICROSECONDS}")


def floor_microseconds(page, is_worker=False):
    script = ["--worker", BENCH / "pages/worker.php"] if is_worker else [BENCH / "pages" / f"{page}.php"]
    command = [executable().with_name(f"howdah-php{PHP}"), "--floor", *script, str(FLOOR_REQUESTS)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
