"""howdah without a process setting against constant numbers of workers, in closed loop, on the cores of the load.

One howdah has an application for each number, and one without a number; all have the same pages. A cell is a page and a
number of connections that wrk keeps busy. In each round, the applications of a cell are measured one after the other,
each after a run that is not counted: SETTLE_SECONDS for `auto`, which has until the third second. Its workers stay from
cell to cell, so each cell also follows the burst of the one before.
"""

import statistics
import sys

from lib import load, process_tree
from lib.one_howdah import OneHowdah
from lib.pages import BENCH
from lib.verdict import print_verdict

SHARE = 0.95
SETTLE_SECONDS, WARM_SECONDS = 3, 1
NUMBERS = [1, 2, 3, 4, 8, 16, 32, 64, 128]
CONNECTIONS = [8, 20, 100, 500]
# Pages that only compute have at most this number of workers more than cores.
MORE_THAN_CORES = 2

SLEEP = "<?php usleep({}); echo 'done';"
OWN_PAGES = {
    "sleep5": SLEEP.format(5000),
    "sleep50": SLEEP.format(50000),
    "half": "<?php if (mt_rand(0, 1)) { usleep(5000); } echo 'done';",
}
COMPUTING = ["hello", "json", "loop"]
PAGES = ["hello", "json", "phpinfo", "loop", *OWN_PAGES]


def measure(options, cores):
    """Prints a line for each cell. Returns whether the bar is met in all of them."""
    names = ["auto", *map(str, options.numbers)]
    with OneHowdah(options.php) as howdah:
        howdah.write_files({f"{page}.php": text(page) for page in options.pages})
        applications = {name: {"type": "php", "root": str(howdah.folder)} for name in names}
        for name in names[1:]:
            applications[name]["processes"] = int(name)
        urls = howdah.start({name: f"applications/{name}" for name in names}, applications=applications)
        print(f"{'requests/s':16}" + "".join(f"{name:>9}" for name in names), flush=True)
        lost = []
        for page in options.pages:
            for connections in options.connections:
                cell = Cell(howdah, urls, page, connections)
                for number in range(options.rounds):
                    cell.play(options.seconds, backwards=number % 2 == 1)
                if not cell.report(names, cores):
                    lost.append(f"{page} at {connections}")
    what = f"at least {SHARE} of the best number, and few workers for pages that compute"
    return print_verdict(not lost, what + (f"; lost: {', '.join(lost)}" if lost else ""))


def text(page):
    return OWN_PAGES.get(page) or (BENCH / "pages" / f"{page}.php").read_text()


class Cell:
    def __init__(self, howdah, urls, page, connections):
        self.howdah = howdah
        self.urls = {name: f"{url}/{page}.php" for name, url in urls.items()}
        self.page, self.connections = page, connections
        self.samples = {name: [] for name in urls}
        self.workers = []

    def play(self, seconds, *, backwards):
        for name in sorted(self.urls, reverse=backwards):
            settle = SETTLE_SECONDS if name == "auto" else WARM_SECONDS
            load.throughput(self.urls[name], self.connections, settle)
            self.samples[name].append(load.throughput(self.urls[name], self.connections, seconds))
            if name == "auto":
                self.workers.append(self._count_workers())

    def report(self, names, cores):
        """Prints the cell's line. Returns whether its bar is met."""
        medians = {name: statistics.median(self.samples[name]) for name in names}
        ratio = medians["auto"] / max(medians[name] for name in names[1:])
        workers = statistics.median(self.workers)
        print(f"{self.page:10}{self.connections:6}" + "".join(f"{medians[name]:9.0f}" for name in names)
              + f"  {ratio:.2f} of the best, {workers:.0f} workers", flush=True)
        if ratio < SHARE:
            print(f"    samples: {self.samples}", file=sys.stderr)
        return ratio >= SHARE and (self.page not in COMPUTING or workers <= cores + MORE_THAN_CORES)

    def _count_workers(self):
        return len(process_tree.titled([self.howdah.process.pid], 'howdah: "auto" worker'))
