"""phpMyAdmin, the packaged tree as it is: /usr/share/phpmyadmin with Debian's /etc/phpmyadmin.

It connects to "localhost"; the only setting makes PHP's mysqli use the test's own MariaDB for that name.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from support.apps.browser import Browser, Page, Upload
from support.apps.files import AS_ROOT, browser_of
from support.apps.mariadb import Account, MariaDb

pytestmark = [
    pytest.mark.xdist_group("phpmyadmin"),
    pytest.mark.skipif(not AS_ROOT, reason="Debian's configuration is readable for www-data only: run as root"),
]

PACKAGED = Path("/usr/share/phpmyadmin")


@dataclass
class PhpMyAdmin:
    browser: Browser
    server: object
    account: Account
    database: MariaDb

    def ajax(self, route: str, fields: dict, files=None) -> Page:
        """The request of the pages' JavaScript: a POST with the session's token, answered with JSON."""
        page = self.browser.get("/index.php?route=/").ok()
        fields = {"token": page.find(r'name="token" value="([^"]+)"'), "ajax_request": "true", **fields}
        return self.browser.post("/index.php?route=" + route, fields, files, X_Requested_With="XMLHttpRequest").ok()

    def run(self, sql: str) -> str:
        page = self.ajax("/sql", {"db": self.account.database, "sql_query": sql, "is_js_confirmed": "0"})
        answer = page.json()
        assert answer["success"] is True, page.describe()
        return answer["message"]


def log_in(browser: Browser, user: str, password: str) -> Page:
    page = browser.get("/index.php").ok()
    fields = {"pma_username": user, "pma_password": password}
    return browser.submit(page, page.form("login_form"), fields)


@pytest.fixture(scope="module")
def admin(serve, database) -> PhpMyAdmin:
    account = database.create("shop")
    database.query("CREATE TABLE fruit (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(40), price DECIMAL(6,2));"
                   "INSERT INTO fruit (name, price) VALUES ('apple', 1.20), ('Käse', 3.50), ('<b>quince</b>', 7.00);",
                   account.database)
    # PHP stores uploads and sessions in Debian's folders; nothing else is needed.
    server = serve(PACKAGED, "--follow-symlinks", ini={
        "mysqli.default_socket": database.socket, "upload_max_filesize": "32M", "post_max_size": "40M"})
    browser = browser_of(server)
    page = log_in(browser, account.user, account.password).ok()
    assert "localhost" in page.title and "MariaDB" in page.text, page.describe()
    return PhpMyAdmin(browser, server, account, database)


def test_the_login_page_and_its_assets_are_served(admin):
    visitor = browser_of(admin.server)
    page = visitor.get("/").ok()
    assert "Welcome to" in page.text and page.title == "phpMyAdmin", page.describe()
    assets = page.links(r"\.(css|js|ico|png)(\?|$)|js/messages|themes/")
    assert len(assets) > 20, page.describe()
    for asset in assets:
        got = visitor.get(asset).ok()
        assert got.body and "html" not in got.content_type, got.describe()


def test_a_wrong_password_is_rejected(admin):
    visitor = browser_of(admin.server)
    page = log_in(visitor, admin.account.user, "wrong")
    assert "Access denied for user" in page.text, page.describe()
    assert "Welcome to" in visitor.get("/index.php?route=/server/databases").text


def test_a_table_is_browsed(admin):
    page = admin.browser.get(f"/index.php?route=/sql&db={admin.account.database}&table=fruit&pos=0").ok()
    for text in ("apple", "Käse", "&lt;b&gt;quince&lt;/b&gt;", "Showing rows 0 -  2 (3 total"):
        assert text in page.text, page.describe()
    structure = admin.browser.get(f"/index.php?route=/table/structure&db={admin.account.database}&table=fruit").ok()
    assert "decimal(6,2)" in structure.text, structure.describe()


def test_queries_are_run(admin):
    answer = admin.run("SELECT name, price * 2 AS twice FROM fruit WHERE name = 'apple'")
    assert "2.40" in answer, answer
    admin.run("CREATE TABLE notes (text VARCHAR(200))")
    admin.run("INSERT INTO notes VALUES ('from phpMyAdmin: ±1')")
    assert admin.database.query("SELECT text FROM notes", "shop") == [["from phpMyAdmin: ±1"]]
    refused = admin.ajax("/sql", {"db": "shop", "sql_query": "SELECT nonsense FROM fruit"}).json()
    assert refused["success"] is False and "Unknown column" in refused["error"]


def test_a_large_dump_is_imported_and_exported_again(admin):
    rows = 40_000
    dump = "CREATE TABLE big (id INT PRIMARY KEY, text VARCHAR(80));\n" + "".join(
        f"INSERT INTO big VALUES ({n}, 'row number {n} with some words behind it');\n" for n in range(rows))
    page = admin.browser.get("/index.php?route=/database/import&db=shop").ok()
    form = page.form("import_file_form") if 'id="import_file_form"' in page.text else page.form(action="route=/import")
    page = admin.browser.submit(page, form, {"ajax_request": "true"}, files={
        "import_file": Upload("big.sql", dump.encode(), "application/sql")}).ok()
    assert admin.database.query("SELECT COUNT(*), MAX(id) FROM big", "shop") == [[str(rows), str(rows - 1)]]

    page = admin.browser.get("/index.php?route=/table/export&db=shop&table=big&single_table=true").ok()
    form = page.form("dump")
    exported = admin.browser.submit(page, form, {"what": "csv", "asfile": "sendit", "output_format": "sendit"}).ok()
    assert "attachment" in exported.headers["Content-Disposition"], exported.describe()
    lines = exported.text.splitlines()
    assert lines[0] == '"id","text"' and len(lines) == rows + 1, exported.describe()
    assert lines[-1] == f'"{rows - 1}","row number {rows - 1} with some words behind it"'


def test_logging_out_ends_the_session(admin):
    browser = browser_of(admin.server)
    page = log_in(browser, admin.account.user, admin.account.password).ok()
    token = page.find(r'name="token" value="([^"]+)"')
    browser.post("/index.php?route=/logout", {"token": token}).ok()
    assert "Welcome to" in browser.get("/index.php").text


def test_the_server_s_variables_are_shown(admin):
    assert "MariaDB" in admin.browser.get("/index.php?route=/server/variables").ok().text
