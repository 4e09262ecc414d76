"""settings/http/compression: compressed responses, encodings, headers. See docs/compression.md."""

import gzip
import json
import os
import threading
import time
import zlib

import brotli
import pytest
import zstandard

from support.folders import Folder, readable
from support.http.upstream import Upstream, answers, ok
from support.processes import open_files
from support.server import Howdah, stop_all
from support.waiting import wait_for

TEXT = "".join(f"<li>item {number * 7919 % 1000}</li>\n" for number in range(400))
PHP_TEXT = json.dumps(TEXT)
ALL = [{"encoding": "zstd"}, {"encoding": "br"}, {"encoding": "gzip"}, {"encoding": "deflate"}]
DECODERS = {
    "zstd": lambda body: zstandard.ZstdDecompressor().decompressobj().decompress(body),
    "br": brotli.decompress,
    "gzip": gzip.decompress,
    "deflate": zlib.decompress,
}


def config(folder, compression, **others) -> dict:
    return {
        "listeners": {"127.0.0.1:{port}": {"pass": "routes"}},
        "routes": [
            {"match": {"uri": "*.php"}, "action": {"pass": "applications/app"}},
            {"action": {"share": f"{folder.root}$uri", **others}},
        ],
        "applications": {
            "app": {
                "type": "php",
                "root": str(folder.root),
                "processes": 2,
                "options": {"admin": {"output_buffering": "0"}},
            }
        },
        "settings": {"http": {"compression": compression}},
    }


@pytest.fixture
def files(folder):
    return with_files(folder)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A server for this compression: one for all tests of the module that ask for the same."""
    folder = with_files(Folder(readable(tmp_path_factory.mktemp("compression"))))
    servers: dict[str, Howdah] = {}

    def server(compression) -> Howdah:
        key = json.dumps(compression)
        if key not in servers:
            servers[key] = Howdah.run(config(folder, compression))
        return servers[key]

    yield server
    stop_all(servers.values())


def with_files(folder: Folder) -> Folder:
    folder.write("page.html", TEXT)
    folder.write("short.html", "short")
    folder.write("empty.html", "")
    folder.write("large.html", TEXT * 200)
    folder.write("picture.png", TEXT)
    folder.write("text.txt", TEXT)
    folder.php("page.php", f"echo {PHP_TEXT};")
    folder.php("large.php", f"for ($n = 0; $n < 200; $n++) {{ echo {PHP_TEXT}; }}")
    return folder


def plain(response) -> bytes:
    encoding = response.header("Content-Encoding")
    return DECODERS[encoding](response.body) if encoding else response.body


# --- Which responses are compressed


@pytest.mark.parametrize("encoding", DECODERS)
@pytest.mark.parametrize("target", ["/page.html", "/large.html", "/page.php", "/large.php"])
def test_encoded_bodies_decode_to_the_original(shared, encoding, target):
    server = shared({"types": ["text/*"], "compressors": ALL})
    with server.connect() as connection:
        as_it_is = connection.request("GET", target)
        assert as_it_is.header("Content-Encoding") is None
        compressed = connection.request("GET", target, {"Accept-Encoding": encoding})
        assert compressed.header("Content-Encoding") == encoding
        assert len(compressed.body) < len(as_it_is.body) / 3 and plain(compressed) == as_it_is.body
        assert compressed.header("Content-Type") == as_it_is.header("Content-Type")
        for response in (as_it_is, compressed):
            assert response.header("Vary") == "Accept-Encoding"
        assert connection.request("GET", "/short.html").text == "short"


@pytest.mark.parametrize("encoding, levels", [("zstd", (-7, 22)), ("br", (0, 11)), ("gzip", (0, 9)), ("deflate", (-1, 9))])
def test_the_lowest_and_the_highest_level_work(files, run, encoding, levels):
    for level in levels:
        server = run(config(files, {"compressors": {"encoding": encoding, "level": level}}))
        for target in ("/page.html", "/page.php"):
            response = server.get(target, {"Accept-Encoding": encoding})
            assert response.header("Content-Encoding") == encoding and plain(response) == TEXT.encode(), level


@pytest.mark.parametrize(
    "accept, expected",
    [
        (None, None),
        ("", None),
        ("identity", None),
        ("zstd, br, gzip", "br"),
        ("gzip, br", "br"),
        ("gzip;q=1, br;q=0.9", "gzip"),
        ("br;q=0, *", "gzip"),
        ("*", "br"),
        ("zstd", None),
        ("gzip;q=0.5, identity", None),
        ("br;q=nonsense, gzip;q=0.1", "gzip"),
    ],
)
@pytest.mark.parametrize("target", ["/page.html", "/page.php"])
def test_accept_encoding_and_configuration_choose_the_encoding(shared, target, accept, expected):
    server = shared({"compressors": [{"encoding": "br"}, {"encoding": "gzip"}]})
    response = server.get(target, {} if accept is None else {"Accept-Encoding": accept})
    assert response.header("Content-Encoding") == expected
    assert response.header("Vary") == "Accept-Encoding" and plain(response) == TEXT.encode()


def test_content_type_and_length_decide_about_compression(files, run):
    compressors = [{"encoding": "zstd", "min_length": 100_000}, {"encoding": "gzip", "min_length": 6}]
    server = run(config(files, {"types": ["text/*", "!text/plain"], "compressors": compressors}))
    accept = {"Accept-Encoding": "zstd, gzip"}
    for target, encoding in [
        ("/page.html", "gzip"),
        ("/large.html", "zstd"),
        ("/short.html", None),
        ("/empty.html", None),
        ("/picture.png", None),
        ("/text.txt", None),
        ("/page.php", "gzip"),
        ("/large.php", "zstd"),
        ("/missing.html", None),
    ]:
        response = server.get(target, accept)
        assert response.header("Content-Encoding") == encoding, target
        assert (response.header("Vary") is not None) == (encoding is not None), target


def test_headers_of_a_script_can_prevent_compression(files, run):
    cases = {
        "encoded": ("header('Content-Encoding: gzip'); echo gzencode(TEXT);", "gzip"),
        "transform": ("header('Cache-Control: private, no-transform'); echo TEXT;", None),
        "nothing": ("http_response_code(204);", None),
        "not modified": ("http_response_code(304);", None),
        "untyped": ("ini_set('default_mimetype', ''); header_remove('Content-Type'); echo TEXT;", None),
        "range": ("http_response_code(206); header('Content-Range: bytes 0-3/4'); echo TEXT;", None),
        "zlib": ("ini_set('zlib.output_compression', '1'); echo TEXT;", "gzip"),
        "an error": ("http_response_code(500); echo TEXT;", "br"),
        "a length": ("header('Content-Length: ' . strlen(TEXT)); echo TEXT;", "br"),
        "a wrong length": ("header('Content-Length: 5'); echo TEXT;", "br"),
        "vary": ("header('Vary: Cookie'); echo TEXT;", "br"),
    }
    for name, (code, _) in cases.items():
        files.php(f"{name}.php", f"const TEXT = {PHP_TEXT}; {code}")
    server = run(config(files, {"compressors": [{"encoding": "br"}, {"encoding": "gzip"}]}))
    with server.connect() as connection:
        for name, (_, encoding) in cases.items():
            response = connection.request("GET", f"/{name.replace(' ', '%20')}.php", {"Accept-Encoding": "gzip, br"})
            assert response.header("Content-Encoding") == encoding, name
            if response.status not in (204, 304):
                assert plain(response) == TEXT.encode(), name
        assert response.all("Vary") == ["Cookie", "Accept-Encoding"]


# --- Caches


def test_a_compressed_file_has_a_weak_validator_that_works(files, run):
    server = run(config(files, {"types": "text/*", "compressors": {"encoding": "gzip"}}))
    accept = {"Accept-Encoding": "gzip"}
    with server.connect() as connection:
        strong = connection.request("GET", "/page.html").header("ETag")
        first = connection.request("GET", "/page.html", accept)
        weak = first.header("ETag")
        assert weak == "W/" + strong and first.header("Last-Modified")
        for headers, tag in [
            ({**accept, "If-None-Match": weak}, weak),
            ({**accept, "If-None-Match": strong}, weak),
            ({"If-None-Match": weak}, strong),
            ({**accept, "If-Modified-Since": first.header("Last-Modified")}, weak),
        ]:
            response = connection.request("GET", "/page.html", headers)
            assert (response.status, response.header("ETag"), response.header("Vary")) == (304, tag, "Accept-Encoding")
            assert response.header("Content-Encoding") is None
        assert connection.request("GET", "/page.html", {**accept, "If-None-Match": '"other"'}).status == 200
        # RFC 9110, 13.1.1: a weak validator is not enough here.
        assert connection.request("GET", "/page.html", {**accept, "If-Match": weak}).status == 412
        assert connection.request("GET", "/picture.png", accept).header("ETag")[0] == '"'


def test_a_range_is_a_range_of_the_uncompressed_file(files, run):
    server = run(config(files, {"compressors": {"encoding": "gzip"}}))
    accept = {"Accept-Encoding": "gzip"}
    with server.connect() as connection:
        whole = connection.request("GET", "/page.html", accept)
        assert whole.header("Accept-Ranges") is None
        part = connection.request("GET", "/page.html", {**accept, "Range": "bytes=10-19"})
        assert (part.status, part.text) == (206, TEXT[10:20])
        assert part.header("Content-Encoding") is None and part.header("Vary") == "Accept-Encoding"
        assert part.header("ETag")[0] == '"', "a range is a range of the file"
        # A client with a part of the compressed file cannot continue with a part of the plain one.
        headers = {**accept, "Range": "bytes=10-19", "If-Range": whole.header("ETag")}
        response = connection.request("GET", "/page.html", headers)
        assert (response.status, response.header("Content-Encoding")) == (200, "gzip")


@pytest.mark.parametrize("target", ["/page.html", "/page.php", "/short.html", "/picture.png"])
@pytest.mark.parametrize("accept", ["gzip", "identity"])
def test_head_has_the_same_headers_as_get(shared, target, accept):
    server = shared({"types": "text/*", "compressors": {"encoding": "gzip"}})
    with server.connect() as connection:
        got, head = (connection.request(method, target, {"Accept-Encoding": accept}) for method in ("GET", "HEAD"))
        assert head.body == b""
        framing = ("date", "content-length", "transfer-encoding")
        without = [[(k, v) for k, v in r.headers if k.lower() not in framing] for r in (got, head)]
        assert without[0] == without[1]
        if (length := head.header("Content-Length")) is not None and accept == "identity":
            assert length == got.header("Content-Length")
        assert head.header("Content-Encoding") is None or head.header("Content-Length") is None


def test_a_client_that_accepts_no_available_encoding_gets_406(files, run):
    server = run(config(files, {"types": "text/*", "compressors": {"encoding": "gzip"}}))
    refuses = {"Accept-Encoding": "br, identity;q=0"}
    assert server.get("/page.html", refuses).status == 406
    assert server.get("/page.php", refuses).status == 406
    assert server.request("POST", "/page.php", refuses, "x").text == TEXT, "a request that may have had effects is answered"
    assert server.get("/picture.png", refuses).status == 200
    accepts = {"Accept-Encoding": "gzip, identity;q=0"}
    assert server.get("/page.html", accepts).header("Content-Encoding") == "gzip"


# --- Streams


@pytest.mark.parametrize("compressor", [*ALL, {"encoding": "br", "level": 11}, {"encoding": "zstd", "level": 19}])
def test_flushed_output_reaches_the_client_compressed(files, run, compressor):
    go = files.scratch / "go"
    files.php("slow.php", "echo 'first '; flush(); await(SCRATCH . '/go'); echo 'second';")
    server = run(config(files, {"compressors": compressor}))
    encoding = compressor["encoding"]
    decoder = {
        "zstd": lambda: zstandard.ZstdDecompressor().decompressobj().decompress,
        "br": lambda: brotli.Decompressor().process,
        "gzip": lambda: zlib.decompressobj(31).decompress,
        "deflate": lambda: zlib.decompressobj().decompress,
    }[encoding]()
    with server.connect() as connection:
        connection.send_request("GET", "/slow.php", {"Accept-Encoding": encoding})
        response, body = connection.stream()
        assert response.header("Content-Encoding") == encoding
        text = b""
        while text != b"first ":
            text += decoder(next(body))
        go.touch()
        assert text + b"".join(decoder(piece) for piece in body) == b"first second"
        go.unlink()


@pytest.mark.parametrize("target", ["/large.html", "/large.php", "/page.php"])
def test_a_http_1_0_client_gets_a_compressed_body(files, run, target):
    server = run(config(files, {"compressors": {"encoding": "gzip"}}))
    head, body = server.raw(b"GET %b HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n" % target.encode()).split(b"\r\n\r\n", 1)
    assert b"content-encoding: gzip" in head.lower() and b"transfer-encoding" not in head.lower()
    assert gzip.decompress(body).decode() in (TEXT, TEXT * 200)


def test_proxied_responses_are_compressed(files, run):
    body = ok(TEXT.encode(), b"Content-Type: text/html", b'ETag: "a"')
    encoded = ok(gzip.compress(TEXT.encode()), b"Content-Type: text/html", b"Content-Encoding: gzip")
    with Upstream(answers(lambda request: encoded if "encoded" in request.line else body)) as upstream:
        configuration = config(files, {"types": "text/*", "compressors": [{"encoding": "br"}]})
        configuration["routes"] = [{"action": {"proxy": upstream.url}}]
        server = run(configuration)
        accept = {"Accept-Encoding": "gzip, br"}
        with server.connect() as connection:
            response = connection.request("GET", "/", accept)
            assert (response.header("Content-Encoding"), response.header("ETag")) == ("br", 'W/"a"')
            assert plain(response) == TEXT.encode()
            response = connection.request("GET", "/encoded", accept)
            assert response.header("Content-Encoding") == "gzip" and plain(response) == TEXT.encode()


@pytest.mark.load
def test_a_slow_compression_level_does_not_delay_other_requests(files, run):
    """Compression of this file takes seconds; meanwhile other requests are answered."""
    noise = os.urandom(1 << 19).hex()
    files.write("huge.txt", noise)
    configuration = config(files, {"types": "text/plain", "compressors": [{"encoding": "br", "level": 11}]})
    configuration["settings"]["listen_threads"] = 1
    server = run(configuration)
    results = []

    def fetch():
        with server.connect(timeout=120) as connection:
            results.append(connection.request("GET", "/huge.txt", {"Accept-Encoding": "br"}))

    clients = [threading.Thread(target=fetch) for _ in range(2)]
    for client in clients:
        client.start()
    longest, answers = 0.0, 0
    while any(client.is_alive() for client in clients):
        begin = time.monotonic()
        assert server.get("/short.html").text == "short"
        longest, answers = max(longest, time.monotonic() - begin), answers + 1
        time.sleep(0.005)
    assert [plain(result).decode() == noise for result in results] == [True, True]
    assert answers > 10 and longest < 1, f"{answers} answers, the slowest after {longest:.2f} s"


def test_a_client_that_disconnects_stops_its_compression(files, run):
    files.write("huge.txt", os.urandom(8 << 20).hex())
    server = run(config(files, {"compressors": [{"encoding": "zstd", "level": 19}, {"encoding": "gzip"}]}))
    for encoding in ("zstd", "gzip"):
        for _ in range(5):
            with server.connect() as connection:
                connection.send_request("GET", "/huge.txt", {"Accept-Encoding": encoding})
                next(connection.stream()[1])
    assert plain(server.get("/page.html", {"Accept-Encoding": "gzip"})) == TEXT.encode()
    router = server.router().pid
    wait_for(lambda: not [target for target in open_files(router).values() if "huge" in target], "closed files")


def test_the_access_log_counts_what_was_sent(files, run):
    log = files.scratch / "log"
    configuration = config(files, {"compressors": {"encoding": "gzip"}})
    configuration["access_log"] = {"path": str(log), "format": "$uri $body_bytes_sent $response_header_content_encoding"}
    server = run(configuration)
    body = server.get("/large.html", {"Accept-Encoding": "gzip"}).body
    wait_for(lambda: log.read_text() == f"/large.html {len(body)} gzip\n", "the line")


# --- Configuration


def test_a_configuration_change_applies_to_the_next_request(files, run):
    server = run(config(files, {"compressors": {"encoding": "gzip"}}))
    place = "/config/settings/http"
    accept = {"Accept-Encoding": "gzip, br"}
    with server.connect() as connection:
        assert connection.request("GET", "/page.html", accept).header("Content-Encoding") == "gzip"
        assert server.api("PUT", f"{place}/compression/compressors", [{"encoding": "br"}]).status == 200
        assert connection.request("GET", "/page.html", accept).header("Content-Encoding") == "br"
        assert server.api("PUT", f"{place}/compression/types", ["image/*"]).status == 200
        assert connection.request("GET", "/page.html", accept).header("Content-Encoding") is None
        assert server.api("DELETE", f"{place}/compression").status == 200
        assert connection.request("GET", "/picture.png", accept).header("Content-Encoding") is None
        assert connection.request("POST", "/page.php", (), [b"x"]).status == 411
    with server.connect() as connection:
        assert server.api("PUT", f"{place}/chunked_transform", True).status == 200
        assert connection.request("POST", "/page.php", (), [b"x"]).status == 200
        files.php("headers.php", "echo isset($_SERVER['HTTP_X_Y']) ? 'there' : 'not there';")
        assert connection.request("GET", "/headers.php", {"X_Y": "1"}).text == "not there"
        assert server.api("PUT", f"{place}/discard_unsafe_fields", False).status == 200
        assert connection.request("GET", "/headers.php", {"X_Y": "1"}).text == "there"
        assert connection.request("GET", "/page.html").header("Server").startswith("howdah/")
        assert server.api("PUT", f"{place}/server_version", False).status == 200
        assert connection.request("GET", "/page.html").header("Server") == "howdah"


@pytest.mark.parametrize(
    "compression, error",
    [
        ({"compressors": {"encoding": "lzma"}}, 'compressors/encoding: "lzma" is not an encoding'),
        ({"compressors": [{"encoding": "gzip", "level": 10}]}, "compressors/0/level: 10 is out of range"),
        ({"compressors": {"encoding": "br", "min_length": -1}}, "compressors/min_length: -1 is out of range"),
        ({"types": 1}, "types: expected a string or an array of strings"),
    ],
)
def test_a_wrong_value_is_rejected(files, run, compression, error):
    server = run(config(files, {"compressors": {"encoding": "gzip"}}))
    answer = server.api("PUT", "/config/settings/http/compression", compression)
    assert answer.status == 400 and error in answer.json()["detail"]
    assert server.get("/page.html", {"Accept-Encoding": "gzip"}).header("Content-Encoding") == "gzip"
