"""Cost of a long route table: 1 route against 1,000, of which the last one matches. The bar: at most 10 percent.

One howdah has two listeners, one for each table; both serve the same file (the fastest response there is, so that
routing weighs most). The routes match prefixes, exact paths, hosts, regular expressions and headers, as long tables do.
"""

import statistics

from lib.lab import flawless
from lib.one_howdah import OneHowdah
from lib.options import add_measurement
from lib.verdict import print_verdict

BAR = 0.9
KINDS = [
    lambda n: {"uri": f"/section-{n}/*"},
    lambda n: {"uri": f"/page-{n}.html"},
    lambda n: {"host": f"site-{n}.example.com"},
    lambda n: {"uri": f"~^/article-{n}/[0-9]+$"},
    lambda n: {"uri": ["/old/*", f"/moved-{n}"], "method": ["GET", "HEAD"]},
    lambda n: {"headers": {"X-Tenant": f"tenant-{n}"}},
]
# A route that matches a header cannot be found by an index. A real table has few of them.
ROUTES_WITH_HEADERS = 60


def add_options(parser):
    parser.add_argument("--routes", type=int, default=1000, help="of the long table; default 1000")
    add_measurement(parser, rounds=7, seconds=2, connections=100)


def run(options):
    rates = {"one": [], "many": []}
    with OneHowdah() as howdah:
        howdah.write_files({"hello.txt": "hello\n"})
        last = {"action": {"share": f"{howdah.folder}$uri"}}
        urls = howdah.start({name: f"routes/{name}" for name in rates},
                            routes={"one": [last], "many": [*routes(options.routes - 1), last]})
        for number in range(options.rounds):
            # The order alternates, so that a slow moment of the machine affects both tables.
            for name in sorted(rates, reverse=number % 2 == 1):
                rates[name].append(flawless(f"{urls[name]}/hello.txt", connections=options.connections, seconds=options.seconds).per_second)
    one, many = (statistics.median(rates[name]) for name in ("one", "many"))
    ratio = statistics.median(b / a for a, b in zip(rates["one"], rates["many"]))
    print(f"1 route          {one:10,.0f} requests/s, median of {options.rounds}")
    print(f"{options.routes:,} routes     {many:10,.0f} requests/s")
    return print_verdict(ratio >= BAR, f"{ratio:.2f} of the throughput; the bar is {BAR}")


def routes(count):
    """Routes that do not match."""
    def kinds(n):
        return len(KINDS) if n < ROUTES_WITH_HEADERS else len(KINDS) - 1
    return [{"match": KINDS[n % kinds(n)](n), "action": {"return": 410}} for n in range(count)]
