"""CPU cost of `howdah profile` while it runs, for each request.

Each round measures howdah's CPU per request without a profile, with one, and without again; its ratio is that of the
second to the mean of the others. The bar: the median is at most 1.02 at 99 samples per second. The benchmark measures
CPU because the throughput depends on the rest of the machine.
"""

import statistics
import subprocess
import time

from lib import process_tree
from lib.lab import executable, flawless, serve
from lib.options import add_measurement
from lib.process_tree import BenchError
from lib.verdict import print_verdict

BAR = 1.02
# The application's name in the configuration that the lab writes.
APPLICATION = "lab"


def add_options(parser):
    parser.add_argument("--pages", default="loop", help="comma-separated; default loop")
    add_measurement(parser, rounds=7, seconds=3, connections=20)
    parser.add_argument("--rate", type=int, default=99, help="samples per second; default 99")


def run(options):
    with serve("howdah") as server:
        return all([measure(server, page, options) for page in options.pages.split(",")])


def measure(server, page, options):
    ratios = []

    def microseconds():
        """CPU per request."""
        before = process_tree.cpu_seconds(server.roots)
        figures = flawless(f"{server.url}/{page}.php", connections=options.connections, seconds=options.seconds)
        return (process_tree.cpu_seconds(server.roots) - before) / figures.good * 1e6

    microseconds()
    for _ in range(options.rounds):
        before = microseconds()
        profiled, samples = with_profile(server, options, microseconds)
        after = microseconds()
        ratios.append(profiled / ((before + after) / 2))
        print(f"{page}: {before:,.1f} µs without, {profiled:,.1f} with, {after:,.1f} without: {ratios[-1]:.3f}; "
              f"{samples}", flush=True)
    median = statistics.median(ratios)
    return print_verdict(median <= BAR, f"{page} {median:.3f} (median of {options.rounds}); the bar is {BAR}")


def with_profile(server, options, act):
    """The result of `act` while a profile runs, and the first line of the profile's output."""
    command = [executable(), "profile", APPLICATION, "--control", f"unix:{server.folder}/control.sock",
               "--seconds", str(options.seconds + 1), "--rate", str(options.rate),
               "--output", server.folder / "profile.svg"]
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
