"""The options of bench/run."""

import argparse
import os
import shlex
import sys

from lib import load, pages
from lib.process_tree import BenchError
from lib.workbench import SERVERS


def parse(argv):
    known_pages = [page.name for page in pages.PAGES]
    parser = argparse.ArgumentParser(
        prog="bench/run", description="Measures howdah against nginx + php-fpm; bench/README.md explains the table.")
    parser.add_argument("--pages", type=_list(known_pages), default=known_pages, help=f"of {','.join(known_pages)}")
    parser.add_argument("--symfony", action="store_true", help="examples/symfony as well")
    parser.add_argument("--connections", type=_numbers, default=[20, 100, 1500], help="default 20,100,1500")
    parser.add_argument("--tool", type=_list(load.TOOLS), default=load.TOOLS, help=f"of {','.join(load.TOOLS)}")
    parser.add_argument("--servers", type=_list(list(SERVERS)), default=list(SERVERS), help=f"of {','.join(SERVERS)}")
    parser.add_argument("--rounds", type=int, help="default 5")
    parser.add_argument("--seconds", type=int, help="of each measurement; default 5")
    parser.add_argument("--quick", action="store_true", help="one round of 2 seconds: does it run at all?")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="PHP processes; default: one a core")
    parser.add_argument("--php", default="8.2", help="PHP's version; default 8.2")
    parser.add_argument("--pin", action="store_true", help="half of the cores to the servers, the rest to the load")
    parser.add_argument("--json", default=str(pages.BENCH / "results" / "latest.json"), help="where to write it all")
    parser.add_argument("--check", action="store_true", help="list the bar; exit 1 unless all of it is met")
    parser.add_argument("--keep", action="store_true", help="keep the servers' configuration and logs in /tmp")
    options = parser.parse_args(argv)
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.seconds = options.seconds or (2 if options.quick else 5)
    options.command = shlex.join(["bench/run", *argv])
    if options.symfony and not (pages.SYMFONY / "public" / "index.php").is_file():
        raise BenchError(f"--symfony: {pages.SYMFONY}/public/index.php does not exist")
    if options.check and len(options.servers) < 2:
        raise BenchError("--check compares two servers: leave out --servers")
    return options


def _list(known):
    def parse_list(text):
        chosen = [word.strip() for word in text.split(",") if word.strip()]
        for word in chosen:
            if word not in known:
                raise argparse.ArgumentTypeError(f"{word!r} is none of {', '.join(known)}")
        return chosen
    return parse_list


def _numbers(text):
    return [int(word) for word in text.split(",")]


def fail(error):
    print(f"bench: {error}", file=sys.stderr)
    return 1
