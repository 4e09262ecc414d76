"""Processes: start them, stop them by pid, and read what a whole tree of them costs.

A started process dies with the bench (PR_SET_PDEATHSIG), so that a bench killed with SIGKILL leaves nothing behind.
A process that exits while the tree is read counts as nothing: its CPU time is in its parent's account by then.
"""

import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_libc = ctypes.CDLL(None, use_errno=True)


class BenchError(Exception):
    """The bench cannot measure; the message names the reason and the remedy."""


def start(command, *, cores=None, env=None, log=None, cwd=None, stdout=None):
    """Starts `command` in a process group of its own: Ctrl-C reaches the bench only, which stops everything in order.

    Not in a session of its own: the kernel's autogroups deal out the cores by session, so that nginx and FPM as two
    sessions would get twice what howdah gets as one.
    """

    def before_exec():
        os.setpgid(0, 0)
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if cores:
            os.sched_setaffinity(0, cores)

    output = open(log, "ab") if log else subprocess.DEVNULL
    try:
        return subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=stdout if stdout is not None else output,
            stderr=output if stdout is None else subprocess.STDOUT,
            env=env,
            cwd=cwd,
            preexec_fn=before_exec,
        )
    finally:
        if log:
            output.close()


def output(command, *, cores=None):
    """Runs `command` to its end, and returns its output."""
    process = start(command, cores=cores, stdout=subprocess.PIPE)
    try:
        text = process.communicate()[0].decode()
    finally:
        stop(process)
    if process.returncode:
        raise BenchError(text)
    return text


def stop(process, *, sig=signal.SIGTERM, patience=15.0):
    """Stops the process and whatever is left of its tree. Returns the pids that had to be killed."""
    family = {pid: _start_time(pid) for pid in tree([process.pid])}
    if process.poll() is None:
        process.send_signal(sig)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            pass
    deadline = time.monotonic() + 2
    while (alive := _alive(family)) and time.monotonic() < deadline:
        process.poll()
        time.sleep(0.05)
    for pid in alive:
        _kill(pid)
    process.wait()
    return alive


def tree(roots):
    """The pids of `roots` and all their descendants."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(entry)):
            children.setdefault(int(fields[1]), []).append(int(entry))
    found, todo = [], [pid for pid in roots if _stat(pid)]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo.extend(children.get(pid, []))
    return sorted(found)


def cpu_seconds(roots):
    """User and system time of the trees, their ended and reaped children included."""
    ticks = 0
    for pid in tree(roots):
        if fields := _stat(pid):
            ticks += sum(int(field) for field in fields[11:15])
    return ticks / TICKS_PER_SECOND


def scheduled_seconds(pids):
    """CPU time of all threads of these processes, by the scheduler's clock: finer than ticks, without ended threads."""
    nanoseconds = 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*"):
            try:
                nanoseconds += int((task / "schedstat").read_text().split()[0])
            except OSError:
                continue  # it has exited
    return nanoseconds / 1e9


def memory(pid):
    """{"rss", "pss", "uss"} of one process in bytes; None if it is gone or may not be read."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            lines = file.read().splitlines()[1:]
    except OSError:
        return None
    kib = {name: int(rest.split()[0]) for name, rest in (line.split(":", 1) for line in lines)}
    uss = kib["Private_Clean"] + kib["Private_Dirty"]
    return {"rss": kib["Rss"] * 1024, "pss": kib["Pss"] * 1024, "uss": uss * 1024}


def pss_bytes(pids):
    """Proportional set size of `pids` together; None if none may be read."""
    sizes = [size["pss"] for pid in pids if (size := memory(pid))]
    return sum(sizes) if sizes else None


def title(pid):
    """The process's command line, or its title if it has set one."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def titled(roots, beginning):
    """The pids of the trees of these roots whose titles begin like this."""
    return [pid for pid in tree(roots) if title(pid).startswith(beginning)]


def _stat(pid):
    """The fields of /proc/PID/stat after the name: state, ppid, …; None if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def _start_time(pid):
    fields = _stat(pid)
    return fields[19] if fields else None


def _alive(family):
    """The pids of {pid: start time} that still run. A reused pid has another start time; a zombie has exited."""
    alive = []
    for pid, started in family.items():
        fields = _stat(pid)
        if started and fields and fields[19] == started and fields[0] != "Z":
            alive.append(pid)
    return alive


def _kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
