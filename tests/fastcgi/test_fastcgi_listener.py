"""Listeners with `"protocol": "fastcgi"`: the records of a web server, byte by byte."""

import hashlib
import threading
import time

import pytest

from support.fastcgi import (
    ABORT, BEGIN, END, PARAMS, STDIN, STDOUT, WebServer, begin, body, pair, pairs, record, variables,
)  # fmt: skip
from support.waiting import wait_for

SERVER = "header('Content-Type: application/json'); echo json_encode($_SERVER);"
GET_VALUES, GET_VALUES_RESULT, UNKNOWN_TYPE = 9, 10, 11


def application(folder, **options) -> dict:
    return {"type": "php", "root": str(folder.root), "processes": 2, **options}


@pytest.fixture
def listen(run, folder):
    """A howdah with a FastCGI listener. `listener` and `app` are further options of both."""

    def start(listener=(), app=(), time_divider=1, **config):
        config.setdefault("applications", {"app": application(folder, **dict(app))})
        target = "routes" if "routes" in config else "applications/app"
        listeners = {"127.0.0.1:{port}": {"pass": target, "protocol": "fastcgi", **dict(listener)}}
        return run({"listeners": listeners, **config}, time_divider=time_divider)

    return start


@pytest.fixture
def connect(folder):
    """Connects to a server as a web server does."""
    opened = []

    def open_connection(server, **how) -> WebServer:
        opened.append(WebServer(("127.0.0.1", server.port), folder.root, **how))
        return opened[-1]

    yield open_connection
    for each in opened:
        each.close()


# --- Requests


def test_a_script_gets_the_description_of_the_web_server(listen, connect, folder):
    folder.php("server.php", SERVER)
    server = listen()
    got = connect(server).request(
        "/server.php/a%20b?q=1", PATH_INFO="/a b", HTTPS="on", HTTP_X_TWO="2", HTTP_PROXY="x", GEO="de",
        REMOTE_USER="ann", AUTH_TYPE="Basic", SERVER_PROTOCOL="HTTP/2.0", REDIRECT_STATUS="404",
    ).json()  # fmt: skip
    expected = {
        "REQUEST_METHOD": "GET",
        "REQUEST_URI": "/server.php/a%20b?q=1",
        "QUERY_STRING": "q=1",
        "SCRIPT_NAME": "/server.php",
        "SCRIPT_FILENAME": f"{folder.root}/server.php",
        "PATH_INFO": "/a b",
        "PATH_TRANSLATED": f"{folder.root}/a b",
        "PHP_SELF": "/server.php/a b",
        "DOCUMENT_ROOT": str(folder.root),
        "SERVER_PROTOCOL": "HTTP/2.0",
        "SERVER_SOFTWARE": "nginx/1.22.1",
        "SERVER_NAME": "shop.example",
        "SERVER_ADDR": "192.0.2.1",
        "SERVER_PORT": "80",
        "REMOTE_ADDR": "192.0.2.7",
        "REMOTE_PORT": "4711",
        "REMOTE_USER": "ann",
        "AUTH_TYPE": "Basic",
        "HTTPS": "on",
        "REQUEST_SCHEME": "https",
        "REDIRECT_STATUS": "404",
        "GATEWAY_INTERFACE": "CGI/1.1",
        "HTTP_HOST": "shop.example",
        "HTTP_X_TWO": "2",
        "GEO": "de",
    }
    assert {name: got.get(name) for name in expected} == expected
    assert "HTTP_PROXY" not in got


def test_a_response_has_the_form_of_cgi(listen, connect, folder):
    folder.php("a.php", "http_response_code(404); header('X-Two-Words: 1'); header('Set-Cookie: a=1'); "
               "header('Set-Cookie: b=2', false); echo 'hello';")  # fmt: skip
    response = connect(listen()).request("/a.php")
    assert (response.header("Status"), response.body, response.outcome) == ("404 Not Found", b"hello", 0)
    assert response.header("Content-Length") == "5"
    names = [name for name, _ in response.headers]
    assert names.count("Set-Cookie") == 2 and "X-Two-Words" in names
    # The web server writes these.
    assert not {"Server", "Date", "Connection", "Transfer-Encoding"} & set(names)


def test_a_connection_is_closed_unless_it_is_to_be_kept(listen, connect, folder):
    folder.php("a.php", "echo 'hello';")
    server = listen()
    kept = connect(server)
    for number in (1, 2, 77, 65535):
        assert kept.request("/a.php", keep=True, number=number).body == b"hello"
    assert kept.request("/a.php").body == b"hello"
    assert kept.is_closed()


def test_a_head_request_has_no_body(listen, connect, folder):
    folder.php("a.php", "echo 'hello';")
    server = listen()
    response = connect(server).request("/a.php", REQUEST_METHOD="HEAD")
    assert (response.status, response.body) == (200, b"")


@pytest.mark.parametrize("portion", [1, 7, 65535])
def test_records_may_come_in_any_portions(listen, connect, folder, portion):
    folder.php("a.php", "echo strlen($_SERVER['HTTP_X']), ' ', file_get_contents('php://input');")
    web = connect(listen())
    params = web.params("/a.php", "POST", 500, HTTP_X="x" * 300)
    data = begin() + variables(params, portion=portion) + body(b"y" * 500, portion=portion)
    for at in range(0, len(data), 999):
        web.send(data[at : at + 999])
        time.sleep(0.001)
    assert web.response().body == b"300 " + b"y" * 500


def test_records_may_have_padding(listen, connect, folder):
    folder.php("a.php", "echo file_get_contents('php://input');")
    web = connect(listen())
    listed = b"".join(pair(name, value) for name, value in web.params("/a.php", "POST", 3).items())
    records = [(BEGIN, b"\0\1\0\0\0\0\0\0"), (PARAMS, listed), (PARAMS, b""), (STDIN, b"abc"), (STDIN, b"")]
    web.send(b"".join(record(kind, content, padding=255) for kind, content in records))
    assert web.response().body == b"abc"


@pytest.mark.parametrize("size", [0, 1, 70_000, 3_000_000])
def test_a_body_arrives_as_it_was_sent(listen, connect, folder, size):
    folder.php("a.php", "echo md5(file_get_contents('php://input')), ' ', $_SERVER['CONTENT_LENGTH'];")
    content = bytes(number * 7 % 251 for number in range(1000)) * (size // 1000 + 1)
    content = content[:size]
    server = listen(settings={"http": {"body_buffer_size": 50_000}})
    web = connect(server)
    for _ in range(2):
        assert web.request("/a.php", content, keep=True).text == f"{hashlib.md5(content).hexdigest()} {size}"


def test_a_body_may_have_no_announced_length(listen, connect, folder):
    folder.php("a.php", "echo file_get_contents('php://input');")
    web = connect(listen())
    params = web.params("/a.php", "POST", HTTP_TRANSFER_ENCODING="chunked")
    web.send(begin() + variables(params) + body(b"hello"))
    assert web.response().body == b"hello"


def test_a_body_may_be_announced_and_not_sent(listen, connect, folder):
    """The error page of nginx has the variables of the request before it."""
    folder.php("a.php", "echo $_SERVER['CONTENT_LENGTH'] ?? 'none', strlen(file_get_contents('php://input'));")
    web = connect(listen())
    web.send(begin() + variables(web.params("/a.php", "GET", 500)) + body(b""))
    assert web.response().body == b"none0"


def test_a_body_of_another_length_is_400(listen, connect, folder):
    folder.php("a.php", "echo 'hello';")
    server = listen()
    for announced in (4, 6):
        web = connect(server)
        web.send(begin(keep=True) + variables(web.params("/a.php", "POST", announced)) + body(b"hello"))
        assert web.response().status == 400, announced


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_that_is_too_large_is_413(listen, connect, folder, announced):
    folder.php("a.php", "echo 'hello';")
    web = connect(listen(settings={"http": {"max_body_size": 100_000}}))
    params = web.params("/a.php", "POST", 50_000_000 if announced else None)
    web.send(begin(keep=True) + variables(params))

    def upload():
        try:
            for _ in range(700):
                web.send(record(STDIN, b"x" * 65535))
        except OSError:
            pass

    thread = threading.Thread(target=upload)
    thread.start()
    assert web.response().status == 413
    thread.join()
    web.close()


def test_an_upload_is_a_file(listen, connect, folder):
    folder.php("a.php", "echo $_FILES['f']['name'], ' ', md5_file($_FILES['f']['tmp_name']), ' ', $_POST['a'];")
    content = b"\0\1\2" * 100_000
    parts = (
        b'--B\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n'
        b'--B\r\nContent-Disposition: form-data; name="f"; filename="x.bin"\r\n\r\n' + content + b"\r\n--B--\r\n"
    )
    kind = "multipart/form-data; boundary=B"
    response = connect(listen()).request("/a.php", parts, CONTENT_TYPE=kind, HTTP_CONTENT_TYPE=kind)
    assert response.text == f"x.bin {hashlib.md5(content).hexdigest()} 1"


def test_a_response_is_streamed(listen, connect, folder):
    folder.php("a.php", "ob_end_flush(); echo 'first'; flush(); await(SCRATCH . '/go'); echo 'second';")
    web = connect(listen())
    web.send(begin() + variables(web.params("/a.php")) + body(b""))
    output = b""
    while not output.endswith(b"first"):
        kind, _, content = web.record()
        assert kind == STDOUT
        output += content
    (folder.scratch / "go").touch()
    assert [web.record()[::2] for _ in range(2)] == [(STDOUT, b"second"), (STDOUT, b"")]
    assert web.record()[0] == END


def test_a_large_response_has_many_records(listen, connect, folder):
    folder.php("a.php", "for ($n = 0; $n < 300; $n++) { echo str_repeat(chr(65 + $n % 26), 10000); }")
    response = connect(listen()).request("/a.php")
    assert response.body == b"".join(bytes([65 + n % 26]) * 10000 for n in range(300))


def test_a_slow_web_server_does_not_hold_a_worker(listen, connect, folder):
    folder.php("large.php", "echo str_repeat('x', 30000000);")
    folder.php("a.php", "echo 'hello';")
    server = listen(app={"processes": 1})
    slow = connect(server)
    slow.send(begin() + variables(slow.params("/large.php")) + body(b""))
    assert slow.record()[0] == STDOUT
    assert connect(server).request("/a.php").body == b"hello"


def test_a_target_with_unusual_bytes_arrives_as_it_was_sent(listen, connect, folder):
    """PHP-FPM does not look at it."""
    folder.php("a.php", "echo $_SERVER['REQUEST_URI'], ' ', $_SERVER['QUERY_STRING'];")
    target = '/a.php?q="quoted"&p=<b>{}|\\^`[]'
    response = connect(listen()).request(target)
    assert response.text == f"{target} {target.partition('?')[2]}"


# --- Scripts


def test_the_web_server_chooses_the_script(listen, connect, folder):
    folder.php("index.php", "echo 'index ', $_SERVER['REQUEST_URI'], ' ', $_GET['q'] ?? '';")
    web = connect(listen())
    response = web.request("/some/page", keep=True, SCRIPT_FILENAME=f"{folder.root}/index.php",
                           SCRIPT_NAME="/index.php", QUERY_STRING="q=rewritten", PATH_INFO="")  # fmt: skip
    assert response.body == b"index /some/page rewritten"
    response = web.request("/some/page?q=1", SCRIPT_FILENAME=f"{folder.root}/index.php", QUERY_STRING="")
    assert response.body == b"index /some/page?q=1 "


def test_an_application_below_a_path_keeps_its_name(listen, connect, folder):
    folder.php("index.php", "echo $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['PHP_SELF'];")
    names = {"SCRIPT_FILENAME": f"{folder.root}/index.php", "DOCUMENT_ROOT": "/var/www"}
    response = connect(listen()).request("/blog/", SCRIPT_NAME="/blog/index.php", **names)
    assert response.body == b"/blog/index.php /blog/index.php"


def test_the_web_server_may_see_the_files_elsewhere(listen, connect, folder):
    folder.php("sub/a.php", "echo $_SERVER['SCRIPT_FILENAME'], ' ', $_SERVER['DOCUMENT_ROOT'];")
    elsewhere = {"SCRIPT_FILENAME": "/var/www/html/sub/a.php", "DOCUMENT_ROOT": "/var/www/html"}
    response = connect(listen()).request("/sub/a.php", **elsewhere)
    assert response.text == f"{folder.root}/sub/a.php {folder.root}"


def test_without_a_script_the_path_is_resolved_as_for_http(listen, connect, folder):
    folder.php("a.php", "echo 'a', $_SERVER['PATH_INFO'] ?? '';")
    folder.php("index.php", "echo 'front';")
    web = connect(listen(app={"front_controller": "index.php"}))
    for target, expected in [("/a.php/x", b"a/x"), ("/other", b"front"), ("/", b"front")]:
        assert web.request(target, keep=True, SCRIPT_FILENAME="", PATH_INFO="").body == expected, target


def test_a_folder_is_its_index_and_redirected_without_a_slash(listen, connect, folder):
    folder.php("sub/index.php", "echo 'index';")
    web = connect(listen())
    assert web.request("/sub/", keep=True).body == b"index"
    assert web.request("/sub/", keep=True, SCRIPT_FILENAME=f"{folder.root}/sub").body == b"index"
    response = web.request("/sub?a=1", keep=True)
    assert (response.status, response.header("Location")) == (301, "/sub/?a=1")


# The attacks of cgi.fix_pathinfo, and worse.
ATTACKS = [
    ("{root}/upload/evil.jpg", 404),
    ("{root}/upload/evil.jpg/x.php", 404),
    ("{root}/upload/evil.jpg/.php", 404),
    ("{root}/upload/evil.jpg%00.php", 404),
    ("{root}/upload/evil.php.jpg", 404),
    ("{root}/.hidden/evil.php", 404),
    ("{root}/missing.php", 404),
    ("{root}/../outside/evil.php", 403),
    ("{root}/x/../../outside/evil.php", 403),
    ("{outside}/evil.php", 403),
    ("/etc/passwd", 403),
    ("/../../../etc/passwd", 403),
    ("evil.php", 403),
    ("proxy:fcgi://127.0.0.1:9000{outside}/evil.php", 403),
    ("php://filter/resource={outside}/evil.php", 403),
    ("phar://{root}/upload/evil.jpg/x.php", 403),
    ("http://127.0.0.1/evil.php", 403),
]


def test_only_scripts_below_the_root_are_run(listen, connect, folder, tmp_path):
    code = "<?php echo 'evil';"
    for name in ("upload/evil.jpg", "upload/evil.php.jpg", ".hidden/evil.php"):
        folder.write(name, code)
    folder.php("good.php", "echo 'good';")
    outside = folder.root.parent / "outside"
    outside.mkdir(mode=0o755)
    (outside / "evil.php").write_text(code)
    server = listen()
    web = connect(server)
    for name, expected in ATTACKS:
        for path_info in ("", "/x.php", "/../../outside/evil.php", "\\..\\x"):
            filename = name.format(root=folder.root, outside=outside)
            response = web.request("/x.php", keep=True, SCRIPT_FILENAME=filename, PATH_INFO=path_info)
            assert (response.status, b"evil" in response.body) == (expected, False), (filename, path_info)
    assert web.request("/good.php", keep=True).body == b"good"
    # Once a minute for each script.
    server.wait_for_log_line("names a script that is neither below", 'script="/etc/passwd"', "answered 403")


def test_a_document_root_of_the_web_server_opens_no_other_file(listen, connect, folder):
    folder.php("good.php", "echo 'good';")
    outside = folder.root.parent / "outside"
    outside.mkdir(mode=0o755)
    (outside / "evil.php").write_text("<?php echo 'evil';")
    web = connect(listen())
    for root in (str(outside), "/", str(folder.root.parent), f"{folder.root}/..", "//", "/../.."):
        response = web.request("/evil.php", keep=True, SCRIPT_FILENAME=f"{outside}/evil.php", DOCUMENT_ROOT=root)
        assert response.status in (403, 404) and b"evil" not in response.body, root


@pytest.mark.parametrize("where", ["PATH_INFO", "SCRIPT_NAME", "REQUEST_URI", "QUERY_STRING", "X"])
def test_a_path_of_the_web_server_is_data_only(listen, connect, folder, where):
    """Whatever else it sends, the script is the one of SCRIPT_FILENAME."""
    folder.php("a.php", SERVER)
    values = ["/../../etc/passwd", "/a.php/../../x.php", "/" + "a/" * 3000, "/%2e%2e/%2e%2e/x.php", "/\x01\x7f"]
    web = connect(listen())
    for value in values:
        response = web.request("/a.php", keep=True, **{"PATH_INFO": "", where: value})
        assert response.status in (200, 400), value
        if response.status == 200:
            got = response.json()
            assert got["SCRIPT_FILENAME"] == f"{folder.root}/a.php" and got["DOCUMENT_ROOT"] == str(folder.root)


def test_settings_of_php_are_ignored_and_logged(listen, connect, folder):
    folder.php("a.php", "echo ini_get('memory_limit'), ' ', $_SERVER['PHP_VALUE'] ?? 'none';")
    server = listen(app={"options": {"admin": {"memory_limit": "99M"}}})
    response = connect(server).request("/a.php", PHP_VALUE="memory_limit=1G", PHP_ADMIN_VALUE="memory_limit=2G")
    assert response.body == b"99M none"
    server.wait_for_log_line("PHP_VALUE", "options")


# --- Routes


def test_routes_see_the_clients_request(listen, connect, folder):
    folder.php("a.php", "echo 'a';")
    folder.write("static.txt", "file")
    routes = [
        {"match": {"source": "192.0.2.66"}, "action": {"return": 403}},
        {"match": {"host": "old.example"}, "action": {"return": 301, "location": "https://shop.example$request_uri"}},
        {"match": {"scheme": "https", "uri": "/tls"}, "action": {"return": 204}},
        {"match": {"uri": "*.php"}, "action": {"pass": "applications/app"}},
        {"action": {"share": f"{folder.root}$uri"}},
    ]
    web = connect(listen(routes=routes))

    def status(target, **others):
        return web.request(target, keep=True, **others).status

    assert status("/a.php") == 200
    assert status("/a.php", REMOTE_ADDR="192.0.2.66") == 403
    response = web.request("/a?b", keep=True, HTTP_HOST="old.example")
    assert (response.status, response.header("Location")) == (301, "https://shop.example/a?b")
    assert (status("/tls", HTTPS="on"), status("/tls", HTTPS="off"), status("/tls")) == (204, 404, 404)
    response = web.request("/static.txt", keep=True)
    assert (response.body, response.header("Content-Type")) == (b"file", "text/plain")
    assert web.request("/static.txt", keep=True, HTTP_RANGE="bytes=1-2").body == b"il"


def test_the_access_log_and_the_status_count_requests(listen, connect, folder, tmp_path):
    folder.php("a.php", "echo 'hello';")
    log = folder.scratch / "access.log"
    server = listen(access_log=str(log))
    web = connect(server)
    assert web.request("/a.php", keep=True, HTTP_USER_AGENT="test").status == 200
    assert web.request("/missing.php", keep=True).status == 404
    wait_for(lambda: log.exists() and len(log.read_text().splitlines()) == 2, "two lines")
    first, second = log.read_text().splitlines()
    assert first.startswith("192.0.2.7 ") and '"GET /a.php HTTP/1.1" 200 5' in first and '"test"' in first
    assert '"GET /missing.php HTTP/1.1" 404' in second
    status = server.api("GET", "/status").json()
    assert status["requests"]["total"] == 2 and status["connections"]["active"] == 0


def test_responses_are_compressed_and_files_sent_for_scripts(listen, connect, folder):
    folder.php("a.php", "header('Content-Type: text/plain'); echo str_repeat('hello ', 1000);")
    folder.php("send.php", "header('X-Accel-Redirect: /files/a.txt');")
    (folder.scratch / "a.txt").write_text("private")
    server = listen(
        app={"send_file": {"/files/": str(folder.scratch)}},
        settings={"http": {"compression": {"types": "text/*", "compressors": [{"encoding": "gzip"}]}}},
    )  # fmt: skip
    web = connect(server)
    response = web.request("/a.php", keep=True, HTTP_ACCEPT_ENCODING="gzip")
    assert response.header("Content-Encoding") == "gzip" and len(response.body) < 1000
    response = web.request("/send.php", keep=True)
    assert (response.body, response.header("X-Accel-Redirect")) == (b"private", None)


def test_early_hints_are_left_out(listen, connect, folder):
    folder.php("a.php", "echo 'hello';")
    routes = [{"action": {"pass": "applications/app", "early_hints": ["</b.css>; rel=preload"]}}]
    response = connect(listen(routes=routes)).request("/a.php")
    assert (response.status, response.body) == (200, b"hello")


# --- The queue, and the end of a request


def queued(server) -> int:
    return server.api("GET", "/status/applications/app/requests").json()["waiting"]


def waiting(connect, server, target="/wait.php", keep=True, number=1) -> WebServer:
    web = connect(server)
    web.send(begin(number, keep=keep) + variables(web.params(target), number) + body(b"", number))
    return web


WAIT = "ob_end_flush(); file_put_contents(SCRATCH . '/started', '.', FILE_APPEND); echo 'x'; flush(); " \
       "while (!file_exists(SCRATCH . '/go')) { usleep(2000); echo ' '; flush(); } " \
       "file_put_contents(SCRATCH . '/ended', '.', FILE_APPEND);"  # fmt: skip


@pytest.mark.parametrize("how", ["abort", "close"])
def test_a_web_server_that_leaves_stops_its_script(listen, connect, folder, how):
    folder.php("wait.php", WAIT)
    folder.php("a.php", "echo 'hello';")
    server = listen(app={"processes": 1})
    web = waiting(connect, server)
    wait_for(lambda: (folder.scratch / "started").exists(), "the script")
    if how == "abort":
        web.send(record(ABORT))
        response = web.response()
        assert response.outcome == 0
        # The connection carries other requests.
        assert web.request("/a.php", keep=True, number=9).body == b"hello"
    else:
        web.close()
        assert connect(server).request("/a.php").body == b"hello"
    assert not (folder.scratch / "ended").exists()


@pytest.mark.parametrize("how", ["abort", "close"])
def test_a_web_server_that_leaves_the_queue_takes_its_request_along(listen, connect, folder, how):
    folder.php("wait.php", WAIT)
    server = listen(app={"processes": 1})
    first = waiting(connect, server)
    wait_for(lambda: (folder.scratch / "started").exists(), "the first script")
    others = [waiting(connect, server) for _ in range(3)]
    wait_for(lambda: queued(server) == 3, "three requests in the queue")
    for other in others:
        if how == "abort":
            other.send(record(ABORT))
            assert other.response().outcome == 0
        else:
            other.close()
    wait_for(lambda: queued(server) == 0, "an empty queue")
    (folder.scratch / "go").touch()
    assert first.response().status == 200
    assert (folder.scratch / "started").read_text() == "."


def test_a_request_that_waits_too_long_is_503(listen, connect, folder):
    folder.php("wait.php", WAIT)
    server = listen(app={"processes": 1, "limits": {"queue_timeout": 1}})
    first = waiting(connect, server)
    wait_for(lambda: (folder.scratch / "started").exists(), "the script")
    second = waiting(connect, server)
    response = second.response()
    assert (response.status, response.header("Retry-After") is not None) == (503, True)
    (folder.scratch / "go").touch()
    assert first.response().status == 200


def test_the_death_of_a_worker_is_502(listen, connect, folder):
    folder.php("die.php", "exec('kill -9 ' . getmypid());")
    folder.php("a.php", "echo 'hello';")
    web = connect(listen(app={"retry": "never"}))
    assert web.request("/die.php", keep=True).status == 502
    assert web.request("/a.php", keep=True).body == b"hello"


def test_a_response_that_breaks_off_has_no_end(listen, connect, folder):
    folder.php("die.php", "ob_end_flush(); echo str_repeat('x', 100000); flush(); "
                          "while (!file_exists(SCRATCH . '/go')) { usleep(2000); } exec('kill -9 ' . getmypid());")  # fmt: skip
    web = waiting(connect, listen(app={"retry": "never"}), "/die.php")
    kind, _, content = web.record()
    assert kind == STDOUT and content, "the response has begun"
    (folder.scratch / "go").touch()
    with pytest.raises(ConnectionError):
        web.response()


def test_messages_of_scripts_are_in_howdahs_log(listen, connect, folder):
    folder.php("a.php", "error_log('a message of the script'); echo 'hello';")
    server = listen()
    web = connect(server)
    # There is no record of the type STDERR: `response` would refuse it.
    assert web.request("/a.php").body == b"hello"
    server.wait_for_log_line("a message of the script")


def test_the_configuration_changes_without_a_lost_request(listen, connect, folder):
    folder.php("wait.php", WAIT)
    folder.php("a.php", "echo 'hello';")
    server = listen()
    idle, busy = connect(server), waiting(connect, server)
    assert idle.request("/a.php", keep=True).body == b"hello"
    wait_for(lambda: (folder.scratch / "started").exists(), "the script")
    config = server.api("GET", "/config").json()
    address = f"127.0.0.1:{server.port}"
    config["listeners"][address]["forwarded"] = {"client_ip": "X-Real-IP", "source": "192.0.2.7"}
    assert server.api("PUT", "/config", config).status == 200
    # Connections stay, and their next request has the new configuration.
    folder.php("ip.php", "echo $_SERVER['REMOTE_ADDR'];")
    assert idle.request("/ip.php", keep=True, HTTP_X_REAL_IP="198.51.100.1").body == b"198.51.100.1"
    del config["listeners"][address]
    config["listeners"]["127.0.0.1:0"] = {"pass": "applications/app"}
    assert server.api("PUT", "/config", config).status == 200
    assert idle.is_closed()
    (folder.scratch / "go").touch()
    assert busy.response().status == 200
    assert busy.is_closed()


# --- The protocol's own questions


def test_questions_about_the_server_are_answered(listen, connect, folder):
    folder.php("a.php", "echo 'hello';")
    web = connect(listen())
    names = ("FCGI_MAX_CONNS", "FCGI_MAX_REQS", "FCGI_MPXS_CONNS", "OTHER")
    web.send(record(GET_VALUES, b"".join(pair(name, "") for name in names), request=0))
    kind, number, content = web.record()
    values = dict(pairs(content))
    assert (kind, number, values.pop("FCGI_MPXS_CONNS")) == (GET_VALUES_RESULT, 0, "0")
    assert int(values.pop("FCGI_MAX_CONNS")) == int(values.pop("FCGI_MAX_REQS")) > 0 and not values
    web.send(record(77, b"abc", request=0))
    assert web.record() == (UNKNOWN_TYPE, 0, bytes([77]) + bytes(7))
    assert web.request("/a.php").body == b"hello"


def test_another_request_on_a_busy_connection_is_refused(listen, connect, folder):
    folder.php("wait.php", WAIT.replace("echo ' '; flush();", "").replace("echo 'x'; flush();", ""))
    server = listen()
    web = waiting(connect, server)
    wait_for(lambda: (folder.scratch / "started").exists(), "the script")
    web.send(begin(2) + variables(web.params("/wait.php"), 2) + body(b"x" * 100, 2))
    kind, number, content = web.record()
    assert (kind, number, content[4]) == (END, 2, 1)
    web.send(record(GET_VALUES, pair("FCGI_MPXS_CONNS", ""), request=0))
    assert web.record()[:2] == (GET_VALUES_RESULT, 0)
    (folder.scratch / "go").touch()
    assert web.response(1).status == 200


@pytest.mark.parametrize("keep", [True, False])
def test_other_roles_are_refused(listen, connect, folder, keep):
    folder.php("a.php", "echo 'hello';")
    web = connect(listen())
    for role in (0, 2, 3, 65535):
        web.send(begin(5, role, keep=keep))
        kind, number, content = web.record()
        assert (kind, number, content[4]) == (END, 5, 3)
        if not keep:
            assert web.is_closed()
            return
    assert web.request("/a.php").body == b"hello"


# --- The web servers that may connect


def test_other_machines_need_to_be_named(listen, connect, folder):
    folder.php("a.php", "echo 'hello';")
    server = listen({"allowed_clients": ["192.0.2.1"]})
    assert connect(server).is_closed()
    server.wait_for_log_line("allowed_clients", "127.0.0.1")
    config = server.api("GET", "/config").json()
    config["listeners"]["*:0"] = {"pass": "applications/app", "protocol": "fastcgi"}
    answer = server.api("PUT", "/config", config)
    assert answer.status == 400 and "allowed_clients" in answer.text


@pytest.mark.parametrize("change", [{"protocol": "fastcgi", "allowed_clients": ["192.0.2.1"]}, {}])
def test_a_connection_ends_when_its_access_is_withdrawn(listen, connect, folder, change):
    """Its requests name any client and any script."""
    folder.php("a.php", "echo 'hello';")
    folder.php("wait.php", WAIT)
    server = listen({"allowed_clients": ["127.0.0.1"]})
    kept, busy, unused = connect(server), connect(server), connect(server)
    assert kept.request("/a.php", keep=True).body == b"hello"
    busy.send(begin(keep=True) + variables(busy.params("/wait.php")) + body(b""))
    wait_for(lambda: (folder.scratch / "started").exists(), "the script")
    path = f"/config/listeners/127.0.0.1:{server.port}"
    assert server.api("PUT", path, {"pass": "applications/app", **change}).status == 200
    assert kept.is_closed()
    assert unused.request("/a.php").status == (403 if change else 200)
    (folder.scratch / "go").touch()
    assert busy.response(1).status == 200, "a request that runs is finished"
    assert busy.is_closed()


def test_a_connection_goes_on_after_another_change(listen, connect, folder):
    folder.php("a.php", "echo 'hello';")
    server = listen({"allowed_clients": ["127.0.0.1"]})
    web = connect(server)
    assert web.request("/a.php", keep=True).body == b"hello"
    config = server.api("GET", "/config").json()
    config["applications"]["app"]["environment"] = {"A": "b"}
    assert server.api("PUT", "/config", config).status == 200
    assert web.request("/a.php", keep=True).body == b"hello"


def test_a_unix_socket_has_an_owner_and_a_mode(run, folder, socket_path):
    folder.php("a.php", "echo $_SERVER['REMOTE_ADDR'];")
    listener = {"pass": "applications/app", "protocol": "fastcgi", "socket": {"mode": "0600"}}
    run({"listeners": {f"unix:{socket_path}": listener, "127.0.0.1:{port}": {"pass": "applications/app"}},
         "applications": {"app": application(folder)}})  # fmt: skip
    assert socket_path.stat().st_mode & 0o777 == 0o600
    with WebServer(str(socket_path), folder.root) as web:
        assert web.request("/a.php", keep=True).body == b"192.0.2.7"
        assert web.request("/a.php", keep=True, REMOTE_ADDR="").body == b"unix:"
        assert web.request("/a.php", keep=True, REMOTE_ADDR="unix:").body == b"unix:"
