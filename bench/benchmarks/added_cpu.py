"""CPU time that howdah adds to a request, over PHP's own request start-up and shut-down.

The floor is `howdah-php8.2 --floor`: php_request_startup, execution and php_request_shutdown in one process, nothing
around it. The added time is the CPU of all howdah processes, divided by the requests that were completed, minus the
floor. The bar: at most 20 µs for `hello`.
"""

import statistics

from lib import process_tree
from lib.floor import floor_microseconds
from lib.lab import flawless, serve
from lib.options import add_measurement
from lib.verdict import print_verdict

BAR_MICROSECONDS = 20


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
