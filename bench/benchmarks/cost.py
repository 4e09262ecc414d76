"""The cost of a request: CPU, system calls, context switches and instructions, in the router and in PHP's workers.

Each round measures each server twice with wrk at saturation: first CPU and context switches, then, with perf attached,
system calls and instructions. nginx counts as router, PHP-FPM's children as workers. NGINX Unit takes part if UNIT_PREFIX
names its build.

The bar, for `hello`: at most 10 system calls in the worker and 4 in the router; the CPU of the whole process tree is at
most 0.25 of nginx + PHP-FPM's, and 0.6 of NGINX Unit's.

The bar of worker mode (`--servers howdah,howdah-worker,nginx-fpm`), for `hello` and `json`: at most 0.7 of the CPU of classic
mode, and five times the requests per second of nginx + PHP-FPM; for `symfony`: five times those of classic mode,
and 1.3 times with a kernel that is booted again after each request (`howdah-worker-reboot`). For `hello`: not
above the CPU of Swoole with a dispatching process (`swoole-process`, if SWOOLE names its extension). RoadRunner's workers
(`howdah-roadrunner`): 1.5 times the requests per second of nginx + PHP-FPM. nginx with howdah in the place of PHP-FPM
(`nginx-howdah`): 1.2 times.
"""

import os
import statistics
import sys

from lib import load, pages, process_tree, unit
from lib.options import add_measurement, add_pin, list_of, numbers
from lib.process_tree import BenchError
from lib.thread_counters import INSTRUCTIONS, SYSTEM_CALLS, Counters, PerfStat, system_call_table
from lib.verdict import print_verdict
from lib.workbench import Workbench

MOST_CALLS = {"router": 4, "worker": 10}
MOST_CPU = {"nginx-fpm": 0.25, "unit": 0.6}
SERVERS = ["howdah", "howdah-worker", "howdah-worker-reboot", "howdah-roadrunner", "howdah-fastcgi", "howdah-fastcgi-tcp", "nginx-howdah", "nginx-fpm", "unit", "swoole-process", "swoole-base"]
# Resident applications against another server: (server, page, other server, figure, bar).
RESIDENT = [
    ("howdah-worker", "hello", "howdah", "CPU", 0.7), ("howdah-worker", "hello", "nginx-fpm", "requests per second", 5),
    ("howdah-worker", "hello", "swoole-process", "CPU", 1),
    ("howdah-worker", "json", "howdah", "CPU", 0.7), ("howdah-worker", "json", "nginx-fpm", "requests per second", 5),
    ("howdah-worker", "symfony", "howdah", "requests per second", 5),
    ("howdah-worker-reboot", "symfony", "howdah", "requests per second", 1.3),
    ("howdah-roadrunner", "hello", "nginx-fpm", "requests per second", 1.5),
    ("howdah-roadrunner", "json", "nginx-fpm", "requests per second", 1.5),
    ("nginx-howdah", "hello", "nginx-fpm", "requests per second", 1.2),
    ("nginx-howdah", "json", "nginx-fpm", "requests per second", 1.2),
]
COLUMNS = {"cpu": ("CPU µs", ".1f"), "calls": ("system calls", ".1f"), "switches": ("switches", ".2f"),
           "instructions": ("1,000 instructions", ".1f")}
PHP_PAGES = [page.name for page in pages.PAGES if page.php] + [pages.SYMFONY_PAGE.name]


def add_options(parser):
    parser.add_argument("--pages", type=list_of(PHP_PAGES), default=["hello"], help=f"of {','.join(PHP_PAGES)}")
    parser.add_argument("--connections", type=numbers, default=[20, 100], help="default 20,100")
    add_measurement(parser, rounds=3, seconds=3)
    parser.add_argument("--servers", type=list_of(SERVERS), help=f"of {','.join(SERVERS)}")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="PHP processes; default: one per core")
    parser.add_argument("--names", action="store_true", help="also the system calls by name, of one worker and the router")
    add_pin(parser)


def run(options):
    optional = {name for name in SERVERS if name.startswith(("howdah-", "nginx-howdah", "swoole-"))}
    optional |= set() if unit.prefix_of_unit() else {"unit"}
    names = options.servers or [name for name in SERVERS if name not in optional]
    if "unit" not in names:
        print("NGINX Unit takes no part: UNIT_PREFIX does not name its build (bench/README.md)", file=sys.stderr)
    chosen = pages.by_name(options.pages)
    is_met = True
    with Workbench(names, chosen, php_version=options.php, processes=options.processes, pin=options.pin) as bench:
        for page in chosen:
            for connections in options.connections:
                medians = measure(bench, page, connections, options)
                print_table(page, connections, medians)
                if page.name == "hello":
                    is_met &= judge(connections, medians)
                is_met &= judge_resident(page.name, connections, medians)
            if options.names:
                print_names(bench, page, options)
    return is_met


def measure(bench, page, connections, options):
    """{server: {"per_second": …, role: {column: median}}}"""
    samples = {server.name: [] for server in bench.servers}
    for server in bench.servers:
        load.run("wrk", bench.url(server, page), connections, 1, cores=bench.load_cores)
    for number in range(options.rounds):
        # The first server alternates, so that other load of the machine affects all alike.
        for server in bench.servers if number % 2 == 0 else bench.servers[::-1]:
            bench.settle(server)
            samples[server.name].append(one_round(bench, server, page, connections, options.seconds))
    return {name: median_of(rounds) for name, rounds in samples.items()}


def one_round(bench, server, page, connections, seconds):
    roles = {"router": server.front_processes(), "worker": server.php_workers()}
    if not all(roles.values()):
        raise BenchError(f"{server.name}: no process of one of the roles was found: {roles}")
    roles["all"] = process_tree.tree(server.roots)

    def under_load():
        figures = load.run("wrk", bench.url(server, page), connections, seconds, cores=bench.load_cores)
        if figures.non_2xx or figures.socket_errors or not figures.good:
            raise BenchError(f"{server.name}: {figures.non_2xx} responses are not 2xx, "
                             f"{figures.socket_errors} socket errors")
        return figures

    before = {role: Counters.of(pids) for role, pids in roles.items()}
    figures = under_load()
    spent = {role: Counters.of(pids) - before[role] for role, pids in roles.items()}
    result = {role: {"cpu": counters.cpu_seconds / figures.good * 1e6,
                     "switches": counters.context_switches / figures.good} for role, counters in spent.items()}
    result["per_second"] = figures.good / figures.seconds
    perfs = {role: PerfStat(pids, bench.run_dir) for role, pids in roles.items() if role != "all"}
    try:
        figures = under_load()
    finally:
        counts = {role: perf.stop() for role, perf in perfs.items()}
    for role, events in counts.items():
        if SYSTEM_CALLS in events:
            result[role]["calls"] = events[SYSTEM_CALLS] / figures.good
        if INSTRUCTIONS in events:
            result[role]["instructions"] = events[INSTRUCTIONS] / figures.good / 1000
    return result


def median_of(rounds):
    median = {"per_second": statistics.median(each["per_second"] for each in rounds)}
    for role in ("router", "worker", "all"):
        median[role] = {column: statistics.median(each[role][column] for each in rounds)
                        for column in COLUMNS if all(column in each[role] for each in rounds)}
    return median


def print_table(page, connections, medians):
    print(f"\n{page.name}, {connections} connections, per request (medians)")
    print(f"{'server':17} {'req/s':>8} {'processes':9} " + " ".join(f"{title:>18}" for title, _ in COLUMNS.values()))
    for name, median in medians.items():
        for role in ("router", "worker", "all"):
            cells = (format(median[role][column], form) if column in median[role] else "-"
                     for column, (_, form) in COLUMNS.items())
            per_second = f"{median['per_second']:,.0f}" if role == "router" else ""
            print(f"{name if role == 'router' else '':17} {per_second:>8} {role:9} "
                  + " ".join(f"{cell:>18}" for cell in cells), flush=True)


def print_names(bench, page, options):
    for server in bench.servers:
        for role, pid in (("router", server.front_processes()[0]), ("worker", server.php_workers()[0])):
            tables = []
            load.run("wrk", bench.url(server, page), options.connections[-1], options.seconds + 1,
                     cores=bench.load_cores, during=lambda: tables.append(system_call_table(pid, options.seconds)))
            print(f"\n{server.name}: system calls of a {role} in {options.seconds} s under strace\n{tables[0]}")


def judge(connections, medians):
    ours = medians.get("howdah")
    if not ours:
        return True
    met = []
    for role, most in MOST_CALLS.items():
        calls = ours[role].get("calls")
        measured = "not measured: perf cannot count them here" if calls is None else f"{calls:.1f}"
        met.append(print_verdict(calls is not None and calls <= most,
                                 f"system calls in the {role}: {measured}; the bar is {most}"))
    for name, most in MOST_CPU.items():
        if name in medians:
            ratio = ours["all"]["cpu"] / medians[name]["all"]["cpu"]
            met.append(print_verdict(ratio <= most, f"{connections} connections: {ratio:.2f} of the CPU of {name}; "
                                                    f"the bar is {most}"))
    return all(met)


def judge_resident(page, connections, medians):
    met = []
    for server, its_page, other, figure, bar in RESIDENT:
        if its_page != page or server not in medians or other not in medians:
            continue
        ours = medians[server]
        if figure == "CPU":
            ratio = ours["all"]["cpu"] / medians[other]["all"]["cpu"]
            is_met, limit = ratio <= bar, "at most"
        else:
            ratio = ours["per_second"] / medians[other]["per_second"]
            is_met, limit = ratio >= bar, "at least"
        met.append(print_verdict(is_met, f"{server}, {page}, {connections} connections: {ratio:.2f} of the {figure} of "
                                         f"{other}; the bar is {limit} {bar}"))
    return all(met)
