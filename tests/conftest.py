"""Fixtures of the end-to-end tests. See harness.py for what they are made of."""

import atexit
import itertools
import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness import Folder, Howdah, Response, readable

PHP = Path(__file__).parent / "php"

# Each start of pytest closes /tmp/pytest-of-USER to other users, www-data among them, also while another one runs
# there. So each has a place of its own. (The workers of xdist inherit it.)
if "PYTEST_DEBUG_TEMPROOT" not in os.environ:
    os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.mkdtemp(prefix="howdah-pytest-")
    OWN_PLACE = os.environ["PYTEST_DEBUG_TEMPROOT"]
else:
    OWN_PLACE = None
FINISHED: list[str] = []
atexit.register(lambda: [shutil.rmtree(place, ignore_errors=True) for place in FINISHED])


def pytest_sessionfinish(exitstatus):
    """Leaves the folders of a run that failed for a look at them."""
    # pytest tidies up in them at its own exit: what was registered before is called after that.
    if OWN_PLACE and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        FINISHED.append(OWN_PLACE)


@pytest.fixture
def folder(tmp_path) -> Folder:
    """An empty folder to serve, and a scratch folder for PHP."""
    return Folder(readable(tmp_path))


@pytest.fixture
def socket_path() -> Path:
    """A place for a unix socket: its name must be short."""
    place = Path(tempfile.mkdtemp(prefix="howdah-"))
    place.chmod(0o777)
    yield place / "s"
    shutil.rmtree(place)


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


def stop_all(servers):
    try:
        for server in servers:
            server.stop()
    finally:
        for server in servers:
            server.kill()


class Site(Folder):
    """A folder with the scripts of tests/php and a server that stays for the tests of one file."""

    def __init__(self, path, **how):
        super().__init__(path)
        self.copy(PHP)
        self.numbers = itertools.count(1)
        self.server = Howdah.serve(self, **how)

    def page(self, code: str) -> str:
        """Makes a script of its own, so that opcache never knows an older one, and returns its URL path."""
        name = f"page{next(self.numbers)}.php"
        self.php(name, code)
        return "/" + name

    def get(self, code: str, headers=(), query: str = "") -> Response:
        """What a script answers to a GET request."""
        return self.server.get(self.page(code) + query, headers)

    def in_each_worker(self, count: int, code: str) -> list[Response]:
        """What a script answers in `count` workers, each of which runs it once, at the same time."""
        meeting = self.scratch / f"meeting{next(self.numbers)}"
        meeting.mkdir()
        meeting.chmod(0o777)
        script = self.root / self.page(code)[1:]
        target = f"/together.php?in={meeting}&count={count}&then={script}"
        with ThreadPoolExecutor(count) as pool:
            return [answer.result() for answer in [pool.submit(self.server.get, target) for _ in range(count)]]

    def post(self, code: str, body, headers=(), query: str = "") -> Response:
        return self.server.post(self.page(code) + query, body, headers)


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


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes users: run the tests as root")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A test that failed shows what its servers said."""
    report = (yield).get_result()
    if report.failed:
        for number, server in enumerate(Howdah.started[-3:], 1):
            for name, text in server.output().items():
                report.sections.append((f"howdah {number} {name}", text[-8000:]))
    if call.when == "teardown":
        Howdah.started[:] = [server for server in Howdah.started if server.process and server.process.poll() is None]
