"""Memory of a worker after 1,000, 5,000 and 10,000 requests of each page. The bar: flat.

Flat: between the first step and the last request the unique set size (USS) grows by less than 256 KiB, which is 29 bytes
per request, and the resident set size, which also counts pages of shared memory touched for the first time, by less
than 2 MiB; and the worker is still the same process. The resident set size
of the other processes of the server (howdah's router and supervisor) grows by less than 2 MiB, too.

The bar of resident applications: `--server howdah-worker --pages hello,json --steps 50000,500000` with two workers, which
are a million requests, and `--server howdah-roadrunner`.
"""

import os

from lib import load, pages, process_tree
from lib.options import list_of, numbers
from lib.process_tree import BenchError
from lib.verdict import print_verdict
from lib.workbench import PEERS, SERVERS, Workbench

STEPS = [1_000, 5_000, 10_000]
CONNECTIONS = 20
USS_GROWTH_BYTES, RSS_GROWTH_BYTES = 256 * 1024, 2 * 2**20
PHP_PAGES = [page.name for page in pages.PAGES if page.php]


def add_options(parser):
    parser.add_argument("--pages", type=list_of(PHP_PAGES), default=PHP_PAGES, help=f"of {','.join(PHP_PAGES)}")
    parser.add_argument("--server", choices=list(SERVERS | PEERS), default="howdah")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="PHP processes; default: one per core")
    parser.add_argument("--steps", type=numbers, default=STEPS, help="requests of each worker; default 1000,5000,10000")


def run(options):
    chosen = pages.by_name(options.pages)
    is_flat = True
    with Workbench([options.server], chosen, php_version=options.php, processes=options.processes) as bench:
        print(f"{'page':8} {'process':>8} {'requests':>9} {'RSS KiB':>9} {'PSS KiB':>9} {'USS KiB':>9}")
        for page in chosen:
            is_flat &= measure(bench, bench.servers[0], page, options.steps)
    return print_verdict(is_flat, "flat")


def measure(bench, server, page, steps):
    """`step` requests for each worker on average: the server distributes them."""
    first, done = None, 0
    for step in steps:
        share = (step - done) * len(server.php_workers())
        figures = load.run("ab", bench.url(server, page), CONNECTIONS, 0, requests=share)
        done = step
        if figures.non_2xx or figures.socket_errors:
            print(f"{page.name}: of {share} responses, {figures.non_2xx} are not 2xx; "
                  f"{figures.socket_errors} socket errors")
        bench.settle(server)
        processes = {*server.php_workers(), *server.front_processes(), *server.roots}
        sizes = {pid: size for pid in sorted(processes) if (size := process_tree.memory(pid))}
        if not sizes.keys() & set(server.php_workers()):
            raise BenchError(f"{server.name}: no PHP worker was found, or none can be read")
        first = first or sizes
        for pid, size in sizes.items():
            print(f"{page.name:8} {pid:8} {step:9,} {size['rss'] // 1024:9,} {size['pss'] // 1024:9,} "
                  f"{size['uss'] // 1024:9,}", flush=True)
    return flat(page, server.php_workers(), first, sizes)


def flat(page, workers, first, last):
    if first.keys() != last.keys():
        print(f"{page.name}: processes were replaced: {sorted(first)} by {sorted(last)}")
        return False
    growing = [pid for pid in last
               if pid in workers and last[pid]["uss"] - first[pid]["uss"] >= USS_GROWTH_BYTES
               or last[pid]["rss"] - first[pid]["rss"] >= RSS_GROWTH_BYTES]
    for pid in growing:
        print(f"{page.name}: process {pid} grew by {(last[pid]['uss'] - first[pid]['uss']) // 1024} KiB USS, "
              f"{(last[pid]['rss'] - first[pid]['rss']) // 1024} KiB RSS")
    return not growing

