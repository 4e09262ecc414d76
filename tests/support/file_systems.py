"""File systems that misbehave."""

import contextlib
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Iterator

import pytest

from support.waiting import wait_for


@contextlib.contextmanager
def dead_file_system(folder: Path) -> Iterator[Path]:
    """A mounted folder in which each access hangs until the block ends, as in a network file system without its server.

    Its FUSE daemon is stopped with SIGSTOP; no other means makes a path hang.
    """
    if not shutil.which("bindfs"):
        pytest.skip("bindfs is not installed")
    point, source = folder / "dead", folder / "dead-source"
    for path in (point, source):
        path.mkdir()
    daemon = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "bindfs", "-f", "-o", "allow_other", source, point], stderr=subprocess.PIPE, text=True
    )
    try:
        wait_for(lambda: point.is_mount() or daemon.poll() is not None, "the mount")
        if daemon.poll() is not None:
            pytest.skip(f"nothing can be mounted: {daemon.stderr.read()}")
        daemon.send_signal(signal.SIGSTOP)
        # A thread that still runs could accept a request; who waits for an accepted one cannot even be killed.
        wait_for(lambda: set(thread_states(daemon.pid)) == {"T"}, "all threads to stop")
        yield point
    finally:
        daemon.kill()
        daemon.wait()
        # Accesses fail from now on. The mount itself goes with its last user.
        subprocess.run(["umount", "--lazy", point], stderr=subprocess.DEVNULL)


def thread_states(pid: int) -> list[str]:
    """The states of a process's threads, each a letter as in proc(5)."""
    return [stat.read_text().rpartition(") ")[2][0] for stat in Path(f"/proc/{pid}/task").glob("*/stat")]


@contextlib.contextmanager
def small_disk(path: Path, options: str = "size=256k,mode=1777") -> Iterator[Path]:
    """A new file system in memory."""
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", path], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"nothing can be mounted: {mounted.stderr!r}")
    try:
        yield path
    finally:
        while path.is_mount():
            subprocess.run(["umount", "--lazy", path], check=True)


def fill(disk: Path) -> Path:
    """Makes a file that takes all the space of a small disk."""
    ballast = disk / "ballast"
    with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 512):
            pass
    return ballast
