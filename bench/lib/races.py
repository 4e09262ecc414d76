"""The races: each chooses stacks and loads of one or two lab files, and leaves the rest to `howdah lab run`."""

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from lib.lab import BENCH, executable
from lib.options import list_of, numbers
from lib.process_tree import BenchError

RESULTS = BENCH / "results"
# Loads are named PAGE-CONNECTIONS, and PAGE-CONNECTIONS-new for a new connection for each request, as ab makes them.
TOOLS = {"wrk": "", "ab": "-new"}


@dataclass(frozen=True)
class Race:
    question: str
    labs: tuple[str, ...]
    # The stacks of a lab without --servers, if they are not all of it.
    stacks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    has_grid: bool = True

    def help(self) -> str:
        files = " and ".join(f"bench/{lab}.lab.json" for lab in self.labs)
        return f"{self.question}\n\n`howdah lab run` with {files}: the bar is in there. Each option chooses from it."

    def add_options(self, parser) -> None:
        parser.add_argument("--servers", type=list_of(self._known("stacks")), help=f"of {','.join(self._known('stacks'))}")
        parser.add_argument("--loads", type=list_of(self._known("loads")), help="loads of the lab by their names")
        if self.has_grid:
            parser.add_argument("--pages", type=list_of(self._pages()), help=f"of {','.join(self._pages())}")
            parser.add_argument("--connections", type=numbers, help="numbers of clients that the lab has, such as 20,100")
            parser.add_argument("--tool", type=list_of([*TOOLS, "ab-k"]), default=["wrk", "ab"],
                                help="wrk: connections are kept; ab: a new one for each request")
        parser.add_argument("--rounds", type=int, help="instead of the lab's")
        parser.add_argument("--seconds", type=float, help="of each load, instead of the lab's")
        parser.add_argument("--processes", type=int, default=None, help="PHP processes; default: one per core")
        parser.add_argument("--pin", action="store_true", help="half of the cores to the servers, the rest to the load")
        parser.add_argument("--quick", action="store_true", help="the lab's short form: does it run?")
        parser.add_argument("--check", action="store_true", help="exit 1 unless all of the bar is met")
        parser.add_argument("--json", type=Path, help=f"the file of all figures; default {RESULTS}/LAB/results.json")

    def run(self, options) -> bool:
        met = True
        chosen = [(lab, loads) for lab in self.labs if (loads := self._loads(lab, options))]
        if not chosen:
            raise BenchError("the lab has no such load")
        for lab, loads in chosen:
            met &= self._run(lab, loads, options)
        return met

    def _run(self, lab, loads, options) -> bool:
        out = RESULTS / lab
        command = [str(executable()), "lab", "run", str(BENCH / f"{lab}.lab.json"), "--out", str(out), "--loads", ",".join(loads)]
        stacks = options.servers or self.stacks.get(lab)
        if stacks:
            here = [_name(stack) for stack in _content(lab)["stacks"]]
            command += ["--stacks", ",".join(name for name in stacks if name in here)]
        for name, value in (("--rounds", options.rounds), ("--workers", options.processes)):
            command += [name, str(value)] if value else []
        command += ["--duration", f"{options.seconds * 1000:.0f}ms"] if options.seconds else []
        command += ["--quick"] if options.quick else []
        command += ["--check"] if options.check else []
        command += pinned() if options.pin else []
        print("$", " ".join(command), flush=True)
        # Ctrl-C reaches it as well: it stops everything and writes what it has.
        with subprocess.Popen(command) as process:
            try:
                code = process.wait()
            except KeyboardInterrupt:
                process.wait()
                raise
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text((out / "results.json").read_text())
        return code == 0

    def _loads(self, lab, options) -> list[str]:
        names = [load["name"] for load in _content(lab)["loads"]]
        if options.loads:
            return [name for name in names if name in options.loads]
        if not self.has_grid:
            return names
        ends = [TOOLS.get(tool, "") for tool in options.tool]

        def is_chosen(name):
            page, clients, *rest = name.split("-")
            end = "".join(f"-{word}" for word in rest)
            is_page = options.pages is None or page in options.pages
            if clients == "ab":  # the one load with a number of requests
                return is_page and (options.check or ("-new" in ends and _has(options.connections, 1500)))
            return is_page and _has(options.connections, int(clients)) and (end not in TOOLS.values() or end in ends)

        return [name for name in names if is_chosen(name)]

    def _known(self, part) -> list[str]:
        return list(dict.fromkeys(_name(item) for lab in self.labs for item in _content(lab)[part]))

    def _pages(self) -> list[str]:
        return list(dict.fromkeys(name.split("-")[0] for name in self._known("loads")))


RACES = {
    "compare": Race("Is howdah faster than nginx + PHP-FPM, and does it fail less?", ("compare", "session")),
    "cost": Race("What does a request cost in CPU, switches and system calls, in the front and in PHP's processes?",
                 ("cost", "symfony"), stacks={"cost": ("howdah", "nginx-fpm", "unit")}),
    "async_mode": Race("Does async mode with two processes answer as many waiting requests as worker mode with any number?", ("async",)),
    "overload": Race("How much of three times the capacity is answered, how fast, and how is the rest rejected?", ("overload",), has_grid=False),
    "overload_closed": Race("Who is answered when up to 3,000 clients come again at once?", ("overload-closed",)),
    "process_manager": Race("Is howdah without a process setting as good as the best of three FPM pools?", ("pools",), has_grid=False),
    "process_numbers": Race("Is it as good as the best of nine constant numbers of workers?", ("numbers",)),
}


def pinned() -> list[str]:
    """The stacks' cores and the load generator's: half each."""
    cores = [str(core) for core in sorted(os.sched_getaffinity(0))]
    if len(cores) < 2:
        raise BenchError("--pin needs at least two cores")
    half = (len(cores) + 1) // 2
    return ["--stack-cores", ",".join(cores[:half]), "--generator-cores", ",".join(cores[half:])]


def _content(lab) -> dict:
    return json.loads((BENCH / f"{lab}.lab.json").read_text())


def _name(item) -> str:
    return item if isinstance(item, str) else item["name"]


def _has(chosen, number) -> bool:
    return chosen is None or number in chosen
