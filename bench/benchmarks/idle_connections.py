"""Memory of the router for idle keep-alive connections. The bar: 10,000 of them add less than 100 MiB."""

import time

from lib import process_tree
from lib.idle import IdleConnections
from lib.lab import raise_file_limit, serve
from lib.process_tree import BenchError
from lib.verdict import print_verdict

MIB = 2**20
BAR_BYTES_PER_CONNECTION = 100 * MIB / 10_000
PATHS = {"hello": "/hello.php", "10k": "/10k.jpg"}


def add_options(parser):
    parser.add_argument("--count", type=int, default=10_000, help="of connections; default 10000")
    parser.add_argument("--page", choices=list(PATHS), default="hello", help="each connection requests it once")
    parser.add_argument("--server", choices=["howdah", "nginx-fpm"], default="howdah")


def run(options):
    raise_file_limit()
    with serve(options.server, lab="compare") as server:
        port, path = int(server.url.rpartition(":")[2]), PATHS[options.page]
        IdleConnections(port, path, 100).close()
        server.settle()
        before = front_pss(server)
        connections = IdleConnections(port, path, options.count)
        server.settle()
        time.sleep(1)
        after = front_pss(server)
        alive = connections.still_open()
        connections.ask_again(every=100)
        connections.close()
        server.settle()
        closed = front_pss(server)
    added, bar = after - before, BAR_BYTES_PER_CONNECTION * options.count
    print(f"{options.server}: PSS of the processes that hold the connections")
    print(f"  before           {before / MIB:8.1f} MiB")
    print(f"  {alive:6,} idle      {after / MIB:8.1f} MiB")
    print(f"  after closing    {closed / MIB:8.1f} MiB")
    print(f"  added            {added / MIB:8.1f} MiB, {added / options.count:,.0f} bytes per connection")
    return print_verdict(added < bar and alive == options.count, f"all open, below {bar / MIB:.0f} MiB added")


def front_pss(server):
    size = process_tree.pss_bytes(server.processes["front"])
    if size is None:
        raise BenchError(f"no process that holds connections was found, or none can be read: {server.processes}")
    return size
