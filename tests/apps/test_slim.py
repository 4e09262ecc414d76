"""Slim as packaged by Debian, with an application that uses what a small API needs."""

import hashlib
import shutil
from pathlib import Path

import pytest

from support.apps.browser import Browser, Upload
from support.apps.files import browser_of

pytestmark = pytest.mark.xdist_group("slim")

APPLICATION = Path(__file__).parent / "slim"


@pytest.fixture(scope="module")
def slim(serve, space):
    shutil.copytree(APPLICATION, space / "slim")
    return serve(space / "slim", ini={"upload_max_filesize": "32M", "post_max_size": "40M"})


@pytest.fixture
def browser(slim) -> Browser:
    return browser_of(slim)


def test_routes_are_found_below_the_front_controller(browser):
    page = browser.get("/").ok()
    assert page.text == "Hello from Slim" and page.headers["X-Middleware"] == "passed"
    assert browser.get("/hello/J%C3%B6rg%20A.").ok().json() == {"hello": "Jörg A.", "base": ""}
    assert browser.get("/index.php/hello/you").ok().json()["hello"] == "you"
    page = browser.get("/link").ok()
    assert page.path == "/hello/again" and page.redirects == [302]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_bodies_of_every_method_are_parsed(slim, browser, method):
    body = '{"list": [1, 2, {"x": "ü"}]}'.encode()
    page = browser.request(method, "/echo?a[]=1&a[]=2&b=%26", body,
                           {"Content-Type": "application/json; charset=utf-8", "Cookie": "one=1; two=a%20b"})
    assert page.status == 202, page.describe()
    assert page.json() == {
        "method": method, "type": "application/json", "parsed": {"list": [1, 2, {"x": "ü"}]}, "length": len(body),
        "query": {"a": ["1", "2"], "b": "&"}, "cookies": {"one": "1", "two": "a b"},
        "scheme": "http", "port": slim.port}


def test_forms_and_xml_are_parsed(browser):
    assert browser.post("/echo", {"name": "Ada & Co", "n": "1"}).json()["parsed"] == {"name": "Ada & Co", "n": "1"}
    page = browser.request("POST", "/echo", b"<order><item>tea</item></order>", {"Content-Type": "application/xml"})
    assert page.json()["parsed"] == {"item": "tea"}


def test_the_method_can_be_overridden(browser):
    headers = {"Content-Type": "application/json", "X-Http-Method-Override": "PUT"}
    page = browser.request("POST", "/echo", b"{}", headers)
    assert page.json()["method"] == "PUT"


def test_files_are_uploaded(browser):
    first, second = bytes(range(256)) * 40_000, "Grüße".encode()
    page = browser.post("/upload", {"note": "two"}, {
        "first": Upload("first.bin", first, "application/x-first"), "second": Upload("zwei.txt", second, "text/plain")})
    assert page.ok().json() == {
        "first": {"name": "first.bin", "type": "application/x-first", "size": len(first),
                  "sha256": hashlib.sha256(first).hexdigest()},
        "second": {"name": "zwei.txt", "type": "text/plain", "size": len(second),
                   "sha256": hashlib.sha256(second).hexdigest()}}


def test_a_large_response_arrives_whole(browser):
    page = browser.get("/download").ok()
    assert page.content_type == "text/plain"
    assert page.text == "".join(f"line {number}\n" for number in range(200_000))


def test_several_cookies_are_set(browser):
    page = browser.get("/cookies").ok()
    assert page.headers.get_all("Set-Cookie") == ["first=1; path=/", "second=2; path=/; HttpOnly"]
    assert (browser.cookie("first"), browser.cookie("second")) == ("1", "2")


def test_status_codes_are_the_framework_s(browser):
    page = browser.get("/nothing")
    assert page.status == 204 and page.body == b"" and "Content-Type" not in page.headers
    page = browser.get("/no/such/route")
    assert page.status == 404 and page.content_type == "text/html", page.describe()
    page = browser.get("/echo")
    assert page.status == 405 and page.headers["Allow"] == "POST, PUT, PATCH, DELETE, OPTIONS", page.describe()
    page = browser.get("/broken")
    assert page.status == 500 and "Slim Application Error" in page.text and "as ordered" not in page.text
    page = browser.get("/also.php")
    assert page.status == 404 and "Page Not Found" in page.text, page.describe()
    head = browser.request("HEAD", "/hello/you")
    assert head.status == 200 and head.body == b"" and head.content_type == "application/json"
