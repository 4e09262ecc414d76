"""Fixtures of the tests of async mode."""

import itertools

import pytest

from support.async_site import AsyncSite
from support.folders import readable
from support.server import stop_all


@pytest.fixture
def start(tmp_path):
    """Starts an AsyncSite with this script and these options; it is stopped, and checked, when the test ends."""
    sites = []
    numbers = itertools.count()

    def start(script: str, **how) -> AsyncSite:
        place = tmp_path / str(next(numbers))
        place.mkdir()
        sites.append(AsyncSite(readable(place), script, **how))
        return sites[-1]

    yield start
    stop_all([site.server for site in sites])
