"""File systems that misbehave."""

import contextlib
import ctypes
import os

import pytest


@contextlib.contextmanager
def dead_file_system(folder):
    """A folder that hangs whoever looks into it, like a network file system whose server is gone, until the end."""
    point = folder / "dead"
    point.mkdir()
    libc = ctypes.CDLL(None)
    with contextlib.ExitStack() as end:
        try:
            # Nobody answers what the kernel asks there.
            device = os.open("/dev/fuse", os.O_RDWR)
        except OSError as error:
            pytest.skip(f"no FUSE: {error}")
        end.callback(os.close, device)
        options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        if libc.mount(b"dead", bytes(point), b"fuse", 0, options) != 0:
            pytest.skip("nothing can be mounted")
        end.callback(libc.umount2, bytes(point), 2)
        yield point
