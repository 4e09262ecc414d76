"""Static files: responses, validators, ranges, folders."""

import hashlib
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

# --- Responses


def test_the_etag_has_its_usual_case_on_the_wire(folder, serve):
    folder.write("a.txt", "hello")
    server = serve()
    etag = server.get("/a.txt").header("ETag").encode()
    request = b"GET /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    for condition, status in ((b"", b"200"), (b"If-None-Match: " + etag + b"\r\n", b"304")):
        raw = server.raw(request + condition + b"\r\n")
        assert raw[9:12] == status and b"\r\nETag: " + etag + b"\r\n" in raw, raw


@pytest.mark.parametrize(
    "name, kind",
    [
        ("a.html", "text/html"),
        ("a.htm", "text/html"),
        ("a.css", "text/css"),
        ("a.js", "javascript"),
        ("a.mjs", "javascript"),
        ("a.json", "application/json"),
        ("a.xml", "xml"),
        ("a.txt", "text/plain"),
        ("a.svg", "image/svg+xml"),
        ("a.png", "image/png"),
        ("a.jpg", "image/jpeg"),
        ("a.jpeg", "image/jpeg"),
        ("a.gif", "image/gif"),
        ("a.webp", "image/webp"),
        ("a.avif", "image/avif"),
        ("a.ico", "icon"),
        ("a.woff2", "font/woff2"),
        ("a.wasm", "application/wasm"),
        ("a.pdf", "application/pdf"),
        ("a.mp4", "video/mp4"),
        ("a.zip", "application/zip"),
        ("A.PNG", "image/png"),
        ("two.dots.css", "text/css"),
    ],
)
def test_the_content_type_follows_from_the_extension(site, server, name, kind):
    site.write(name, "content")
    response = server.get("/" + name)
    assert response.status == 200 and response.text == "content"
    assert kind in response.header("Content-Type")


def test_a_file_without_a_known_extension_has_a_harmless_content_type(site, server):
    for name in ("README", "a.unknown-type"):
        site.write(name, "<script>")
        kind = server.get("/" + name).header("Content-Type")
        assert kind is None or kind.startswith(("application/octet-stream", "text/plain")), kind


def test_types_of_the_configuration(folder, run):
    folder.write("a.thing", "x")
    folder.write("a.css", "x")
    config = {
        "listeners": {"127.0.0.1:{port}": {"pass": "routes"}},
        "routes": [{"action": {"share": f"{folder.root}$uri"}}],
        "settings": {"http": {"static": {"mime_types": {"text/x-thing": [".thing"]}}}},
    }
    server = run(config)
    assert server.get("/a.thing").header("Content-Type").startswith("text/x-thing")
    assert server.get("/a.css").header("Content-Type").startswith("text/css")


@pytest.mark.parametrize("size", [0, 1, 4096, 65536, 1_000_003, 50_000_000])
def test_a_file_of_any_size_is_intact(site, server, size):
    content = os.urandom(size)
    site.write("sized.bin", content)
    with server.connect() as connection:
        response = connection.request("GET", "/sized.bin")
        assert response.header("Content-Length") == str(size)
        assert hashlib.sha1(response.body).digest() == hashlib.sha1(content).digest()
        assert connection.request("HEAD", "/sized.bin").header("Content-Length") == str(size)
        assert connection.request("GET", "/pid.php").status == 200


@pytest.mark.parametrize(
    "name, target",
    [
        ("with space.txt", "/with%20space.txt"),
        ("ünï.txt", "/%C3%BCn%C3%AF.txt"),
        ("plus+sign.txt", "/plus+sign.txt"),
        ("percent%41.txt", "/percent%2541.txt"),
        ("question?.txt", "/question%3F.txt"),
        ("hash#.txt", "/hash%23.txt"),
        ("a&b;c=d.txt", "/a&b;c=d.txt"),
        ("sub/deep/er.txt", "/sub/deep/er.txt"),
        ("sub/deep/er.txt", "/sub//deep/./er.txt"),
        ("sub/deep/er.txt", "/sub/other/../deep/er.txt?query=ignored"),
        ("plain.txt", "/pl%61in.txt"),
    ],
)
def test_targets_decode_to_file_names(site, server, name, target):
    site.write(name, f"content of {name}")
    response = server.get(target)
    assert (response.status, response.text) == (200, f"content of {name}")


def test_head_has_the_headers_of_get(site, server):
    site.write("hello.txt", "hello")
    head, get = server.request("HEAD", "/hello.txt"), server.get("/hello.txt")
    assert head.body == b"" and head.status == 200
    names = ("Content-Length", "Content-Type", "ETag", "Last-Modified", "Accept-Ranges")
    assert [head.header(name) for name in names] == [get.header(name) for name in names]
    assert get.header("Content-Length") == "5" and get.header("ETag") and get.header("Last-Modified")


def test_a_changed_file_is_sent_in_its_new_version(site, server):
    tags = set()
    for number in range(5):
        path = site.write("changing.txt", f"version {number}")
        os.utime(path, (1_700_000_000 + number,) * 2)
        response = server.get("/changing.txt")
        assert response.text == f"version {number}"
        tags.add(response.header("ETag"))
    assert len(tags) == 5


def test_many_clients_get_the_same_file(site, server):
    content = os.urandom(3_000_000)
    site.write("shared.bin", content)
    with ThreadPoolExecutor(16) as pool:
        assert all(answer.body == content for answer in pool.map(lambda _: server.get("/shared.bin"), range(64)))


# --- Conditional requests


@pytest.fixture
def known(site, server):
    """A file whose ETag and date are known."""
    path = site.write("known.txt", "0123456789")
    os.utime(path, (1_700_000_000,) * 2)
    response = server.get("/known.txt")
    assert response.header("Last-Modified") == "Tue, 14 Nov 2023 22:13:20 GMT"
    tag = response.header("ETag")
    assert tag.removeprefix("W/").startswith('"') and tag.endswith('"')
    return tag


BEFORE, AT, AFTER = (
    time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(1_700_000_000 + offset)) for offset in (-60, 0, 60)
)


@pytest.mark.parametrize(
    "headers, status",
    [
        ({"If-None-Match": "TAG"}, 304),
        ({"If-None-Match": "W/TAG"}, 304),
        ({"If-None-Match": '"other", TAG'}, 304),
        ({"If-None-Match": "*"}, 304),
        ({"If-None-Match": '"other"'}, 200),
        ({"If-Modified-Since": AT}, 304),
        ({"If-Modified-Since": AFTER}, 304),
        ({"If-Modified-Since": BEFORE}, 200),
        ({"If-Modified-Since": "nonsense"}, 200),
        ({"If-None-Match": '"other"', "If-Modified-Since": AFTER}, 200),
        ({"If-None-Match": "TAG", "If-Modified-Since": BEFORE}, 304),
        ({"If-Match": '"other"'}, 412),
        ({"If-Match": "*"}, 200),
        ({"If-Unmodified-Since": BEFORE}, 412),
        ({"If-Unmodified-Since": AFTER}, 200),
    ],
)
def test_conditional_requests_compare_validators(server, known, headers, status):
    headers = {
        name: value.replace("W/TAG", "W/" + known.removeprefix("W/")).replace("TAG", known)
        for name, value in headers.items()
    }
    with server.connect() as connection:
        for method in ("GET", "HEAD"):
            response = connection.request(method, "/known.txt", headers)
            assert response.status == status
            if status == 304:
                assert response.body == b"" and response.header("ETag") == known
            elif status == 200 and method == "GET":
                assert response.text == "0123456789"


# --- Ranges


@pytest.mark.parametrize(
    "value, content, described",
    [
        ("bytes=0-0", "0", "bytes 0-0/10"),
        ("bytes=2-5", "2345", "bytes 2-5/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=-3", "789", "bytes 7-9/10"),
        ("bytes=-100", "0123456789", "bytes 0-9/10"),
        ("bytes=5-100", "56789", "bytes 5-9/10"),
        ("bytes=9-9", "9", "bytes 9-9/10"),
    ],
)
def test_a_range_is_sent_as_206(server, known, value, content, described):
    response = server.get("/known.txt", {"Range": value})
    assert (response.status, response.text) == (206, content)
    assert response.header("Content-Range") == described
    assert response.header("Content-Length") == str(len(content))


def test_ranges_are_announced(server, known):
    assert server.get("/known.txt").header("Accept-Ranges") == "bytes"


@pytest.mark.parametrize("value", ["bytes=10-", "bytes=10-20", "bytes=99-100", "bytes=-0"])
def test_a_range_outside_the_file_gives_416(server, known, value):
    response = server.get("/known.txt", {"Range": value})
    assert response.status == 416 and response.header("Content-Range") == "bytes */10"
    assert b"0123456789" not in response.body


@pytest.mark.parametrize(
    "value", ["bytes=5-2", "bytes=a-b", "lines=1-2", "bytes", "bytes=", "bytes=--1", "bytes=1-2-3"]
)
def test_a_malformed_range_is_ignored(server, known, value):
    response = server.get("/known.txt", {"Range": value})
    assert (response.status, response.text) in ((200, "0123456789"), (416, response.text))


def test_several_ranges_are_sent_as_multipart(server, known):
    """The response has all ranges or the whole file, and is never labelled as the other."""
    response = server.get("/known.txt", {"Range": "bytes=0-1,5-6"})
    if response.status == 206:
        assert response.header("Content-Type").startswith("multipart/byteranges")
        assert b"bytes 0-1/10" in response.body and b"bytes 5-6/10" in response.body
    else:
        assert (response.status, response.text) == (200, "0123456789")


def test_many_overlapping_ranges_do_not_multiply_the_file(site, server):
    site.write("large.txt", b"x" * 1_000_000)
    response = server.get("/large.txt", {"Range": "bytes=" + ",".join(["0-"] * 1000)})
    assert response.status in (200, 206, 416) and len(response.body) <= 2_000_000


def test_if_range_requires_the_same_version(server, known):
    assert server.get("/known.txt", {"Range": "bytes=2-5", "If-Range": '"other"'}).text == "0123456789"
    assert server.get("/known.txt", {"Range": "bytes=2-5", "If-Range": BEFORE}).text == "0123456789"
    if not known.startswith("W/"):
        assert server.get("/known.txt", {"Range": "bytes=2-5", "If-Range": known}).text == "2345"


def test_a_range_of_a_large_file_is_exact(site, server):
    content = os.urandom(10_000_000)
    site.write("large.bin", content)
    response = server.get("/large.bin", {"Range": "bytes=5000000-8999999"})
    assert response.status == 206 and response.body == content[5_000_000:9_000_000]


def test_a_range_does_not_apply_to_php(site):
    assert site.get("echo '0123456789';", {"Range": "bytes=2-5"}).text == "0123456789"


# --- Folders


def test_a_folder_is_served_by_its_index(site, server):
    site.write("with-html/index.html", "html index")
    site.php("with-php/index.php", "echo 'php index ', $_SERVER['SCRIPT_NAME'];")
    site.write("with-both/index.html", "html")
    site.php("with-both/index.php", "echo 'php';")
    assert server.get("/with-html/").text == "html index"
    assert server.get("/with-html/?a=1").text == "html index"
    assert server.get("/with-php/").text == "php index /with-php/index.php"
    assert server.get("/with-both/").text == "php"


def test_a_folder_without_a_slash_is_redirected(site, server):
    site.write("with-html/index.html", "html index")
    site.write("with space ü/index.html", "x")
    for target, location in [
        ("/with-html", "/with-html/"),
        ("/with-html?a=1&b=%20", "/with-html/?a=1&b=%20"),
        ("/with%20space%20%C3%BC", "/with%20space%20%C3%BC/"),
    ]:
        response = server.get(target)
        assert response.status == 301
        assert response.header("Location").removeprefix(f"http://127.0.0.1:{server.port}") == location


def test_a_folder_without_an_index_is_not_listed(site, server):
    site.write("no-index/secret-name.txt", "x")
    response = server.get("/no-index/")
    assert response.status in (403, 404) and b"secret-name" not in response.body


@pytest.mark.parametrize(
    "target",
    [
        "//dir",
        "///dir",
        "//dir/..//dir",
        "/\\dir",
        "//evil.example/%2e%2e/dir",
        "/%2fdir",
        "/%5cdir",
        "/.//dir",
        "/x/..//dir",
        "/\\evil.example/../dir",
        # Redirects to a folder with a script come from another place in the code.
        "//scripts",
        "/\\scripts",
        "/\\evil.example/../scripts",
        "/\\/evil.example/../scripts",
    ],
)
def test_a_redirect_stays_on_this_host(site, server, target):
    site.write("dir/index.html", "x")
    site.php("scripts/index.php", "echo 'x';")
    site.write("evil.example/x.html", "x")
    with server.connect() as connection:
        response = connection.request("GET", target)
    location = response.header("Location") or "/"
    if location.startswith("http"):
        assert location.startswith(f"http://127.0.0.1:{server.port}/")
    else:
        assert location.startswith("/") and not location.startswith(("//", "/\\")), location


def test_a_redirect_cannot_be_split(site, server):
    (site.root / "a\r\nX-Evil: 1").mkdir(exist_ok=True)
    raw = server.raw(b"GET /a%0d%0aX-Evil:%201 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert b"\nX-Evil" not in raw and raw[9:10] in (b"3", b"4")


def test_a_trailing_slash_after_a_file_gives_404(site, server):
    site.write("hello.txt", "hello")
    for target in ("/hello.txt/", "/hello.txt/more"):
        assert server.get(target).status == 404


# --- Entries that are not regular files


def test_a_fifo_does_not_hang_the_server(site, server):
    os.mkfifo(site.root / "fifo.txt", 0o666)
    assert server.get("/fifo.txt").status in (403, 404)
    os.unlink(site.root / "fifo.txt")


@pytest.mark.skipif(os.geteuid() != 0, reason="root's file is unreadable for others only if there is a root")
def test_a_file_that_the_router_may_not_read_is_not_sent(site, server):
    site.write("private.txt", "do not send this").chmod(0o600)
    response = server.get("/private.txt")
    assert response.status in (403, 404) and "do not send" not in response.text


# --- Routes of a configuration


def test_static_files_are_chosen_by_shares_and_routes(folder, run):
    folder.write("www/hello.txt", "hello")
    folder.write("www/docs/start.html", "start")
    folder.write("www/.secret", "do not send this")
    folder.php("app/index.php", "echo 'index ', $_SERVER['REQUEST_URI'], ' ', $_SERVER['SCRIPT_NAME'];")
    folder.php("app/other.php", "echo 'other';")
    app = {"type": "php", "root": f"{folder.root}/app", "front_controller": "index.php"}
    config = {
        "listeners": {"127.0.0.1:{port}": {"pass": "routes"}},
        "routes": [
            {"match": {"uri": "/gone"}, "action": {"return": 410}},
            {"match": {"uri": "/moved"}, "action": {"return": 301, "location": "/hello.txt"}},
            {"match": {"host": "admin.example"}, "action": {"return": 403}},
            {"match": {"method": "DELETE"}, "action": {"return": 405}},
            {"match": {"uri": ["*.php", "*.php/*"]}, "action": {"pass": "applications/app"}},
            {
                "action": {
                    "share": f"{folder.root}/www$uri",
                    "index": "start.html",
                    "fallback": {"pass": "applications/app"},
                }
            },
        ],
        "applications": {"app": app},
    }
    server = run(config)
    assert server.get("/gone").status == 410
    moved = server.get("/moved")
    assert (moved.status, moved.header("Location")) == (301, "/hello.txt")
    assert server.get("/hello.txt", {"Host": "admin.example"}).status == 403
    assert server.get("/hello.txt", {"Host": "ADMIN.example:80"}).status == 403
    assert server.request("DELETE", "/hello.txt").status == 405
    assert server.get("/hello.txt").text == "hello"
    assert server.get("/docs/").text == "start"
    assert server.get("/other.php").text == "other"
    assert server.get("/a/b?c").text == "index /a/b?c /index.php"


def test_application_targets_choose_script_or_file(folder, run):
    folder.php("public/index.php", "echo 'front ', $_SERVER['REQUEST_URI'];")
    folder.php("admin/index.php", "echo 'admin index';")
    folder.php("admin/tool.php", "echo 'admin tool';")
    config = {
        "listeners": {"127.0.0.1:{port}": {"pass": "routes"}},
        "routes": [
            {"match": {"uri": "/admin*"}, "action": {"pass": "applications/app/admin"}},
            {"action": {"pass": "applications/app/front"}},
        ],
        "applications": {
            "app": {
                "type": "php",
                "targets": {
                    "front": {"root": f"{folder.root}/public", "script": "index.php"},
                    "admin": {"root": str(folder.root), "index": "index.php"},
                },
            }
        },
    }
    server = run(config)
    assert server.get("/any/thing.php?x").text == "front /any/thing.php?x"
    assert server.get("/admin/tool.php").text == "admin tool"
    assert server.get("/admin/").text == "admin index"
