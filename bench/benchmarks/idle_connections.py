"""Memory of the router for idle keep-alive connections. The bar: 10,000 of them add less than 100 MiB."""

import os
import time

from lib import pages, process_tree
from lib.idle import IdleConnections
from lib.process_tree import BenchError
from lib.verdict import print_verdict
from lib.workbench import SERVERS, Workbench

MIB = 2**20
BAR_BYTES_PER_CONNECTION = 100 * MIB / 10_000


def add_options(parser):
    parser.add_argument("--count", type=int, default=10_000, help="of connections; default 10000")
    parser.add_argument("--page", choices=["hello", "10k"], default="hello", help="each connection requests it once")
    parser.add_argument("--server", choices=list(SERVERS), default="howdah")


def run(options):
    chosen = pages.by_name([options.page])
    with Workbench([options.server], chosen, php_version=options.php, processes=os.cpu_count()) as bench:
        (server,), path = bench.servers, chosen[0].path
        port = server.ports[chosen[0].site]
        IdleConnections(port, path, 100).close()
        bench.settle(server)
        before = router_pss(server)
        connections = IdleConnections(port, path, options.count)
        bench.settle(server)
        time.sleep(1)
        after = router_pss(server)
        alive = connections.still_open()
        connections.ask_again(every=100)
        connections.close()
        bench.settle(server)
        closed = router_pss(server)
    added, bar = after - before, BAR_BYTES_PER_CONNECTION * options.count
    print(f"{options.server}: PSS of the processes that hold the connections")
    print(f"  before           {before / MIB:8.1f} MiB")
    print(f"  {alive:6,} idle      {after / MIB:8.1f} MiB")
    print(f"  after closing    {closed / MIB:8.1f} MiB")
    print(f"  added            {added / MIB:8.1f} MiB, {added / options.count:,.0f} bytes per connection")
    return print_verdict(added < bar and alive == options.count, f"all open, below {bar / MIB:.0f} MiB added")


def router_pss(server):
    pids = server.front_processes()
    size = process_tree.pss_bytes(pids)
    if size is None:
        raise BenchError(f"{server.name}: no process that holds connections was found, or none can be read: {pids}")
    return size
