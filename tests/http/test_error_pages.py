"""`settings/http/error_pages`: files for errors of howdah itself."""

import json

import pytest

from support.http.client import Response
from support.waiting import wait_for


@pytest.fixture
def pages(folder) -> dict:
    for name, content in (("404.html", "<p>not here</p>"), ("4xx.json", '{"error": true}'), ("sorry.txt", "sorry")):
        folder.write(name, content)
    return {"404": f"{folder.root}/404.html", "4xx": f"{folder.root}/4xx.json", "5xx": f"{folder.root}/sorry.txt"}


def seen(answer: Response) -> tuple:
    return answer.status, answer.header("Content-Type"), answer.text


def test_errors_of_howdah_have_the_pages_of_the_operator(folder, run, pages):
    folder.php("index.php", "http_response_code(404); echo 'of PHP';")
    server = run(
        {
            "routes": [
                {"match": {"uri": "/gone"}, "action": {"return": 410}},
                {"match": {"uri": "/down"}, "action": {"proxy": "http://unix:/no/such/socket"}},
                {"match": {"uri": "/php"}, "action": {"rewrite": "/", "pass": "applications/app"}},
                {"match": {"uri": "/moved"}, "action": {"return": 301, "location": "/"}},
                {"action": {"share": f"{folder.root}/none$uri"}},
            ],
            "applications": {"app": {"type": "php", "root": str(folder.root), "script": "index.php", "processes": 1}},
            "settings": {"http": {"error_pages": pages}},
        }
    )
    assert seen(server.get("/nothing")) == (404, "text/html; charset=utf-8", "<p>not here</p>")
    assert seen(server.get("/gone")) == (410, "application/json", '{"error": true}')
    assert seen(server.get("/down")) == (502, "text/plain; charset=utf-8", "sorry")
    assert server.request("HEAD", "/nothing").header("Content-Length") == str(len("<p>not here</p>"))
    assert server.get("/php").text == "of PHP" and server.get("/moved").text == ""
    bad = server.raw(b"GET / HTTP/1.1\r\n\r\n")
    assert b" 400 " in bad and bad.endswith(b'{"error": true}')


def test_a_page_that_cannot_be_used_is_rejected(folder, run, pages):
    server = run({"routes": [], "settings": {"http": {"error_pages": pages}}, "listeners": {"127.0.0.1:{port}": {"pass": "routes"}}})
    long = folder.write("long.html", "x" * (1 << 20) + "x")
    for path, reason in ((f"{folder.root}/none.html", "does not exist"), (str(long), "longer than 1048576 bytes")):
        answer = server.api("PUT", "/config/settings/http/error_pages/404", json.dumps(path))
        assert answer.status == 500 and "settings/http/error_pages/404" in answer.text and reason in answer.text
    answer = server.api("PUT", "/config/settings/http/error_pages", {"5xx": f"{folder.root}/none.html"})
    assert "settings/http/error_pages/5xx: " in answer.text, answer.text
    assert server.get("/").text == "<p>not here</p>", "the configuration before is active"


def test_the_access_log_has_the_length_of_a_page_also_for_head(run, tmp_path):
    log = tmp_path / "access.log"
    access_log = {"path": str(log), "format": "$method $response_header_content_length"}
    server = run({"routes": [{"action": {"return": 404}}], "access_log": access_log})
    length = server.get("/").header("Content-Length")
    assert length and server.request("HEAD", "/").header("Content-Length") == length
    # Two event loops write in any order.
    wait_for(lambda: sorted(log.read_text().splitlines()) == [f"GET {length}", f"HEAD {length}"], "both lengths")
