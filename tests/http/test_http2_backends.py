"""Applications of all types, and certificates of clients, over HTTP/2."""

import json
import ssl

import pytest

from support.fastcgi import Fpm, fastcgi_application
from support.http.http2 import Http2Connection
from support.http.tls import Authority, put
from support.http_applications import http_application
from support.roadrunner_applications import roadrunner_application


def configuration(application, **listener) -> dict:
    return {
        "listeners": {"127.0.0.1:{port}": {"pass": "applications/app", "http2": True, **listener}},
        "applications": {"app": application},
    }


def connect(server, **how) -> Http2Connection:
    return Http2Connection((server.host, server.port), **how)


def test_a_worker_of_roadrunner_gets_requests(run, folder):
    with connect(run(configuration(roadrunner_application(folder))), name="shop.example") as connection:
        page = json.loads(connection.request(path="/context?b=c", headers=[("cookie", "d=1"), ("cookie", "e=2")]).text)
        assert page["context"]["protocol"] == "HTTP/2.0" and page["context"]["uri"] == "http://shop.example/context?b=c"
        assert page["context"]["cookies"] == {"d": "1", "e": "2"}
        streams = [connection.begin("POST", "/echo", body=b"x" * size) for size in (0, 1, 40_000)]
        for stream, size in zip(streams, (0, 1, 40_000)):
            assert connection.response(stream).body == b"x" * size


def test_a_process_of_an_http_application_gets_requests(run, folder):
    with connect(run(configuration(http_application(folder, address="unix")))) as connection:
        streams = [connection.begin(path="/") for _ in range(3)]
        assert {json.loads(connection.response(stream).text)["version"] for stream in streams} == {"1"}
        assert connection.request("POST", "/", body=b"x" * 50_000).status == 200


def test_php_fpm_gets_requests(run, folder):
    folder.php("server.php", "echo json_encode($_SERVER);")
    folder.php("body.php", "echo strlen(file_get_contents('php://input')), ' ', $_SERVER['CONTENT_LENGTH'] ?? '-';")
    folder.php("large.php", "echo str_repeat('x', 300_000);")
    with Fpm() as fpm, connect(run(configuration(fastcgi_application(folder, fpm.address))), name="shop.example") as connection:
        seen = json.loads(connection.request(path="/server.php?a=b", headers=[("cookie", "c=1"), ("cookie", "d=2")]).text)
        expected = {"SERVER_PROTOCOL": "HTTP/2.0", "HTTP_HOST": "shop.example", "QUERY_STRING": "a=b", "HTTP_COOKIE": "c=1; d=2"}
        assert {name: seen.get(name) for name in expected} == expected
        streams = [connection.begin(path="/large.php") for _ in range(5)]
        for stream in streams:
            assert len(connection.response(stream).body) == 300_000
        # The length is that of the whole body, whether the client has announced it or not.
        assert connection.request("POST", "/body.php", body=b"x" * 50_000).text == "50000 50000"
        assert connection.request(path="/body.php").text == "0 -"
        assert connection.request(path="/missing.php").status == 404


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


def test_php_sees_the_certificate_of_a_client(run, folder, authority):
    folder.php("index.php", "echo json_encode($_SERVER);")
    server = run(configuration({"type": "php", "root": str(folder.root), "processes": 1}))
    put(server, "shop", authority.bundle("shop.example"))
    put(server, "staff", (authority.folder / "root.pem").read_text())
    tls = {"certificate": "shop", "client_ca": "staff"}
    assert server.api("PUT", f"/config/listeners/127.0.0.1:{server.port}/tls", tls).status == 200
    context = ssl.create_default_context(cafile=authority.root)
    client = authority.folder / "client.pem"
    client.write_text(authority.bundle("zoe"))
    context.load_cert_chain(client)
    with connect(server, context=context, name="shop.example") as connection:
        for _ in range(2):
            seen = json.loads(connection.request(path="/index.php").text)
            assert seen["SSL_CLIENT_VERIFY"] == "SUCCESS" and seen["SSL_CLIENT_S_DN"].startswith("CN=zoe,")
            assert seen["SERVER_PROTOCOL"] == "HTTP/2.0" and seen["HTTPS"] == "on"
    # Without a certificate, the connection ends.
    stranger = ssl.create_default_context(cafile=authority.root)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        with connect(server, context=stranger, name="shop.example") as connection:
            stream = connection.request(path="/index.php")
            if not stream.heads:
                raise ConnectionError
