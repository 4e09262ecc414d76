"""Input of a request: query, forms, uploads, cookies, bodies of every kind and size."""

import hashlib
import os
import random

import pytest

from support.processes import open_files
from support.server import Howdah
from support.waiting import wait_for

SITE = {"ini": {"upload_max_filesize": "300K", "post_max_size": "8M"}}

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
BOUNDARY = "----boundary-of-the-test"
MULTIPART = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}


def sha1(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def multipart(*parts: tuple[str, str | None, bytes]) -> bytes:
    """A form of (field, file name or None, content)."""
    body = b""
    for field, name, content in parts:
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{field}"'
        if name is not None:
            head += f'; filename="{name}"\r\nContent-Type: application/octet-stream'
        body += head.encode() + b"\r\n\r\n" + content + b"\r\n"
    return body + f"--{BOUNDARY}--\r\n".encode()


def pieces(data: bytes, size: int):
    return (data[at : at + size] for at in range(0, len(data), size))


# --- Forms


def test_query_variables_are_decoded(server):
    got = server.get("/request.php?a=1&b[]=x&b[]=y&c[k][l]=z&plus=1+1&amp=%26&empty=&flag").json()
    assert got["get"] == {
        "a": "1",
        "b": ["x", "y"],
        "c": {"k": {"l": "z"}},
        "plus": "1 1",
        "amp": "&",
        "empty": "",
        "flag": "",
    }
    assert got["post"] == [] and got["files"] == []


def test_a_form_is_decoded(server):
    body = b"a=post&list[]=1&list[]=2&umlaut=%C3%BC"
    got = server.post("/request.php?a=get&only=get", body, FORM).json()
    assert got["get"] == {"a": "get", "only": "get"}
    assert got["post"] == {"a": "post", "list": ["1", "2"], "umlaut": "ü"}
    assert got["request"] == {**got["get"], **got["post"]}
    assert got["input"] == {"length": len(body), "sha1": sha1(body)}


def test_a_chunked_form_is_decoded(server):
    body = b"a=post&b=" + b"x" * 100_000
    got = server.post("/request.php", pieces(body, 777), FORM).json()
    assert got["post"] == {"a": "post", "b": "x" * 100_000}
    assert got["length"] == str(len(body))


def test_variables_do_not_persist_to_the_next_request(server):
    with server.connect() as connection:
        form = multipart(("field", None, b"1"), ("file", "f.txt", b"content"))
        connection.request("POST", "/request.php?q=1", {**MULTIPART, "Cookie": "c=1"}, form)
        for _ in range(4):
            got = connection.request("GET", "/request.php").json()
            assert [got[k] for k in ("get", "post", "files", "cookies", "request", "type", "length")] == [[]] * 5 + [
                "",
                "",
            ]
            assert got["input"]["length"] == 0


def test_a_form_larger_than_post_max_size_is_not_parsed(folder, serve):
    folder.php("index.php", "echo json_encode([$_POST, $_SERVER['CONTENT_LENGTH']]);")
    server = serve(ini={"post_max_size": "1K", "display_errors": "0", "display_startup_errors": "0"})
    assert server.post("/", "a=" + "x" * 2000, FORM).json() == [[], "2002"]
    assert server.post("/", "a=1", FORM).json() == [{"a": "1"}, "3"]


# --- Cookies


def test_cookies_are_decoded(server):
    got = server.get("/request.php", {"Cookie": "a=1; b=two%20words; list[k]=v; sig=a=b=; a=ignored"}).json()
    assert got["cookies"] == {"a": "1", "b": "two words", "list": {"k": "v"}, "sig": "a=b="}


# --- Uploads


def test_an_upload_with_fields_is_decoded(server):
    content = noise(200_000)
    form = multipart(("title", None, b"A picture"), ("tags[]", None, b"x"), ("picture", "my picture.jpg", content))
    got = server.post("/request.php", form, MULTIPART).json()
    assert got["post"] == {"title": "A picture", "tags": ["x"]}
    file = got["files"]["picture"]
    assert (file["name"], file["size"], file["error"], file["type"]) == (
        "my picture.jpg",
        200_000,
        0,
        "application/octet-stream",
    )
    assert got["uploads"]["picture"]["sha1"] == sha1(content)
    assert got["uploads"]["picture"]["uploaded"] is True
    assert got["input"]["length"] == 0, "php://input is empty after multipart/form-data, as PHP documents it"


def test_several_chunked_uploads_are_decoded(server):
    contents = [noise(size) for size in (0, 1, 100_000)]
    form = multipart(*[("files[]", f"{number}.bin", content) for number, content in enumerate(contents)])
    got = server.post("/request.php", pieces(form, 1000), MULTIPART).json()
    assert got["files"]["files"]["name"] == ["0.bin", "1.bin", "2.bin"]
    assert got["files"]["files"]["size"] == [0, 1, 100_000]
    assert [got["uploads"][f"files[{i}]"]["sha1"] for i in range(3)] == list(map(sha1, contents))


def test_upload_errors_are_reported(server):
    got = server.post(
        "/request.php", multipart(("big", "big.bin", b"x" * 310_000), ("none", "", b"")), MULTIPART
    ).json()
    assert got["files"]["big"]["error"] == 1, "UPLOAD_ERR_INI_SIZE"
    assert got["files"]["none"]["error"] == 4, "UPLOAD_ERR_NO_FILE"


def test_an_upload_is_moved_or_removed(site):
    code = """
        $kept = SCRATCH . '/kept.bin';
        echo json_encode([move_uploaded_file($_FILES['keep']['tmp_name'], $kept), sha1_file($kept),
            $_FILES['drop']['tmp_name']]);"""
    form = multipart(("keep", "a", b"kept"), ("drop", "b", b"dropped"))
    moved, digest, dropped = site.post(code, form, MULTIPART).json()
    assert moved and digest == sha1(b"kept")
    # The worker cleans up after it has sent its response, and before it sends the next one.
    for _ in range(2):
        site.in_each_worker(len(site.server.workers()), "")
    assert not os.path.exists(dropped)


# --- php://input


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"])
def test_a_body_is_accepted_with_any_method(server, method):
    body = b'{"key": "value"}'
    got = server.request(method, "/request.php", {"Content-Type": "application/json"}, body).json()
    assert (got["method"], got["type"], got["length"]) == (method, "application/json", "16")
    assert got["input"] == {"length": 16, "sha1": sha1(body)}
    assert got["post"] == []


@pytest.mark.parametrize("size", [0, 1, 4095, 16383, 16384, 16385, 65535, 65536, 65537, 131072, 1_000_003, 7_999_999])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_a_body_of_any_size_is_intact(server, size, chunked):
    body = noise(size)
    got = server.post(
        "/request.php", pieces(body, 9973) if chunked else body, {"Content-Type": "application/octet-stream"}
    ).json()
    assert got["input"] == {"length": size, "sha1": sha1(body)}
    assert got["length"] == str(size)


def test_every_byte_survives(site):
    body = bytes(range(256)) * 3
    response = site.post("echo file_get_contents('php://input');", body, {"Content-Type": "application/octet-stream"})
    assert response.body == body


def test_the_input_can_be_read_twice_and_by_piece(site):
    code = """
        $stream = fopen('php://input', 'r');
        $first = fread($stream, 10);
        fseek($stream, 0);
        echo json_encode([$first, strlen(stream_get_contents($stream)), strlen(file_get_contents('php://input')),
            strlen(file_get_contents('php://input'))]);"""
    body = "0123456789" * 10_000
    assert site.post(code, body, {"Content-Type": "text/plain"}).json() == ["0123456789", 100_000, 100_000, 100_000]


def test_an_unread_body_does_not_affect_the_next_request(site, server):
    path = site.page("echo 'ignored';")
    with server.connect() as connection:
        for _ in range(3):
            response = connection.request("PUT", path, {"Content-Type": "text/plain"}, noise(2_000_000))
            assert response.text == "ignored"
            assert connection.request("GET", "/request.php?next=1").json()["get"] == {"next": "1"}


def test_enable_post_data_reading_off_is_honoured(folder, serve):
    folder.php("index.php", "echo json_encode([$_POST, $_FILES, sha1(file_get_contents('php://input'))]);")
    server = serve(ini={"enable_post_data_reading": "0"})
    form = multipart(("a", None, b"1"), ("file", "f", noise(100_000)))
    assert server.post("/", form, MULTIPART).json() == [[], [], sha1(form)]


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_fifty_megabytes_can_be_uploaded(folder, run, chunked):
    folder.php(
        "index.php",
        """$hash = hash_init('sha1');
        hash_update_stream($hash, fopen('php://input', 'r'));
        $file = $_FILES['file']['tmp_name'] ?? null;
        echo json_encode([hash_final($hash), $file ? sha1_file($file) : null, memory_get_peak_usage() >> 20]);""",
    )
    server = run(
        {
            "applications": {
                "app": {
                    "type": "php",
                    "root": str(folder.root),
                    "index": "index.php",
                    "options": {"admin": {"post_max_size": "100M", "upload_max_filesize": "100M"}},
                }
            },
            "settings": {"http": {"max_body_size": 100 << 20, "chunked_transform": True}},
        }
    )
    body = noise(50 << 20)
    send = (lambda data: pieces(data, 1 << 20)) if chunked else (lambda data: data)
    digest, _, peak = server.post("/", send(body), {"Content-Type": "application/octet-stream"}).json()
    assert digest == sha1(body)
    assert peak < 16, "the body went through PHP's memory"
    _, uploaded, _ = server.post("/", send(multipart(("file", "big.bin", body))), MULTIPART).json()
    assert uploaded == sha1(body)


def test_a_body_is_complete_before_a_worker_is_taken(folder):
    """A client that has sent half of its body does not block the only worker."""
    folder.php("index.php", "echo strlen(file_get_contents('php://input'));")
    with Howdah.serve(folder, processes=1) as server, server.connect() as slow:
        slow.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 40000\r\n\r\n")
        slow.send(b"x" * 20000)
        for _ in range(5):
            assert server.get("/").text == "0"
        slow.send(b"x" * 20000)
        assert slow.response("POST").text == "40000"


@pytest.mark.parametrize("method, code", [
    ("PUT", "touch(SCRATCH . '/started'); await(SCRATCH . '/go'); $n = strlen(file_get_contents('php://input'));"
            "file_put_contents(SCRATCH . '/taken', $n);"),
    ("POST", "touch(SCRATCH . '/taken');"),
    ("PUT", "touch(SCRATCH . '/started'); await(SCRATCH . '/go');"),
], ids=["read by the script", "read before it", "not read at all"])  # fmt: skip
def test_an_incomplete_body_does_not_reach_php(folder, serve, method, code):
    """The temporary file of the body cannot be read any more: the script must not see the rest as the whole body."""
    folder.php("wait.php", "touch(SCRATCH . '/busy'); await(SCRATCH . '/go');")
    folder.php("index.php", "ignore_user_abort(true);" + code)
    folder.php("pid.php", "echo getmypid();")
    server = serve(processes=1, ini={"post_max_size": "100M"})
    (worker,) = server.workers(count=1)
    busy = server.connect()
    if method == "POST":  # The request with the body is queued behind another request.
        busy.send_request("GET", "/wait.php")
        wait_for((folder.scratch / "busy").exists)
    client = server.connect()
    client.send_request(method, "/", {"Content-Type": "text/plain"}, b"x" * 20_000_000)
    if method == "PUT":
        wait_for((folder.scratch / "started").exists)

    def kept():
        files = [link for link, target in open_files(server.router().pid).items() if target.startswith("/")]
        return [link for link in files if link.exists() and link.stat().st_size == 20_000_000]

    (file,) = wait_for(kept, "the body to be kept in a file")
    os.truncate(file, 1_000_000)
    (folder.scratch / "go").touch()
    assert client.response().status == 500
    for _ in range(3):
        assert server.get("/pid.php").text == str(worker.pid)
    assert not (folder.scratch / "taken").exists()
    client.close(), busy.close()


def test_a_client_that_disconnects_during_its_body_does_not_reach_php(folder, serve):
    folder.php("index.php", "file_put_contents(SCRATCH . '/ran', '1'); echo 'ok';")
    server = serve(processes=1)
    with server.connect() as quitter:
        quitter.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 40000\r\n\r\n" + b"x" * 20000)
    folder.php("probe.php", "echo (int) file_exists(SCRATCH . '/ran');")
    for _ in range(10):
        assert server.get("/probe.php").text == "0"
