"""CPU time that howdah adds to a request, over PHP's own request start-up and shut-down.

The floor is `howdah-php8.2 --floor`: php_request_startup, execution and php_request_shutdown in one process, nothing
around it. The added time is the CPU of all howdah processes, divided by the requests that wrk completed, minus the
floor. The bar: at most 20 µs for `hello`.
"""

import os
import statistics
import subprocess

from lib import howdah, load, pages, process_tree
from lib.options import add_measurement
from lib.verdict import print_verdict
from lib.workbench import Workbench

BAR_MICROSECONDS = 20
FLOOR_REQUESTS = 50_000


def add_options(parser):
    add_measurement(parser, rounds=5, seconds=3, connections=100)


def run(options):
    page = pages.by_name(["hello"])[0]
    with Workbench(["howdah"], [page], php_version=options.php, processes=os.cpu_count()) as bench:
        server, url = bench.servers[0], bench.url(bench.servers[0], page)
        script = next(path for path in bench.run_dir.rglob("hello.php"))
        load.run("wrk", url, options.connections, 1)
        added = []
        for _ in range(options.rounds):
            floor = floor_microseconds(options.php, script)
            before = process_tree.cpu_seconds(server.roots)
            figures = load.run("wrk", url, options.connections, options.seconds)
            whole = (process_tree.cpu_seconds(server.roots) - before) / figures.good * 1e6
            added.append(whole - floor)
            print(f"whole {whole:6.1f} µs   floor {floor:6.1f} µs   added {whole - floor:6.1f} µs per request")
    median = statistics.median(added)
    return print_verdict(median <= BAR_MICROSECONDS,
                         f"{median:.1f} µs added (median of {options.rounds}); the bar is {BAR_MICROSECONDS}")


def floor_microseconds(php_version, script):
    command = [howdah.program(php_version).with_name(f"howdah-php{php_version}"), "--floor", script, FLOOR_REQUESTS]
    return float(subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout)
