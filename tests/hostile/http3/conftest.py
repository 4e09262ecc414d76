"""A listener of HTTP/3 to attack."""

import pytest

from support.http.tls import Authority
from support.server import Howdah, stop_all


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def begin(authority, tmp_path, socket_path):
    """Starts a server with one event loop, these routes and settings, and a Unix listener, `server.plain`."""
    servers = []

    def begin(routes, http=None, prefix=(), **more) -> Howdah:
        state = tmp_path / "state"
        (state / "certs").mkdir(parents=True)
        (state / "certs" / "shop").write_text(authority.bundle("localhost"))
        listener = {"pass": "routes", "tls": {"certificate": "shop"}, "http3": True}
        configuration = {
            "listeners": {"127.0.0.1:{port}": listener, f"unix:{socket_path}": {"pass": "routes"}},
            "routes": routes,
            "settings": {"http": http or {}, "listen_threads": 1},
            **more,
        }
        control = tmp_path / "control.sock"
        servers.append(Howdah.run(configuration, "--state-dir", str(state), "--control", f"unix:{control}", prefix=prefix))
        servers[-1].control, servers[-1].plain = control, str(socket_path)
        return servers[-1]

    yield begin
    stop_all(servers)
