"""Growth of howdah in ten minutes at half its capacity, with scripts that leak, crash, hang and succeed.

The benchmark samples memory and descriptors of the router and the supervisor, and the 99th percentile of the good page.
The bar: their median in the last third equals that of the first within 10 % (memory: or 4 MiB). The first minute and a
half does not count: by then no worker has leaked enough to be replaced.
"""

import os
import statistics
import sys
import threading
import time
from pathlib import Path

from lib import process_tree
from lib.lab import load
from lib.one_howdah import OneHowdah
from lib.verdict import word

# leak.php leaks 10 MB per second into about 80 workers: after 90 seconds they are replaced as fast as they grow.
LEAK_LIMIT, STEADY_AFTER_SECONDS = "8M", 90
SAMPLE_SECONDS = 5
# Requests per second of the other pages.
RATES = {"leak.php": 20, "crash.php": 2, "slow.php": 2, "hang.php": 0.5}
CONNECTIONS = 400

PAGES = {
    "good.php": "<?php usleep(2000); echo 'good';",
    # PHP frees its own memory after a request, but not the memory of a C library.
    "leak.php": "<?php $c = FFI::cdef('void *malloc(size_t); void *memset(void *, int, size_t);'); "
                "$c->memset($c->malloc(500000), 7, 500000); echo 'leaked';",
    "crash.php": "<?php posix_kill(getpid(), SIGSEGV); sleep(1);",
    "slow.php": "<?php sleep(2); echo 'slow';",
    "hang.php": "<?php while (true) { usleep(1000); }",
}


def add_options(parser):
    parser.add_argument("--seconds", type=int, default=600, help="default 600")
    parser.add_argument("--verbose", action="store_true", help="print p99 and the number of workers every five seconds")


def run(options):
    with OneHowdah() as howdah:
        howdah.write_files(PAGES)
        base = howdah.start({"soak": "applications/soak"}, applications={"soak": {
            "type": "php", "root": str(howdah.folder),
            "limits": {"timeout": 3, "memory": LEAK_LIMIT},
            "options": {"admin": {"ffi.enable": "1"}},
        }})["soak"]
        rate = load(f"{base}/good.php", connections=20, seconds=3).per_second / 2
        print(f"good.php at {rate:.0f}/s for {options.seconds} s", file=sys.stderr)
        router = process_tree.titled([howdah.process.pid], "howdah: router")[0]
        others = [threading.Thread(target=send, args=(f"{base}/{page}", per_second, options.seconds))
                  for page, per_second in RATES.items()]
        for thread in others:
            thread.start()
        samples, tallies = [], []
        began, until = time.monotonic(), time.monotonic() + options.seconds
        while time.monotonic() < until:
            is_steady = time.monotonic() - began > STEADY_AFTER_SECONDS
            tally = send(f"{base}/good.php", f"{rate:.0f}", SAMPLE_SECONDS)
            if is_steady or options.seconds < 2 * STEADY_AFTER_SECONDS:
                tallies.append(tally)
                samples.append(measure(howdah.process, router))
            if options.verbose:
                print(f"p99 {tally['latency']['percentiles']['p99']:.1f} ms, {worker_count(howdah.process)} workers", file=sys.stderr)
        for thread in others:
            thread.join()
    return report(samples, tallies)


def send(url, rate, seconds):
    return load(url, schedule=f"const({rate}, {seconds}s)", connections=CONNECTIONS, timeout=60).report


def measure(process, router):
    def resident(pid):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096

    return {
        "supervisor memory": resident(process.pid), "router memory": resident(router),
        "supervisor descriptors": len(os.listdir(f"/proc/{process.pid}/fd")),
        "router descriptors": len(os.listdir(f"/proc/{router}/fd")),
    }


def worker_count(process):
    return sum(process_tree.title(pid).endswith(" worker") for pid in process_tree.tree([process.pid]))


def report(samples, tallies):
    third = max(1, len(samples) // 3)
    met = True

    def judge(name, values, slack, unit, scale=1.0):
        nonlocal met
        first, last = statistics.median(values[:third]), statistics.median(values[-third:])
        is_met = last <= max(first * 1.1, first + slack)
        met = met and is_met
        print(f"{name:26}{first / scale:10.1f} {last / scale:10.1f} {unit:4} {word(is_met)}")

    print(f"{'median of a third':26}{'first':>10} {'last':>10}")
    for name in samples[0]:
        is_memory = name.endswith("memory")
        judge(name, [sample[name] for sample in samples], (4 << 20) if is_memory else 4, "MiB" if is_memory else "",
              float(1 << 20) if is_memory else 1.0)
    judge("p99 of good.php", [tally["latency"]["percentiles"]["p99"] for tally in tallies], 2.0, "ms")
    failed = {}
    for tally in tallies:
        for kind, count in tally["errors"].items():
            failed[kind] = failed.get(kind, 0) + count
    right = sum(tally["right"] for tally in tallies)
    print(f"good.php: {right} right, failed: {failed or 'none'}", word(True) if not failed else "(not all right)")
    return met

