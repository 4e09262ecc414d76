"""`send_file` of an application: a script names a file, and howdah sends it."""

import json
import os

import pytest

CONTENT = "0123456789" * 1000


@pytest.fixture
def files(folder):
    """The folder from which files are sent, beside the served one."""
    files = folder.root.parent / "files"
    files.mkdir()
    files.chmod(0o755)

    def write(name: str, content: str) -> None:
        path = files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        path.chmod(0o644)

    write("a.txt", CONTENT)
    write("a b/\u00e4.pdf", "a pdf")
    write("source.php", "<?php echo 'source';")
    write(".env", "SECRET")
    (files / "folder").mkdir()
    os.symlink("/etc/hostname", files / "link.txt")
    return files


@pytest.fixture
def server(folder, run, files):
    folder.php(
        "index.php",
        """
        foreach (json_decode($_GET['headers'] ?? file_get_contents('php://input')) as $header) {
            header($header, false);
        }
        if (isset($_GET['no_type'])) { ini_set('default_mimetype', ''); }
        echo 'the body of the script';
        """,
    )
    return run(
        {
            "routes": [
                {"match": {"uri": "/plain/*"}, "action": {"rewrite": "/", "pass": "applications/plain"}},
                {"action": {"rewrite": "/", "pass": "applications/app"}},
            ],
            "applications": {
                name: {"type": "php", "root": str(folder.root), "script": "index.php", "processes": 1, **more}
                for name, more in {"app": {"send_file": {"/protected/": str(files)}}, "plain": {}}.items()
            },
        }
    )


def ask(server, *script_headers: str, request=(), method="GET", path="/", more=""):
    from urllib.parse import quote

    return server.request(method, f"{path}?headers={quote(json.dumps(script_headers))}{more}", request)


def test_the_file_is_sent_with_the_headers_of_the_script(server, files):
    for header in ("X-Accel-Redirect: /protected/a.txt", f"X-Sendfile: {files}/a.txt"):
        answer = ask(
            server, header, "Content-Type: text/x-log", "Content-Disposition: attachment", "Set-Cookie: a=1", "Set-Cookie: b=2",
            'ETag: "of the script"', "Cache-Control: private", "X-Accel-Expires: 5",
        )  # fmt: skip
        assert (answer.status, answer.text) == (200, CONTENT)
        assert answer.header("Content-Length") == str(len(CONTENT))
        assert answer.header("Content-Type").startswith("text/x-log")
        assert answer.header("Content-Disposition") == "attachment" and answer.header("Cache-Control") == "private"
        assert answer.all("Set-Cookie") == ["a=1", "b=2"]
        assert answer.header("ETag") != '"of the script"' and answer.header("Last-Modified")
        assert not [name for name, _ in answer.headers if name.lower().startswith(("x-accel", "x-sendfile"))]
        assert server.request("HEAD", "/?headers=" + "[]").status == 200


def test_ranges_and_conditions_are_those_of_the_file(server):
    header = "X-Accel-Redirect: /protected/a.txt"
    part = ask(server, header, "X-A: b", request={"Range": "bytes=10-14"})
    assert (part.status, part.text, part.header("Content-Range")) == (206, "01234", "bytes 10-14/10000")
    assert part.header("X-A") == "b"
    parts = ask(server, header, request={"Range": "bytes=0-0,10-10"})
    assert parts.status == 206 and parts.header("Content-Type").startswith("multipart/byteranges")
    tag = ask(server, header).header("ETag")
    unchanged = ask(server, header, "Set-Cookie: a=1", request={"If-None-Match": tag})
    assert (unchanged.status, unchanged.text, unchanged.header("Set-Cookie")) == (304, "", "a=1")
    assert ask(server, header, request={"Range": "bytes=99999-"}).status == 416
    head = ask(server, header, method="HEAD")
    assert (head.status, head.header("Content-Length")) == (200, str(len(CONTENT)))


def test_a_post_is_answered_with_the_file(server):
    answer = server.request("POST", "/", {"Range": "bytes=0-0"}, json.dumps(["X-Accel-Redirect: /protected/a.txt"]))
    assert (answer.status, answer.text) == (200, CONTENT)


def test_the_type_is_that_of_the_script_or_else_of_the_file(server):
    header = "X-Accel-Redirect: /protected/a%20b/%C3%A4.pdf?query"
    assert ask(server, header).header("Content-Type") == "text/html; charset=UTF-8", "PHP's default"
    answer = ask(server, header, more="&no_type=1")
    assert (answer.text, answer.header("Content-Type")) == ("a pdf", "application/pdf")


@pytest.mark.parametrize(
    "header",
    [
        "X-Accel-Redirect: /protected/nothing.txt",
        "X-Accel-Redirect: /protected/folder",
        "X-Accel-Redirect: /protected/folder/",
        "X-Accel-Redirect: /other/a.txt",
        "X-Accel-Redirect: /protected/../etc/hostname",
        "X-Accel-Redirect: /protected/..%2F..%2Fetc/hostname",
        "X-Accel-Redirect: /protected/source.php",
        "X-Accel-Redirect: /protected/.env",
        "X-Accel-Redirect: /protected/link.txt",
        "X-Accel-Redirect: a.txt",
        "X-Accel-Redirect: ",
        "X-Sendfile: /etc/hostname",
        "X-Sendfile: {files}/../site/index.php",
        "X-Sendfile: {files}/link.txt",
        "X-Sendfile: a.txt",
    ],
)
def test_nothing_else_is_sent(server, files, header):
    answer = ask(server, header.format(files=files))
    assert answer.status == 404 and "404 Not Found" in answer.text
    assert "cannot send the file that a script named" in server.stderr


def test_without_the_option_the_headers_are_like_any_other(server):
    answer = ask(server, "X-Accel-Redirect: /protected/a.txt", path="/plain/")
    assert (answer.text, answer.header("X-Accel-Redirect")) == ("the body of the script", "/protected/a.txt")


def test_a_missing_folder_is_rejected(server):
    answer = server.api("PUT", "/config/applications/app/send_file", json.dumps({"/protected/": "/nowhere"}))
    assert answer.status == 500 and "applications/app/send_file/%2Fprotected%2F" in answer.text, answer.text
    assert "does not exist" in answer.text
