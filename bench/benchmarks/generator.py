"""Is the lab's load generator as good as the tools that it replaces? Against wrk, on the same core.

nginx serves a small file on the last core; wrk and the lab's generator, each with one thread, take turns on the first core.
The bar: at least 0.9 of wrk's requests per second; p50 and p99 within 5 percent (or 20 microseconds) of wrk's; of 10,000
requests per second in an open loop, less than 0.1 percent are sent more than 1 ms late.
"""

import json
import statistics
import subprocess
import tempfile
from pathlib import Path

from lib import process_tree
from lib.lab import BENCH, PHP
from lib.lab import executable as howdah
from lib.options import add_measurement
from lib.peers import cores_apart, program, start_nginx
from lib.ports import free_port, wait_for_port
from lib.process_tree import BenchError
from lib.verdict import print_verdict

MIN_RATIO = 0.9
MAX_DIFFERENCE = 0.05
MAX_DIFFERENCE_MS = 0.02
MAX_LATE_SHARE = 0.001
OPEN_RATE = 10_000

def add_options(parser):
    add_measurement(parser, rounds=5, seconds=5, connections=50)


def run(options):
    core, others = cores_apart()
    with tempfile.TemporaryDirectory(prefix="howdah-bench-") as folder:
        folder = Path(folder)
        # The lab's PHP runs as another user.
        folder.chmod(0o755)
        port = free_port()
        http = f'server {{ listen 127.0.0.1:{port}; location / {{ return 200 "hello"; }} }}'
        server = start_nginx(folder, http, workers=1, cores=others[-1:])
        try:
            wait_for_port(port, server, folder / "nginx.log")
            return compare(options, folder, f"http://127.0.0.1:{port}", core)
        finally:
            process_tree.stop(server)


def compare(options, folder, url, core):
    ratios, p50s, p99s, late = [], [], [], []
    for number in range(options.rounds):
        measure = {"wrk": lambda: wrk(options, url, core), "lab": lambda: lab(options, folder, url, core)}
        figures = {name: measure[name]() for name in sorted(measure, reverse=number % 2 == 1)}
        theirs, ours = figures["wrk"], figures["lab"]
        ratios.append(ours["rate"] / theirs["rate"])
        p50s.append((theirs["p50"], ours["p50"]))
        p99s.append((theirs["p99"], ours["p99"]))
        late.append(ours["late_share"])
        print(f"wrk {theirs['rate']:9,.0f} requests/s, p50 {theirs['p50']:.3f} ms, p99 {theirs['p99']:.3f} ms; "
              f"lab {ours['rate']:9,.0f}, {ours['p50']:.3f}, {ours['p99']:.3f}; "
              f"{ours['late_share']:.3%} of {OPEN_RATE:,}/s late", flush=True)
    ratio, late_share = statistics.median(ratios), statistics.median(late)
    met = [
        print_verdict(ratio >= MIN_RATIO, f"{ratio:.2f} of wrk's requests per second; the bar is {MIN_RATIO}"),
        print_verdict(are_close(p50s), f"p50 {difference(p50s):+.1%}; the bar is {MAX_DIFFERENCE:.0%} of wrk's"),
        print_verdict(are_close(p99s), f"p99 {difference(p99s):+.1%}; the bar is {MAX_DIFFERENCE:.0%} of wrk's"),
        print_verdict(late_share < MAX_LATE_SHARE, f"{late_share:.3%} sent late; the bar is {MAX_LATE_SHARE:.1%}"),
    ]
    return all(met)


def are_close(pairs):
    absolute = statistics.median(abs(ours - theirs) for theirs, ours in pairs)
    return abs(difference(pairs)) <= MAX_DIFFERENCE or absolute <= MAX_DIFFERENCE_MS


def difference(pairs):
    """The median of the relative differences of ours from theirs."""
    return statistics.median(ours / theirs - 1 for theirs, ours in pairs)


def wrk(options, url, core):
    command = [program("wrk", "wrk"), "-t1", f"-c{options.connections}", f"-d{options.seconds}s",
               "-s", BENCH / "lib/wrk_report.lua", f"{url}/"]
    output = process_tree.output(command, cores=[core])
    report = json.loads(output.partition("RESULT ")[2].partition("\n")[0])
    return {"rate": report["requests"] / (report["microseconds"] / 1e6), "p50": report["p50"] / 1000,
            "p99": report["p99"] / 1000}


def lab(options, folder, url, core):
    """A closed and an open loop of the lab's generator against a server that runs already."""
    (folder / "index.php").write_text("<?php\n")
    out = folder / "out"
    plan = {
        "title": "the load generator",
        "application": {"root": str(folder), "php": PHP},
        "stacks": [{"name": "nginx", "url": url}],
        "rounds": 1,
        "cores": {"generator": [core]},
        "loads": [
            {"name": "closed", "connections": options.connections, "duration": f"{options.seconds}s", "warm_up": "100ms"},
            {"name": "open", "schedule": f"const({OPEN_RATE}, {options.seconds}s)", "warm_up": "100ms"},
        ],
    }
    (folder / "lab.json").write_text(json.dumps(plan))
    done = subprocess.run([howdah(), "lab", "run", folder / "lab.json", "--out", out], capture_output=True, text=True)
    if done.returncode:
        raise BenchError(done.stderr)
    runs = {run["load"]: run for run in json.loads((out / "results.json").read_text())["runs"]}
    closed, percentiles = runs["closed"], runs["closed"]["latency"]["percentiles"]
    if closed["failed"] or runs["open"]["failed"]:
        raise BenchError(f"failed requests: {closed['errors']} {runs['open']['errors']}")
    return {"rate": closed["requests_per_second"], "p50": percentiles["p50"], "p99": percentiles["p99"],
            "late_share": runs["open"]["generator"]["late_share"]}
