"""DokuWiki, as packaged by Debian: files only, no database.

Once unpacked into a separate folder and set up by its installer, and once from the packaged tree, which is full of
symlinks, as an animal of Debian's wiki farm.
"""

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.apps.browser import Browser, Page, Upload
from support.apps.files import AS_ROOT, browser_of, give, next_second, png
from support.waiting import wait_for

pytestmark = [
    pytest.mark.xdist_group("dokuwiki"),
    pytest.mark.skipif(not AS_ROOT, reason="the package has parts that only www-data may read: run the tests as root"),
]

PACKAGED = Path("/usr/share/dokuwiki")
CONFIGURATION = Path("/etc/dokuwiki")
DATA = Path("/var/lib/dokuwiki/data")
FOLDERS = ("pages", "attic", "media", "media_attic", "media_meta", "meta", "cache", "locks", "index", "tmp", "log")
# Unknown pages are a 404, and addresses look like /doku.php/garden:roses, which travels as PATH_INFO.
SETTINGS = {"send404": "1", "userewrite": "2", "tagline": "Perennials and more"}
ADMIN, PASSWORD = "gardener", "grows on trees"


@dataclass
class DokuWiki:
    browser: Browser
    server: object
    saved: set = field(default_factory=set)

    def visitor(self) -> Browser:
        return browser_of(self.server)

    def save(self, id: str, text: str, summary: str = "") -> Page:
        """Writes a page. DokuWiki merges two revisions of one second, so each is written in another second."""
        if id in self.saved:
            next_second()
        self.saved.add(id)
        page = self.browser.get(f"/doku.php?id={id}&do=edit").ok()
        return self.browser.submit(page, page.form(containing="wikitext"),
                                   {"wikitext": text, "summary": summary}, button="do[save]").ok()

    def upload(self, namespace: str, name: str, content: bytes, type: str) -> Page:
        page = self.browser.get(f"/lib/exe/mediamanager.php?ns={namespace}").ok()
        return self.browser.submit(page, page.form("dw__upload"), {"mediaid": name},
                                   files={"upload": Upload(name, content, type)}).ok()


def log_in(browser: Browser, password: str) -> Page:
    page = browser.get("/doku.php?do=login").ok()
    return browser.submit(page, page.form("dw__login"), {"u": ADMIN, "p": password})


def configure(browser: Browser, **settings: str) -> Page:
    """Saves the several hundred fields of the configuration manager's form."""
    page = browser.get("/doku.php?do=admin&page=config").ok()
    form = page.form("dw__configform")
    assert len(form.fields) > 100, page.describe()
    page = browser.submit(page, form, {f"config[{key}]": value for key, value in settings.items()}, button="submit")
    assert "Settings updated successfully" in page.ok().text, page.describe()
    return page


@pytest.fixture(scope="module")
def unpacked(serve, space):
    folder = space / "dokuwiki"
    subprocess.run(["cp", "-rL", PACKAGED, folder], check=True)
    (folder / "inc/preload.php").unlink()  # Debian's preload file, which looks in /etc.
    shutil.copytree(CONFIGURATION, folder / "conf", ignore=shutil.ignore_patterns(
        "local.php", "acl.auth.php", "users.auth.php", "farm"))
    defaults = folder / "conf/dokuwiki.php"
    defaults.write_text(defaults.read_text().replace("'/var/lib/dokuwiki/data'", "'./data'"))
    for name in FOLDERS:
        (folder / "data" / name).mkdir(parents=True)
    give(folder)

    server = serve(folder)
    browser = browser_of(server)
    page = browser.get("/install.php").ok()
    page = browser.submit(page, page.form(containing="d[title]"), {
        "d[title]": "Unpacked", "d[acl]": "on", "d[superuser]": ADMIN, "d[fullname]": "The Gardener",
        "d[email]": "gardener@example.org", "d[password]": PASSWORD, "d[confirm]": PASSWORD, "d[policy]": "0",
    }, button="submit").ok()
    assert "configuration was finished successfully" in page.text, page.describe()
    page = log_in(browser, PASSWORD)
    assert "The Gardener" in page.text, page.describe()
    configure(browser, **SETTINGS)
    return DokuWiki(browser, server)


@pytest.fixture(scope="module")
def packaged(serve, space):
    server = serve(PACKAGED, "--follow-symlinks")
    animal = CONFIGURATION / "farm" / f"{server.port}.127.0.0.1"
    farm_is_ours = not animal.parent.exists()
    data = space / "farm"
    for name in FOLDERS:
        (data / name).mkdir(parents=True)
    animal.mkdir(parents=True)
    try:
        (animal / "local.php").write_text(f"""<?php
            $conf['title'] = 'Packaged';
            $conf['savedir'] = '{data}';
            $conf['useacl'] = 1;
            $conf['superuser'] = '{ADMIN}';
            $conf['autopasswd'] = 0;
        """)
        (animal / "acl.auth.php").write_text("# <?php exit()?>\n*\t@ALL\t8\n")
        (animal / "users.auth.php").write_text("# <?php exit()?>\n")
        give(data)
        give(animal)
        browser = browser_of(server)
        page = browser.get("/doku.php?do=register").ok()
        page = browser.submit(page, page.form("dw__register"), {
            "login": ADMIN, "pass": PASSWORD, "passchk": PASSWORD,
            "fullname": "The Gardener", "email": "gardener@example.org",
        }).ok()
        assert "The user has been created" in page.text, page.describe()
        assert "The Gardener" in log_in(browser, PASSWORD).text
        configure(browser, **SETTINGS)
        yield DokuWiki(browser, server)
    finally:
        shutil.rmtree(animal)
        if farm_is_ours:
            animal.parent.rmdir()


@pytest.fixture(scope="module", params=["unpacked", "packaged"])
def wiki(request) -> DokuWiki:
    return request.getfixturevalue(request.param)


def test_the_front_page_and_its_assets_are_served(wiki):
    page = wiki.visitor().get("/")
    assert "</html>" in page.text and page.path == "/doku.php/start", page.describe()
    assets = page.links(r"lib/(exe/(css|js)\.php|tpl/)|manifest")
    assert len(assets) >= 3, page.describe()
    for asset in assets:
        got = wiki.visitor().get(asset).ok()
        assert got.body, asset
        if "css.php" in asset:
            assert got.content_type == "text/css" and "dokuwiki" in got.text
        if "js.php" in asset:
            assert "javascript" in got.content_type and "jQuery" in got.text
    icon = wiki.visitor().get("/lib/tpl/dokuwiki/images/favicon.ico").ok()
    assert icon.content_type in ("image/x-icon", "image/vnd.microsoft.icon")


def test_a_page_is_written_edited_and_its_history_kept(wiki):
    page = wiki.save("garden:roses", "====== Roses ======\n\nThey are **red**, 20 € each.", "planted")
    assert "<strong>red</strong>" in page.text and "20 €" in page.text, page.describe()
    assert 302 in page.redirects, "saving redirects to the page"
    page = wiki.save("garden:roses", "====== Roses ======\n\nThey are **white**.", "painted")
    assert "<strong>white</strong>" in page.text
    page = wiki.visitor().get("/doku.php?id=garden:roses").ok()
    assert page.title.startswith("garden:roses") and "<strong>white</strong>" in page.text
    history = wiki.visitor().get("/doku.php?id=garden:roses&do=revisions").ok()
    assert "planted" in history.text and "painted" in history.text
    raw = wiki.visitor().get("/doku.php?id=garden:roses&do=export_raw").ok()
    assert raw.content_type == "text/plain" and raw.text == "====== Roses ======\n\nThey are **white**."


def test_a_large_page_is_saved_whole(wiki):
    text = "====== Long ======\n" + "".join(f"  * item {number} ä\n" for number in range(20_000))
    wiki.save("garden:long", text)
    raw = wiki.visitor().get("/doku.php?id=garden:long&do=export_raw").ok()
    assert raw.text == text


def test_pages_are_found_by_the_search(wiki):
    wiki.save("garden:tulips", "====== Tulips ======\n\nA xylophone of colours.")
    pixel = wiki.browser.get("/lib/exe/taskrunner.php?id=garden:tulips").ok()
    assert pixel.content_type == "image/gif" and pixel.body.startswith(b"GIF89a")
    # It fills the index after it has sent the picture.
    wait_for(lambda: "garden:tulips" in wiki.visitor().get("/doku.php?do=search&q=xylophone").ok().text)


def test_a_page_that_does_not_exist_is_a_404_with_a_body(wiki):
    page = wiki.visitor().get("/doku.php?id=never:written")
    assert page.status == 404 and "This topic does not exist yet" in page.text, page.describe()


def test_path_info_names_a_page(wiki):
    wiki.save("garden:paths", "A page with a path.")
    page = wiki.visitor().get("/doku.php/garden:paths").ok()
    assert "A page with a path." in page.text and page.title.startswith("garden:paths"), page.describe()


def test_media_are_uploaded_fetched_resized_and_revalidated(wiki):
    picture = png()
    page = wiki.upload("garden", "bed.png", picture, "image/png")
    assert "Successful upload" in page.text or "Upload successful" in page.text, page.describe()

    visitor = wiki.visitor()
    fetched = visitor.get("/lib/exe/fetch.php?media=garden:bed.png").ok()
    assert fetched.content_type == "image/png" and fetched.body == picture
    assert fetched.headers["Content-Length"] == str(len(picture))
    again = visitor.get("/lib/exe/fetch.php?media=garden:bed.png", If_None_Match=fetched.headers["ETag"],
                        If_Modified_Since=fetched.headers["Last-Modified"])
    assert again.status == 304 and again.body == b""
    part = visitor.get("/lib/exe/fetch.php?media=garden:bed.png", Range="bytes=1-3")
    assert (part.status, part.body) == (206, b"PNG"), part.describe()
    assert part.headers["Content-Range"] == f"bytes 1-3/{len(picture)}"

    wiki.save("garden:pictures", "{{garden:bed.png?120}}")
    small = visitor.get("/doku.php/garden:pictures").ok().links(r"fetch\.php/garden:bed.png.*w=120")
    scaled = visitor.get(small[0]).ok()
    assert scaled.content_type == "image/png" and scaled.body[:4] == b"\x89PNG" and scaled.body != picture


def test_the_ajax_uploader_and_the_ajax_search_work(wiki):
    token = wiki.browser.get("/doku.php?id=start&do=media&ns=garden").ok().find(r'name="sectok" value="(\w+)"')
    # The script of the media manager sends the file as the bare body of the request.
    answer = wiki.browser.request(
        "POST", f"/lib/exe/ajax.php?call=mediaupload&ns=garden&qqfile=raw.png&mediaid=raw.png&sectok={token}",
        png(100, 80), {"Content-Type": "application/octet-stream", "X-Requested-With": "XMLHttpRequest"}).ok()
    assert answer.json().get("success") is True, answer.describe()
    assert wiki.visitor().get("/lib/exe/fetch.php?media=garden:raw.png").ok().body == png(100, 80)
    wiki.save("garden:quick", "Quick.")
    wiki.browser.get("/lib/exe/taskrunner.php?id=garden:quick").ok()
    wait_for(lambda: "quick" in wiki.browser.post("/lib/exe/ajax.php", {"call": "qsearch", "q": "quick"}).ok().text)


def test_the_configuration_manager_saves(wiki):
    assert "Perennials and more" in wiki.visitor().get("/doku.php/start").text


def test_a_wrong_password_is_rejected(wiki):
    visitor = wiki.visitor()
    page = log_in(visitor, "wrong")
    assert "username or password was wrong" in page.text, page.describe()
    assert "The Gardener" not in visitor.get("/doku.php?id=start").text


def test_xml_rpc_answers(wiki):
    call = b"<?xml version='1.0'?><methodCall><methodName>dokuwiki.getVersion</methodName></methodCall>"
    page = wiki.browser.request("POST", "/lib/exe/xmlrpc.php", call, {"Content-Type": "text/xml"})
    assert page.status in (200, 403) and "methodResponse" in page.text or "disabled" in page.text, page.describe()


def test_sources_are_not_given_away(wiki):
    for path in ("/inc/init.php", "/inc/lang/en/lang.php"):
        assert "<?php" not in wiki.visitor().get(path).text
    assert wiki.visitor().get("/.htaccess").status == 404
