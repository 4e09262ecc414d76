"""MediaWiki, the packaged tree as it is (/usr/share/mediawiki), with MariaDB.

The test completes the web installer page by page. The resulting LocalSettings.php goes to the path in
MW_CONFIG_FILE; uploads go to a folder of the test, which a route of the configuration serves.
"""

import re
import zlib
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.apps.browser import Browser, Page, Upload
from support.apps.files import AS_ROOT, browser_of, give, next_second, png
from support.machine import WWW_DATA
from support.waiting import wait_for

pytestmark = pytest.mark.xdist_group("mediawiki")

PACKAGED = Path("/usr/share/mediawiki")
ADMIN, PASSWORD = "Librarian", "Oook oook oook 4"
# MediaWiki compresses its pages itself, unless PHP buffers them first.
INI = {"output_buffering": "0", "upload_max_filesize": "32M", "post_max_size": "40M"}


@dataclass
class MediaWiki:
    browser: Browser
    server: object

    def visitor(self) -> Browser:
        return browser_of(self.server)

    def edit(self, title: str, text: str, summary: str = "") -> Page:
        page = self.browser.get(f"/index.php?title={title}&action=edit").ok()
        page = self.browser.submit(page, page.form("editform"), {"wpTextbox1": text, "wpSummary": summary},
                                   button="wpSave").ok()
        assert 302 in page.redirects, "saving redirects to the page: " + page.describe()
        return page

    def api(self, **parameters) -> dict:
        page = self.visitor().post("/api.php", {"format": "json", "formatversion": "2", **parameters}).ok()
        assert page.content_type == "application/json", page.describe()
        return page.json()


def install(browser: Browser, database, account) -> bytes:
    """Completes the installer and returns its LocalSettings.php."""
    answers = {
        "DBConnect": {
            "DBType": "mysql", "mysql_wgDBserver": f"{database.host}:{database.port}",
            "mysql_wgDBname": account.database, "mysql__InstallUser": account.user,
            "mysql__InstallPassword": account.password},
        "DBSettings": {"mysql__SameAccount": "1"},
        "Name": {
            "config_wgSitename": "Unseen Library", "config__AdminName": ADMIN, "config__AdminPassword": PASSWORD,
            "config__AdminPasswordConfirm": PASSWORD, "config__SkipOptional": "skip"},
    }
    page = browser.get("/").ok()
    page = browser.get(page.links("mw-config/index.php")[0]).ok()
    seen = []
    while not page.links("localsettings=1"):
        form = page.form(action="page=")
        name = re.search(r"page=(\w+)", form.action)[1]
        assert seen.count(name) < 3, f"{seen} leads nowhere: {page.describe()}"
        seen.append(name)
        page = browser.submit(page, form, answers.get(name), button="submit-continue").ok()
        assert "</html>" in page.text, f"cut off: {page.describe()}"
    assert {"DBConnect", "Name", "Install"} <= set(seen), seen
    settings = browser.get(page.links("localsettings=1")[0])
    assert "attachment" in settings.headers["Content-Disposition"], settings.describe()
    return settings.body


def log_in(browser: Browser, password: str) -> Page:
    page = browser.get("/index.php?title=Special:UserLogin").ok()
    return browser.submit(page, page.form("userlogin"), {"wpName": ADMIN, "wpPassword": password},
                          button="wploginattempt")


@pytest.fixture(scope="module")
def wiki(run, space, database) -> MediaWiki:
    account = database.create("library")
    settings = space / "LocalSettings.php"
    images = space / "images"
    images.mkdir()
    give(images)
    user = {"user": WWW_DATA, "group": WWW_DATA} if AS_ROOT else {}
    server = run({
        "routes": [
            {"match": {"uri": ["*.php", "*.php/*"]}, "action": {"pass": "applications/wiki"}},
            {"match": {"uri": "/images/*"}, "action": {"share": f"{space}$uri", "fallback": {"return": 404}}},
            {"match": {"uri": ["/resources/*", "/skins/*", "/extensions/*"]},
             "action": {"share": f"{PACKAGED}$uri", "follow_symlinks": True, "fallback": {"return": 404}}},
            {"action": {"pass": "applications/wiki"}},
        ],
        "applications": {"wiki": {
            "type": "php", "root": str(PACKAGED), "index": "index.php", "front_controller": "index.php", **user,
            "processes": 2, "environment": {"MW_CONFIG_FILE": str(settings)}, "options": {"admin": INI},
        }},
        "settings": {"http": {"max_body_size": 41943040}},
    })
    browser = browser_of(server)
    settings.write_bytes(install(browser, database, account) + f"""
        $wgArticlePath = '/wiki/$1';
        $wgUploadDirectory = '{images}';
        $wgEnableUploads = true;
        $wgUseImageMagick = false;
    """.encode())
    give(settings)
    page = log_in(browser, PASSWORD).ok()
    assert page.path == "/wiki/Main_Page" and ADMIN in page.text, page.describe()
    return MediaWiki(browser, server)


def test_the_main_page_and_its_assets_are_served(wiki):
    page = wiki.visitor().get("/").ok()
    assert page.path == "/wiki/Main_Page" and "MediaWiki has been installed" in page.text, page.describe()
    assets = page.links(r"load\.php|/resources/|/skins/")
    assert len(assets) >= 3, page.describe()
    for asset in assets:
        got = wiki.visitor().get(asset).ok()
        assert got.body and "html" not in got.content_type, got.describe()
    startup = wiki.visitor().get("/load.php?modules=startup&only=scripts&raw=1&skin=vector").ok()
    assert "javascript" in startup.content_type and "mw.loader" in startup.text
    again = wiki.visitor().get("/load.php?modules=startup&only=scripts&raw=1&skin=vector",
                               If_None_Match=startup.headers["ETag"])
    assert again.status == 304 and again.body == b""


def test_a_page_is_written_and_read_under_its_short_address(wiki):
    page = wiki.edit("Große_Bücher", "== Chapter ==\n'''Bold''' and [[Main Page|linked]], 5 € {{CURRENTYEAR}}", "first")
    assert "<b>Bold</b>" in page.text, page.describe()
    page = wiki.visitor().get("/wiki/Gro%C3%9Fe_B%C3%BCcher").ok()
    assert page.title == "Große Bücher - Unseen Library" and "<b>Bold</b>" in page.text and "5 €" in page.text
    wiki.edit("Große_Bücher", "Second edition.", "rewritten")
    history = wiki.visitor().get("/index.php?title=Gro%C3%9Fe_B%C3%BCcher&action=history").ok()
    assert "first" in history.text and "rewritten" in history.text
    raw = wiki.visitor().get("/index.php?title=Gro%C3%9Fe_B%C3%BCcher&action=raw").ok()
    assert raw.text == "Second edition." and raw.content_type == "text/x-wiki"


def test_titles_that_look_like_files_and_paths_reach_the_wiki(wiki):
    for title in ("Talk:A/b/c", "Index.php_explained", "50%25_off%3F", "a.css", "C%2B%2B"):
        page = wiki.visitor().get("/wiki/" + title)
        assert page.status == 404 and "There is currently no text in this page" in page.text, page.describe()


def test_a_page_of_two_megabytes_is_saved_whole(wiki):
    text = "".join(f"* item {number} ä\n" for number in range(100_000))
    wiki.edit("Long", text)
    raw = wiki.visitor().get("/index.php?title=Long&action=raw").ok()
    assert raw.text == text.rstrip("\n") and len(raw.body) > 1_500_000


def test_pages_are_found_by_the_search(wiki):
    wiki.edit("Orang-utan", "A xylophonist among the shelves.")
    # The search index is filled after the response has been sent.
    wait_for(lambda: "Orang-utan" in wiki.visitor().get("/index.php?search=xylophonist&fulltext=1").ok().text)
    page = wiki.visitor().get("/index.php?search=Orang-utan")
    assert page.path == "/wiki/Orang-utan" and 302 in page.redirects, page.describe()


def test_an_image_is_uploaded_scaled_and_served_as_a_file(wiki):
    picture = png()
    page = wiki.browser.get("/wiki/Special:Upload").ok()
    page = wiki.browser.submit(page, page.form("mw-upload-form"), {
        "wpDestFile": "Shelf.png", "wpUploadDescription": "A shelf.", "wpIgnoreWarning": "1",
    }, button="wpUpload", files={"wpUploadFile": Upload("shelf.png", picture, "image/png")}).ok()
    assert page.path == "/wiki/File:Shelf.png", page.describe()
    links = page.links(r"/images/.*Shelf\.png$")
    original = wiki.visitor().get(next(link for link in links if "/thumb/" not in link)).ok()
    assert original.content_type == "image/png" and original.body == picture

    page = wiki.edit("Furniture", "[[File:Shelf.png|120px]]")
    thumbnail = wiki.visitor().get(page.links(r"/images/thumb/.*120px-Shelf\.png")[0]).ok()
    assert thumbnail.content_type == "image/png" and thumbnail.body[:4] == b"\x89PNG"


def test_the_web_apis_answer(wiki):
    general = wiki.api(action="query", meta="siteinfo")["query"]["general"]
    assert general["sitename"] == "Unseen Library" and general["phpsapi"] == "fpm-fcgi"
    assert general["articlepath"] == "/wiki/$1" and general["dbtype"] == "mysql"
    parsed = wiki.api(action="parse", text="''hi''", contentmodel="wikitext")["parse"]["text"]
    assert "<i>hi</i>" in parsed
    page = wiki.visitor().get("/rest.php/v1/page/Main_Page").ok()
    assert page.json()["title"] == "Main Page", page.describe()
    page = wiki.visitor().get("/rest.php/v1/page/Nobody_wrote_this")
    assert page.status == 404 and page.content_type == "application/json", page.describe()


def test_gzip_made_by_php_arrives_as_it_is(wiki):
    page = wiki.visitor().get("/wiki/Main_Page", Accept_Encoding="gzip")
    assert page.status == 200 and page.headers["Content-Encoding"] == "gzip"
    assert b"MediaWiki has been installed" in zlib.decompress(page.body, 31)


def test_a_wrong_password_is_rejected_and_logging_out_ends_the_session(wiki):
    browser = wiki.visitor()
    page = log_in(browser, "wrong")
    assert "Incorrect username or password entered" in page.text, page.describe()
    page = log_in(browser, PASSWORD).ok()
    assert "Log out" in page.text
    page = browser.get("/wiki/Special:UserLogout").ok()
    browser.submit(page, page.form(containing="wpEditToken")).ok()
    assert "Log out" not in browser.get("/wiki/Main_Page").text


def test_jobs_run_after_the_response(wiki):
    wiki.edit("Template:Shared", "old words")
    for number in range(3):
        wiki.edit(f"Uses_{number}", "{{Shared}}")
    next_second()  # MediaWiki's caches know seconds only.
    wiki.edit("Template:Shared", "new words")
    for number in range(3):
        wait_for(lambda: "new words" in wiki.visitor().get(f"/wiki/Uses_{number}").ok().text)
