"""Processes as /proc shows them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterable, Iterator, NamedTuple


class _Stat(NamedTuple):
    """A process as in /proc/PID/stat: cheap enough to read it for many processes."""

    pid: int
    parent: int
    session: int
    state: str
    started: int

    @classmethod
    def of(cls, pid: int) -> _Stat | None:
        stat = _read(f"/proc/{pid}/stat")
        if not stat:
            return None
        # The name between the parentheses may contain anything.
        fields = stat[stat.rindex(b")") + 2 :].split()
        return cls(pid, int(fields[1]), int(fields[3]), fields[0].decode(), int(fields[19]))

    @classmethod
    def since(cls, first: int) -> list[_Stat]:
        """The process with this pid, and those with larger ones."""
        pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
        return [stat for pid in pids if pid >= first and (stat := cls.of(pid))]


def _read(path: str) -> bytes | None:
    """A small file of /proc; None when its process is gone."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        return os.read(file, 1 << 16)
    except OSError:
        return None
    finally:
        os.close(file)


def cpu_seconds(pid: int) -> float:
    """The processor time of a process until now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    session: int
    state: str = field(compare=False)
    """As in /proc: R, S, D, Z (zombie) …"""
    started: int
    """In clock ticks since boot: with the pid, this identifies a process."""
    title: str
    """As `ps -o args` shows it. Empty for a zombie."""

    @classmethod
    def of(cls, pid: int) -> Process | None:
        stat = _Stat.of(pid)
        return stat and cls._with_title(stat)

    @classmethod
    def tree(cls, root: int) -> list[Process]:
        """A process and every process below it."""
        found, below = {}, [root]
        while below:
            pid = below.pop()
            if pid not in found and (stat := _Stat.of(pid)):
                found[pid] = stat
                below += _children_of_all_threads(pid)
        return cls._with_titles(found.values())

    @classmethod
    def of_sessions(cls, sessions: set[int]) -> list[Process]:
        """The processes of these sessions. The smallest one's leader was the first of them: only later processes are looked at.
        (Pids begin again at /proc/sys/kernel/pid_max; a process beyond that is not found.)"""
        return cls._with_titles(stat for stat in _Stat.since(min(sessions)) if stat.session in sessions)

    @classmethod
    def _with_titles(cls, stats: Iterable[_Stat]) -> list[Process]:
        return [process for stat in stats if (process := cls._with_title(stat))]

    @classmethod
    def _with_title(cls, stat: _Stat) -> Process | None:
        title = _read(f"/proc/{stat.pid}/cmdline")
        if title is None:
            return None
        words = title.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace").rstrip()
        return cls(stat.pid, stat.parent, stat.session, stat.state, stat.started, words)

    def status(self, key: str) -> str:
        """A line of /proc/PID/status: `status("Uid")` is the real, effective, saved and file system user."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(key + ":"):
                return line.split(":", 1)[1].strip()
        raise KeyError(key)

    def alive(self) -> bool:
        now = _Stat.of(self.pid)
        return now is not None and now.started == self.started and now.state != "Z"

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)


def thread_states(pid: int) -> list[str]:
    """The states of a process's threads, each a letter as in proc(5); empty if it is gone."""
    texts = [_read(str(stat)) for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
    return [text.rpartition(b") ")[2][:1].decode() for text in texts if text]


def open_descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def open_files(pid: int) -> dict[Path, str]:
    """The targets of a process's descriptors, by their links in /proc; without those that it closes in the meantime."""
    links = {}
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links[link] = os.readlink(link)
    return links


def children(pid: int) -> list[int]:
    """The children of the first thread of a process. Far quicker than a look at all processes of the machine."""
    return _children(pid, pid)


def _children(pid: int, thread: int) -> list[int]:
    return [int(child) for child in (_read(f"/proc/{pid}/task/{thread}/children") or b"").split()]


def _children_of_all_threads(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    return [child for thread in threads for child in _children(pid, int(thread))]


PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WALL = 0x40000000
"""waitpid(2): also for threads, which are no children."""


@contextlib.contextmanager
def frozen(process: Process) -> Iterator[None]:
    """Holds all threads of a process as a debugger does, until the block ends. howdah kills a router that SIGSTOP stops."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    # The first one last: it can be waited for when all others were.
    threads = sorted(map(int, os.listdir(f"/proc/{process.pid}/task")), key=lambda thread: thread == process.pid)
    for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
        for thread in threads:
            if libc.ptrace(request, thread, None, None):
                raise OSError(ctypes.get_errno(), f"ptrace of {process}")
    for thread in threads:
        os.waitpid(thread, WALL)
    try:
        yield
    finally:
        for thread in threads:
            # A process that was killed meanwhile is reported to its parent once it was waited for here.
            if libc.ptrace(PTRACE_DETACH, thread, None, None):
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(thread, WALL)


@contextlib.contextmanager
def each_new_child(parent: int, title: str, number: int) -> Iterator[None]:
    """Sends a signal to each child of this title as soon as it has the title, until the block ends."""
    finished = threading.Event()

    def watch() -> None:
        while not finished.wait(0.0002):
            for pid in children(parent):
                with contextlib.suppress(OSError):
                    if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(title.encode()):
                        os.kill(pid, number)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()
