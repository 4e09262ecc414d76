"""Fixtures of the tests with real applications: see README.md in this folder."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from support.apps.files import give
from support.apps.mariadb import MariaDb
from support.server import Howdah


@pytest.fixture(scope="session", autouse=True)
def packages():
    """Installs the applications that are missing, which takes minutes."""
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
    """A folder for the files of a module's tests: every user may pass, PHP's user owns it."""
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
