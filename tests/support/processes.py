"""Processes as /proc shows them."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from pathlib import Path


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
