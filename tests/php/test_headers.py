"""The head of a response: headers, cookies, statuses, framing headers of a script, credentials."""

import base64
import re

import pytest

from support.http.client import ProtocolError
from support.waiting import wait_for


def test_headers_of_a_script_reach_the_client(site):
    response = site.get("header('X-One: 1'); header('X-Two:two  words '); header('x-lower: ü'); echo 'body';")
    assert (response.status, response.reason, response.text) == (200, "OK", "body")
    assert (response.header("X-One"), response.header("X-Two"), response.header("X-Lower")) == ("1", "two  words", "ü")


def test_default_headers_are_those_of_php(site):
    response = site.get("echo 'x';")
    assert response.header("Content-Type").lower() == "text/html; charset=utf-8"
    assert response.header("Date")
    assert response.header("Content-Length") == "1"
    # As PHP writes it, and NGINX Unit passes it on.
    assert "Content-type" in dict(response.headers)


def test_names_of_a_script_have_their_case(site):
    names = dict(site.get("header('x-lower: 1'); header('X-PHP: 2'); header('Content-type: text/plain');").headers)
    assert (names["x-lower"], names["X-PHP"], names["Content-type"].partition(";")[0]) == ("1", "2", "text/plain")


def test_a_script_can_set_the_content_type(site):
    assert site.get("header('Content-Type: application/json');").header("Content-Type") == "application/json"
    text = site.get("header('Content-Type: text/plain');").header("Content-Type")
    assert text.lower().replace(" ", "") == "text/plain;charset=utf-8"


def test_two_hundred_headers_reach_the_client(site):
    code = "for ($i = 0; $i < 200; $i++) { header(\"X-Number-$i: \" . str_repeat('v', 100) . $i); } echo 'ok';"
    response = site.get(code)
    assert response.text == "ok"
    for number in range(200):
        assert response.header(f"X-Number-{number}") == "v" * 100 + str(number)


def test_a_long_header_reaches_the_client(site):
    assert len(site.get("header('X-Long: ' . str_repeat('x', 20000)); echo 'ok';").header("X-Long")) == 20000


def test_headers_are_replaced_appended_and_removed(site):
    code = """
        header('X-Replaced: 1'); header('X-Replaced: 2');
        header('X-Twice: 1'); header('X-Twice: 2', false);
        header('X-Gone: 1'); header_remove('X-Gone');
        header('X-Back: 1'); header_remove('X-Back'); header('X-Back: 2');
        echo json_encode(headers_list());"""
    response = site.get(code)
    assert response.all("X-Replaced") == ["2"]
    assert response.all("X-Twice") == ["1", "2"]
    assert response.all("X-Gone") == []
    assert response.all("X-Back") == ["2"]
    assert "X-Twice: 2" in response.json() and "X-Gone: 1" not in response.json()


def test_all_headers_can_be_removed(site):
    response = site.get("header('X-A: 1'); header('Set-Cookie: a=1'); header_remove(); echo 'ok';")
    assert response.text == "ok"
    assert response.all("X-A") == response.all("Set-Cookie") == response.all("X-Powered-By") == []


def test_header_functions_see_the_response_headers(site):
    got = site.get("header('X-Custom: 1'); echo json_encode(apache_response_headers());").json()
    assert got["X-Custom"] == "1"


def test_cookies_are_set_one_header_each_in_order(site):
    code = """
        setcookie('a', '1');
        setcookie('b', 'two words', ['path' => '/p', 'httponly' => true, 'samesite' => 'Lax', 'secure' => true]);
        setrawcookie('c', 'r%20w');
        setcookie('d', '', 1);"""
    cookies = site.get(code).all("Set-Cookie")
    assert cookies[0] == "a=1"
    assert cookies[1] == "b=two%20words; path=/p; secure; HttpOnly; SameSite=Lax"
    assert cookies[2] == "c=r%20w"
    assert cookies[3].startswith("d=deleted; expires=Thu, 01") and len(cookies) == 4


def test_a_header_value_cannot_inject_another_header(site):
    response = site.get('@header("X-A: 1\\r\\nX-Evil: 1"); @header("X-B: 1\\nX-Evil: 1"); echo \'ok\';')
    assert response.text == "ok" and response.all("X-Evil") == []


def test_a_header_with_invalid_bytes_does_not_break_the_response(site, server):
    for code in (
        r"header('Bad Name: 1');",
        r'header("X-Ctl: a\x01b\x7f");',
        r"header(': empty');",
        r"header('nocolon');",
    ):
        response = site.get(code + "header('X-After: 1'); echo 'ok';")
        assert response.status in (200, 502), (code, response)
        assert server.get("/pid.php").status == 200


# --- Statuses


@pytest.mark.parametrize(
    "code, status, reason",
    [
        ("http_response_code(404);", 404, "Not Found"),
        ("http_response_code(503);", 503, "Service Unavailable"),
        ("header('HTTP/1.1 404 Nothing Here');", 404, "Nothing Here"),
        ("header('HTTP/1.0 403 Forbidden');", 403, "Forbidden"),
        ("header($_SERVER['SERVER_PROTOCOL'] . ' 500 Internal Server Error');", 500, "Internal Server Error"),
        ("header('Status: 410 Gone');", 410, "Gone"),
        ("header('X-Any: 1', true, 418);", 418, None),
        ("header('HTTP/1.1 429');", 429, None),
        ("header('Location: /elsewhere');", 302, "Found"),
        ("header('Location: /elsewhere', true, 307);", 307, "Temporary Redirect"),
        ("http_response_code(201); header('Location: /new');", 201, "Created"),
        ("header('WWW-Authenticate: Basic realm=\"x\"');", 401, "Unauthorized"),
        ("http_response_code(299);", 299, None),
        ("http_response_code(599);", 599, None),
    ],
)
def test_every_status_reaches_the_client(site, code, status, reason):
    response = site.get(code + " echo 'body';")
    assert (response.status, response.version, response.text) == (status, "HTTP/1.1", "body")
    if reason is not None:
        assert response.reason == reason
    assert response.all("Status") == []


def test_the_location_is_sent_unchanged(site):
    assert site.get("header('Location: /x?a=1&b=%20#f');").header("Location") == "/x?a=1&b=%20#f"


def test_a_status_does_not_persist_to_the_next_request(site, server):
    failing = site.page("http_response_code(500); header('X-Left: over'); echo 1;")
    with server.connect() as connection:
        for _ in range(4):
            assert connection.request("GET", failing).status == 500
            response = connection.request("GET", "/pid.php")
            assert response.status == 200 and response.all("X-Left") == []


@pytest.mark.parametrize("code", ["http_response_code(101);", "http_response_code(100);", "header('HTTP/1.1 103 Early');"])
@pytest.mark.parametrize("more", ["", "flush(); echo 'more';"])
def test_an_interim_status_from_a_script_gives_502(site, server, code, more):
    """A client would wait for the final response, or switch to another protocol."""
    path = site.page(code + "echo 'body';" + more)
    with server.connect() as connection:
        response = connection.request("GET", path)
        assert (response.status, response.interim) == (502, [])
        assert connection.request("GET", "/pid.php").status == 200
    wait_for(lambda: "a script set a status that no response can end with" in server.stderr)


@pytest.mark.parametrize("status", [204, 205, 304])
def test_a_status_without_a_body_has_none(site, server, status):
    path = site.page(f"http_response_code({status}); header('X-Here: 1'); echo 'not a body';")
    with server.connect() as connection:
        for _ in range(3):
            response = connection.request("GET", path)
            assert (response.status, response.body, response.header("X-Here")) == (status, b"", "1")
            assert connection.request("GET", "/server.php").json()["SCRIPT_NAME"] == "/server.php"


def test_a_streamed_205_has_no_body(site, server):
    path = site.page("http_response_code(205); echo 'not a body'; flush(); echo str_repeat('x', 3000000);")
    with server.connect() as connection:
        response = connection.request("GET", path)
        assert (response.status, response.body, response.header("Content-Length")) == (205, b"", "0")
        assert connection.request("GET", "/server.php").status == 200


@pytest.mark.parametrize(
    "code",
    [
        "echo 'hello';",
        "echo str_repeat('x', 3000000);",
        "header('Content-Length: 5'); echo 'hello';",
        "header('Content-Length: 5');",
        "echo 'a'; flush(); echo 'b';",
        "",
    ],
)
def test_head_has_the_headers_of_get_and_no_body(site, server, code):
    path = site.page("header('X-Method: ' . $_SERVER['REQUEST_METHOD']);" + code)
    with server.connect() as connection:
        head = connection.request("HEAD", path)
        assert (head.status, head.body, head.header("X-Method")) == (200, b"", "HEAD")
        # Any byte that was sent after the head would become the start of this response.
        assert connection.request("GET", "/server.php").json()["SCRIPT_NAME"] == "/server.php"


def test_the_length_in_a_response_to_head_is_that_of_get(site, server):
    path = site.page("header('Content-Length: 5'); if ($_SERVER['REQUEST_METHOD'] === 'GET') { echo 'hello'; }")
    assert server.request("HEAD", path).header("Content-Length") == server.get(path).header("Content-Length") == "5"


def test_a_response_without_output_is_complete(site):
    response = site.get("")
    assert (response.status, response.body, response.header("Content-Length")) == (200, b"", "0")


# --- Framing headers of a script


def test_a_correct_content_length_is_kept(site):
    response = site.get("header('Content-Length: 10'); echo '0123456789';")
    assert (response.header("Content-Length"), response.text) == ("10", "0123456789")


@pytest.mark.parametrize("flush", ["", "flush();"])
def test_output_beyond_the_content_length_is_not_taken_for_a_response(site, server, flush):
    path = site.page(f"header('Content-Length: 5'); echo 'hello'; {flush} echo 'HTTP/1.1 200 OK\r\n\r\nevil';")
    with server.connect() as connection:
        first = connection.request("GET", path)
        # A response that is complete before it is sent may get its true length instead.
        assert first.text in ("hello", "helloHTTP/1.1 200 OK\r\n\r\nevil")
        try:
            connection.send_request("GET", "/server.php")
            response = connection.response()
        except (ProtocolError, OSError):
            pass  # Closing the connection is safe, too, if nothing follows the five bytes.
        else:
            assert response.json()["SCRIPT_NAME"] == "/server.php"
        assert b"evil" not in connection.buffer


def test_output_shorter_than_the_content_length_is_not_filled_from_the_next_response(site, server):
    path = site.page("header('Content-Length: 50'); echo 'hello';")
    raw = server.raw(
        b"GET %b HTTP/1.1\r\nHost: x\r\n\r\nGET /server.php HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        % path.encode()
    )
    head, rest = raw.split(b"\r\n\r\n", 1)
    if b"content-length: 50" in head.lower():
        assert rest == b"hello", "the missing 45 bytes were taken from the next response"
    else:  # A response that is complete before it is sent may get its true length instead.
        assert b"content-length: 5" in head.lower() or raw.startswith(b"HTTP/1.1 502")
        assert rest.startswith(b"helloHTTP/1.1 200 ") or raw.startswith(b"HTTP/1.1 502")
    assert server.get("/pid.php").status == 200


@pytest.mark.parametrize("value", ["abc", "-1", "5, 5", "99999999999999999999999", ""])
def test_an_invalid_content_length_does_not_break_the_response(site, server, value):
    response = site.get(f"header('Content-Length: {value}'); echo 'hello';")
    assert response.status in (200, 502)
    assert response.status == 502 or response.text == "hello"
    assert server.get("/pid.php").status == 200


def test_two_content_lengths_do_not_break_the_server(site, server):
    code = "header('Content-Length: 5'); header('Content-Length: 7', false); echo 'hello';"
    try:
        response = site.get(code)  # The client rejects a response with two of them.
    except ProtocolError as error:
        assert "hung up" in str(error), error
    else:
        assert response.status in (200, 502)
    assert server.get("/pid.php").status == 200


@pytest.mark.parametrize("value", ["chunked", "gzip, chunked", "identity", "CHUNKED"])
@pytest.mark.parametrize("flush", ["", "flush();"])
def test_a_transfer_encoding_of_a_script_does_not_reach_the_client(site, server, value, flush):
    path = site.page(f"header('Transfer-Encoding: {value}'); echo 'hello'; {flush} echo ' world';")
    with server.connect() as connection:
        for _ in range(2):
            assert connection.request("GET", path).text == "hello world"
        assert connection.request("GET", "/server.php").json()["SCRIPT_NAME"] == "/server.php"


@pytest.mark.parametrize(
    "header", ["Connection: close", "Keep-Alive: timeout=1", "Connection: Upgrade", "Upgrade: h2c"]
)
def test_hop_by_hop_headers_of_a_script_do_not_break_the_connection(site, server, header):
    path = site.page(f"header('{header}'); echo 'hello';")
    with server.connect() as connection:
        response = connection.request("GET", path)
        assert (response.status, response.text) == (200, "hello")
        if "close" not in (response.header("Connection") or ""):
            assert connection.request("GET", path).text == "hello"


# --- More of PHP's functions


def test_headers_after_output_are_rejected(site):
    code = """
        while (ob_get_level()) { ob_end_flush(); }
        echo 'x'; flush();
        echo json_encode([headers_sent($file, $line), basename($file) === basename(__FILE__), @header('X-Late: 1')]);"""
    response = site.get(code)
    assert response.text == "x[true,true,null]" and response.all("X-Late") == []


def test_a_header_callback_runs_when_headers_are_sent(site):
    response = site.get("header_register_callback(function () { header('X-Callback: ran'); }); echo 'x';")
    assert response.header("X-Callback") == "ran"


@pytest.mark.parametrize("expose, expected", [("1", r"PHP/\d+\.\d+\.\d+.*"), ("0", None)])
def test_expose_php_controls_x_powered_by(folder, serve, expose, expected):
    folder.php("index.php", "echo 1;")
    powered = serve(ini={"expose_php": expose}).get("/").header("X-Powered-By")
    assert powered is None if expected is None else re.fullmatch(expected, powered)


# --- Credentials


def basic(credentials: bytes) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(credentials).decode()}


@pytest.mark.parametrize(
    "credentials, user, password",
    [
        (b"ann:secret", "ann", "secret"),
        (b"ann:with:colons:", "ann", "with:colons:"),
        (b"ann:", "ann", ""),
        ("jürgen:größe".encode(), "jürgen", "größe"),
    ],
)
def test_basic_credentials_are_decoded(server, credentials, user, password):
    header = basic(credentials)
    got = server.get("/server.php", header).json()
    # PHP omits an empty password.
    assert (got["PHP_AUTH_USER"], got.get("PHP_AUTH_PW", "")) == (user, password)
    assert got["HTTP_AUTHORIZATION"] == header["Authorization"]


def test_the_basic_scheme_is_case_insensitive(server):
    value = basic(b"ann:secret")["Authorization"].replace("Basic", "basic")
    assert server.get("/server.php", {"Authorization": value}).json()["PHP_AUTH_USER"] == "ann"


def test_digest_credentials_are_passed(server):
    digest = 'username="ann", realm="r", nonce="n", uri="/server.php", response="0123", opaque="o"'
    got = server.get("/server.php", {"Authorization": "Digest " + digest}).json()
    assert got["PHP_AUTH_DIGEST"] == digest and "PHP_AUTH_USER" not in got


@pytest.mark.parametrize("value", ["Bearer abc", "Basic", "Basic %%%", "Basic " + base64.b64encode(b"x").decode()])
def test_other_credentials_are_left_to_the_script(server, value):
    got = server.get("/server.php", {"Authorization": value}).json()
    assert got["HTTP_AUTHORIZATION"] == value and "PHP_AUTH_DIGEST" not in got
    assert not got.get("PHP_AUTH_PW")


def test_credentials_do_not_persist_to_the_next_request(server):
    with server.connect() as connection:
        for _ in range(4):
            assert connection.request("GET", "/server.php", basic(b"ann:secret")).json()["PHP_AUTH_USER"] == "ann"
            got = connection.request("GET", "/server.php").json()
            assert not {"PHP_AUTH_USER", "PHP_AUTH_PW", "HTTP_AUTHORIZATION", "REMOTE_USER"} & {
                name for name, value in got.items() if value
            }
