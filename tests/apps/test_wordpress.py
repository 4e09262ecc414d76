"""WordPress, as packaged by Debian, with MariaDB.

Once unpacked into a separate folder under `howdah serve`, and once from the packaged, read-only tree with a
configuration whose routes send the uploads from another folder.
"""

import json
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.apps.browser import Browser, Page, Upload
from support.apps.files import AS_ROOT, browser_of, give, png
from support.machine import WWW_DATA

pytestmark = pytest.mark.xdist_group("wordpress")

PACKAGED = Path("/usr/share/wordpress")
CONFIGURATIONS = Path("/etc/wordpress")
ADMIN, PASSWORD = "editor", "correct horse battery staple"
UPLOAD_LIMITS = {"upload_max_filesize": "32M", "post_max_size": "40M"}
# WordPress asks api.wordpress.org for updates. libcurl finds the proxy in the environment and fails at once.
NO_INTERNET = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "no_proxy": "127.0.0.1"}


@dataclass
class WordPress:
    browser: Browser
    server: object

    def visitor(self) -> Browser:
        return browser_of(self.server)

    def rest(self, method: str, route: str, value=None) -> Page:
        """A call of the REST API as the block editor makes it: with the login's cookies and its nonce."""
        nonce = self.browser.get("/wp-admin/admin-ajax.php?action=rest-nonce").ok().text
        body = None if value is None else json.dumps(value).encode()
        return self.browser.request(method, "/index.php?rest_route=" + route, body,
                                    {"Content-Type": "application/json", "X-WP-Nonce": nonce})

    def publish(self, title: str, content: str, **fields) -> dict:
        page = self.rest("POST", "/wp/v2/posts",
                         {"title": title, "content": content, "status": "publish", **fields})
        assert page.status == 201, page.describe()
        return page.json()


def install(browser: Browser, title: str):
    """The installation, known as the famous five minutes."""
    page = browser.get("/wp-admin/install.php?step=1").ok()
    page = browser.submit(page, page.form("setup"), {
        "weblog_title": title, "user_name": ADMIN, "admin_password": PASSWORD,
        "admin_password2": PASSWORD, "pw_weak": "on", "admin_email": "editor@example.org",
        "blog_public": "0",
    }).ok()
    assert "Success!" in page.text, page.describe()
    page = log_in(browser, PASSWORD)
    assert page.path == "/wp-admin/" and "Dashboard" in page.title, page.describe()


def log_in(browser: Browser, password: str) -> Page:
    page = browser.get("/wp-login.php").ok()
    return browser.submit(page, page.form("loginform"), {"log": ADMIN, "pwd": password}, button="wp-submit").ok()


def set_permalinks(browser: Browser, structure: str) -> Page:
    page = browser.get("/wp-admin/options-permalink.php").ok()
    form = page.form(action="options-permalink.php")
    fields = {"selection": "custom", "permalink_structure": structure}
    return browser.submit(page, form, fields, button="submit").ok()


@pytest.fixture(scope="module")
def unpacked(serve, space, database):
    """Unpacked into a folder; the installer gets the access to the database and writes wp-config.php."""
    folder = space / "wordpress"
    subprocess.run(["cp", "-rL", PACKAGED, folder], check=True)
    (folder / "wp-config.php").unlink()  # Debian's preload file, which looks in /etc. The installer writes another.
    give(folder)
    server = serve(folder, ini=UPLOAD_LIMITS, env=NO_INTERNET)
    browser = browser_of(server)
    account = database.create("wordpress_unpacked")

    page = browser.get("/").ok()
    assert page.path == "/wp-admin/setup-config.php" and page.redirects == [302], page.describe()
    page = browser.get("/wp-admin/setup-config.php?step=1").ok()
    wrong = {"dbname": account.database, "uname": account.user, "pwd": "wrong",
             "dbhost": f"localhost:{database.socket}"}
    refused = browser.submit(page, page.form(action="setup-config.php"), wrong)
    assert "Error establishing a database connection" in refused.text, refused.describe()
    page = browser.submit(page, page.form(action="setup-config.php"), {**wrong, "pwd": account.password}).ok()
    assert "You’ve made it through this part" in page.text or "Run the installation" in page.text, page.describe()
    assert account.password in (folder / "wp-config.php").read_text()

    install(browser, "Unpacked")
    set_permalinks(browser, "/%year%/%monthnum%/%postname%/")
    return WordPress(browser, server)


@pytest.fixture(scope="module")
def packaged(run, space, database):
    """Debian's own layout: code in /usr/share, configuration in /etc, wp-content elsewhere."""
    if not AS_ROOT:
        pytest.skip("writes to /etc/wordpress: run the tests as root")
    account = database.create("wordpress_packaged")
    content = space / "packaged" / "wp-content"
    shutil.copytree(PACKAGED / "wp-content", content)
    give(content.parent)
    name = f"howdah-{space.name}".replace("_", "-")
    configuration = CONFIGURATIONS / f"config-{name}.php"
    configuration.write_text(f"""<?php
        define('DB_NAME', '{account.database}');
        define('DB_USER', '{account.user}');
        define('DB_PASSWORD', '{account.password}');
        define('DB_HOST', '{database.host}:{database.port}');
        define('WP_CONTENT_DIR', '{content}');
    """)
    try:
        server = run({
            # As NGINX Unit's documentation has it for WordPress, with the uploads elsewhere.
            "routes": [
                {"match": {"uri": ["*.php", "*.php/*", "/wp-admin/"]}, "action": {"pass": "applications/blog/direct"}},
                {"match": {"uri": "/wp-content/*"},
                 "action": {"share": f"{content.parent}$uri", "fallback": {"return": 404}}},
                {"action": {"share": f"{PACKAGED}$uri", "follow_symlinks": True,
                            "fallback": {"pass": "applications/blog/index"}}},
            ],
            "applications": {"blog": {
                "type": "php", "user": WWW_DATA, "group": WWW_DATA, "processes": 2,
                "targets": {
                    "direct": {"root": str(PACKAGED)},
                    "index": {"root": str(PACKAGED), "script": "index.php"},
                },
                "environment": {"WORDPRESS_CONFIG": name, **NO_INTERNET},
                "options": {"admin": UPLOAD_LIMITS},
            }},
            "settings": {"http": {"max_body_size": 41943040}},
        })
        browser = browser_of(server)
        page = browser.get("/").ok()
        assert page.path == "/wp-admin/install.php", page.describe()
        install(browser, "Packaged")
        set_permalinks(browser, "/%year%/%monthnum%/%postname%/")
        yield WordPress(browser, server)
    finally:
        configuration.unlink()


@pytest.fixture(scope="module", params=["unpacked", "packaged"])
def wordpress(request) -> WordPress:
    return request.getfixturevalue(request.param)


def test_the_front_page_and_its_assets_are_served(wordpress):
    page = wordpress.visitor().get("/").ok()
    assert page.title in ("Unpacked", "Packaged")
    assert "Hello world!" in page.text
    assets = page.links(r"\.(css|js)(\?|$)")
    for asset in assets:
        got = wordpress.visitor().get(asset).ok()
        assert got.content_type in ("text/css", "text/javascript", "application/javascript"), asset


def test_a_wrong_password_is_rejected_and_the_administration_is_closed(wordpress):
    visitor = wordpress.visitor()
    page = visitor.get("/wp-admin/edit.php").ok()
    assert page.path == "/wp-login.php" and page.redirects == [302]
    page = log_in(visitor, "wrong")
    assert "is incorrect" in page.text, page.describe()
    assert visitor.get("/wp-admin/").path == "/wp-login.php"


def test_the_administration_works(wordpress):
    for path, title in {
        "/wp-admin/": "Dashboard", "/wp-admin/edit.php": "Posts", "/wp-admin/upload.php": "Media Library",
        "/wp-admin/post-new.php": "Add New Post", "/wp-admin/plugins.php": "Plugins",
        "/wp-admin/themes.php": "Themes", "/wp-admin/options-general.php": "General Settings",
        "/wp-admin/site-health.php": "Site Health",
    }.items():
        page = wordpress.browser.get(path).ok()
        assert title in page.title, page.describe()
        assert "</html>" in page.text, f"{path} is cut off"
    styles, scripts = page.links("load-styles.php"), page.links("load-scripts.php")
    assert styles and scripts, page.describe()
    assert wordpress.browser.get(styles[0]).ok().content_type == "text/css"
    assert wordpress.browser.get(scripts[0]).ok().content_type == "application/javascript"


def test_site_health_sees_php_fpm_and_a_loopback(wordpress):
    info = wordpress.browser.get("/wp-admin/site-health.php?tab=debug").ok()
    assert "fpm-fcgi" in info.text, "site health names the SAPI"
    health = wordpress.rest("GET", "/wp-site-health/v1/tests/loopback-requests")
    assert health.json()["status"] == "good", health.describe()


def test_a_post_is_published_and_read_under_its_pretty_permalink(wordpress):
    post = wordpress.publish("Größe zählt", "<p>Élan vital &amp; <em>brio</em></p>")
    path = wordpress.visitor().get(post["link"]).ok().path
    assert path.endswith("/grose-zahlt/") and path.split("/")[1].isdigit(), path
    page = wordpress.visitor().get(path).ok()
    assert "Größe zählt" in page.title and "Élan vital &amp; <em>brio</em>" in page.text
    assert page.redirects == []
    assert wordpress.visitor().get(path.rstrip("/")).redirects == [301], "the canonical address ends with a slash"
    assert wordpress.visitor().get(f"/?p={post['id']}").path == path
    assert "Größe zählt" in wordpress.visitor().get("/feed/").ok().text
    assert wordpress.visitor().get("/wp-json/wp/v2/posts?slug=grose-zahlt").ok().json()[0]["id"] == post["id"]


def test_a_post_of_a_megabyte_is_saved_whole(wordpress):
    words = "".join(f"<p>{number} the quick brown fox</p>" for number in range(32_000))
    post = wordpress.publish("Long", words)
    page = wordpress.visitor().get(post["link"]).ok()
    assert "<p>31999 the quick brown fox</p>" in page.text and len(page.body) > len(words)


def test_an_unknown_address_is_wordpress_own_404(wordpress):
    page = wordpress.visitor().get("/2001/01/never-written/")
    assert page.status == 404 and "Page not found" in page.title, page.describe()
    page = wordpress.visitor().get("/wp-json/no/such/route")
    assert page.status == 404 and page.json()["code"] == "rest_no_route", page.describe()


def test_a_post_is_edited_and_deleted_with_other_methods(wordpress):
    post = wordpress.publish("Draft of a title", "<p>Text</p>")
    changed = wordpress.rest("PUT", f"/wp/v2/posts/{post['id']}", {"title": "A better title"}).ok()
    assert changed.json()["title"]["rendered"] == "A better title"
    assert wordpress.rest("DELETE", f"/wp/v2/posts/{post['id']}&force=true").ok().json()["deleted"] is True
    assert wordpress.visitor().get(post["link"]).status == 404


def test_an_image_is_uploaded_scaled_and_served_as_a_file(wordpress):
    picture = png()
    page = wordpress.browser.get("/wp-admin/media-new.php?browser-uploader").ok()
    form = page.form("file-form")
    page = wordpress.browser.submit(page, form, button="html-upload", files={
        "async-upload": Upload("Nord licht.png", picture, "image/png")}).ok()
    assert page.path == "/wp-admin/upload.php", page.describe()

    media = wordpress.visitor().get("/wp-json/wp/v2/media?search=Nord").ok().json()[0]
    original = wordpress.visitor().get(media["source_url"]).ok()
    assert original.content_type == "image/png" and original.body == picture
    assert original.headers["ETag"] or original.headers["Last-Modified"], "the file came from PHP, not from the disk"
    assert media["media_details"]["sizes"].keys() >= {"medium", "thumbnail"}, "GD scaled it"
    for size in media["media_details"]["sizes"].values():
        scaled = wordpress.visitor().get(size["source_url"]).ok()
        assert scaled.content_type == "image/png" and scaled.body[:4] == b"\x89PNG"


def test_an_image_of_many_megabytes_comes_through_the_ajax_uploader(wordpress):
    picture = png(320, 200) + bytes(12_000_000)  # Decoders stop at the end of the picture.
    nonce = wordpress.browser.get("/wp-admin/media-new.php").ok().find(r'"_wpnonce":"(\w+)"')
    page = wordpress.browser.post(
        "/wp-admin/async-upload.php",
        {"name": "big.png", "action": "upload-attachment", "_wpnonce": nonce},
        {"async-upload": Upload("big.png", picture, "image/png")}).ok()
    assert page.json()["success"] is True, page.describe()
    assert wordpress.visitor().get(page.json()["data"]["url"]).ok().body == picture


def test_a_visitor_comments(wordpress):
    post = wordpress.publish("Talk", "<p>Comment on this.</p>", comment_status="open")
    visitor = wordpress.visitor()
    page = visitor.get(post["link"]).ok()
    fields = {"author": "Ada", "email": "ada@example.org", "comment": "A fine article."}
    page = visitor.submit(page, page.form("commentform"), fields, button="submit").ok()
    assert page.redirects == [302] and "awaiting moderation" in page.text and "A fine article." in page.text


def test_many_visitors_at_once_each_get_their_page(wordpress):
    posts = [wordpress.publish(f"Crowd {number}", f"<p>Only in number {number}.</p>") for number in range(8)]

    def read(post: dict) -> bool:
        visitor = wordpress.visitor()
        pages = [visitor.get(post["link"]).ok() for _ in range(10)]
        return all(post["content"]["rendered"].strip() in page.text and page.title.startswith(post["title"]["rendered"])
                   for page in pages)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read, posts)) == [True] * 8


def test_cron_runs_through_the_server(wordpress):
    page = wordpress.visitor().get("/wp-cron.php?doing_wp_cron")
    assert page.status == 200 and page.body == b""


def test_sources_and_hidden_files_are_not_given_away(wordpress):
    for path in ("/wp-config.php", "/wp-includes/version.php"):
        assert wordpress.visitor().get(path).text.strip() == "", "PHP ran, and printed nothing"
    assert b"RewriteRule" not in wordpress.visitor().get("/.htaccess").body


def test_logging_out_ends_the_session(wordpress):
    browser = wordpress.visitor()
    page = log_in(browser, PASSWORD)
    link = page.links("action=logout")[0]
    page = browser.get(link).ok()
    assert "You are now logged out" in page.text, page.describe()
    assert browser.get("/wp-admin/").path == "/wp-login.php"
