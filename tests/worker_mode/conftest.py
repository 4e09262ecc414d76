"""Fixtures of the tests of worker mode."""

import pytest

from support.folders import readable
from support.server import stop_all
from support.worker_site import WorkerSite


@pytest.fixture(scope="module")
def worker_site(request, tmp_path_factory):
    """A running WorkerSite. A module that wants other options than the default ones sets WORKER_SITE = {"boot": …}."""
    site = WorkerSite(readable(tmp_path_factory.mktemp("site")), **getattr(request.module, "WORKER_SITE", {}))
    yield site
    stop_all([site.server])


@pytest.fixture
def start_worker(tmp_path):
    """Starts a WorkerSite with the given options; it is stopped, and checked, when the test ends."""
    sites = []

    def start(**how) -> WorkerSite:
        sites.append(WorkerSite(readable(tmp_path), **how))
        return sites[-1]

    yield start
    stop_all([site.server for site in sites])
