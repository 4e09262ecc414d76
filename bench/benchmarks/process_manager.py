"""howdah without a process setting against nginx + php-fpm with three pools: static 4, static 80, dynamic 80.

Each column is a load at constant rates (howdah-load: a request's time counts from when it was due), sent to one server
after the other, several times in turn. The bar, for each column: the 99th percentile of the responses 200 and their
share are at least as good as those of the best of the three pools, within 5 %.

With `--numbers`, another part: howdah without a process setting against howdah with constant numbers of workers, in closed
loop (wrk) on the same cores. The bar, for each page and number of connections: at least 0.95 of the requests per second of
the best number, from the third second on. All cells take about three hours; choose some.
"""

import contextlib
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from lib import fixed_numbers, load, php_config
from lib.howdah import Howdah
from lib.nginx_fpm import NginxFpm
from lib.options import add_measurement, add_pin, list_of, numbers
from lib.pages import Site
from lib.verdict import word
from lib.workbench import placement, raise_file_limit

TOLERANCE = 1.05
# Precision of a sleeping process in milliseconds: a smaller difference is no difference.
GRAIN_MS = 1.0

PAGES = {
    # Some milliseconds of CPU.
    "cpu.php": "<?php $x = 0; for ($i = 0; $i < 150000; $i++) { $x = ($x * 31 + $i) % 1000003; } echo \"done $x\";",
    "quick.php": "<?php $x = 0; for ($i = 0; $i < 15000; $i++) { $x = ($x * 31 + $i) % 1000003; } echo \"done $x\";",
    # A slow database.
    "sleep.php": "<?php usleep(50000); echo 'done';",
}


class Static4(NginxFpm):
    name = "fpm static 4"

    def pool(self, _):
        return "pm = static\npm.max_children = 4"


class Static80(NginxFpm):
    name = "fpm static 80"

    def pool(self, _):
        return "pm = static\npm.max_children = 80"


class Dynamic80(NginxFpm):
    name = "fpm dynamic 80"

    def pool(self, _):
        return ("pm = dynamic\npm.max_children = 80\npm.start_servers = 10\n"
                "pm.min_spare_servers = 5\npm.max_spare_servers = 20")


class Automatic(Howdah):
    name = "howdah"

    def _config(self, sites, php, processes, environment):
        config = super()._config(sites, php, processes, environment)
        del config["applications"]["bench"]["processes"]
        return config


SERVERS = [Automatic, Static4, Static80, Dynamic80]


def columns(capacity, seconds):
    """The steps and the pages of each column. `capacity`: the requests of cpu.php per second that the machine can do."""
    return {
        "cpu": ([f"{capacity * 0.6:.0f}:{seconds}"], ["cpu.php"]),
        "sleep 50 ms": ([f"400:{seconds}"], ["sleep.php"]),
        "mixed 90/10": ([f"{capacity * 1.5:.0f}:{seconds}"], ["9=quick.php", "sleep.php"]),
        "burst to 1,500": (["100:1", "15000:0.1", f"100:{seconds}"], ["9=quick.php", "sleep.php"]),
    }


def add_options(parser):
    add_measurement(parser, rounds=9, seconds=3)
    add_pin(parser)
    parser.add_argument("--only", default="", metavar="TEXT", help="only columns with TEXT in their names")
    parser.add_argument("--json", type=Path, help="the file of all samples")
    parser.add_argument("--numbers", type=numbers, nargs="?", const=fixed_numbers.NUMBERS, metavar="N,…",
                        help=f"against constant numbers; default {','.join(map(str, fixed_numbers.NUMBERS))}")
    parser.add_argument("--pages", type=list_of(fixed_numbers.PAGES), default=fixed_numbers.PAGES,
                        help=f"with --numbers: of {','.join(fixed_numbers.PAGES)}")
    parser.add_argument("--connections", type=numbers, default=fixed_numbers.CONNECTIONS,
                        help=f"with --numbers; default {','.join(map(str, fixed_numbers.CONNECTIONS))}")


def run(options):
    if options.numbers:
        return fixed_numbers.measure(options, len(os.sched_getaffinity(0)))
    raise_file_limit()
    server_cores, load_cores = placement() if options.pin else (None, None)
    with contextlib.ExitStack() as stack:
        servers = start_servers(stack, options.php, server_cores)
        capacity = load.throughput(f"{base_url(servers[1])}/cpu.php", 8, 3, cores=load_cores, may_fail=True)
        print(f"cpu.php: {capacity:.0f}/s at most", file=sys.stderr)
        samples = {}
        for number in range(options.rounds):
            for column, (steps, pages) in columns(capacity, options.seconds).items():
                if options.only not in column:
                    continue
                for server in servers if number % 2 == 0 else reversed(servers):
                    sample = send(server, steps, pages, load_cores)
                    samples.setdefault(column, {}).setdefault(server.name, []).append(sample)
    met = report(samples)
    if options.json:
        options.json.write_text(json.dumps({"capacity": capacity, "samples": samples}, indent=1) + "\n")
    return met


def start_servers(stack, php_version, cores):
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="howdah-bench-")))
    folder.chmod(0o755)
    root = folder / "www"
    root.mkdir()
    for name, text in PAGES.items():
        (root / name).write_text(text)
    php = php_config.write(folder, php_version, None)
    site = Site("plain", root, None)
    servers = []
    for kind in SERVERS:
        run_dir = folder / kind.name.replace(" ", "-")
        run_dir.mkdir()
        run_dir.chmod(0o755)
        servers.append(kind(run_dir, stack, [site], php, 4, {"APP_ENV": "prod"}, cores))
    return servers


def base_url(server):
    return f"http://127.0.0.1:{server.ports['plain']}"


def send(server, steps, pages, cores):
    """`pages` are names with an optional weight, as in "9=quick.php"."""
    urls = ["=".join([*page.split("=")[:-1], f"{base_url(server)}/{page.split('=')[-1]}"]) for page in pages]
    result = load.at_constant_rates(urls, steps, connections=1500, expect="done", cores=cores)
    return {"share": result["outcomes"].get("200", 0) / result["requests"],
            "p99": result["ok"]["p99"] if result["ok"] else float("inf"), "outcomes": result["outcomes"]}


def report(samples):
    met = True
    names = [kind.name for kind in SERVERS]
    print(f"{'p99 in ms, share of 200':24}" + "".join(f"{name:>20}" for name in names))
    for column, by_server in samples.items():
        p99 = {name: statistics.median(sample["p99"] for sample in by_server[name]) for name in names}
        share = {name: statistics.median(sample["share"] for sample in by_server[name]) for name in names}
        print(f"{column:24}" + "".join(f"{p99[name]:12.1f} {share[name] * 100:6.1f}%" for name in names))
        # The best pool completes the most requests; among equals it is the fastest.
        most = max(share[name] for name in names[1:])
        best = min(p99[name] for name in names[1:] if share[name] * TOLERANCE >= most)
        is_met = share["howdah"] * TOLERANCE >= most and p99["howdah"] <= max(best * TOLERANCE, best + GRAIN_MS)
        print(f"    {word(is_met)}: {p99['howdah'] / best:.2f} of the best pool's p99")
        met = met and is_met
    return met

