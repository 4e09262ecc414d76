"""Parts of the tests of packaged applications: permissions, a browser, a picture."""

import os
import shutil
import struct
import time
import zlib
from pathlib import Path

from support.apps.browser import Browser
from support.machine import WWW_DATA
from support.waiting import wait_for

AS_ROOT = os.geteuid() == 0


def give(path: Path, user: str = WWW_DATA):
    """Gives everything in `path` to the user that PHP runs as."""
    if not AS_ROOT:
        return
    shutil.chown(path, user, user)
    if path.is_dir():
        for entry in path.rglob("*"):
            if not entry.is_symlink():
                shutil.chown(entry, user, user)


def browser_of(server) -> Browser:
    return Browser(f"http://{server.host}:{server.port}/")


def next_second():
    """Waits for the next second, for applications whose timestamps are whole seconds."""
    second = int(time.time())
    wait_for(lambda: int(time.time()) > second, "another second")


def png(width: int = 640, height: int = 480) -> bytes:
    """A picture with enough in it that scaling and re-encoding it is real work."""
    def chunk(type: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + type + data + struct.pack(">I", zlib.crc32(type + data))

    rows = b"".join(
        b"\0" + bytes(value for x in range(width) for value in (x & 255, y & 255, (x * y >> 4) & 255))
        for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows))
            + chunk(b"IEND", b""))
