"""The stalls of a core: times in which nothing on it runs, because the host of this virtual machine has taken it, or the kernel."""

import contextlib
import os
import subprocess
import sys
import time

INTERVAL = 0.0005
LATE = 0.001


@contextlib.contextmanager
def stalled_seconds(core):
    """A list that gets one number when the context ends: for how long what was due on the core came more than a millisecond late.

    A timer with a higher priority than all else on the core measures it, so that no other program can delay it.
    """
    code = f"from lib.stalls import _measure; _measure({core})"
    timer = subprocess.Popen([sys.executable, "-B", "-c", code], cwd=sys.path[0], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    found = []
    try:
        timer.stdout.readline()
        yield found
    finally:
        output, _ = timer.communicate("end\n")
        found.append(float(output))


def _measure(core):
    os.sched_setaffinity(0, [core])
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    print("ready", flush=True)
    os.set_blocking(0, False)
    late, before = 0.0, time.monotonic()
    while not sys.stdin.buffer.read(1):
        time.sleep(INTERVAL)
        now = time.monotonic()
        # In a stall of 5 ms, what is due in its first 4 ms comes more than a millisecond late.
        late += max(0.0, now - before - INTERVAL - LATE)
        before = now
    print(late)
