"""Fixtures of the HTTP tests."""

import pytest

from support.http.proxying import proxy_configuration
from support.http.upstream import Upstream


@pytest.fixture
def proxy(run):
    """Starts howdah in front of an upstream with this handler; returns both."""
    upstreams = []

    def start(handler, address="127.0.0.1:0", http=None, **options):
        upstream = Upstream(handler, address)
        upstreams.append(upstream)
        return run(proxy_configuration({"proxy": upstream.url}, http), **options), upstream

    yield start
    for upstream in upstreams:
        upstream.stop()
    assert not [error for upstream in upstreams for error in upstream.errors]
