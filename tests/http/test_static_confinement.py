"""Static files that must never be sent: hidden files, PHP sources, files outside of the folder."""


import pytest

from support.folders import Folder
from support.server import Howdah

# --- Files that are never sent

SECRET = "do not send this"


@pytest.mark.parametrize(
    "name",
    [
        ".env",
        ".git/config",
        ".htaccess",
        "sub/.htpasswd",
        ".user.ini",
        "sub/.hidden/file.txt",
        "..hidden",
        "sub/.x.css",
    ],
)
def test_dot_files_are_not_sent(site, server, name):
    site.write(name, SECRET)
    for target in (
        "/" + name,
        "/" + name.replace(".", "%2e"),
        "/./" + name,
        "//" + name,
        "/" + name + "?x",
        "/" + name + "/",
    ):
        response = server.get(target)
        assert (response.status, SECRET in response.text) == (404, False), target


def test_well_known_is_sent(site, server):
    site.write(".well-known/acme-challenge/token", "token")
    site.write(".well-known/.hidden", SECRET)
    assert server.get("/.well-known/acme-challenge/token").text == "token"
    assert server.get("/.well-known/.hidden").status == 404
    assert server.get("/.well-known-not/../.git").status == 404


def test_a_dot_file_of_php_is_not_run(site, server):
    site.php(".hidden.php", "echo 'hidden ran';")
    site.php(".git/hook.php", "echo 'hidden ran';")
    for target in ("/.hidden.php", "/.git/hook.php", "/%2egit/hook.php", "/.git/hook.php/info"):
        response = server.get(target)
        assert (response.status, "ran" in response.text) == (404, False), target


@pytest.mark.parametrize(
    "extension", ["phtml", "phar", "phps", "php3", "php4", "php5", "php7", "php8", "PHP", "Php", "PHTML"]
)
def test_php_sources_are_not_sent(site, server, extension):
    site.write(f"source.{extension}", f"<?php /* {SECRET} */ echo 'ran';")
    for target in (
        f"/source.{extension}",
        f"/source%2e{extension}",
        f"/source.{extension}?x",
        f"/./source.{extension}",
    ):
        response = server.get(target)
        assert SECRET not in response.text
        assert response.status == 404 or response.text == "ran"


@pytest.mark.parametrize(
    "target",
    [
        "/source.php%00",
        "/source.php%00.txt",
        "/source.php%20",
        "/source.php.",
        "/source.php%2f",
        "/source.php%5c",
        "/SOURCE.php",
        "/source.php::$DATA",
        "/source.php~",
    ],
)
def test_the_source_of_a_script_is_not_sent(site, server, target):
    site.write("source.php", f"<?php /* {SECRET} */ echo 'ran';")
    response = server.get(target)
    assert SECRET not in response.text
    assert response.status in (400, 404) or response.text == "ran"


EVIL = f"GIF89a <?php echo 'evil ', 'ran'; /* {SECRET} */"


@pytest.mark.parametrize(
    "target",
    [
        "/upload/evil.jpg/x.php",
        "/upload/evil.jpg/.php",
        "/upload/evil.jpg/x.php/y.php",
        "/upload/evil.jpg%00.php",
        "/upload/evil.jpg%0a.php",
        "/upload/evil.jpg%2fx.php",
        "/upload/evil.jpg/..%2fevil.jpg/x.php",
        "/upload//evil.jpg//x.php",
        "/upload/evil.jpg%20.php",
        "/upload/evil.jpg/index.php",
        "/upload/folder.php/x.php",
    ],
)
@pytest.mark.parametrize("front", [False, True], ids=["plain", "front controller"])
def test_an_upload_is_never_executed(uploads, front, target):
    response = uploads[front].get(target)
    assert "evil ran" not in response.text
    if front:
        assert response.status in (400, 404) or response.text == "front controller"
    else:
        assert response.status in (400, 404)


@pytest.fixture(scope="module")
def uploads(tmp_path_factory):
    """Two servers with an uploaded picture that contains code: one without, one with a front controller."""
    servers = {}
    for front in (False, True):
        folder = Folder(tmp_path_factory.mktemp("uploads"))
        folder.write("upload/evil.jpg", EVIL)
        folder.write("upload/folder.php/x.txt", "x")
        if front:
            folder.php("index.php", "echo 'front controller';")
        servers[front] = Howdah.serve(folder)
    yield servers
    for server in servers.values():
        server.stop()


def test_an_upload_is_sent_with_its_own_type(uploads):
    response = uploads[False].get("/upload/evil.jpg")
    assert response.text == EVIL and response.header("Content-Type") == "image/jpeg"


# --- Leaving the folder

ESCAPES = [
    "/../outside.txt",
    "/../../../../../../../../etc/passwd",
    "/sub/../../outside.txt",
    "/sub/../../site-sibling/outside.txt",
    "/../site-sibling/outside.txt",
    "/%2e%2e/outside.txt",
    "/%2e%2e%2foutside.txt",
    "/..%2foutside.txt",
    "/.%2e/outside.txt",
    "/sub/%2e%2e/%2e%2e/outside.txt",
    "/sub/..%2f..%2foutside.txt",
    "/..%5coutside.txt",
    "/..\\outside.txt",
    "/%252e%252e/outside.txt",
    "/%c0%ae%c0%ae/outside.txt",
    "/%uff0e%uff0e/outside.txt",
    "/....//outside.txt",
    "/.../outside.txt",
    "/..;/outside.txt",
    "/./../outside.txt",
    "/.//../outside.txt",
    "//../outside.txt",
    "/sub//..//../outside.txt",
    "/..%00/outside.txt",
    "/hello.txt/../../outside.txt",
    "/hello.txt%00/../../outside.txt",
    "/..?/outside.txt",
    "//etc/passwd",
    "/%2fetc/passwd",
    "/file:///etc/passwd",
    "/proc/self/environ",
]


@pytest.mark.parametrize("target", ESCAPES)
def test_no_target_leaves_the_folder(escape, target):
    with escape.connect() as connection:
        response = connection.request("GET", target)
        assert response.status in (400, 403, 404), response
        assert SECRET not in response.text and "root:" not in response.text
    assert escape.get("/hello.txt").text == "hello"


@pytest.mark.parametrize(
    "target", [target.replace("outside.txt", "outside.php") for target in ESCAPES if "outside" in target]
)
def test_no_target_runs_a_script_outside(escape, target):
    for suffix in ("", "/info"):
        response = escape.get(target + suffix)
        assert response.status in (400, 403, 404) and "ran" not in response.text


@pytest.mark.parametrize(
    "target", ["http://x/../outside.txt", "http://x/sub/..%2f..%2foutside.txt", "http://x//etc/passwd"]
)
def test_no_absolute_target_leaves_the_folder(escape, target):
    assert escape.get(target).status in (400, 403, 404)


@pytest.fixture(scope="module")
def escape(tmp_path_factory):
    folder = Folder(tmp_path_factory.mktemp("escape"))
    folder.write("hello.txt", "hello")
    folder.write("sub/inner.txt", "inner")
    for place in ("..", "../site-sibling"):
        folder.write(f"{place}/outside.txt", SECRET)
        folder.php(f"{place}/outside.php", "echo 'ran';")
    server = Howdah.serve(folder)
    yield server
    server.stop()


@pytest.mark.parametrize(
    "target", ["/%00", "/hello.txt%00", "/hello.txt%00.jpg", "/%00/hello.txt", "/server.php%00", "/server.php/%00"]
)
def test_nul_is_rejected(site, server, target):
    site.write("hello.txt", "hello")
    assert server.get(target).status in (400, 404)


def test_a_path_that_is_not_utf_8_gives_404(folder, run):
    folder.write("%FF", "another file")
    folder.write("hello.txt", "hello")
    served = {"share": f"{folder.root}$uri", "fallback": {"share": f"{folder.root}/hello.txt"}}
    only = {"match": {"uri": "/only/*"}, "action": {"share": f"{folder.root}$uri"}}
    server = run({"routes": [only, {"action": served}]})
    assert server.get("/%25FF").text == "another file"
    assert server.get("/%ff").text == "hello"
    assert server.get("/only/%ff").status == 404
    assert server.get("/%ff/%00").status == 400


def test_a_name_with_control_characters_is_served(folder, serve):
    folder.write("a\tb\n.txt", "hello")
    assert serve().get("/a%09b%0a.txt").text == "hello"


@pytest.mark.parametrize("target", ["/%", "/%4", "/%zz", "/hello.txt%"])
def test_a_broken_escape_is_rejected(site, server, target):
    site.write("hello.txt", "hello")
    assert server.get(target).status in (400, 404)


def test_a_name_longer_than_the_file_system_allows_gives_404(server):
    for target in ("/" + "x" * 300, "/" + "x/" * 3000):
        assert server.get(target).status in (400, 404, 414)


# --- Symbolic links


@pytest.fixture
def links(folder):
    folder.write("../outside/secret.txt", SECRET)
    folder.write("../outside/index.html", SECRET)
    folder.write("real.txt", "inside")
    folder.write("real/file.txt", "inside")
    for name, target in {
        "file.txt": "../outside/secret.txt",
        "absolute.txt": folder.root.parent / "outside/secret.txt",
        "folder": "../outside",
        "passwd.txt": "/etc/passwd",
        "chain.txt": "file.txt",
        "inside.txt": "real.txt",
        "inside": "real",
        "loop.txt": "loop.txt",
        "dangling.txt": "nowhere.txt",
    }.items():
        (folder.root / name).symlink_to(target)
    return folder


OUT = ["/file.txt", "/absolute.txt", "/folder/secret.txt", "/folder/", "/folder", "/passwd.txt", "/chain.txt"]


def test_symbolic_links_do_not_lead_out(links, serve):
    server = serve()
    for target in OUT:
        response = server.get(target)
        assert response.status in (403, 404), target
        assert SECRET not in response.text and "root:" not in response.text
    for target in ("/loop.txt", "/dangling.txt"):
        assert server.get(target).status in (403, 404)
    assert server.get("/real.txt").text == "inside"


def test_symbolic_links_within_the_folder_are_followed(links, serve):
    server = serve()
    assert server.get("/inside.txt").text == "inside"
    assert server.get("/inside/file.txt").text == "inside"


def test_symbolic_links_lead_out_if_the_option_allows_it(links, serve):
    server = serve("--follow-symlinks")
    for target in ("/file.txt", "/absolute.txt", "/folder/secret.txt", "/folder/", "/chain.txt"):
        assert server.get(target).text == SECRET, target
    for target in ("/loop.txt", "/dangling.txt"):
        assert server.get(target).status in (403, 404)


@pytest.mark.parametrize("allowed", [True, False])
def test_follow_symlinks_in_a_configuration(links, run, allowed):
    action = {"share": f"{links.root}$uri", "follow_symlinks": allowed}
    server = run({"listeners": {"127.0.0.1:{port}": {"pass": "routes"}}, "routes": [{"action": action}]})
    response = server.get("/inside.txt")
    assert response.text == "inside" if allowed else response.status in (200, 403, 404)


def test_a_root_may_be_a_symbolic_link(folder, serve):
    """Deploys swap the link `current`."""
    folder.write("hello.txt", "hello")
    folder.php(
        "index.php", "echo $_SERVER['DOCUMENT_ROOT'] === dirname($_SERVER['SCRIPT_FILENAME']) ? 'same' : 'differs';"
    )
    current = folder.root.parent / "current"
    current.symlink_to(folder.root)
    with Howdah.serve(current) as server:
        assert server.get("/hello.txt").text == "hello"
        assert server.get("/").text == "same"
