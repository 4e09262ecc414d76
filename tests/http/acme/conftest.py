"""Fixtures of the tests of certificates that howdah obtains."""

import pytest

from support.acme.server import Authority
from support.acme.site import AcmeSite


@pytest.fixture
def authority(tmp_path):
    with Authority(tmp_path / "authority") as authority:
        (tmp_path / "authority").chmod(0o755)
        yield authority


@pytest.fixture
def site(run, authority):
    return lambda *options, **how: AcmeSite(run, authority, *options, **how)
