"""Fixtures of the end-to-end tests. See support/ for what they are made of."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from support.folders import Folder, readable
from support.pipes import AnonymousPipe
from support.server import Howdah, few_extensions, stop_all
from support.site import Site

# Each start of pytest closes /tmp/pytest-of-USER to other users, www-data among them, also while another one runs
# there. Therefore each has its own folder. (The workers of xdist inherit it.)
if "PYTEST_DEBUG_TEMPROOT" not in os.environ:
    os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.mkdtemp(prefix="howdah-pytest-")
    OWN_PLACE = os.environ["PYTEST_DEBUG_TEMPROOT"]
else:
    OWN_PLACE = None
FINISHED: list[str] = []
# The folders and files whose tests have all extensions that are installed: the tests of PHP, of applications, and of
# roots of file systems, which have their own extensions.
WITH_ALL_EXTENSIONS = {"apps", "async_mode", "lab", "php", "test_isolation", "worker_mode"}
FEW_EXTENSIONS = few_extensions(Path(os.environ["PYTEST_DEBUG_TEMPROOT"]) / "extensions")
atexit.register(lambda: [shutil.rmtree(place, ignore_errors=True) for place in FINISHED])


def pytest_sessionfinish(exitstatus):
    """Keeps the folders of a failed run for inspection."""
    # pytest cleans up in them at its exit. Functions that were registered earlier run after that.
    if OWN_PLACE and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        FINISHED.append(OWN_PLACE)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    place = item.path.relative_to(Path(__file__).parent).with_suffix("").parts
    Howdah.extensions = None if WITH_ALL_EXTENSIONS.intersection(place) else FEW_EXTENSIONS


@pytest.fixture
def folder(tmp_path) -> Folder:
    """An empty folder to serve, and a scratch folder for PHP."""
    return Folder(readable(tmp_path))


@pytest.fixture
def socket_path() -> Path:
    """A short path for a unix socket."""
    place = Path(tempfile.mkdtemp(prefix="howdah-"))
    place.chmod(0o777)
    yield place / "s"
    shutil.rmtree(place)


@pytest.fixture
def anonymous_pipe() -> AnonymousPipe:
    pipe = AnonymousPipe()
    yield pipe
    pipe.close()


@pytest.fixture
def serve(folder):
    """Starts servers of `folder`, as Howdah.serve does; all are stopped, and checked, when the test ends."""
    servers = []

    def start(*options, **how) -> Howdah:
        servers.append(Howdah.serve(folder, *options, **how))
        return servers[-1]

    yield start
    stop_all(servers)


@pytest.fixture
def run(folder):
    """Starts servers with a configuration, as Howdah.run does; all are stopped, and checked, when the test ends."""
    servers = []

    def start(config, *options, **how) -> Howdah:
        servers.append(Howdah.run(config, *options, **how))
        return servers[-1]

    yield start
    stop_all(servers)


@pytest.fixture(scope="module")
def site(request, tmp_path_factory):
    """A running Site. A module that wants other options than the default ones sets SITE = {"ini": …, …}."""
    how = getattr(request.module, "SITE", {})
    site = Site(readable(tmp_path_factory.mktemp("site")), **how)
    yield site
    stop_all([site.server])


@pytest.fixture
def server(site) -> Howdah:
    return site.server


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Shows the output of the servers of a failed test."""
    report = (yield).get_result()
    if report.failed:
        for number, server in enumerate(Howdah.started[-3:], 1):
            for name, text in server.output().items():
                report.sections.append((f"howdah {number} {name}", text[-8000:]))
    if call.when == "teardown":
        Howdah.started[:] = [server for server in Howdah.started if server.process and server.process.poll() is None]
