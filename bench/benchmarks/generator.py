"""Is the lab's load generator as good as the tools that it replaces? Against wrk, on the same core.

Two servers run on the last core; wrk and the lab's generator, each with one thread, take turns on the first core:

- nginx with a small file, which is faster than one core's generator. The bar: at least 0.9 of wrk's requests per second; of
  10,000 requests per second in an open loop, the generator itself sends less than 0.1 percent more than 1 ms late: less than a timer
  with a higher priority, which finds the times in which the machine's host takes the core. Latencies are printed only: here they are the
  generator's own queue, of which wrk leaves out a half ("Latencies in a closed loop, and wrk's" in docs/lab.md).
- howdah with a page of 1 ms, where a latency is the server's. The bar: p50 and p99 within 5 percent (or 20 microseconds) of wrk's.
"""

import contextlib
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

from lib import process_tree
from lib.lab import BENCH, PHP
from lib.lab import executable as howdah
from lib.one_howdah import OneHowdah
from lib.options import add_measurement
from lib.peers import cores_apart, program, start_nginx
from lib.ports import free_port, wait_for_port
from lib.process_tree import BenchError
from lib.stalls import stalled_seconds
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
        with small_file(folder, others[-1:]) as url:
            met = [*compare_rates(options, folder, url, core)]
        with php_page(others[-1:]) as url:
            met += compare_latencies(options, folder, url, core)
    return all(met)


@contextlib.contextmanager
def small_file(folder, cores):
    """The URL of a small file of nginx, which runs in the context."""
    port = free_port()
    http = f'server {{ listen 127.0.0.1:{port}; location / {{ return 200 "hello"; }} }}'
    server = start_nginx(folder, http, workers=1, cores=cores)
    try:
        wait_for_port(port, server, folder / "nginx.log")
        yield f"http://127.0.0.1:{port}/"
    finally:
        process_tree.stop(server)


@contextlib.contextmanager
def php_page(cores):
    """The URL of a page that uses a processor for a millisecond, in one process of PHP."""
    with OneHowdah() as howdah:
        application = {"type": "php", "root": str(BENCH / "pages"), "processes": 1}
        urls = howdah.start({"page": "applications/page"}, cores=cores, applications={"page": application})
        yield f"{urls['page']}/burn.php?ms=1"


def compare_rates(options, folder, url, core):
    """Compares the requests per second of a closed loop, and looks for late requests of an open one."""
    figures = closed_loops(options, folder, url, core)
    late = statistics.median(open_loops(options, folder, url, core))
    ratio = statistics.median(ours["rate"] / theirs["rate"] for theirs, ours in figures)
    print(f"The latencies of a generator at its limit: p50 {difference(figures, 'p50'):+.1%}, p99 {difference(figures, 'p99'):+.1%}")
    yield print_verdict(ratio >= MIN_RATIO, f"{ratio:.2f} of wrk's requests per second; the bar is {MIN_RATIO}")
    yield print_verdict(late < MAX_LATE_SHARE, f"{late:.3%} of {OPEN_RATE:,}/s sent late by itself; the bar is {MAX_LATE_SHARE:.1%}")


def compare_latencies(options, folder, url, core):
    figures = closed_loops(options, folder, url, core)
    for name in ["p50", "p99"]:
        text = f"{name} {difference(figures, name):+.1%}; the bar is {MAX_DIFFERENCE:.0%} of wrk's"
        yield print_verdict(are_close(figures, name), text)


def closed_loops(options, folder, url, core):
    """The figures of wrk and of the lab, a pair for each round. They take turns in which is first."""
    pairs = []
    for number in range(options.rounds):
        measure = {"wrk": lambda: wrk(options, url, core), "lab": lambda: closed_loop(options, folder, url, core)}
        figures = {name: measure[name]() for name in sorted(measure, reverse=number % 2 == 1)}
        pairs.append((figures["wrk"], figures["lab"]))
        print("; ".join(f"{name} {figures[name]['rate']:9,.0f} requests/s, p50 {figures[name]['p50']:.3f} ms, "
                        f"p99 {figures[name]['p99']:.3f} ms" for name in ["wrk", "lab"]), flush=True)
    return pairs


def are_close(pairs, name):
    absolute = statistics.median(abs(ours[name] - theirs[name]) for theirs, ours in pairs)
    return abs(difference(pairs, name)) <= MAX_DIFFERENCE or absolute <= MAX_DIFFERENCE_MS


def difference(pairs, name):
    """The median of the relative differences of ours from theirs."""
    return statistics.median(ours[name] / theirs[name] - 1 for theirs, ours in pairs)


def wrk(options, url, core):
    command = [program("wrk", "wrk"), "-t1", f"-c{options.connections}", f"-d{options.seconds}s",
               "-s", BENCH / "lib/wrk_report.lua", url]
    output = process_tree.output(command, cores=[core])
    report = json.loads(output.partition("RESULT ")[2].partition("\n")[0])
    return {"rate": report["requests"] / (report["microseconds"] / 1e6), "p50": report["p50"] / 1000,
            "p99": report["p99"] / 1000}


def closed_loop(options, folder, url, core):
    run = lab(folder, url, core, {"connections": options.connections, "duration": f"{options.seconds}s"})
    return {"rate": run["requests_per_second"], **{name: run["latency"]["percentiles"][name] for name in ["p50", "p99"]}}


def open_loops(options, folder, url, core):
    """The shares of requests that the generator itself sent late, for each round."""
    shares = []
    for _ in range(options.rounds):
        with stalled_seconds(core) as stalled:
            share = open_loop(options, folder, url, core)
        machine = stalled[0] / options.seconds
        print(f"{OPEN_RATE:,}/s: {share:.3%} sent late; a timer on this core: {machine:.3%}", flush=True)
        shares.append(max(0.0, share - machine))
    return shares


def open_loop(options, folder, url, core):
    """The share of late requests."""
    return lab(folder, url, core, {"schedule": f"const({OPEN_RATE}, {options.seconds}s)"})["generator"]["late_share"]


def lab(folder, url, core, load):
    """The results of the lab's generator against a server that runs already."""
    (folder / "index.php").write_text("<?php\n")
    out = folder / "out"
    server, _, path = url.removeprefix("http://").partition("/")
    plan = {
        "title": "the load generator",
        "application": {"root": str(folder), "php": PHP},
        "stacks": [{"name": "server", "url": f"http://{server}"}],
        "rounds": 1,
        "cores": {"generator": [core]},
        "targets": [f"/{path}"],
        "loads": [{"name": "load", "warm_up": "100ms", **load}],
    }
    (folder / "lab.json").write_text(json.dumps(plan))
    done = subprocess.run([howdah(), "lab", "run", folder / "lab.json", "--out", out], capture_output=True, text=True)
    if done.returncode:
        raise BenchError(done.stderr)
    [run] = json.loads((out / "results.json").read_text())["runs"]
    if run["failed"]:
        raise BenchError(f"failed requests: {run['errors']}")
    return run
