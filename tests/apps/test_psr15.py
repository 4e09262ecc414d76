"""A PSR-15 request handler with howdah/psr15 and nyholm/psr7: in classic and worker mode, and with howdah/runtime."""

import hashlib
import itertools
import shutil
from pathlib import Path

import pytest

from support.apps import streaming
from support.apps.browser import Upload
from support.apps.files import browser_of, give
from support.apps.vendor import install
from support.server import Howdah
from support.waiting import wait_for

pytestmark = pytest.mark.xdist_group("psr15")

APPLICATION = Path(__file__).parent / "psr15"
NUMBERS = itertools.count(1)
ENVIRONMENT = {"APP_RUNTIME": r"Howdah\Runtime\Runtime", "APP_DEBUG": "0", "APP_ENV": "prod"}


@pytest.fixture(scope="module")
def application(space) -> Path:
    folder = Path(shutil.copytree(APPLICATION, space / "psr15"))
    install(folder, ["Nyholm/Psr7", "Symfony/Component/Runtime"], ["psr15", "runtime"])
    give(folder)
    return folder


@pytest.fixture(scope="module")
def classic(application, serve):
    return serve(application, processes=1)


@pytest.fixture(scope="module")
def worker(application, serve):
    return serve(application, "--worker", "index.php", processes=1)


@pytest.fixture(scope="module")
def runtime(application, serve):
    return serve(application, "--worker", "runtime.php", processes=1, env=ENVIRONMENT)


@pytest.fixture(params=["classic", "worker", "runtime"])
def server(request) -> Howdah:
    return request.getfixturevalue(request.param)


def test_the_handler_stays_in_worker_mode(classic, worker, runtime):
    assert [classic.get("/").json()["requests"] for _ in range(3)] == [1, 1, 1]
    for server in (worker, runtime):
        first, second = server.get("/").json(), server.get("/").json()
        assert second["pid"] == first["pid"] and second["requests"] == first["requests"] + 1


def test_the_request_is_what_the_client_sent(server):
    headers = {"Cookie": "one=1; two=a%20b", "X-Test": "yes", "Content-Type": "application/json"}
    with server.connect() as connection:
        report = connection.request("PUT", "/a%20b/%C3%BC?q=%26&list[]=1&list[]=2", headers, '{"a": 1}').json()
    assert report.pop("pid") and report.pop("requests")
    assert report == {
        "method": "PUT", "version": "1.1", "address": "127.0.0.1", "type": "application/json", "x_test": ["yes"],
        "uri": f"http://127.0.0.1:{server.port}/a%20b/%C3%BC?q=%26&list%5B%5D=1&list%5B%5D=2",
        "target": "/a%20b/%C3%BC?q=%26&list%5B%5D=1&list%5B%5D=2",
        "query": {"q": "&", "list": ["1", "2"]}, "cookies": {"one": "1", "two": "a b"},
        "parsed": None, "body": '{"a": 1}', "files": []}  # fmt: skip


@pytest.mark.parametrize("host, uri", [
    ("shop.example.com", "http://shop.example.com/"), ("shop.example.com:80", "http://shop.example.com/"),
    ("shop.example.com:8080", "http://shop.example.com:8080/"), ("[::1]:8080", "http://[::1]:8080/"),
    ("[::1]", "http://[::1]/"),
])  # fmt: skip
def test_the_uri_has_the_host_of_the_request(server, host, uri):
    assert server.get("/", {"Host": host}).json()["uri"] == uri


def test_a_form_is_parsed(server):
    report = browser_of(server).post("/", {"name": "Ada & Co"}).ok().json()
    assert report["parsed"] == {"name": "Ada & Co"} and report["body"] == "name=Ada+%26+Co"


def test_files_are_uploaded(server):
    content = bytes(range(256)) * 1000
    report = browser_of(server).post("/", {"note": "two"}, {
        "single": Upload("ä.bin", content), "list[a][b]": Upload("b.txt", b"text", "text/plain"),
    }).ok().json()  # fmt: skip
    assert report["parsed"] == {"note": "two"}
    assert report["files"] == {
        "single": ["ä.bin", "application/octet-stream", len(content), hashlib.sha256(content).hexdigest()],
        "list": {"a": {"b": ["b.txt", "text/plain", 4, hashlib.sha256(b"text").hexdigest()]}}}  # fmt: skip


def test_headers_with_several_values_stay_several(server):
    answer = server.get("/headers")
    assert (answer.status, answer.text) == (201, "made"), "not 302, which PHP sets for a Location"
    assert answer.all("Set-Cookie") == ["first=1; path=/", "second=2; path=/"]
    assert answer.all("X-Several") == ["one", "two"] and answer.header("Location") == "/elsewhere"


def test_the_cookie_of_a_session_is_kept(server):
    cookies = server.get("/session").all("Set-Cookie")
    assert len(cookies) == 2 and "PHPSESSID=" in cookies[0] and cookies[1] == "mine=1"


def test_a_response_without_a_type_has_none(server):
    assert server.get("/typeless").header("Content-Type") is None
    assert server.get("/").header("Content-Type") == "application/json"


def test_a_stream_arrives_as_it_is_made(server, space):
    streaming.check_that_it_arrives_as_it_is_made(server, space / f"signal-{next(NUMBERS)}")


def test_bodies_arrive_whole(server):
    assert server.get("/large").text == "a line\n" * 1_000_000
    with server.connect() as connection:
        head = connection.request("HEAD", "/length")
        assert (head.status, head.header("Content-Length"), head.body) == (200, "7", b"")
        assert connection.request("GET", "/length").text == "content"


def test_exceptions_and_exit_end_their_request_only(server):
    assert server.get("/exception").status == 500
    assert server.get("/exit").text == "left"
    assert server.get("/").status == 200


def test_a_worker_survives_exceptions_and_exit(worker):
    before = worker.get("/").json()
    assert worker.get("/exception").status == 500 and worker.get("/exit").text == "left"
    after = worker.get("/").json()
    assert after["pid"] == before["pid"] and after["requests"] == before["requests"] + 3
    line = "GET /exception: PHP Fatal error:  Uncaught RuntimeException: as ordered"
    wait_for(lambda: line in worker.stderr, "the exception in the log")
