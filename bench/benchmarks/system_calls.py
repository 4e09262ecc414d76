"""The system calls by name, of one process that reads connections and of one that runs PHP, under strace.

strace slows a process several times: `cost` counts calls without it. Without a bar.
"""

import shutil
import subprocess

from lib.lab import load, serve
from lib.options import list_of
from lib.process_tree import BenchError


def add_options(parser):
    parser.add_argument("--server", default="howdah", help="a stack of bench/cost.lab.json; default howdah")
    parser.add_argument("--pages", type=list_of(["hello", "json", "phpinfo", "loop"]), default=["hello"], help="default hello")
    parser.add_argument("--connections", type=int, default=100, help="default 100")
    parser.add_argument("--seconds", type=int, default=3, help="default 3")


def run(options):
    if not shutil.which("strace"):
        raise BenchError("strace is not installed: apt-get install strace")
    with serve(options.server) as server:
        for page in options.pages:
            for role, pids in server.processes.items():
                tables = []
                load(f"{server.url}/{page}.php", connections=options.connections, seconds=options.seconds + 1,
                     during=lambda: tables.append(table(pids[0], options.seconds)))
                print(f"\n{options.server}, {page}: system calls of a process of {role} in {options.seconds} s under strace\n{tables[0]}", flush=True)
    return True


def table(pid, seconds):
    """The table that strace -c prints for a process, after some seconds."""
    done = subprocess.run(["timeout", "-s", "INT", str(seconds), "strace", "-c", "-f", "-p", str(pid)], capture_output=True, text=True)
    return "\n".join(line for line in done.stderr.splitlines() if not line.startswith("strace: Process"))
