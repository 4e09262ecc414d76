"""Is a core idle? A virtual machine's host, or other work, may take it for milliseconds."""

import subprocess
import sys
import time

from lib.process_tree import TICKS_PER_SECOND

# A timer each 100 microseconds, as the requests of an open loop with 10,000 requests per second.
INTERVAL = 0.0001
LATE = 0.001


def stolen_seconds(core):
    """The time that the host of this virtual machine has taken from the core since its start, in steps of 10 ms ("steal", proc(5))."""
    with open("/proc/stat") as stat:
        [fields] = [line.split() for line in stat if line.startswith(f"cpu{core} ")]
    return int(fields[8]) / TICKS_PER_SECOND


def late_share(core, seconds):
    """The share of a timer's moments that come more than a millisecond late while nothing of the bench runs on the core."""
    code = f"import os; os.sched_setaffinity(0, [{core}]); from lib.idle_core import _late_seconds; print(_late_seconds({seconds}))"
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=True, cwd=sys.path[0])
    return float(done.stdout) / seconds


def _late_seconds(seconds):
    """In a stall of 5 ms, each moment of the first 4 ms comes more than a millisecond late."""
    late, before = 0.0, time.monotonic()
    end = before + seconds
    while before < end:
        time.sleep(INTERVAL)
        now = time.monotonic()
        late += max(0.0, now - before - INTERVAL - LATE)
        before = now
    return late
