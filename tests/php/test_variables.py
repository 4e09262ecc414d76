"""The variables that a script sees are those of PHP-FPM behind nginx, with any php.ini."""

import os
import time

import pytest

from support.folders import Folder
from support.server import Howdah


def test_the_variables_are_those_of_php_fpm_behind_nginx(site, server):
    with server.connect() as connection:
        port = connection.socket.getsockname()[1]
        got = connection.request("GET", "/server.php?a=1&b=%20x", {"Host": "example.org:8099"}).json()
    expected = {
        "GATEWAY_INTERFACE": "CGI/1.1",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REQUEST_METHOD": "GET",
        "REQUEST_SCHEME": "http",
        "REQUEST_URI": "/server.php?a=1&b=%20x",
        "QUERY_STRING": "a=1&b=%20x",
        "SCRIPT_NAME": "/server.php",
        "SCRIPT_FILENAME": f"{site.root}/server.php",
        "DOCUMENT_ROOT": str(site.root),
        "DOCUMENT_URI": "/server.php",
        "PHP_SELF": "/server.php",
        "REDIRECT_STATUS": "200",
        "REMOTE_ADDR": "127.0.0.1",
        "REMOTE_PORT": str(port),
        "SERVER_ADDR": "127.0.0.1",
        "SERVER_PORT": str(server.port),
        "SERVER_NAME": "example.org",
        "HTTP_HOST": "example.org:8099",
    }
    assert {name: got.get(name) for name in expected} == expected
    assert got.get("CONTENT_LENGTH", "") == "" and got.get("CONTENT_TYPE", "") == ""
    for absent in ("PATH_INFO", "PATH_TRANSLATED", "HTTPS", "PHP_AUTH_USER", "PHP_AUTH_DIGEST"):
        assert absent not in got


def test_server_software_is_howdah(server):
    assert server.get("/server.php").json()["SERVER_SOFTWARE"].startswith("howdah/")


def test_content_type_and_length_are_those_of_the_request(server):
    got = server.post("/server.php", "{}", {"Content-Type": "application/json; charset=utf-8"}).json()
    assert (got["CONTENT_TYPE"], got["CONTENT_LENGTH"]) == ("application/json; charset=utf-8", "2")
    assert got["REQUEST_METHOD"] == "POST"


def test_server_software_can_be_set(folder, serve):
    folder.php("index.php", "echo $_SERVER['SERVER_SOFTWARE'], ' ', getenv('SERVER_SOFTWARE');")
    assert serve(processes=1, env={"SERVER_SOFTWARE": "nginx/1.26"}).get("/").text == "nginx/1.26 nginx/1.26"


@pytest.mark.parametrize(
    "target, script, path_info",
    [
        ("/server.php/extra/path", "/server.php", "/extra/path"),
        ("/server.php/extra/path/?q=1", "/server.php", "/extra/path/"),
        ("/server.php/", "/server.php", "/"),
        ("/server.php/a%20b%2Bc", "/server.php", "/a b+c"),
        ("/server.php/%C3%BC", "/server.php", "/ü"),
        ("/server.php/other.php/more", "/server.php", "/other.php/more"),
        ("/folder.php/inner.php/more", "/folder.php/inner.php", "/more"),
        ("/folder.php/inner.php/more.php", "/folder.php/inner.php", "/more.php"),
    ],
)
def test_path_info_is_what_follows_the_script(site, server, target, script, path_info):
    inner = site.root / "folder.php/inner.php"
    if not inner.exists():
        site.write("folder.php/inner.php", (site.root / "server.php").read_bytes())
    got = server.get(target).json()
    assert got["SCRIPT_NAME"] == script
    assert got["SCRIPT_FILENAME"] == f"{site.root}{script}"
    assert got["PATH_INFO"] == path_info
    assert got["PATH_TRANSLATED"] == f"{site.root}{path_info}"
    assert got["PHP_SELF"] == script + path_info
    assert got["REQUEST_URI"] == target


def test_request_headers_become_http_variables(server):
    got = server.get("/server.php", {"X-Custom": "a b", "Accept-Language": "de", "X-1": "one", "Empty": ""}).json()
    assert got["HTTP_X_CUSTOM"] == "a b"
    assert got["HTTP_ACCEPT_LANGUAGE"] == "de"
    assert got["HTTP_X_1"] == "one"
    assert got["HTTP_EMPTY"] == ""


def test_repeated_request_headers_are_joined(server):
    headers = [("X-Forwarded-For", "192.0.2.1"), ("X-Forwarded-For", "192.0.2.2"), ("Cookie", "a=1"), ("Cookie", "b=2")]
    got = server.get("/server.php", headers).json()
    assert got["HTTP_X_FORWARDED_FOR"] == "192.0.2.1, 192.0.2.2"
    assert got["HTTP_COOKIE"] == "a=1; b=2"


def test_a_proxy_header_is_not_taken_for_a_proxy_setting(site):
    code = "echo json_encode([isset($_SERVER['HTTP_PROXY']), getenv('HTTP_PROXY'), getenv('HTTP_PROXY', true)]);"
    assert site.get(code, {"Proxy": "http://192.0.2.1:1"}).json() == [False, False, False]


@pytest.mark.parametrize("name", ["X_Forwarded_For", "X-Forwarded_For", "Content_Length", "Content_Type"])
def test_headers_with_an_underscore_are_dropped(server, name):
    got = server.get("/server.php", {name: "7"}).json()
    assert "HTTP_" + name.upper().replace("-", "_") not in got
    assert got.get("CONTENT_LENGTH", "") == "" and got.get("CONTENT_TYPE", "") == ""


def test_an_underscore_does_not_spoof_a_dash(server):
    got = server.get("/server.php", [("X-Real-IP", "192.0.2.1"), ("X_Real_IP", "192.0.2.66")]).json()
    assert got["HTTP_X_REAL_IP"] == "192.0.2.1"


def test_the_same_headers_through_functions(site):
    code = "echo json_encode([getallheaders(), apache_request_headers()]);"
    all_headers, apache = site.post(
        code, "x", {"X-Custom": "1", "Content-Type": "text/plain", "Authorization": "Bearer t"}
    ).json()
    assert all_headers == apache
    assert all_headers["X-Custom"] == "1"
    assert all_headers["Content-Type"] == "text/plain"
    assert all_headers["Content-Length"] == "1"
    assert all_headers["Authorization"] == "Bearer t"


def test_the_time_of_the_request_is_now(server):
    for _ in range(3):
        before = time.time()
        got = server.get("/server.php").json()
        assert before - 0.1 <= got["REQUEST_TIME_FLOAT"] <= time.time() + 0.1
        assert got["REQUEST_TIME"] == int(got["REQUEST_TIME_FLOAT"])


def test_any_byte_is_possible_in_a_query(site):
    code = "echo bin2hex($_GET['x']), ' ', $_SERVER['QUERY_STRING'];"
    assert site.get(code, query="?x=%FF%00%E2%82%AC+a").text == "ff00e282ac2061 x=%FF%00%E2%82%AC+a"


def hexadecimal(got: dict) -> dict:
    return {name: bytes.fromhex(value) for name, value in got.items()}


@pytest.mark.parametrize(
    "raw, path",
    [
        ("/x%ff%FE/", b"/x\xff\xfe/"),
        ("/x%0d%0a%09%7f", b"/x\r\n\t\x7f"),
        ("/%c0%ae%c0%ae/x", b"/\xc0\xae\xc0\xae/x"),
    ],
)
def test_any_byte_but_nul_is_possible_in_a_path(folder, serve, raw, path):
    """The application decides about the path, as with nginx and FPM."""
    folder.php(
        "index.php",
        """$names = ['REQUEST_URI', 'DOCUMENT_URI', 'SCRIPT_NAME', 'PATH_INFO', 'SCRIPT_FILENAME', 'PATH_TRANSLATED'];
        foreach ($names as $name) { $got[$name] = bin2hex($_SERVER[$name] ?? ''); } echo json_encode($got);""",
    )
    os.mkdir(os.fsencode(folder.root) + b"/\xff")
    os.chmod(os.fsencode(folder.root) + b"/\xff", 0o755)
    os.symlink("../index.php", os.fsencode(folder.root) + b"/\xff/\n.php")
    server = serve()
    root = os.fsencode(folder.root)
    got = hexadecimal(server.get(raw).json())
    assert (got["REQUEST_URI"], got["DOCUMENT_URI"]) == (raw.encode(), path)
    assert (got["SCRIPT_NAME"], got["SCRIPT_FILENAME"]) == (b"/index.php", root + b"/index.php")
    got = hexadecimal(server.get("/index.php" + raw).json())
    assert (got["SCRIPT_NAME"], got["PATH_INFO"], got["PATH_TRANSLATED"]) == (b"/index.php", path, root + path)
    got = hexadecimal(server.get("/%ff/%0a.php" + raw).json())
    assert (got["SCRIPT_NAME"], got["PATH_INFO"]) == (b"/\xff/\n.php", path)


def test_a_long_query_arrives(site):
    value = "v" * 7000
    assert site.get("echo strlen($_GET['x']);", query="?x=" + value).text == "7000"


def test_filters_see_the_request(site):
    code = """echo json_encode([
        filter_input(INPUT_GET, 'n', FILTER_VALIDATE_INT), filter_input(INPUT_POST, 'p'),
        filter_input(INPUT_COOKIE, 'c'), filter_input(INPUT_SERVER, 'REQUEST_METHOD')]);"""
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": "c=biscuit"}
    assert site.post(code, "p=posted", headers, query="?n=42").json() == [42, "posted", "biscuit", "POST"]


@pytest.mark.parametrize("is_used", [True, False], ids=["used", "unused"])
def test_filters_see_the_server_variables_of_the_request_and_not_those_of_the_script(site, is_used):
    """ext/filter has its own copy, which it gets when a script asks for it."""
    change = "$_SERVER['HTTP_X_MINE'] = 'changed'; $_SERVER['OWN'] = 'own'; unset($_SERVER['REQUEST_METHOD']);"
    code = f"""{change if is_used else ""}
        $all = filter_input_array(INPUT_SERVER);
        echo json_encode([
            filter_input(INPUT_SERVER, 'HTTP_X_MINE'), filter_input(INPUT_SERVER, 'REQUEST_METHOD'),
            filter_input(INPUT_SERVER, 'HTTP_ACCEPT_LANGUAGE', FILTER_SANITIZE_SPECIAL_CHARS),
            filter_has_var(INPUT_SERVER, 'OWN'), filter_has_var(INPUT_SERVER, 'HTTP_HOST'),
            filter_input(INPUT_SERVER, 'SERVER_PORT', FILTER_VALIDATE_INT) > 0, $all['PHP_SELF'] === $all['SCRIPT_NAME'],
            {"$_SERVER['HTTP_X_MINE'], $_SERVER['OWN'], isset($_SERVER['REQUEST_METHOD']), count($_SERVER) > 20"
             if is_used else "null"}]);"""
    headers = {"X-Mine": "<mine>", "Accept-Language": "<de>"}
    seen = ["<mine>", "GET", "&#60;de&#62;", False, True, True, True]
    assert site.get(code, headers).json() == seen + (["changed", "own", False, True] if is_used else [None])


def test_a_filter_for_all_variables_changes_those_of_the_server(folder, serve):
    folder.php(
        "index.php",
        "echo json_encode([$_SERVER['HTTP_X_MINE'], $_GET['q'], filter_input(INPUT_SERVER, 'HTTP_X_MINE', FILTER_UNSAFE_RAW)]);",
    )
    server = serve(processes=1, ini={"filter.default": "special_chars"})
    assert server.get("/?q=<q>", {"X-Mine": "<mine>"}).json() == ["&#60;mine&#62;", "&#60;q&#62;", "<mine>"]


def test_script_variables_name_the_script(site):
    code = """echo json_encode([
        __FILE__, get_included_files(), $_SERVER['SCRIPT_FILENAME'], getcwd(), getlastmod() === filemtime(__FILE__),
        defined('STDIN'), PHP_SAPI, php_sapi_name()]);"""
    path = site.page(code)
    file = str(site.root) + path
    assert site.server.get(path).json() == [file, [file], file, str(site.root), True, False, "fpm-fcgi", "fpm-fcgi"]


def test_a_front_controller_gets_the_original_request(folder, serve):
    folder.php("index.php", "echo json_encode([$_SERVER, $_GET]);")
    server = serve()
    for target in ("/", "/a/b?x=1", "/index.php", "/not-there.php", "/not-there.php/more", "/a.css?x=1", "/a%20b/"):
        got, query = server.get(target).json()
        assert got["REQUEST_URI"] == target
        assert (got["SCRIPT_NAME"], got["PHP_SELF"]) == ("/index.php", "/index.php"), target
        assert got["SCRIPT_FILENAME"] == f"{folder.root}/index.php"
        assert got.get("PATH_INFO", "") == ""
        assert query == ({"x": "1"} if "?" in target else [])


@pytest.mark.parametrize("order", ["EGPCS", "GPCS", ""])
def test_the_configured_environment_is_visible_with_any_variables_order(folder, serve, order):
    folder.php(
        "index.php",
        """echo json_encode([getenv('COLOUR'), getenv('COLOUR', true), getenv()['COLOUR'] ?? null,
            $_SERVER['COLOUR'] ?? null, $_SERVER['WITH_EQUALS'] ?? null, $_ENV['COLOUR'] ?? null]);""",
    )
    server = serve(env={"COLOUR": "dark green", "WITH_EQUALS": "a=b"}, ini={"variables_order": order})
    got = server.get("/").json()
    assert got[:5] == ["dark green"] * 4 + ["a=b"]
    if "E" in order:
        assert got[5] == "dark green"


def test_the_environment_of_a_configuration(folder, run):
    folder.php("index.php", "echo json_encode([getenv('COLOUR'), $_SERVER['COLOUR']]);")
    application = {"type": "php", "root": str(folder.root), "index": "index.php", "environment": {"COLOUR": "blue"}}
    server = run({"applications": {"app": application}})
    assert server.get("/").json() == ["blue", "blue"]


def test_a_request_cannot_set_the_environment(folder: Folder):
    folder.php("index.php", "echo json_encode([getenv('COLOUR'), $_SERVER['COLOUR'], $_SERVER['HTTP_COLOUR']]);")
    with Howdah.serve(folder, env={"COLOUR": "blue"}) as server:
        assert server.get("/?COLOUR=red", {"Colour": "red", "Cookie": "COLOUR=red"}).json() == ["blue", "blue", "red"]
