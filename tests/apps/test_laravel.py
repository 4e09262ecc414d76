"""Laravel as packaged by Debian, in both modes, with a small application that has the usual layout of Laravel."""

import base64
import hashlib
import json
import shutil
import textwrap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.apps.browser import Browser, Upload
from support.apps.files import browser_of, give
from support.apps.mariadb import MariaDb
from support.server import REPOSITORY

pytestmark = pytest.mark.xdist_group("laravel")

APPLICATION = Path(__file__).parent / "laravel"
TABLES = """
    CREATE TABLE notes (id BIGINT PRIMARY KEY AUTO_INCREMENT, title VARCHAR(255), text LONGTEXT,
                        attachment VARCHAR(255), created_at TIMESTAMP NULL, updated_at TIMESTAMP NULL);
    CREATE TABLE sessions (id VARCHAR(255) PRIMARY KEY, user_id BIGINT NULL, ip_address VARCHAR(45) NULL,
                           user_agent TEXT NULL, payload LONGTEXT NOT NULL, last_activity INT NOT NULL);
"""


@dataclass
class Laravel:
    mode: str
    server: object
    storage: Path
    database: MariaDb

    def visitor(self) -> Browser:
        return browser_of(self.server)

    def write(self, browser: Browser, title: str, text: str, **files: Upload):
        page = browser.get("/").ok()
        return browser.submit(page, page.form("new"), {"title": title, "text": text}, files=files)


@pytest.fixture(scope="module", params=["classic", "worker"])
def laravel(request, serve, space, database) -> Laravel:
    mode = request.param
    folder = space / mode / "laravel"
    shutil.copytree(APPLICATION, folder)
    storage = folder / "storage"
    for name in ("app", "framework/sessions", "framework/views", "framework/cache", "logs"):
        (storage / name).mkdir(parents=True)
    account = database.create(f"laravel_{mode}")
    database.query(TABLES, account.database)
    (folder / ".env").write_text(f"DB_DATABASE={account.database}\nDB_USERNAME={account.user}\n")
    give(folder)
    options = ["--worker", "worker.php"] if mode == "worker" else []
    server = serve(folder, *options, ini={"upload_max_filesize": "32M", "post_max_size": "40M"}, env={
        # From the server's environment; Laravel itself reads .env.
        "APP_KEY": "base64:" + base64.b64encode(bytes(range(32))).decode(),
        "DB_HOST": database.host, "DB_PORT": str(database.port), "DB_PASSWORD": account.password})
    return Laravel(mode, server, storage, database)


def test_the_environment_of_the_server_reaches_the_configuration(laravel):
    page = laravel.visitor().get("/api/environment?a=1&b=%20", Authorization="Bearer s3cret").ok()
    assert page.json() == {
        "env": "production", "debug": False, "sapi": "fpm-fcgi", "ip": "127.0.0.1", "secure": False,
        "url": f"http://127.0.0.1:{laravel.server.port}/api/environment?a=1&b=%20", "bearer": "s3cret"}


def test_a_note_is_written_with_a_csrf_token_and_read(laravel):
    browser = laravel.visitor()
    page = laravel.write(browser, "Einkauf & mehr", "Brot <und> Käse").ok()
    assert page.redirects == [302] and page.title == "Einkauf & mehr", page.describe()
    assert "Brot &lt;und&gt; Käse" in page.text and "Saved." in page.text
    assert "Saved." not in browser.get(page.url).ok().text, "a flash message is shown once"
    assert "Einkauf &amp; mehr" in laravel.visitor().get("/").ok().text


def test_a_form_without_its_token_is_rejected(laravel):
    page = laravel.visitor().post("/notes", {"title": "forged", "text": "forged"})
    assert page.status == 419 and "Page Expired" in page.text, page.describe()


def test_validation_sends_back_with_errors_and_old_input(laravel):
    browser = laravel.visitor()
    page = laravel.write(browser, "", "kept across the redirect")
    assert page.redirects == [302] and page.path == "/", page.describe()
    assert "Please fill in the title." in page.text and "kept across the redirect" in page.text


def test_an_attachment_goes_up_and_comes_down(laravel):
    browser = laravel.visitor()
    content = hashlib.sha256(b"seed").digest() * 300_000
    page = laravel.write(browser, "With a file", "…", file=Upload("data.bin", content)).ok()
    page = browser.get(page.url + "/attachment").ok()
    assert page.body == content and page.headers["Content-Length"] == str(len(content))
    assert page.headers["Content-Disposition"] == "attachment; filename=attachment.bin"


def test_the_api_creates_nothing_twice_and_speaks_json(laravel):
    browser = laravel.visitor()
    for title in ("one", "two", "three"):
        laravel.write(browser, title, "text").ok()
    first = browser.get("/api/notes").ok().json()
    assert first["per_page"] == 2 and first["next_page_url"].endswith("/api/notes?page=2")
    note = browser.get(first["last_page_url"]).ok().json()["data"][-1]
    changed = browser.request("PUT", f"/api/notes/{note['id']}", json.dumps({"title": "ändert"}).encode(),
                              {"Content-Type": "application/json", "Accept": "application/json"}).ok()
    assert changed.json()["title"] == "ändert"
    gone = browser.request("DELETE", f"/api/notes/{note['id']}")
    assert gone.status == 204 and gone.body == b""
    missing = browser.get(f"/api/notes/{note['id']}", Accept="application/json")
    assert missing.status == 405 and "not supported" in missing.json()["message"]
    assert browser.get(f"/notes/{note['id']}").status == 404


def test_sessions_belong_to_their_visitor(laravel):
    def count(times: int) -> list[int]:
        browser = laravel.visitor()
        return [browser.get("/count").ok().json()["count"] for _ in range(times)]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(count, [5] * 8)) == [[1, 2, 3, 4, 5]] * 8


def test_a_streamed_response_arrives_whole(laravel):
    page = laravel.visitor().get("/stream").ok()
    assert page.content_type == "text/plain" and page.text == "".join(f"line {n}\n" for n in range(1000))


def test_an_exception_is_an_error_page_without_details_and_is_logged(laravel):
    page = laravel.visitor().get("/broken")
    assert page.status == 500 and "Server Error" in page.text and "as ordered" not in page.text, page.describe()
    assert "production.ERROR: as ordered" in (laravel.storage / "logs/laravel.log").read_text()


def test_static_files_come_from_public_and_nothing_else_does(laravel):
    page = laravel.visitor().get("/style.css").ok()
    assert page.content_type == "text/css" and "sans-serif" in page.text
    for path in ("/.env", "/../.env", "/..%2f.env", "/config/app.php", "/storage/logs/laravel.log"):
        page = laravel.visitor().get(path)
        assert page.status in (400, 404) and "DB_DATABASE" not in page.text, page.describe()


def test_scoped_instances_are_new_for_each_request(laravel):
    first, second = (laravel.server.get("/api/visit").json() for _ in range(2))
    assert first["calls"] == second["calls"] == 1


def test_the_application_stays_in_worker_mode(laravel):
    most: dict[int, int] = {}
    for _ in range(6):
        report = laravel.server.get("/api/visit").json()
        most[report["pid"]] = max(most.get(report["pid"], 0), report["requests"])
    assert (max(most.values()) >= 3) == (laravel.mode == "worker"), most


def test_an_interrupted_request_leaves_no_session_behind(laravel):
    browser = laravel.visitor()
    browser.get("/count").ok()
    assert browser.get("/exit").text == "left"
    assert [laravel.visitor().get("/count").ok().json()["count"] for _ in range(4)] == [1] * 4
    assert browser.get("/count").ok().json()["count"] == 2


def test_the_worker_script_is_the_one_of_the_documentation():
    script = (APPLICATION / "worker.php").read_text()
    page = (REPOSITORY / "docs/workers.md").read_text()
    assert textwrap.indent(script, "    ", lambda line: line.strip()) in page
