"""Servers of `proxy` and `upstreams` that are reached over HTTPS."""

import json
import ssl

import pytest

from support.http.proxying import proxy_configuration, upstream_group
from support.http.tls import Authority, openssl, put
from support.http.upstream import Upstream, answers, ok


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def context(authority):
    return authority.server_context("api.example", "127.0.0.1")


@pytest.fixture
def start(run, authority):
    """Starts howdah with the authority uploaded as "internal", then configures it."""

    def start(config: dict, certificates: dict = {}, uploads_authority: bool = True):
        server = run(proxy_configuration({"return": 200}))
        if uploads_authority:
            put(server, "internal", open(authority.root).read())
        for name, pem in certificates.items():
            put(server, name, pem)
        configure(server, config)
        return server

    return start


def configure(server, config: dict):
    config = {"listeners": {f"127.0.0.1:{server.port}": {"pass": "routes"}}, **config}
    text = json.dumps(config).replace("{port}", str(server.port))
    answer = server.api("PUT", "/config", text)
    assert answer.json() == {"success": "Reconfiguration done."}, answer.text


def proxy_to(upstream: Upstream, **tls) -> dict:
    return proxy_configuration({"proxy": upstream.url, "tls": {"ca": "internal", **tls}})


def test_a_server_is_verified_by_an_uploaded_authority(start, context):
    with Upstream(answers(lambda request: ok(request.line.encode())), tls=context) as upstream:
        server = start(proxy_to(upstream))
        body = bytes(1 << 20)
        with server.connect() as connection:
            for n in range(5):
                assert connection.request("GET", f"/{n}").text == f"GET /{n} HTTP/1.1"
            assert connection.request("POST", "/post", body=body).text == "POST /post HTTP/1.1"
        assert upstream.requests[-1].body == body
        assert upstream.accepted == 1, "the connection is kept"


def test_a_large_body_arrives_whole(start, context):
    body = bytes(range(256)) * 40_000
    with Upstream(answers(ok(body)), tls=context) as upstream:
        assert start(proxy_to(upstream)).get("/").body == body


def test_servers_of_an_upstream_have_one_name(start, authority):
    """`server_name` is what the server gets by SNI, and what its certificate must have."""
    names = []
    context = authority.server_context("api.example")
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    with Upstream(answers(ok(b"one")), tls=context) as one, Upstream(answers(ok(b"two")), tls=context) as two:
        config = upstream_group((one, 1), (two, 1))
        config["upstreams"]["u"]["tls"] = {"ca": "internal", "server_name": "api.example"}
        server = start(config)
        assert {server.get("/").text for _ in range(4)} == {"one", "two"}
        assert set(names) == {"api.example"}


def test_howdah_authenticates_by_a_client_certificate(start, authority, context):
    mutual = authority.server_context("127.0.0.1")
    mutual.load_verify_locations(authority.root)
    mutual.verify_mode = ssl.CERT_REQUIRED
    with Upstream(answers(ok()), tls=mutual) as upstream:
        server = start(proxy_to(upstream), {"gateway": authority.bundle("gateway.example")})
        assert server.get("/").status == 502
        server.wait_for_log_line("cannot forward a request", upstream.address, "CertificateRequired", "502")
        configure(server, proxy_to(upstream, client_certificate="gateway"))
        assert server.get("/").status == 200
        used = server.api("DELETE", "/certificates/gateway")
        assert (used.status, "name another one there before" in used.text) == (400, True), used.text


@pytest.mark.parametrize(
    "names, tls, why",
    [
        (["127.0.0.1"], {"ca": None}, ["the issuer of its certificate is unknown", "tls/ca"]),
        (["other.example"], {}, ["not for the name", "127.0.0.1", "other.example", "tls/server_name"]),
        (["127.0.0.1"], {"server_name": "shop.example"}, ["not for the name", "shop.example"]),
    ],
    ids=["unknown issuer", "other name", "other server_name"],
)
def test_a_certificate_that_is_not_accepted_gives_502(start, authority, names, tls, why):
    with Upstream(answers(ok()), tls=authority.server_context(*names)) as upstream:
        options = {name: value for name, value in {"ca": "internal", **tls}.items() if value}
        server = start(proxy_configuration({"proxy": upstream.url, "tls": options}))
        assert server.get("/").status == 502
        server.wait_for_log_line("cannot forward a request", upstream.address, "no TLS connection", *why)
        assert upstream.requests == []
        configure(server, proxy_configuration({"proxy": upstream.url, "tls": {"verify": False}}))
        assert server.get("/").status == 200


def test_an_expired_certificate_gives_502(start, authority):
    with Upstream(answers(ok()), tls=authority.server_context("127.0.0.1", days=-1)) as upstream:
        server = start(proxy_to(upstream))
        assert server.get("/").status == 502
        server.wait_for_log_line("cannot forward a request", upstream.address, "its certificate has expired")


def test_a_plain_port_gives_502(start):
    with Upstream(lambda visit: visit.some()) as upstream:
        server = start(proxy_configuration({"proxy": f"https://{upstream.address}"}))
        assert server.get("/").status == 502
        server.wait_for_log_line("cannot forward a request", upstream.address, "closed the connection during the TLS")

    def refuse(visit):
        visit.some()
        visit.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        visit.until_closed()

    with Upstream(refuse) as upstream:
        configure(server, proxy_configuration({"proxy": f"https://{upstream.address}"}))
        assert server.get("/").status == 502
        server.wait_for_log_line("cannot forward a request", upstream.address, "does not answer in TLS", "plain HTTP")


def test_a_server_that_does_not_finish_the_handshake_gives_504(start):
    with Upstream(lambda visit: visit.until_closed()) as upstream:
        server = start(proxy_configuration({"proxy": f"https://{upstream.address}", "connect_timeout": "300ms"}))
        assert server.get("/").status == 504
        server.wait_for_log_line("cannot forward a request", upstream.address, "no TLS connection within 0.3 s", "port for HTTPS")


def test_another_server_answers_for_one_with_a_wrong_certificate(start, authority, context):
    with Upstream(answers(ok()), tls=authority.server_context("x.example")) as wrong, Upstream(answers(ok(b"right")), tls=context) as right:
        config = upstream_group((wrong, 2), (right, 1))
        config["upstreams"]["u"]["tls"] = {"ca": "internal"}
        server = start(config)
        assert [server.get("/").text for _ in range(4)] == ["right"] * 4


def test_a_change_of_tls_uses_no_old_connection(start, context):
    with Upstream(answers(ok()), tls=context) as upstream:
        server = start(proxy_to(upstream))
        assert server.get("/").status == 200
        configure(server, proxy_to(upstream, server_name="shop.example"))
        assert server.get("/").status == 502
        configure(server, proxy_to(upstream))
        assert server.get("/").status == 200


def test_an_authority_is_uploaded_without_a_key(start, authority):
    server = start(proxy_configuration({"return": 200}))
    described = server.api("GET", "/certificates/internal").json()
    assert "key" not in described and described["chain"][0]["subject"]["common_name"] == "Root"
    listeners = {"127.0.0.1:1": {"pass": "routes", "tls": {"certificate": "internal"}}}
    answer = server.api("PUT", "/config/listeners", json.dumps(listeners))
    assert answer.status == 400 and "uploaded without a private key" in answer.text, answer.text
    broken = openssl("x509", "-in", authority.root, "-outform", "DER", cwd=authority.folder)
    assert server.api("PUT", "/certificates/der", broken).status == 400


def test_a_server_that_is_not_verified_is_warned_of(start, context):
    with Upstream(answers(ok()), tls=context) as upstream:
        server = start(proxy_configuration({"proxy": upstream.url, "tls": {"verify": False}}), uploads_authority=False)
        server.wait_for_log_line("routes/0/action/tls/verify", "the server is not authenticated")
        assert server.get("/").status == 200
