"""TLS: certificates in the API and in the state directory, their choice by name, protocols, renewal.

openssl makes the certificates; Python's clients verify them.
"""

import hashlib
import json
import os
import signal
import socket
import ssl
import threading
from pathlib import Path

import pytest

from support.http.client import ProtocolError
from support.http.tls import Authority, Client, openssl, put
from support.http.upstream import Upstream, answers
from support.server import Howdah
from support.waiting import wait_for


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def bundles(authority):
    """Made once per module, because openssl needs some time for each."""
    return {
        "shop": authority.bundle("shop.example", "www.shop.example"),
        "wild": authority.bundle("*.shop.example", "*.blog.example", key=("rsa:2048",)),
        "blog": authority.bundle("blog.example", "a.blog.example"),
    }


def configure(server: Howdah, path: str, value) -> None:
    answer = server.api("PUT", f"/config/{path}", json.dumps(value))
    assert answer.json() == {"success": "Reconfiguration done."}, answer.text


def listener(server: Howdah) -> str:
    return f"listeners/127.0.0.1:{server.port}"


OK = {"routes": [{"action": {"return": 200}}]}


@pytest.fixture
def start(run, tmp_path, bundles):
    """Starts a howdah with this `tls` and this configuration; its state directory has the certificates already."""

    def start(tls, config=OK, names=tuple(bundles), **how) -> Howdah:
        state = tmp_path / "state"
        (state / "certs").mkdir(parents=True, exist_ok=True)
        for name in names:
            (state / "certs" / name).write_text(bundles[name])
        applications = config.get("applications")
        passed = "routes" if "routes" in config else f"applications/{next(iter(applications))}"
        listeners = {"127.0.0.1:{port}": {"pass": passed} | ({"tls": tls} if tls else {})}
        control = tmp_path / "control.sock"
        options = ("--state-dir", str(state), "--control", f"unix:{control}")
        server = run(config | {"listeners": listeners}, *options, **how)
        server.control = control
        return server

    return start


@pytest.fixture
def client(authority):
    return lambda server, name="shop.example": Client(authority, server, name)


# --- Requests


def test_php_sees_https(start, client, folder):
    folder.php("index.php", "echo json_encode($_SERVER);")
    application = {"app": {"type": "php", "root": str(folder.root), "processes": 1}}
    server = start({"certificate": "shop"}, {"applications": application})
    assert f"https://127.0.0.1:{server.port}" in server.stdout
    seen = client(server).get("/index.php").json()
    assert (seen["HTTPS"], seen["REQUEST_SCHEME"], seen["SERVER_PORT"]) == ("on", "https", str(server.port))
    assert (seen["SSL_PROTOCOL"], seen["HTTP_HOST"]) == ("TLSv1.3", "shop.example")
    assert seen["SSL_CIPHER"].startswith("TLS_")
    older = client(server)
    older.context.maximum_version = ssl.TLSVersion.TLSv1_2
    seen = older.get("/index.php").json()
    assert seen["SSL_PROTOCOL"] == "TLSv1.2" and seen["SSL_CIPHER"].startswith("ECDHE-ECDSA-")


def test_routes_match_the_scheme(start, client):
    """The usual redirect from HTTP to HTTPS."""
    config = {
        "routes": [
            {"match": {"scheme": "https"}, "action": {"return": 204}},
            {"action": {"return": 301, "location": "https://$host$request_uri"}},
        ]
    }
    server = start({"certificate": "shop"}, config)
    assert client(server).get().status == 204
    assert server.api("DELETE", f"/config/{listener(server)}/tls").status == 200
    response = server.get("/x?y=z", {"Host": "shop.example"})
    assert (response.status, response.header("Location")) == (301, "https://shop.example/x?y=z")


def test_long_bodies_go_both_ways(start, client, folder):
    folder.php("index.php", "$body = file_get_contents('php://input'); echo md5($body), str_repeat('x', 9000000);")
    (folder.root / "large.bin").write_bytes(large := os.urandom(7_000_000))
    config = {
        "routes": [
            {"match": {"uri": "/large.bin"}, "action": {"share": f"{folder.root}$uri"}},
            {"action": {"pass": "applications/app"}},
        ],
        "applications": {"app": {"type": "php", "root": str(folder.root), "processes": 1}},
        "settings": {"http": {"max_body_size": 20_000_000}},
    }
    server = start({"certificate": "shop"}, config)
    with client(server).connect() as connection:
        body = os.urandom(5_000_000)
        for _ in range(2):
            response = connection.request("POST", "/index.php", body=body)
            assert response.body[:32].decode() == hashlib.md5(body).hexdigest()
            assert response.body[32:] == b"x" * 9_000_000
            assert connection.request("GET", "/large.bin").body == large


def test_pipelined_requests_in_one_record_are_all_answered(start, client):
    server = start({"certificate": "shop"})
    with client(server).connect() as connection:
        connection.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 20)
        assert [connection.response().status for _ in range(20)] == [200] * 20
        # One request in many TLS records.
        for byte in b"GET / HTTP/1.1\r\nHost: a\r\n\r\n":
            connection.send(bytes([byte]))
        assert connection.response().status == 200


def test_interim_responses_go_through_tls(start, client):
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    with Upstream(answers(hints)) as upstream:
        server = start({"certificate": "shop"}, {"routes": [{"action": {"proxy": upstream.url}}]})
        with client(server).connect() as connection:
            for _ in range(3):
                got = connection.request("GET", "/")
                assert (got.interim, got.text) == ([103], "ok")


def test_many_idle_tls_connections_answer_again(start, client):
    """Beyond 256 connections on a thread, idle ones release their buffers."""
    server = start({"certificate": "shop"}, OK | {"settings": {"listen_threads": 1}})
    connections = [client(server).connect() for _ in range(300)]
    for _ in range(3):
        for connection in connections:
            connection.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 2)
        for connection in connections:
            assert [connection.response().status for _ in range(2)] == [200, 200]
    for connection in connections:
        connection.close()


def test_a_unix_socket_can_use_tls(start, client, tmp_path):
    server = start({"certificate": "shop"})
    path = tmp_path / "shop.sock"
    configure(server, f"listeners/unix:{path}".replace("/", "%2F").replace("listeners%2F", "listeners/"),
              {"pass": "routes", "tls": {"certificate": "shop"}})  # fmt: skip
    with client(server).connect(str(path)) as connection:
        assert connection.request("GET", "/").status == 200


# --- Which certificate


def test_the_certificate_is_chosen_by_server_name(start, authority, client):
    server = start({"certificate": ["blog", "wild", "shop"]})
    cases = {
        "shop.example": "shop.example",
        "WWW.shop.example": "shop.example",
        "x.shop.example": "*.shop.example",
        "a.blog.example": "blog.example",
        "b.blog.example": "*.shop.example",
        "other.example": "blog.example",
        None: "blog.example",
    }
    for name, expected in cases.items():
        asking = client(server, name)
        asking.context.check_hostname = name is not None and name != "other.example"
        assert asking.common_name() == expected, name


# --- Protocols


def test_alpn_selects_http_1_1_for_a_client_without_http_2(start, client):
    server = start({"certificate": "shop"})
    asking = client(server)
    asking.context.set_alpn_protocols(["http/1.1"])
    with asking.connect() as connection:
        assert connection.socket.selected_alpn_protocol() == "http/1.1"
        assert connection.request("GET", "/").status == 200


def test_conf_commands_limit_protocols_and_ciphers(start, client):
    server = start({"certificate": "wild", "conf_commands": {"MinProtocol": "TLSv1.3"}})
    older = client(server, "x.shop.example")
    older.context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match="(?i)protocol.version"):
        older.get()
    commands = {"Protocol": "-TLSv1.3", "CipherString": "ECDHE-RSA-AES128-GCM-SHA256"}
    configure(server, f"{listener(server)}/tls/conf_commands", commands)
    with client(server, "x.shop.example").connect() as connection:
        assert connection.socket.cipher()[:2] == ("ECDHE-RSA-AES128-GCM-SHA256", "TLSv1.2")


def test_a_command_without_an_equivalent_is_rejected(start, client):
    server = start({"certificate": "shop"})
    for command, value in {"VerifyMode": "Peer", "MinProtocol": "SSLv3", "CipherString": "HIGH:!aNULL"}.items():
        answer = server.api("PUT", f"/config/{listener(server)}/tls/conf_commands", {command: value})
        assert answer.status == 400 and f"conf_commands/{command}" in answer.json()["detail"], answer.text
    assert client(server).get().status == 200


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_sessions_are_resumed_as_configured(start, client, version):
    server = start({"certificate": "shop"})
    key = "QUFB" * 16
    for session, resumed in [
        ({}, False),
        ({"cache_size": 100}, True),
        ({"tickets": True}, True),
        ({"tickets": key}, True),
        ({"tickets": False}, False),
    ]:
        configure(server, f"{listener(server)}/tls/session", session)
        asking = client(server)
        asking.context.maximum_version = version
        asking.get()
        assert not asking.resumed
        # Unrelated settings change nothing.
        configure(server, "settings", {"http": {"idle_timeout": 60}})
        asking.get()
        assert asking.resumed == resumed, session
        configure(server, "settings", {})


# --- Clients without a valid handshake


def test_plain_http_on_a_tls_port_gets_400(start, client, tmp_path):
    log = tmp_path / "access.log"
    server = start({"certificate": "shop"}, OK | {"access_log": str(log)})
    response = server.get("/x")
    assert response.status == 400
    assert response.header("Content-Type") == "text/plain; charset=utf-8"
    assert response.text == "This port speaks HTTPS: write https:// in the address.\n"
    long = server.raw(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300_000)
    assert long.startswith(b"HTTP/1.1 400 ") and long.endswith(b"address.\n")
    assert client(server).get().status == 200
    wait_for(lambda: log.read_text().count(" 400 ") == 2 and log.read_text().count(" 200 ") == 1, "three lines")


def test_a_malformed_handshake_closes_the_connection(start, client):
    server = start({"certificate": "shop"}, environ={"HOWDAH_LOG": "info,howdah_router=debug"})
    for data in [b"\x16\x03\x01\x00\x05hello", b"\x80\x2e\x01\x00\x02", b"\0" * 100, b"\x16"]:
        with server.connect() as connection:
            connection.send(data)
            connection.socket.shutdown(socket.SHUT_WR)
            assert b"HTTP" not in connection.rest()
    with pytest.raises(ssl.SSLError):
        suspicious = client(server)
        suspicious.context = ssl.create_default_context()
        suspicious.get()
    wait_for(lambda: server.stderr.count("a TLS handshake failed") == 5, "five lines")
    assert "127.0.0.1" in server.stderr and "ERROR" not in server.stderr
    assert client(server).get().status == 200


def test_a_handshake_has_a_time_limit_and_blocks_no_other(start, client):
    config = OK | {"settings": {"http": {"header_read_timeout": 1}, "listen_threads": 1}}
    server = start({"certificate": "shop"}, config)
    silent = [server.connect() for _ in range(20)]
    for connection in silent[10:]:
        connection.send(b"\x16\x03\x01\x02\x00\x01")
    assert client(server).get().status == 200
    assert all(connection.is_closed() for connection in silent)
    assert client(server).get().status == 200


def test_an_idle_connection_is_closed_with_close_notify(start, client):
    server = start({"certificate": "shop"}, OK | {"settings": {"http": {"idle_timeout": 1}}})
    with client(server).connect() as connection:
        assert connection.request("GET", "/").status == 200
        # Without close_notify this would raise: suppress_ragged_eofs is off.
        connection.socket.suppress_ragged_eofs = False
        assert connection.socket.recv(1) == b""


def test_a_client_that_does_not_read_is_closed(start, client, folder):
    (folder.root / "large.bin").write_bytes(b"x" * 30_000_000)
    config = {
        "routes": [{"action": {"share": f"{folder.root}$uri"}}],
        "settings": {"http": {"send_timeout": 1}},
    }
    server = start({"certificate": "shop"}, config)
    with client(server).connect() as connection:
        connection.send_request("GET", "/large.bin")
        wait_for(lambda: server.api("GET", "/status/connections").json()["active"] == 0, "the end of the connection")


# --- Certificates


def test_a_certificate_is_uploaded_described_and_deleted(run, authority):
    server = run(OK)
    pem = authority.bundle("rsa.example", "*.rsa.example", key=("rsa:2048",))
    assert server.api("GET", "/certificates").json() == {}
    put(server, "rsa", pem)
    described = server.api("GET", "/certificates/rsa").json()
    assert server.api("GET", "/certificates").json() == {"rsa": described}
    assert server.api("GET", "/").json()["certificates"] == {"rsa": described}
    assert described["key"] == "RSA (2048 bits)"
    leaf, middle = described["chain"]
    assert leaf["subject"]["common_name"] == "rsa.example"
    assert leaf["subject"]["alt_names"] == ["rsa.example", "*.rsa.example"]
    assert (leaf["subject"]["state_or_province"], leaf["issuer"]["common_name"]) == ("Berlin", "Middle")
    dates = openssl("x509", "-noout", "-dates", cwd=authority.folder, input=pem.encode()).decode()
    assert dates == f"notBefore={leaf['validity']['since']}\nnotAfter={leaf['validity']['until']}\n"
    assert middle["issuer"] == {"common_name": "Root", "country": "DE", "organization": "Howdah Tests"}
    assert server.api("GET", "/certificates/rsa/chain/1/subject/common_name").json() == "Middle"
    assert server.api("GET", "/certificates/rsa/chain/7").json()["error"] == "Invalid path."
    assert server.api("DELETE", "/certificates/rsa").json() == {"success": "Certificate deleted."}
    assert server.api("GET", "/certificates/rsa").status == 404


def test_a_rejected_certificate_names_its_error(run, authority, bundles):
    server = run(OK)
    leaf, middle, key = [part + "\n" for part in bundles["shop"].replace("-----\n-----BEGIN", "-----\n\0-----BEGIN").split("\0")]
    encrypted = openssl("pkey", "-aes256", "-passout", "pass:x", cwd=authority.folder, input=key.encode()).decode()
    legacy = openssl("rsa", "-aes256", "-traditional", "-passout", "pass:x", cwd=authority.folder,
                     input=bundles["wild"].encode()).decode()  # fmt: skip
    p521 = authority.bundle("x.example", key=("ec", "-pkeyopt", "ec_paramgen_curve:P-521"))
    cases = [
        (leaf + middle, "there is no private key in it"),
        (key, "there is no certificate in it"),
        (leaf + encrypted, "the private key is encrypted; decrypt it: openssl pkey"),
        (leaf + legacy, "the private key is encrypted; decrypt it: openssl pkey"),
        (middle + key, "the private key belongs to none of the certificates"),
        (p521, "the private key cannot be used; howdah takes RSA"),
        ("", "there is no certificate in it"),
        (b"\xff\x00", "there is no certificate in it"),
    ]
    for pem, expected in cases:
        answer = server.api("PUT", "/certificates/x", pem)
        assert (answer.status, answer.json()["error"]) == (400, "Invalid certificate."), answer.text
        assert answer.json()["detail"].startswith(expected), answer.text
    for name in ["%2Fx", "..%2Fx", ".x", "..", "a%2Fb", "x" * 300]:
        answer = server.api("PUT", f"/certificates/{name}", bundles["shop"])
        assert (answer.status, answer.json()["error"]) == (400, "Invalid certificate name."), (name, answer.text)
    assert server.api("PUT", "/certificates", bundles["shop"]).status == 405
    assert server.api("DELETE", "/certificates/x").status == 404
    # Any order of the parts is accepted.
    put(server, "x", key + middle + leaf)
    put(server, "x", bundles["shop"])


def test_a_listener_names_certificates_that_exist(start, client):
    server = start(None, names=["shop"])
    answer = server.api("PUT", f"/config/{listener(server)}/tls", {"certificate": "shp"})
    assert answer.status == 400 and 'did you mean "shop"?' in answer.json()["detail"], answer.text
    assert server.get("/").status == 200
    configure(server, f"{listener(server)}/tls", {"certificate": "shop"})
    assert client(server).get().status == 200
    answer = server.api("DELETE", "/certificates/shop")
    assert (answer.status, answer.json()["error"]) == (400, "Certificate is used in the configuration.")
    assert server.api("DELETE", f"/config/{listener(server)}/tls").status == 200
    assert server.get("/").status == 200
    assert server.api("DELETE", "/certificates/shop").status == 200


def test_certificates_survive_a_restart(start, client, tmp_path, authority):
    (tmp_path / "state/certs").mkdir(parents=True)
    (tmp_path / "state/certs/broken").write_text("-----BEGIN CERTIFICATE-----\n")
    server = start(None, names=["shop"])
    wait_for(lambda: 'cannot use the stored certificate "broken": a block of PEM has no end' in server.stderr)
    put(server, "new", authority.bundle("new.example"))
    stored = tmp_path / "state/certs/new"
    assert stored.stat().st_mode & 0o777 == 0o600
    server.stop()
    server = start({"certificate": ["shop", "new"]})
    assert client(server, "new.example").common_name() == "new.example"


def test_an_expired_certificate_logs_a_warning(start, authority, run):
    server = run(OK)
    put(server, "old", authority.bundle("old.example", days=-1))
    wait_for(lambda: 'the certificate "old" expired on' in server.stderr)


def test_a_new_router_has_the_certificates(start, client):
    server = start({"certificate": "shop"})
    server.router().kill(signal.SIGKILL)
    # Connections wait in the backlog for the new router.
    assert client(server).get().status == 200


def test_a_certificate_is_renewed_without_losing_a_request(start, client, authority):
    server = start({"certificate": "shop"})
    failures, done, count = [], threading.Event(), [0, 0]

    def ask(place: int, keep: bool) -> None:
        asking = client(server)
        try:
            with asking.connect() as kept:
                while not done.is_set():
                    response = kept.request("GET", "/") if keep else asking.get()
                    assert response.status == 200
                    count[place] += 1
        except (OSError, AssertionError, ProtocolError) as error:
            failures.append(error)

    threads = [threading.Thread(target=ask, args=(place, place == 0)) for place in (0, 1)]
    [thread.start() for thread in threads]
    try:
        with client(server).connect() as waiting:
            used = "shop"
            for number in range(5):
                before = list(count)
                put(server, f"shop{number}", authority.bundle("shop.example", f"n{number}.example"))
                configure(server, f"{listener(server)}/tls/certificate", f"shop{number}")
                assert server.api("DELETE", f"/certificates/{used}").status == 200
                used = f"shop{number}"
                wait_for(lambda: failures or all(now > then for now, then in zip(count, before)), "requests")
                with client(server, f"n{number}.example").connect():
                    pass
            # This connection is older than all renewals.
            assert waiting.request("GET", "/").status == 200
    finally:
        done.set()
        [thread.join() for thread in threads]
    assert not failures


@pytest.mark.parametrize("full", [False, True])
def test_a_certificate_is_replaced_under_its_name(start, client, authority, tmp_path, full):
    """All threads of the router use it for new connections, and old connections stay. Its file is replaced whole: a state
    directory without space keeps the old one."""
    server = start({"certificate": ["shop", "blog"], "hsts": {}})
    with client(server).connect() as waiting:
        assert waiting.request("GET", "/").header("Strict-Transport-Security") == "max-age=31536000"
        stored = tmp_path / "state/certs/shop"
        old = stored.read_text()
        new = authority.bundle("new.example", "shop.example")
        if full:
            (tmp_path / "state/certs/.shop.new").mkdir()
            answer = server.api("PUT", "/certificates/shop", new)
            assert (answer.status, answer.json()["error"]) == (500, "Failed to store certificate."), answer.text
            assert stored.read_text() == old and client(server).common_name() == "shop.example"
        else:
            put(server, "shop", new)
            # The router has several threads.
            wait_for(lambda: [client(server).common_name() for _ in range(20)] == 20 * ["new.example"])
            assert stored.read_text() != old and client(server, "blog.example").common_name() == "blog.example"
            authority_only = (authority.folder / "root.pem").read_text()
            answer = server.api("PUT", "/certificates/shop", authority_only)
            assert answer.status == 400 and "its private key is needed" in answer.json()["detail"]
            server.router().kill(signal.SIGKILL)
            assert client(server).common_name() == "new.example", "a new router has the new one"
            return
        assert waiting.request("GET", "/").status == 200


def test_private_keys_are_never_returned(start, client, bundles, tmp_path):
    key = "S0VZ" * 16
    tls = {"certificate": ["shop", "blog", "wild"], "session": {"tickets": key}}
    server = start(tls, environ={"HOWDAH_LOG": "trace"})
    assert client(server).get().status == 200
    server.api("PUT", "/certificates/bad", bundles["shop"].replace("END PRIVATE", "END OTHER"))
    server.api("PUT", "/certificates/bad", bundles["blog"] + bundles["shop"])
    answers = [server.api("GET", path).text for path in ("/certificates", "/status")]
    visible = server.stdout + server.stderr + "".join(answers)
    for bundle in bundles.values():
        secret = bundle.split("PRIVATE KEY-----")[1].splitlines()[1:-1]
        assert secret and not any(line in visible for line in secret)
    assert key not in visible
    for process in server.processes():
        environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        assert b"PRIVATE KEY" not in environment and b"PRIVATE" not in process.title.encode()
