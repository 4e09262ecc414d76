"""Where a request's CPU goes: microseconds by part, from perf's samples of the router and of one worker at saturation.

A sample counts for the innermost function on its stack that names a part. CPU per request comes from a run without perf.
The last line of the worker is the floor, `howdah-php8.2 --floor`: PHP's own request start-up, script and shut-down in a
bare loop (in worker mode that of hello, whatever the page). Without a bar: docs/performance.md has a table that this benchmark made.
"""

import re
import shutil
import subprocess
from collections import Counter

from lib import process_tree
from lib.floor import floor_microseconds
from lib.lab import flawless, serve
from lib.options import list_of
from lib.process_tree import BenchError

# Part: functions. In a role, the innermost function on a stack that matches decides.
PARTS = {
    "router": {
        "wait for events": r"epoll_wait|park_internal|on_thread_(un)?park",
        "read from the socket": r"poll_read\b|__libc_recv|recvfrom",
        "parse and check the head": r"Http1Transaction>::parse|httparse|strictness|HeadScanner|Guard>?::judge",
        "route": r"dispatch::routing|routing::choose|first_match|authority::host|RequestPath|Views",
        "find the script": r"script::resolve|script_files|ScriptFiles|statx",
        "admission": r"admission|RequestKind|SharedQueue|killer",
        "CGI variables": r"cgi::write|RequestHeadWriter",
        "hand-over to a worker": r"RouterEnd>?::submit|wake_a_worker|wake_workers|port::wake|port::submit",
        "hand-back: take the response": r"service_slot|Exchange>?::|GenerationPort>?::drain|Ports>?::|response_head|receive::head",
        "write the response's head": r"Http1Transaction>::encode|response::body|log_entry",
        "write to the socket": r"poll_flush|poll_write_vectored|writev",
    },
    "worker": {
        "take a request, sleep": r"WorkerEnd>?::(next|claim)|doorbell|SYS_futex|__x64_sys_futex",
        "read the CGI variables": r"RequestBuffers|parse_head|Claim>?::head",
        "PHP start-up": r"^(php_request_startup|begin_request|howdah_superglobals_refresh|sapi_activate|php_output_activate)",
        "find and enter the script's folder": r"chdir|newfstatat|fstatat64|virtual_chdir_file",
        "script": r"^(php_execute_script|zend_call_function)",
        "hand-back: write the response": r"^howdah_(write|finish|flush|head_)|Claim>?::(write|finish)|notify_router",
        "PHP shut-down": r"^(php_request_shutdown|end_request|complete_request|close_request|howdah_baseline_restore|php_output_end_all)",
        "accounting": r"CpuMeter|Growth|Ledger|reap_children|howdah_sampler|howdah_signals",
    },
}
OTHER = {"router": "hyper, tokio and all else", "worker": "all else"}
FREQUENCY = 999
STACK_BYTES = 16384
PHP_PAGES = ["hello", "json", "phpinfo", "loop"]


def add_options(parser):
    parser.add_argument("--server", choices=["howdah", "howdah-worker"], default="howdah", help="classic mode or worker mode; default howdah")
    parser.add_argument("--pages", type=list_of(PHP_PAGES), default=["hello"], help=f"of {','.join(PHP_PAGES)}")
    parser.add_argument("--connections", type=int, default=20, help="default 20")
    parser.add_argument("--seconds", type=int, default=3, help="of each of the two runs; default 3")
    parser.add_argument("--processes", type=int, help="PHP processes; default: one per core")


def run(options):
    if not shutil.which("perf"):
        raise BenchError("perf is not installed: apt-get install linux-perf")
    with serve(options.server, workers=options.processes) as server:
        for page in options.pages:
            measure(server, page, options)
    return True


def measure(server, page, options):
    url = f"{server.url}/{page}.php"
    roles = {"router": server.processes["front"], "worker": server.processes["php"]}
    flawless(url, connections=options.connections, seconds=1)
    before = {role: process_tree.scheduled_seconds(pids) for role, pids in roles.items()}
    figures = flawless(url, connections=options.connections, seconds=options.seconds)
    cpu = {role: (process_tree.scheduled_seconds(pids) - before[role]) / figures.good * 1e6 for role, pids in roles.items()}
    samples = {}
    for role, pids in roles.items():
        stacks = sample(server, url, pids[:1], options)
        samples[role] = Counter(part_of(stack, role) for stack in stacks)
    print(f"\n{page}, {options.connections} connections, {figures.per_second:,.0f} requests per second\n")
    print("| part | µs per request |\n|---|---|")
    for role, counts in samples.items():
        total = counts.total() or 1
        print(f"| **{role}** ({counts.total()} samples) | **{cpu[role]:.1f}** |")
        for part in [*PARTS[role], OTHER[role]]:
            print(f"| {part} | {counts[part] / total * cpu[role]:.1f} |")
    floor = floor_microseconds(page, is_worker=options.server == "howdah-worker")
    print(f"| the floor: PHP alone in a loop | {floor:.1f} |", flush=True)


def sample(server, url, pids, options):
    """Stacks of these processes under load: lists of function names, the innermost first."""
    data = server.folder / f"perf-{pids[0]}.data"
    command = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(FREQUENCY), "--call-graph", f"dwarf,{STACK_BYTES}",
               "-o", str(data), "-p", ",".join(map(str, pids)), "--", "sleep", str(options.seconds - 0.5)]
    recorders = []
    flawless(url, connections=options.connections, seconds=options.seconds,
             during=lambda: recorders.append(process_tree.start(command)))
    recorders[0].wait()
    if not data.exists():
        raise BenchError("perf record has no samples: it needs root, or a lower kernel.perf_event_paranoid")
    script = subprocess.run(["perf", "script", "-i", str(data), "-F", "comm,pid,ip,sym"],
                            capture_output=True, text=True, errors="replace")
    stacks = []
    for block in script.stdout.split("\n\n"):
        lines = block.splitlines()
        frames = [line.split(None, 1) for line in lines if line.startswith(("\t", " "))]
        stacks.append([without_generics(frame[1]) for frame in frames if len(frame) == 2])
    return [stack for stack in stacks if stack]


def without_generics(function):
    """`f` of `f<T>`; `<A as B>::f` stays: the types inside of generics are of other parts."""
    if function.startswith("<"):
        return re.sub(r"(?<=\w)<.*?>(?= as |>::)", "", function)
    return function.partition("<")[0]


def part_of(stack, role):
    for function in stack:
        for part, pattern in PARTS[role].items():
            if re.search(pattern, function):
                return part
    return OTHER[role]
