"""Requests that wait for 50 ms: async mode with two processes, against worker mode with two and with `auto`.

The page is `sleep50` of `process_manager`. The bar: async mode answers at least as many requests per second as worker mode with
two processes, and 0.97 of worker mode with `auto`, none with an error. At 500 connections no server can answer more than 10,000
per second; `--connections 1000` shows which one has processors left.
"""

import statistics

from lib import load
from lib.closed_loop import PAGES
from lib.verdict import print_verdict
from lib.workbench import Workbench

PAGE = PAGES["sleep50"]
ASYNC = ("howdah-async", 2)
# The least share of worker mode's rate, by its processes.
SHARES = {2: 1, "auto": 0.97}
SERVERS = [ASYNC, ("howdah-worker", 2), ("howdah-worker", "auto")]


def add_options(parser):
    parser.add_argument("--connections", type=int, default=500, help="default 500")
    parser.add_argument("--seconds", type=int, default=5, help="of each run; default 5")
    parser.add_argument("--rounds", type=int, default=3, help="default 3")


def run(options):
    rates, times, errors = {}, {}, {}
    for _ in range(options.rounds):
        for server in SERVERS:
            name, processes = server
            with Workbench([name], [], php_version=options.php, processes=processes) as bench:
                url = bench.url(bench.servers[0], PAGE)
                # With `auto`, the workers are started during this run, which is not counted.
                load.run("wrk", url, options.connections, options.seconds)
                figures = load.run("wrk", url, options.connections, options.seconds)
            rates.setdefault(server, []).append(figures.good / figures.seconds)
            times.setdefault(server, []).append(figures.p50_ms)
            errors[server] = errors.get(server, 0) + figures.non_2xx + figures.socket_errors
    for server in SERVERS:
        name, processes = server
        print(f"{name:14} {processes!s:>4} processes: {statistics.median(rates[server]):8.0f} requests/s, "
              f"p50 {statistics.median(times[server]):7.1f} ms, {errors[server]} errors")
    rate = {server: statistics.median(rates[server]) for server in SERVERS}
    ratios = {processes: rate[ASYNC] / max(rate["howdah-worker", processes], 1e-9) for processes in SHARES}
    is_met = not errors[ASYNC] and all(ratios[processes] >= share for processes, share in SHARES.items())
    return print_verdict(is_met, f"{ratios[2]:.2f} of worker mode with two processes, {ratios['auto']:.2f} with auto; no errors")
