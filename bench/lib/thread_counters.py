"""Counts of the kernel for processes: processor time and context switches from /proc, and perf's events.

perf counts system calls and instructions while it is attached. That slows the counted processes by a few percent: take
processor time without it.
"""

import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from lib import process_tree

SYSTEM_CALLS, INSTRUCTIONS = "raw_syscalls:sys_enter", "instructions"


@dataclass(frozen=True)
class Counters:
    """Sums over all threads of some processes."""
    cpu_seconds: float
    context_switches: int

    @staticmethod
    def of(pids):
        nanoseconds = switches = 0
        for pid in pids:
            for task in Path(f"/proc/{pid}/task").glob("*"):
                try:
                    nanoseconds += int((task / "schedstat").read_text().split()[0])
                    status = (task / "status").read_text()
                except OSError:
                    continue  # it has exited
                switches += sum(int(count) for count in re.findall(r"ctxt_switches:\s+(\d+)", status))
        return Counters(nanoseconds / 1e9, switches)

    def __sub__(self, before):
        return Counters(self.cpu_seconds - before.cpu_seconds, self.context_switches - before.context_switches)


class PerfStat:
    """perf stat on some processes, from the construction to `stop`."""

    def __init__(self, pids, folder):
        self._output = Path(folder) / f"perf-{min(pids)}"
        perf = shutil.which("perf")
        self._process = perf and process_tree.start(
            [perf, "stat", "-x", ";", "-o", self._output, "-e", f"{SYSTEM_CALLS},{INSTRUCTIONS}",
             "-p", ",".join(map(str, pids))])
        if self._process:
            # Attached, or gone again for a reason that `stop` finds.
            time.sleep(0.3)

    def stop(self):
        """{event: count}; without an event that this machine, or this user, cannot count."""
        if not self._process:
            return {}
        process_tree.stop(self._process, sig=signal.SIGINT)
        counts = {}
        for line in self._output.read_text().splitlines() if self._output.exists() else []:
            count, _, event = (line.split(";") + ["", "", ""])[:3]
            if count.isdigit():
                counts[event] = int(count)
        return counts


def system_call_table(pid, seconds):
    """The table that strace -c prints for a process, after some seconds. It slows the process several times."""
    strace = shutil.which("strace")
    if not strace:
        return "strace is not installed: apt-get install strace"
    done = subprocess.run(["timeout", "-s", "INT", str(seconds), strace, "-c", "-f", "-p", str(pid)],
                          capture_output=True, text=True)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("strace: Process")]
    return "\n".join(lines)
