"""Fixtures of the tests of HTTP/3."""

import pytest

from support.http.http3_site import config, fill, start, with_certificates
from support.http.tls import Authority
from support.server import Howdah, stop_all


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def begin(authority, folder, tmp_path):
    """Starts a server of the test's own."""
    servers = []

    def begin(start_with=None, **options) -> Howdah:
        state = with_certificates(tmp_path, authority, shop=("shop.example", "127.0.0.1"), other=("other.example",))
        (state / "certs/staff").write_text((authority.folder / "root.pem").read_text())
        servers.append(start(config(fill(folder), **options), state, tmp_path, **(start_with or {})))
        return servers[-1]

    yield begin
    stop_all(servers)
