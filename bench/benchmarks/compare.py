"""howdah against nginx + php-fpm on the same scripts: req/s, latency, errors, CPU, memory.

bench/README.md explains the columns of the table and the bar of --check. `bench/run` is an alias of this benchmark.
"""

import os
import sys

from lib import bar, load, pages, report, rounds, verify
from lib.options import add_pin, list_of, numbers
from lib.process_tree import BenchError
from lib.workbench import SERVERS, Workbench

ROUNDS, SECONDS = 5, 5
QUICK_ROUNDS, QUICK_SECONDS = 1, 2


def add_options(parser):
    known_pages = [page.name for page in pages.PAGES]
    parser.add_argument("--pages", type=list_of(known_pages), default=known_pages, help=f"of {','.join(known_pages)}")
    parser.add_argument("--symfony", action="store_true", help="examples/symfony as well")
    parser.add_argument("--connections", type=numbers, default=[20, 100, 1500], help="default 20,100,1500")
    parser.add_argument("--tool", type=list_of(load.TOOLS), default=load.TOOLS, help=f"of {','.join(load.TOOLS)}")
    parser.add_argument("--servers", type=list_of(list(SERVERS)), default=list(SERVERS), help=f"of {','.join(SERVERS)}")
    parser.add_argument("--rounds", type=int, help=f"default {ROUNDS}")
    parser.add_argument("--seconds", type=int, help=f"of each measurement; default {SECONDS}")
    parser.add_argument("--quick", action="store_true",
                        help=f"{QUICK_ROUNDS} round of {QUICK_SECONDS} seconds: does it run?")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="PHP processes; default: one per core")
    add_pin(parser)
    parser.add_argument("--json", default=str(pages.BENCH / "results" / "latest.json"), help="the file of all figures")
    parser.add_argument("--check", action="store_true", help="print the bar; exit 1 unless all of it is met")
    parser.add_argument("--keep", action="store_true", help="keep the servers' configuration and logs in /tmp")


def run(options):
    options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    options.seconds = options.seconds or (QUICK_SECONDS if options.quick else SECONDS)
    if options.symfony and not (pages.SYMFONY / "public" / "index.php").is_file():
        raise BenchError(f"--symfony: {pages.SYMFONY}/public/index.php does not exist")
    if options.check and len(options.servers) < 2:
        raise BenchError("--check compares two servers: leave out --servers")
    chosen = pages.by_name(options.pages, options.symfony)
    cells = rounds.plan(chosen, options.connections, options.tool, bar.needed_cells(chosen) if options.check else [])
    samples, interrupted = {}, False
    with Workbench(options.servers, chosen, php_version=options.php, processes=options.processes,
                   pin=options.pin, keep=options.keep) as bench:
        if options.keep:
            print(f"bench: keeping everything in {bench.run_dir}", file=sys.stderr)
        document = report.circumstances(bench, verify.servers_alike(bench), options)
        try:
            rounds.run(bench, cells, options.rounds, options.seconds, samples)
        except KeyboardInterrupt:
            interrupted = True
    summary = report.summarise(samples)
    verdicts = bar.judge(summary) if options.check else []
    print(report.table(summary))
    if verdicts:
        print("\nThe bar:", *verdicts, sep="\n")
    report.write_json(options.json, document | {
        "interrupted": interrupted, "cells": summary, "bar": [vars(verdict) for verdict in verdicts]})
    if interrupted:
        raise KeyboardInterrupt
    return all(verdict.met for verdict in verdicts)
