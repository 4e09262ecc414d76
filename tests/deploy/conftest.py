"""Fixtures of the tests of deploys."""

import pytest

from support.releases import Releases


@pytest.fixture
def site(folder):
    site = Releases(folder)
    site.release("1")
    site.release("2")
    site.swap("1")
    return site
