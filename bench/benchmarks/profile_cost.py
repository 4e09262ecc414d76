"""CPU cost of `howdah profile` while it runs, for each request.

Each round measures howdah's CPU per request without a profile, with one, and without again; its ratio is that of the
second to the mean of the others. The bar: the median is at most 1.02 at 99 samples per second. The benchmark measures
CPU because the throughput depends on the rest of the machine.
"""

import os
import statistics
import subprocess
import time

from lib import howdah, load, pages, process_tree
from lib.options import add_measurement
from lib.process_tree import BenchError
from lib.verdict import print_verdict
from lib.workbench import Workbench

BAR = 1.02


def add_options(parser):
    parser.add_argument("--pages", default="loop", help="comma-separated; default loop")
    add_measurement(parser, rounds=7, seconds=3, connections=20)
    parser.add_argument("--rate", type=int, default=99, help="samples per second; default 99")


def run(options):
    chosen = pages.by_name(options.pages.split(","))
    with Workbench(["howdah"], chosen, php_version=options.php, processes=os.cpu_count()) as bench:
        return all([measure(bench, page, options) for page in chosen])


def measure(bench, page, options):
    server = bench.servers[0]
    ratios = []

    def microseconds():
        """CPU per request."""
        before = process_tree.cpu_seconds(server.roots)
        figures = load.run("wrk", bench.url(server, page), options.connections, options.seconds)
        return (process_tree.cpu_seconds(server.roots) - before) / figures.good * 1e6

    microseconds()
    for _ in range(options.rounds):
        before = microseconds()
        profiled, samples = with_profile(bench, options, microseconds)
        after = microseconds()
        ratios.append(profiled / ((before + after) / 2))
        print(f"{page.name}: {before:,.1f} µs without, {profiled:,.1f} with, {after:,.1f} without: {ratios[-1]:.3f}; "
              f"{samples}", flush=True)
    median = statistics.median(ratios)
    return print_verdict(median <= BAR, f"{page.name} {median:.3f} (median of {options.rounds}); the bar is {BAR}")


def with_profile(bench, options, act):
    """The result of `act` while a profile runs, and the first line of the profile's output."""
    command = [howdah.program(options.php), "profile", "bench", "--state-dir", bench.run_dir / "howdah-state",
               "--seconds", str(options.seconds + 1), "--rate", str(options.rate),
               "--output", bench.run_dir / "profile.svg"]
    profile = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        time.sleep(0.3)
        measured = act()
        output = profile.communicate()[0]
    finally:
        profile.kill()
        profile.wait()
    if profile.returncode:
        raise BenchError("howdah profile failed")
    return measured, output.partition("\n")[0]

