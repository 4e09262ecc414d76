"""Fixtures of the tests with real applications: see README.md in this folder."""

import os
import shutil
import struct
import subprocess
import tempfile
import time
import zlib
from pathlib import Path

import pytest

from harness import Howdah, wait_for

from .browser import Browser
from .mariadb import MariaDb

AS_ROOT = os.geteuid() == 0
WWW_DATA = "www-data"


def pytest_configure(config):
    config.addinivalue_line("markers", "xdist_group(name): tests that share a server, for pytest -n N --dist loadgroup")


@pytest.fixture(scope="session", autouse=True)
def packages():
    """The applications. Installs what is missing, which takes minutes; a moment otherwise."""
    script = Path(__file__).parent / "install-packages.sh"
    done = subprocess.run([script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.fixture(scope="session")
def database():
    """A MariaDB server for all applications of this run; each takes a database of its own."""
    folder = Path(tempfile.mkdtemp(prefix="howdah-mariadb-"))
    folder.chmod(0o755)
    server = MariaDb(folder)
    yield server
    server.stop()
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def space():
    """A folder for what the tests of a module write: everyone may pass, PHP's user owns it."""
    folder = Path(tempfile.mkdtemp(prefix="howdah-apps-"))
    folder.chmod(0o755)
    give(folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def serve():
    """Starts `howdah serve` for the tests of a module: serve(folder, *options, ini={}, env={}) -> Howdah."""
    yield from _started_by(Howdah.serve)


@pytest.fixture(scope="module")
def run():
    """Starts `howdah run --config` for the tests of a module: run(configuration) -> Howdah."""
    yield from _started_by(Howdah.run)


def _started_by(how):
    servers = []

    def start(*arguments, **options):
        server = how(*arguments, **options)
        servers.append(server)
        return server

    yield start
    try:
        for server in servers:
            server.stop()
    finally:
        for server in servers:
            server.kill()


def give(path: Path, user: str = WWW_DATA):
    """Makes everything in `path` belong to the user that PHP will run as."""
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
    """Waits until the clock shows another second, for applications that see no finer difference."""
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
