"""Memory of a worker after 1,000, 5,000 and 10,000 requests of each page. The bar: flat.

Flat: between the first step and the last request the unique set size (USS) grows by less than 256 KiB, which is 29 bytes
per request, and the resident set size, which also counts pages of shared memory touched for the first time, by less
than 2 MiB; and the worker is still the same process. The resident set size
of the other processes of the server (howdah's router and supervisor) grows by less than 2 MiB, too.

The bar of resident applications: `--server howdah-worker --pages hello,json --steps 50000,500000` with two workers, which
are a million requests, and `--server howdah-roadrunner`.
"""

import json

from lib import process_tree
from lib.lab import BENCH, load, serve
from lib.options import list_of, numbers
from lib.process_tree import BenchError
from lib.verdict import print_verdict

STEPS = [1_000, 5_000, 10_000]
CONNECTIONS = 20
USS_GROWTH_BYTES, RSS_GROWTH_BYTES = 256 * 1024, 2 * 2**20
PAGES = ["hello", "json", "phpinfo", "loop", "session"]


def stacks():
    names = (stack if isinstance(stack, str) else stack["name"]
             for stack in json.loads((BENCH / "cost.lab.json").read_text())["stacks"])
    return list(names)


def add_options(parser):
    parser.add_argument("--pages", type=list_of(PAGES), default=PAGES, help=f"of {','.join(PAGES)}")
    parser.add_argument("--server", choices=stacks(), default="howdah")
    parser.add_argument("--processes", type=int, help="PHP processes; default: one per core")
    parser.add_argument("--steps", type=numbers, default=STEPS, help="requests of each worker; default 1000,5000,10000")


def run(options):
    is_flat = True
    print(f"{'page':8} {'process':>8} {'requests':>9} {'RSS KiB':>9} {'PSS KiB':>9} {'USS KiB':>9}", flush=True)
    # The lab of the session page has howdah and nginx-fpm only, and a database.
    for lab, pages in (("cost", [page for page in options.pages if page != "session"]),
                       ("session", [page for page in options.pages if page == "session"])):
        if pages and (lab == "cost" or options.server in ("howdah", "nginx-fpm")):
            with serve(options.server, lab=lab, workers=options.processes) as server:
                for page in pages:
                    is_flat &= measure(server, page, options.steps)
    return print_verdict(is_flat, "flat")


def measure(server, page, steps):
    """`step` requests for each worker on average: the server distributes them."""
    workers, first, done = server.processes.get("php", []), None, 0
    for step in steps:
        share = (step - done) * len(workers)
        figures = load(f"{server.url}/{page}.php", connections=CONNECTIONS, requests=share)
        done = step
        if figures.failed:
            print(f"{page}: of {share} requests, {figures.failed} failed: {figures.report['errors']}")
        server.settle()
        processes = {*workers, *server.processes.get("front", []), *server.roots}
        sizes = {pid: size for pid in sorted(processes) if (size := process_tree.memory(pid))}
        if not sizes.keys() & set(workers):
            raise BenchError(f"no PHP worker was found, or none can be read: {server.processes}")
        first = first or sizes
        for pid, size in sizes.items():
            print(f"{page:8} {pid:8} {step:9,} {size['rss'] // 1024:9,} {size['pss'] // 1024:9,} "
                  f"{size['uss'] // 1024:9,}", flush=True)
    return flat(page, workers, first, sizes)


def flat(page, workers, first, last):
    if first.keys() != last.keys():
        print(f"{page}: processes were replaced: {sorted(first)} by {sorted(last)}")
        return False
    growing = [pid for pid in last
               if pid in workers and last[pid]["uss"] - first[pid]["uss"] >= USS_GROWTH_BYTES
               or last[pid]["rss"] - first[pid]["rss"] >= RSS_GROWTH_BYTES]
    for pid in growing:
        print(f"{page}: process {pid} grew by {(last[pid]['uss'] - first[pid]['uss']) // 1024} KiB USS, "
              f"{(last[pid]['rss'] - first[pid]['rss']) // 1024} KiB RSS")
    return not growing
