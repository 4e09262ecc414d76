"""Certificates of clients: `client_ca`, `client_verify`, and the variables of PHP."""

import socket
import ssl

import pytest

from support.http.client import ProtocolError
from support.http.tls import Authority, Client, openssl, put

REFUSED = (ssl.SSLError, ConnectionError, ProtocolError)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def strangers(tmp_path_factory):
    """Another authority with the same names."""
    return Authority(tmp_path_factory.mktemp("strangers"))


@pytest.fixture
def server(run, folder, authority):
    """A howdah with the certificates, and without clients' certificates so far."""
    folder.php("index.php", "echo json_encode($_SERVER);")
    applications = {"app": {"type": "php", "root": str(folder.root), "processes": 1}}
    server = run({"listeners": {"127.0.0.1:{port}": {"pass": "applications/app"}}, "applications": applications})
    put(server, "shop", authority.bundle("shop.example"))
    put(server, "staff", (authority.folder / "root.pem").read_text())
    return server


def set_tls(server, **tls):
    path = f"/config/listeners/127.0.0.1:{server.port}/tls"
    answer = server.api("PUT", path, {"certificate": "shop", **tls})
    assert answer.status == 200, answer.text


def client(server, authority, shown: Authority | None = None, **how) -> Client:
    """With a certificate of `shown` for itself."""
    client = Client(authority, server)
    if shown:
        bundle = authority.folder / "client.pem"
        bundle.write_text(shown.bundle("zoe", **how))
        client.context.load_cert_chain(bundle)
    return client


@pytest.mark.parametrize("session", [{}, {"tickets": True}, {"cache_size": 100}])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_php_sees_the_certificate_of_the_client(server, authority, session, version):
    set_tls(server, client_ca="staff", session=session)
    asking = client(server, authority, authority)
    asking.context.maximum_version = asking.context.minimum_version = version
    shown = (authority.folder / "client.pem").read_text().split("-----END CERTIFICATE-----\n")[0]
    shown += "-----END CERTIFICATE-----\n"
    inspect = ["x509", "-noout", "-serial", "-fingerprint", "-sha1", "-dates"]
    known = dict(
        line.split("=", 1) for line in openssl(*inspect, cwd=authority.folder, input=shown.encode()).decode().splitlines()
    )
    for resumed in (False, bool(session)):
        seen = asking.get("/index.php").json()
        assert asking.resumed is resumed
        assert seen["SSL_CLIENT_VERIFY"] == "SUCCESS"
        assert seen["SSL_CLIENT_S_DN"] == f"CN=zoe,OU={authority.number},O=Shop,ST=Berlin,C=DE"
        assert seen["SSL_CLIENT_I_DN"] == "CN=Middle,O=Howdah Tests"
        assert seen["SSL_CLIENT_SERIAL"] == known["serial"]
        assert seen["SSL_CLIENT_FINGERPRINT"] == known["sha1 Fingerprint"].replace(":", "").lower()
        assert (seen["SSL_CLIENT_V_START"], seen["SSL_CLIENT_V_END"]) == (known["notBefore"], known["notAfter"])
        assert seen["SSL_CLIENT_V_REMAIN"] in ("29", "30")
        assert seen["SSL_CLIENT_CERT"] == shown


def test_a_client_without_a_valid_certificate_is_refused(server, authority, strangers):
    set_tls(server, client_ca=["staff"])
    for wrong in (
        client(server, authority),
        client(server, authority, strangers),
        client(server, authority, authority, days=-1),
    ):
        with pytest.raises(REFUSED):
            wrong.get("/index.php")
    assert client(server, authority, authority).get("/index.php").status == 200


def test_a_certificate_can_be_optional(server, authority, strangers):
    set_tls(server, client_ca="staff", client_verify="optional")
    forged = {"SSL-Client-Verify": "SUCCESS", "SSL_CLIENT_VERIFY": "SUCCESS"}
    seen = client(server, authority).get("/index.php", forged).json()
    assert seen["SSL_CLIENT_VERIFY"] == "NONE" and "SSL_CLIENT_S_DN" not in seen
    assert client(server, authority, authority).get("/index.php").json()["SSL_CLIENT_VERIFY"] == "SUCCESS"
    with pytest.raises(REFUSED):
        client(server, authority, strangers).get("/index.php")
    with client(server, authority).connect() as without:
        assert without.request("GET", "/index.php").status == 200
        set_tls(server, client_ca="staff", client_verify="required")
        assert without.request("GET", "/index.php").status == 421
    server.wait_for_log_line("the client showed no certificate when it connected", "/index.php")


def test_an_old_connection_does_not_bypass_the_check(server, authority):
    set_tls(server)
    with client(server, authority).connect() as connection:
        assert connection.request("GET", "/index.php").status == 200
        set_tls(server, client_ca="staff", hsts={"max_age": 60, "include_subdomains": True})
        refused = connection.request("GET", "/index.php")
        assert (refused.status, refused.header("Connection")) == (421, "close")
        assert refused.header("Strict-Transport-Security") == "max-age=60; includeSubDomains"
    server.wait_for_log_line("the access of this client was withdrawn since it connected: answered 421", "/index.php")


def test_a_connection_without_a_request_so_far_does_not_outlive_its_authorities(server, authority, strangers):
    """It gets the answer to its first request from a listener that drains, but not if its access was withdrawn."""
    set_tls(server, client_ca="staff")
    opened = client(server, authority, authority).connect()
    shaking_hands = Handshake(client(server, authority, authority))
    put(server, "others", (strangers.folder / "root.pem").read_text())
    set_tls(server, client_ca="others")
    with opened:
        assert opened.request("GET", "/index.php").status == 421
    assert shaking_hands.finish_and_request().startswith(b"HTTP/1.1 421 ")
    with client(server, authority, strangers).connect() as connection:
        set_tls(server)
        assert connection.request("GET", "/index.php").status == 200, "no other authorities replace those of the client"


class Handshake:
    """A handshake that has read howdah's certificate, and has not sent the client's."""

    def __init__(self, client: Client):
        self.socket = socket.create_connection((client.server.host, client.server.port), timeout=30)
        self.received, self.to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = client.context.wrap_bio(self.received, self.to_send, server_hostname=client.name)
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.do_handshake()
        self.socket.sendall(self.to_send.read())
        self.received.write(self.socket.recv(65536))

    def finish_and_request(self) -> bytes:
        with self.socket:
            self._do(self.tls.do_handshake)
            self._do(lambda: self.tls.write(b"GET /index.php HTTP/1.1\r\nHost: shop.example\r\n\r\n"))
            return self._do(lambda: self.tls.read(65536))

    def _do(self, step):
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                self.received.write(self.socket.recv(65536))
            finally:
                self.socket.sendall(self.to_send.read())


def test_a_connection_ends_when_other_authorities_replace_those_of_its_client(server, authority, strangers):
    """Both ways: another certificate with the same name, and another name."""
    set_tls(server, client_ca="staff")
    put(server, "others", (strangers.folder / "root.pem").read_text())
    for change in (
        lambda: put(server, "staff", (strangers.folder / "root.pem").read_text()),
        lambda: set_tls(server, client_ca="others"),
    ):
        put(server, "staff", (authority.folder / "root.pem").read_text())
        set_tls(server, client_ca="staff")
        with client(server, authority, authority).connect() as connection:
            assert connection.request("GET", "/index.php").status == 200
            # Its own certificate may change.
            put(server, "shop", authority.bundle("shop.example"))
            assert connection.request("GET", "/index.php").status == 200
            change()
            assert connection.is_closed()


def test_the_authorities_of_clients_can_be_replaced(server, authority, strangers):
    set_tls(server, client_ca="staff")
    answer = server.api("DELETE", "/certificates/staff")
    assert (answer.status, answer.json()["error"]) == (400, "Certificate is used in the configuration.")
    put(server, "staff", (strangers.folder / "root.pem").read_text())
    # It is used as soon as the router has it.
    for _ in range(1000):
        try:
            seen = client(server, authority, strangers).get("/index.php").json()
            break
        except REFUSED:
            pass
    assert seen["SSL_CLIENT_VERIFY"] == "SUCCESS"
