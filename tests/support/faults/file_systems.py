"""File systems that misbehave."""

import contextlib
import ctypes
import errno
import os
import select
import shutil
import signal
import struct
import subprocess
import threading
from pathlib import Path
from typing import Callable, Iterator

import pytest

from support.processes import thread_states
from support.waiting import wait_for


class PausableFileSystem:
    """A mounted folder: `point` shows what is in `source`. While it is paused, each access that the kernel cannot answer
    from its caches hangs, as in a network file system without its server.

    Its FUSE daemon is stopped with SIGSTOP; no other means makes a path hang.
    """

    def __init__(self, point: Path, source: Path, daemon: subprocess.Popen):
        self.point = point
        self.source = source
        self._daemon = daemon

    def pause(self) -> None:
        self._daemon.send_signal(signal.SIGSTOP)
        # A thread that still runs could accept a request; a process that waits for an accepted one cannot even be killed.
        wait_for(lambda: set(thread_states(self._daemon.pid)) == {"T"}, "all threads to stop")

    def resume(self) -> None:
        self._daemon.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def pausable_file_system(folder: Path, name: str = "pausable", options: str = "allow_other,attr_timeout=0,entry_timeout=0") -> Iterator[PausableFileSystem]:
    """A file system that can be paused, in `folder`/`name`, also over a folder there. Its content is in
    `folder`/`name`-source."""
    if not shutil.which("bindfs"):
        pytest.skip("bindfs is not installed")
    point, source = folder / name, folder / f"{name}-source"
    for path in (point, source):
        path.mkdir(exist_ok=True)
    daemon = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "bindfs", "-f", "-o", options, source, point], stderr=subprocess.PIPE, text=True
    )
    try:
        wait_for(lambda: point.is_mount() or daemon.poll() is not None, "the mount")
        if daemon.poll() is not None:
            pytest.skip(f"nothing can be mounted: {daemon.stderr.read()}")
        yield PausableFileSystem(point, source, daemon)
    finally:
        daemon.kill()
        daemon.wait()
        # Accesses fail from now on. The mount itself goes with its last user.
        subprocess.run(["umount", "--lazy", point], stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def dead_file_system(folder: Path) -> Iterator[Path]:
    """A mounted folder in which each access hangs until the block ends."""
    with pausable_file_system(folder, "dead") as dead:
        dead.pause()
        yield dead.point


@contextlib.contextmanager
def silent_file_system(folder: Path) -> Iterator[Path]:
    """A mounted folder that accepts each request and answers none until the block ends, as a network file system with a
    `hard` mount. A process that waits for it is in the state D: it cannot even be killed.

    Nothing in the test may look into the folder. (This is the FUSE protocol, linux/fuse.h, up to the answer to its first
    request.)
    """
    point = folder / "silent"
    point.mkdir()

    def answer_to(opcode: int, node: int, request: bytes) -> bytes | None:
        return init_answer(request) if opcode == FUSE_INIT else None

    with fuse_file_system(point, answer_to):
        yield point


@contextlib.contextmanager
def forged_file_system(point: Path, user: int, owner: int, entries: dict[str, str | None], mode: int = 0o755) -> Iterator[None]:
    """A file system over a folder, as this user mounts it with `user_allow_other` in /etc/fuse.conf. All in it claims to be the owner's:
    links with these targets, and folders without one, with this mode."""
    names = list(entries)

    def attributes(node: int) -> bytes:
        target = entries[names[node - 2]] if node > 1 else None
        kind, size = (0o120777, len(target)) if target else (0o40000 | mode, 4096)
        return struct.pack("=QQQQQQIIIIIIIIII", node, size, *[0] * 7, kind, 1, owner, owner, 0, 4096, 0)

    def answer_to(opcode: int, node: int, request: bytes) -> bytes | int | None:
        match opcode:
            case 2 | 36 | 42:  # FUSE_FORGET, FUSE_INTERRUPT, FUSE_BATCH_FORGET
                return None
            case 1:  # FUSE_LOOKUP
                name = request[40:].split(b"\0")[0].decode()
                if name not in entries:
                    return -errno.ENOENT
                node = names.index(name) + 2
                return struct.pack("=QQQQII", node, *[0] * 5) + attributes(node)
            case 3:  # FUSE_GETATTR
                return struct.pack("=QII", 0, 0, 0) + attributes(node)
            case 5:  # FUSE_READLINK
                return entries[names[node - 2]].encode()
            case 17:  # FUSE_STATFS
                return struct.pack("=QQQQQIIII24x", 0, 0, 0, 0, 0, 4096, 255, 4096, 0)
            case 26:  # FUSE_INIT
                return init_answer(request)
        return -errno.ENOSYS

    with fuse_file_system(point, answer_to, user):
        yield


@contextlib.contextmanager
def fuse_file_system(point: Path, answer_to: Callable[[int, int, bytes], bytes | int | None], user: int = 0) -> Iterator[None]:
    """A file system over a folder, as this user mounts it. `answer_to` has the operation, the node and the request, and returns the
    answer, a negative error number, or nothing."""
    device = mount_fuse(point, user)
    finished = threading.Event()

    def serve() -> None:
        while not finished.is_set():
            if not select.select([device], [], [], 0.02)[0]:
                continue
            with contextlib.suppress(OSError):
                request = os.read(device, 1 << 17)
                _, opcode, unique, node = struct.unpack_from("=IIQQ", request)
                answer = answer_to(opcode, node, request)
                if answer is not None:
                    os.write(device, fuse_answer(unique, answer))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()
        # All that wait get an error now.
        os.close(device)
        subprocess.run(["umount", "--lazy", point], stderr=subprocess.DEVNULL)


def mount_fuse(point: Path, user: int = 0) -> int:
    """The device of a FUSE file system that this user has mounted."""
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.skip("nothing can be mounted")
    device = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40755,user_id={user},group_id={user},allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"test", os.fsencode(point), b"fuse", 0, options.encode()):
        os.close(device)
        pytest.skip(f"nothing can be mounted: {os.strerror(ctypes.get_errno())}")
    return device


def fuse_answer(unique: int, answer: bytes | int) -> bytes:
    """The bytes of an answer: its content, or a negative error number. (This is the FUSE protocol, linux/fuse.h.)"""
    content, error = (b"", answer) if isinstance(answer, int) else (answer, 0)
    return struct.pack("=IiQ", 16 + len(content), error, unique) + content


def init_answer(request: bytes) -> bytes:
    major, minor = struct.unpack_from("=II", request, 40)
    return struct.pack("=IIIIHHIIHHII24x", major, min(minor, 31), 4096, 0, 8, 8, 4096, 1, 1, 0, 0, 0)


FUSE_INIT = 26


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
