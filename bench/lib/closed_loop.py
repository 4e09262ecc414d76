"""Clients that come again as soon as they have an answer, many of them: who is answered, and with what?

Servers, PHP and clients share all cores, as in the first test that every team makes. Each server is measured directly after
its start (its opcache is empty, and no rate is known) and once more, warm. The other servers of one cell are measured
in turn with howdah.
"""

import itertools
import statistics
import sys
from dataclasses import dataclass

from lib import load, unit
from lib.pages import Page
from lib.verdict import print_verdict
from lib.workbench import Workbench

PAGES = {
    "cpu1": Page("cpu1", "/burn.php?ms=1", bytes),
    "cpu10": Page("cpu10", "/burn.php?ms=10", bytes),
    "cpu50": Page("cpu50", "/burn.php?ms=50", bytes),
    "sleep50": Page("sleep50", "/sleep.php?ms=50", bytes),
}
SHARE = 0.97
# howdah's limits/queue_timeout, in seconds, and how much of it the clients may need without an error.
QUEUE_TIMEOUT, NEEDED = 10, 0.9


@dataclass(frozen=True)
class Cell:
    page: str
    clients: int
    start: str

    def __str__(self):
        return f"{self.page}, {self.clients} clients, {self.start}"


def measure(options):
    """Measures all cells, prints them, and returns whether the bar is met."""
    servers = ["nginx-fpm", "unit", "howdah"]
    if not unit.prefix_of_unit():
        servers.remove("unit")
        print("NGINX Unit takes no part: UNIT_PREFIX does not name its build (bench/README.md)", file=sys.stderr)
    samples = {}
    for _ in range(options.rounds):
        for page, clients in itertools.product(options.pages, options.clients):
            for server in servers:
                with Workbench([server], [], php_version=options.php, processes=options.processes[server]) as bench:
                    for start in ("cold", "warm"):
                        figures = load.run("wrk", bench.url(bench.servers[0], PAGES[page]), clients, options.seconds)
                        samples.setdefault(Cell(page, clients, start), {}).setdefault(server, []).append(figures)
                        bench.settle(bench.servers[0])
            print(f"bench: {page}, {clients} clients", file=sys.stderr)
    return all([_judge(cell, by_server) for cell, by_server in samples.items()])


def _judge(cell, by_server):
    good = {server: statistics.median(figures.good / figures.seconds for figures in all_figures)
            for server, all_figures in by_server.items()}
    errors = {server: sum(figures.non_2xx + figures.socket_errors for figures in all_figures)
              for server, all_figures in by_server.items()}
    best = max((server for server in good if server != "howdah"), key=good.get)
    share = good["howdah"] / max(1e-9, good[best])
    must_be_clean = cell.clients / max(1e-9, good["howdah"]) < QUEUE_TIMEOUT * NEEDED
    is_met = share >= SHARE and not (must_be_clean and errors["howdah"])
    others = ", ".join(f"{server} {good[server]:.0f}/s and {errors[server]}" for server in good if server != "howdah")
    return print_verdict(is_met, f"{cell}: {good['howdah']:.0f}/s, {share:.2f} of {best}; errors: {errors['howdah']} "
                                 f"({others})")
