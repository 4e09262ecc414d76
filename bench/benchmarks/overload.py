"""Three times the requests that howdah can complete: how many of the possible ones succeed, and how fast?

The page computes. The benchmark measures the machine's capacity before and after each overload, in the same way: 32
clients that send a request as soon as they have a response. The servers have one core, the load generators another.
The bar: at least 95 % of the capacity is answered 200 with a 99th percentile below two seconds (twice the limit of the
queue's delay), the rest 503 within milliseconds, and two seconds after the overload the 99th percentile is what it was
before.

With `--closed`, clients come again as soon as they have an answer, on the cores of the servers: see lib/closed_loop.py.
"""

import json
import os
import statistics
import sys

from lib import closed_loop, load
from lib.one_howdah import OneHowdah
from lib.options import add_measurement, list_of, numbers
from lib.process_tree import BenchError
from lib.verdict import word

PAGE = "<?php $x = 0; for ($i = 0; $i < 150000; $i++) { $x = ($x * 31 + $i) % 1000003; } echo \"done $x\";"
SHARE, BOUND_MS, REJECTION_MS = 0.95, 2000, 20
# Precision of a sleeping process.
GRAIN_MS = 5
CAPACITY_CONNECTIONS, CAPACITY_SECONDS = 32, 8
# Seconds at half of the capacity, before and after the overload.
QUIET_SECONDS = 6
# After the overload these seconds do not count yet.
RECOVERY_SECONDS = 2


def add_options(parser):
    add_measurement(parser, rounds=3, seconds=60)
    parser.add_argument("--closed", action="store_true", help="closed loop, against nginx + PHP-FPM and NGINX Unit")
    parser.add_argument("--pages", type=list_of(list(closed_loop.PAGES)), default=list(closed_loop.PAGES),
                        help=f"with --closed: of {','.join(closed_loop.PAGES)}")
    parser.add_argument("--clients", type=numbers, default=[100, 500, 1500, 3000],
                        help="with --closed; default 100,500,1500,3000")


def run(options):
    if options.closed:
        options.processes = {"nginx-fpm": os.cpu_count(), "unit": os.cpu_count(), "howdah": "auto"}
        return closed_loop.measure(options)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise BenchError("servers and load generators need one core each")
    with OneHowdah(options.php) as howdah:
        howdah.write_files({"cpu.php": PAGE})
        urls = howdah.start({"app": "applications/app"}, cores=cores[:1],
                            applications={"app": {"type": "php", "root": str(howdah.folder)}})
        rounds = []
        for _ in range(options.rounds):
            rounds.append(measure(f"{urls['app']}/cpu.php", options.seconds, cores[1:2]))
            print(json.dumps(rounds[-1]), file=sys.stderr)
    return report(rounds)


def measure(url, seconds, cores):
    def capacity():
        return load.throughput(url, CAPACITY_CONNECTIONS, CAPACITY_SECONDS, cores=cores)

    before = capacity()
    half = f"{before / 2:.0f}:{QUIET_SECONDS}"
    result = load.at_constant_rates([url], [half, f"{before * 3:.0f}:{seconds}", half],
                                    connections=4000, expect="done", cores=cores)
    after = capacity()
    by_second = result["seconds"]
    overload_end = QUIET_SECONDS + seconds
    loaded = by_second[QUIET_SECONDS:overload_end]
    recovered = by_second[overload_end + RECOVERY_SECONDS:overload_end + QUIET_SECONDS]
    return {
        "before": before,
        "after": after,
        "share": statistics.mean(second["ok"] for second in loaded) / statistics.mean([before, after]),
        "p99": sorted(second["p99"] for second in loaded)[len(loaded) * 95 // 100],
        "worst": max(second["p99"] for second in loaded),
        "503": result["others"],
        "p99 before": statistics.median(second["p99"] for second in by_second[1:QUIET_SECONDS]),
        "p99 after": statistics.median(second["p99"] for second in recovered),
        "outcomes": result["outcomes"],
    }


def report(rounds):
    def median(name):
        return statistics.median(one[name] for one in rounds)

    rejection_ms = statistics.median(one["503"]["p50"] for one in rounds)
    outcomes = {outcome for one in rounds for outcome in one["outcomes"]}
    lines = [
        (f"share of the capacity: {median('share') * 100:.1f} % (of {median('before'):.0f}/s)",
         median("share") >= SHARE),
        (f"p99 of responses 200: {median('p99'):.0f} ms (in 95 % of the seconds; worst second: {median('worst'):.0f})",
         median("p99") < BOUND_MS),
        (f"median of responses 503: {rejection_ms:.1f} ms", rejection_ms < REJECTION_MS),
        (f"p99 at half the load: {median('p99 before'):.1f} ms before, {median('p99 after'):.1f} ms two seconds after",
         median("p99 after") <= max(median("p99 before") * 1.25, median("p99 before") + GRAIN_MS)),
        (f"responses: {', '.join(sorted(outcomes))}", outcomes <= {"200", "503"}),
    ]
    for line, is_met in lines:
        print(f"{word(is_met):8}{line}")
    return all(is_met for _, is_met in lines)
