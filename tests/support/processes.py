"""Processes as /proc shows them."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterator


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    session: int
    state: str = field(compare=False)
    """As in /proc: R, S, D, Z (zombie) …"""
    started: int
    """In clock ticks since boot: with the pid, this names a process for good."""
    title: str
    """As `ps -o args` shows it. Empty for a zombie."""

    @classmethod
    def all(cls) -> list[Process]:
        return [process for entry in os.listdir("/proc") if entry.isdigit() and (process := cls.of(int(entry)))]

    @classmethod
    def of(cls, pid: int) -> Process | None:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
            title = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return None
        fields = stat[stat.rindex(")") + 2 :].split()
        words = title.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace").rstrip()
        return cls(pid, int(fields[1]), int(fields[3]), fields[0], int(fields[19]), words)

    def status(self, key: str) -> str:
        """A line of /proc/PID/status: `status("Uid")` is the real, effective, saved and file system user."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(key + ":"):
                return line.split(":", 1)[1].strip()
        raise KeyError(key)

    def alive(self) -> bool:
        now = Process.of(self.pid)
        return now is not None and now.started == self.started and now.state != "Z"

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)


def children(pid: int) -> list[int]:
    """The children of a process. Far quicker than a look at all processes of the machine."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


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
