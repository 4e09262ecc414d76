"""The schedule, and one measurement in it.

A cell is a page at a number of connections with a tool. A round measures each cell once on each server, one directly
after the other. The first server alternates from cell to cell and from round to round, so that other load of the
machine affects all servers alike.
"""

import sys
import threading
from dataclasses import asdict, dataclass

from lib import load, process_tree
from lib.pages import Page


@dataclass(frozen=True)
class Cell:
    page: Page
    connections: int
    tool: str

    def __str__(self):
        return f"{self.page.name} c={self.connections} {self.tool}"


def plan(chosen_pages, connections, tools, more=()):
    cells = [Cell(page, count, tool) for tool in tools for page in chosen_pages for count in connections]
    return cells + [cell for cell in more if cell not in cells]


def run(bench, cells, rounds, seconds, samples):
    """Measures, and appends to `samples`, {cell: {server name: [figures of each round]}}, as it goes."""
    _warm_up(bench)
    total = rounds * len(cells) * len(bench.servers)
    done = 0
    for number in range(rounds):
        for index, cell in enumerate(cells):
            order = bench.servers if (number + index) % 2 == 0 else bench.servers[::-1]
            for server in order:
                figures = _measure(bench, server, cell, seconds)
                by_server = samples.setdefault(cell, {each.name: [] for each in bench.servers})
                by_server[server.name].append(figures)
                done += 1
                print(f"[{done}/{total}] round {number + 1}: {cell}: {server.name}: {_brief(figures)}",
                      file=sys.stderr, flush=True)


def _brief(figures):
    parts = [f"{figures['per_second']:,.0f}/s"]
    parts.append("given up" if figures["p99_ms"] is None else f"p99 {figures['p99_ms']:.1f} ms")
    parts += [f"{figures[key]:,} {key}" for key in ("non_2xx", "socket_errors") if figures[key]]
    return ", ".join(parts)


def _warm_up(bench):
    for page in bench.pages:
        for server in bench.servers:
            load.run("wrk", bench.url(server, page), 20, 1, cores=bench.load_cores)


def _measure(bench, server, cell, seconds):
    if cell.page.needs_backends:
        bench.redis.forget_sessions()
    bench.settle(server)
    sampled = []
    sampler = threading.Timer(seconds / 2, lambda: sampled.append(_pss(server)))
    cpu_before = process_tree.cpu_seconds(server.roots)
    figures = load.run(cell.tool, bench.url(server, cell.page), cell.connections, seconds,
                       cores=bench.load_cores, during=sampler.start)
    cpu = process_tree.cpu_seconds(server.roots) - cpu_before
    sampler.cancel()
    sampler.join()
    return {
        **asdict(figures),
        "per_second": figures.good / figures.seconds if figures.seconds else 0.0,
        "cpu_seconds": cpu,
        "cpu_seconds_per_1000": cpu / figures.good * 1000 if figures.good else None,
        "pss_bytes": sampled[0] if sampled else _pss(server),
    }


def _pss(server):
    return process_tree.pss_bytes(process_tree.tree(server.roots))
