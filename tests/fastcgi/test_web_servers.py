"""nginx, Apache and HAProxy in front of howdah's FastCGI listener, and `cgi-fcgi`."""

import hashlib
import json
import os
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.http.load import load_of_clients
from support.server import REPOSITORY
from support.waiting import wait_for
from support.web_servers import Apache, HaProxy, Nginx, WebServerProcess

SERVER = "header('Content-Type: application/json'); echo json_encode($_SERVER);"
FRONTS = [
    pytest.param(Nginx, {}, id="nginx"),
    pytest.param(Nginx, {"keep_alive": 4}, id="nginx-keep-alive"),
    pytest.param(Apache, {}, id="apache"),
    pytest.param(Apache, {"rules": 'ProxyPassMatch "^/(.*\\.php(/.*)?)$" "fcgi://{address}{root}/$1" enablereuse=on'},
                 id="apache-pass-match"),
    pytest.param(HaProxy, {}, id="haproxy"),
    pytest.param(HaProxy, {"closes": True}, id="haproxy-close"),
]  # fmt: skip


def howdah(run, folder, listener="127.0.0.1:{port}", app=(), **config):
    options = {"pass": "applications/app", "protocol": "fastcgi"}
    if listener.startswith("unix:"):
        options["socket"] = {"mode": "0666"}
    listeners = {listener: options}
    if listener.startswith("unix:"):
        listeners["127.0.0.1:{port}"] = {"pass": "applications/app"}
    app = {"type": "php", "root": str(folder.root), "processes": 2, **dict(app)}
    return run({"listeners": listeners, "applications": {"app": app}, **config})


@pytest.fixture
def front(run, folder):
    """A web server in front of a howdah, and that howdah."""
    started = []

    def start(kind, more, *, server=None, address=None, app=(), options="", **config):
        server = server or howdah(run, folder, app=app, **config)
        more = {name: value.replace("{root}", str(folder.root)) if isinstance(value, str) else value
                for name, value in more.items()}  # fmt: skip
        started.append(kind(folder.root, address or f"127.0.0.1:{server.port}", options, **more).start())
        return started[-1], server

    yield start
    for each in started:
        each.stop()


@pytest.mark.parametrize("kind, more", FRONTS)
def test_each_web_server_gets_its_responses(front, folder, kind, more):
    folder.php("server.php", SERVER)
    folder.php("a.php", "http_response_code(201); header('X-A: 1'); echo 'hello ', $_GET['q'] ?? '';")
    folder.php("body.php", "echo md5(file_get_contents('php://input')), ' ', $_SERVER['CONTENT_LENGTH'];")
    folder.php("large.php", "echo str_repeat('0123456789', 300000);")
    folder.php("empty.php", "http_response_code(204);")
    web, server = front(kind, more)
    with web.connect() as connection:
        for number in range(3):
            response = connection.request("GET", f"/a.php?q={number}")
            assert (response.status, response.header("X-A"), response.text) == (201, "1", f"hello {number}")
        assert connection.request("HEAD", "/a.php").status == 201
        assert connection.request("GET", "/large.php").body == b"0123456789" * 300_000
        for size in (0, 1, 100_000, 3_000_000):
            content = os.urandom(size)
            response = connection.request("POST", "/body.php", {"Content-Type": "text/plain"}, content)
            assert response.text == f"{hashlib.md5(content).hexdigest()} {size}"
    # HAProxy 3.0 closes the client's connection behind it, also with another FastCGI server.
    assert web.get("/empty.php").status == 204
    headers = {"Host": "shop.example", "X-Two": "2", "Proxy": "x", "Cookie": "a=1", "User-Agent": "test"}
    got = web.get("/server.php/a/b?q=1", headers).json()
    expected = {
        "REQUEST_METHOD": "GET",
        "REQUEST_URI": "/server.php/a/b?q=1",
        "QUERY_STRING": "q=1",
        "SCRIPT_NAME": "/server.php",
        "SCRIPT_FILENAME": f"{folder.root}/server.php",
        "PATH_INFO": "/a/b",
        "PHP_SELF": "/server.php/a/b",
        "DOCUMENT_ROOT": str(folder.root),
        "REMOTE_ADDR": "127.0.0.1",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": "shop.example",
        "HTTP_X_TWO": "2",
        "HTTP_COOKIE": "a=1",
    }
    assert {name: got.get(name) for name in expected} == expected
    assert "HTTP_PROXY" not in got
    assert "WARN" not in server.stderr, server.stderr


@pytest.mark.parametrize("kind, more", FRONTS)
def test_an_upload_is_not_run_as_a_script(front, folder, kind, more):
    folder.write("upload/evil.jpg", "<?php echo 'evil';")
    folder.php("index.php", "echo 'index';")
    web, _ = front(kind, more)
    for target in ("/upload/evil.jpg/x.php", "/upload/evil.jpg/.php", "/upload/evil.jpg%00.php", "/upload/evil.jpg/index.php",
                   "/../upload/evil.jpg/x.php", "/upload/%2e%2e/upload/evil.jpg/a.php/b.php"):  # fmt: skip
        response = web.get(target)
        # HAProxy itself answers 500 to a NUL.
        allowed = (400, 403, 404, 500) if kind is HaProxy and "%00" in target else (400, 403, 404)
        assert response.status in allowed and b"evil" not in response.body, (target, response.status)


@pytest.mark.parametrize("kind, more", [each for each in FRONTS if each.id != "apache-pass-match"])
def test_a_front_controller_gets_the_urls_of_the_site(front, folder, kind, more):
    """As WordPress' permalinks."""
    folder.php("index.php", "echo 'index ', $_SERVER['REQUEST_URI'], ' ', $_SERVER['SCRIPT_NAME'];")
    folder.php("wp-admin/index.php", "echo 'admin';")
    folder.php("wp-login.php", "echo 'login';")
    folder.write("style.css", "css")
    if kind is Nginx:
        more = {**more, "front_controller": "/index.php?$args"}
    elif kind is Apache:
        rewrite = "RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteCond %{REQUEST_FILENAME} !-d\n" \
                  "RewriteRule . /index.php [L]"  # fmt: skip
        web, _ = front(kind, more, options=rewrite)
    app = {"front_controller": "index.php"} if kind is HaProxy else {}
    if kind is not Apache:
        web, _ = front(kind, more, app=app)
    assert web.get("/2026/11/a-post/?x=1").text == "index /2026/11/a-post/?x=1 /index.php"
    assert web.get("/").text == "index / /index.php"
    assert web.get("/wp-login.php").text == "login"
    assert web.get("/wp-admin/").text == "admin"
    if kind is not HaProxy:
        assert web.get("/style.css").text == "css"


@pytest.mark.parametrize("kind, more", [each for each in FRONTS if each.id in ("nginx", "apache", "haproxy")])
def test_a_unix_socket_serves_web_servers(run, front, folder, socket_path, kind, more):
    folder.php("a.php", "echo 'hello';")
    server = howdah(run, folder, f"unix:{socket_path}")
    web, _ = front(kind, more, server=server, address=f"unix:{socket_path}")
    assert [web.get("/a.php").text for _ in range(5)] == ["hello"] * 5


def test_a_file_of_nginx_may_be_sent_for_a_script(front, folder):
    folder.php("send.php", "header('X-Accel-Redirect: /private/a.txt'); header('Content-Type: text/plain');")
    (folder.scratch / "a.txt").write_text("private")
    folder.scratch.chmod(0o777)
    locations = f"location /private/ {{ internal; alias {folder.scratch}/; }}"
    web, _ = front(Nginx, {"locations": locations})
    assert web.get("/send.php").text == "private"
    assert web.get("/private/a.txt").status == 404


def test_an_error_page_of_nginx_may_be_a_script(front, folder):
    folder.php("404.php", "http_response_code(404); echo 'page for ', $_SERVER['REQUEST_URI'], ' ', $_SERVER['REQUEST_METHOD'];")
    web, _ = front(Nginx, {"locations": "error_page 404 /404.php;"})
    response = web.request("POST", "/missing.html", {"Content-Type": "text/plain"}, b"x" * 1000)
    assert (response.status, response.text) == (404, "page for /missing.html GET")


@pytest.mark.parametrize("kind", [Nginx, HaProxy])
def test_a_client_that_leaves_stops_its_script(front, folder, kind):
    folder.php("wait.php", "ob_end_flush(); echo 'x'; flush(); touch(SCRATCH . '/began'); "
               "for ($n = 0; $n < 2500; $n++) { usleep(2000); echo ' '; flush(); } touch(SCRATCH . '/ended');")  # fmt: skip
    folder.php("a.php", "echo 'hello';")
    web, server = front(kind, {}, app={"processes": 1})
    with web.connect() as leaving:
        leaving.send_request("GET", "/wait.php")
        wait_for((folder.scratch / "began").exists, "the script")
    started = time.monotonic()
    assert web.get("/a.php").text == "hello"
    assert time.monotonic() - started < 4 and not (folder.scratch / "ended").exists()


@pytest.mark.parametrize("kind, more", FRONTS)
def test_changes_under_load_lose_no_request(front, folder, kind, more):
    folder.php("a.php", "usleep(500); echo 'hello';")
    web, server = front(kind, more)
    config = server.api("GET", "/config").json()
    with ThreadPoolExecutor(4) as clients:
        def some():
            with web.connect() as connection:
                return [connection.request("GET", "/a.php").text for _ in range(100)]

        running = [clients.submit(some) for _ in range(4)]
        for number in range(3):
            config["applications"]["app"]["environment"] = {"N": str(number)}
            assert server.api("PUT", "/config", config).status == 200
        assert all(each.result() == ["hello"] * 100 for each in running)


@pytest.mark.load
@pytest.mark.parametrize("kind, unix", [(Nginx, True), (Apache, False), (HaProxy, True)])
def test_1500_clients_get_no_error(run, front, folder, socket_path, kind, unix):
    folder.php("a.php", "echo 'hello';")
    listener = f"unix:{socket_path}" if unix else "127.0.0.1:{port}"
    server = howdah(run, folder, listener, {"limits": {"queue_timeout": 60}})
    address = f"unix:{socket_path}" if unix else None
    # A thread for each client: Apache itself makes the others wait.
    more = {"server_options": "ServerLimit 60\nMaxRequestWorkers 1500\nListenBacklog 2000"} if kind is Apache else {}
    web, _ = front(kind, more, server=server, address=address)
    report = load_of_clients(f"http://127.0.0.1:{web.port}/a.php", 1500, 1, expect="hello")
    print(kind.__name__, "unix" if unix else "tcp", report["outcomes"])
    assert set(report["outcomes"]) == {"200"}, (report, web.output()[-2000:])


LOOP_AND_PHPINFO = """function make_seed() { list($usec, $sec) = explode(' ', microtime()); return (int) ((float) $sec + (float) $usec * 100000); }
for ($i = 1, $k = 0; $i <= 1000; $i++) { mt_srand(make_seed()); $k += $i % 2 ? -mt_rand() : mt_rand(); }
echo $k; phpinfo();"""
# A thread for each client: Apache itself makes the others wait.
APACHE_THREADS = "ServerLimit 20\nMaxRequestWorkers 500\nKeepAlive Off"


@pytest.mark.load
@pytest.mark.parametrize("kind, more", [each for each in FRONTS if each.id in ("nginx", "apache", "haproxy")])
@pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])
def test_500_clients_without_a_pause_get_no_error(run, front, folder, socket_path, kind, more, unix):
    """An article's load, of which nginx answered up to 831 of 8,000 requests 502 with PHP-FPM behind a Unix socket: a page of
    loops and phpinfo(), a connection for each request. More requests than are finished meet the backlog and the accept path.

    HOWDAH_LOAD_SECONDS=30 makes it as long as the article's.
    """
    folder.php("a.php", LOOP_AND_PHPINFO)
    listener = f"unix:{socket_path}" if unix else "127.0.0.1:{port}"
    server = howdah(run, folder, listener, {"limits": {"queue_timeout": 60}})
    more = {**more, "server_options": APACHE_THREADS} if kind is Apache else more
    web, _ = front(kind, more, server=server, address=f"unix:{socket_path}" if unix else None)
    seconds = float(os.environ.get("HOWDAH_LOAD_SECONDS", "1"))
    report = load_of_clients(f"http://127.0.0.1:{web.port}/a.php", 500, seconds, keep_alive=False, expect="PHP Version")
    print(kind.__name__, "unix" if unix else "tcp", report["outcomes"])
    assert set(report["outcomes"]) == {"200"}, (report, web.output()[-2000:])
    assert "WARN" not in server.stderr, server.stderr[-2000:]


def test_cgi_fcgi_is_answered(run, folder):
    """As health checks of PHP-FPM in containers do it."""
    folder.php("a.php", "echo 'hello ', file_get_contents('php://input'), $_SERVER['REQUEST_METHOD'];")
    server = howdah(run, folder)
    environment = {"PATH": os.environ["PATH"], "SCRIPT_FILENAME": f"{folder.root}/a.php", "SCRIPT_NAME": "/a.php",
                   "REQUEST_METHOD": "POST", "CONTENT_LENGTH": "5"}  # fmt: skip
    command = ["cgi-fcgi", "-bind", "-connect", f"127.0.0.1:{server.port}"]
    done = subprocess.run(command, env=environment, input=b"world", capture_output=True, timeout=30)
    head, _, content = done.stdout.partition(b"\r\n\r\n")
    assert content == b"hello worldPOST" and head.startswith(b"Status: 200 OK\r\n"), done


# --- The page of the documentation


def blocks() -> dict[str, list[str]]:
    """The blocks of code in docs/fastcgi.md, by their languages."""
    page = (REPOSITORY / "docs/fastcgi.md").read_text().split("## howdah behind my web server")[1]
    found: dict[str, list[str]] = {}
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        found.setdefault(language, []).append(text)
    return found


class AsDocumented(WebServerProcess):
    """A web server with a block of the page. `more`: `text`, that block; `kind`, the web server."""

    def command(self):
        return self.more["kind"].command(self)

    def configuration(self) -> str:
        kind, text = self.more["kind"], self.more["text"]
        text = text.replace("/srv/shop/public", str(self.root)).replace("/run/howdah/shop.sock", self.address)
        whole = kind(self.root, "unix:unused", "", port=self.port, directory=self.directory).configuration()
        if kind is Nginx:
            text = text.replace("127.0.0.1:8080", f"127.0.0.1:{self.port}")
            return whole.partition("    upstream")[0] + text + "}\n"
        if kind is Apache:
            return whole.partition("DocumentRoot")[0] + text + f"<Directory {self.root}>\nRequire all granted\n</Directory>\n"
        return whole.partition("\nbackend php")[0] + "\n" + text


@pytest.mark.parametrize("kind, language", [(Nginx, "nginx"), (Apache, "apache"), (HaProxy, "haproxy")])
def test_the_configurations_of_the_page_work(run, folder, socket_path, kind, language):
    folder.php("index.php", "echo 'index ', $_SERVER['REQUEST_URI'];")
    folder.php("a.php", "echo 'hello';")
    folder.write("style.css", "css")
    config = json.loads(blocks()["json"][0].replace("/srv/shop/public", str(folder.root)).replace("/run/howdah/shop.sock", str(socket_path)))
    del config["applications"]["shop"]["user"]
    listener = config["listeners"][f"unix:{socket_path}"]
    if os.geteuid() != 0:
        del listener["socket"]["group"]
    config["listeners"]["127.0.0.1:{port}"] = {"pass": "applications/shop"}
    run(config)
    with AsDocumented(folder.root, str(socket_path), kind=kind, text=blocks()[language][0]) as web:
        assert web.get("/a.php").text == "hello"
        assert web.get("/").text == "index /"
        if kind is Nginx:
            assert web.get("/2026/a-post/?x=1").text == "index /2026/a-post/?x=1"
        if kind is not HaProxy:
            assert web.get("/style.css").text == "css"
