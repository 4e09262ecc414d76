"""The commands as a user types them: their output, what they recognize, and their errors."""

import json
import os
import re
import socket

import pytest

from support.command_line import error_of, howdah
from support.http.client import Connection
from support.machine import free_port, needs_root
from support.server import Howdah
from support.waiting import wait_for

# --- Version and help


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_the_php_versions_that_were_found_are_named(option):
    result = howdah(option)
    assert result.returncode == 0 and result.stderr == ""
    assert "howdah" in result.stdout
    version = re.search(r"PHP.*?8\.\d", result.stdout, re.S)
    assert version, result.stdout


def test_the_help_names_the_commands_and_their_options():
    text = howdah("--help").stdout
    assert "serve" in text and "run" in text
    text = howdah("serve", "--help").stdout
    for option in (
        "--listen --php --processes --front-controller --php-ini --ini --env --inherit-env --access-log --user --follow-symlinks --print-config"
    ).split():
        assert option in text
    assert "--config" in howdah("run", "--help").stdout


@pytest.mark.parametrize(
    "arguments",
    [["--nonsense"], ["nonsense"], ["serve", "--processes", "many"], ["run", "x"], ["serve", "--processes", "0"]],
)
def test_a_wrong_command_line_is_rejected(arguments, tmp_path):
    result = howdah(*arguments, cwd=tmp_path)
    assert result.returncode in (1, 2) and result.stderr and result.stdout == ""


def test_the_first_lines_describe_what_is_served(folder, serve):
    folder.php("index.php", "echo PHP_VERSION;")
    server = serve(processes=3)
    lines = server.stdout
    assert f"http://127.0.0.1:{server.port}" in lines
    assert server.get("/").text.split("-")[0] in lines, "PHP's version"
    assert "opcache on" in lines
    assert "index.php" in lines
    assert re.search(r"\b3\b", lines)


# --- Recognized folders


@pytest.mark.parametrize("public", ["public", "web"])
def test_an_application_with_a_public_folder_is_recognized(folder, serve, public):
    folder.php(
        f"{public}/index.php", "echo 'front ', $_SERVER['REQUEST_URI'], ' ', basename($_SERVER['DOCUMENT_ROOT']);"
    )
    folder.write(f"{public}/style.css", "css")
    folder.write("composer.json", "secret")
    folder.php("index-of-the-root.php", "echo 'wrong';")
    server = serve()
    assert public in server.stdout
    assert server.get("/any/page?x").text == f"front /any/page?x {public}"
    assert server.get("/style.css").text == "css"
    assert server.get("/composer.json").text.startswith("front")
    assert server.get("/../composer.json").text != "secret"


def test_public_is_preferred_to_web_and_the_root(folder, serve):
    for name in ("public/index.php", "web/index.php", "index.php"):
        folder.php(name, f"echo '{name}';")
    assert serve().get("/").text == "public/index.php"


def test_a_folder_with_an_index_is_recognized(folder, serve):
    """WordPress, DokuWiki: scripts beside a front controller."""
    folder.php("index.php", "echo 'front ', $_SERVER['REQUEST_URI'];")
    folder.php("wp-login.php", "echo 'login';")
    folder.php("wp-admin/index.php", "echo 'admin';")
    folder.write("style.css", "css")
    server = serve()
    assert server.get("/").text == "front /"
    assert server.get("/2026/11/a-post/").text == "front /2026/11/a-post/"
    assert server.get("/wp-login.php").text == "login"
    assert server.get("/wp-admin/").text == "admin"
    assert server.get("/wp-admin").header("Location").endswith("/wp-admin/")
    assert server.get("/style.css").text == "css"


def test_a_plain_folder_is_recognized(folder, serve):
    folder.php("tool.php", "echo 'tool';")
    folder.write("index.html", "start")
    folder.write("sub/file.txt", "text")
    server = serve()
    assert server.get("/").text == "start"
    assert server.get("/tool.php").text == "tool"
    assert server.get("/sub/file.txt").text == "text"
    for target in ("/nothing", "/nothing.php", "/nothing.php/info", "/sub/"):
        assert server.get(target).status == 404


def test_a_front_controller_can_be_given(folder, serve):
    folder.php("app.php", "echo 'app ', $_SERVER['SCRIPT_NAME'];")
    folder.php("index.php", "echo 'index';")
    server = serve("--front-controller", "app.php")
    assert server.get("/pretty/url").text == "app /app.php"


def test_the_folder_is_the_current_one_by_default(folder):
    folder.php("index.php", "echo getcwd();")
    with Howdah(lambda port: ["serve", "--listen", f"127.0.0.1:{port}"], cwd=folder.root) as server:
        assert server.get("/").text == str(folder.root)


def test_a_relative_folder_works(folder):
    folder.php("index.php", "echo $_SERVER['SCRIPT_FILENAME'];")
    with Howdah(lambda port: ["serve", "site", "--listen", f"127.0.0.1:{port}"], cwd=folder.root.parent) as server:
        assert server.get("/").text == f"{folder.root}/index.php"


# --- Errors


def test_a_folder_that_does_not_exist_is_an_error(tmp_path):
    line = error_of(howdah("serve", tmp_path / "nowhere", "--listen", f"127.0.0.1:{free_port()}"))
    assert str(tmp_path / "nowhere") in line


def test_a_folder_that_is_a_file_is_an_error(tmp_path):
    (tmp_path / "file").write_text("x")
    assert str(tmp_path / "file") in error_of(howdah("serve", tmp_path / "file", "--listen", f"127.0.0.1:{free_port()}"))


def test_a_port_in_use_is_rejected(folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert str(port) in error_of(howdah("serve", folder.root, "--listen", f"127.0.0.1:{port}"))


def test_a_missing_php_version_is_an_error(folder):
    line = error_of(howdah("serve", folder.root, "--listen", f"127.0.0.1:{free_port()}", "--php", "5.3"))
    assert "5.3" in line and "8." in line, "it names the requested version and the installed ones"


def test_a_missing_php_ini_is_an_error(folder):
    line = error_of(
        howdah("serve", folder.root, "--listen", f"127.0.0.1:{free_port()}", "--php-ini", "/no/such/php.ini")
    )
    assert "/no/such/php.ini" in line


@needs_root
def test_a_missing_user_is_an_error(folder):
    line = error_of(howdah("serve", folder.root, "--listen", f"127.0.0.1:{free_port()}", "--user", "no-such-user"))
    assert "no-such-user" in line


@needs_root
def test_a_privileged_port_without_the_privilege_is_an_error(folder):
    prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]
    line = error_of(howdah("serve", folder.root, "--listen", "127.0.0.1:81", prefix=prefix))
    assert "81" in line


@pytest.mark.parametrize(
    "address", ["nonsense", "127.0.0.1", "127.0.0.1:99999", "[::1:80", "unix:", "300.1.1.1:80", "127.0.0.1:0x50"]
)
def test_an_invalid_address_is_an_error(folder, address):
    result = howdah("serve", folder.root, "--listen", address)
    assert result.returncode in (1, 2) and result.stdout == ""
    assert address in result.stderr


@pytest.mark.parametrize("option, value", [("--ini", "=value"), ("--env", "=value"), ("--env", "novalue")])
def test_an_invalid_setting_is_an_error(folder, option, value):
    result = howdah("serve", folder.root, "--listen", f"127.0.0.1:{free_port()}", option, value)
    assert result.returncode in (1, 2) and result.stderr and result.stdout == ""


def test_a_php_that_does_not_boot_is_an_error_and_leaves_no_process(folder):
    """A preload script that fails makes the start fail."""
    preload = folder.php("preload.php", "throw new Exception('preloading failed');")
    result = howdah("serve", folder.root, "--listen", f"127.0.0.1:{free_port()}", "--ini", f"opcache.preload={preload}")
    assert result.returncode == 1
    assert "preloading failed" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("howdah: ")


# --- Configurations


def write_config(tmp_path, config) -> str:
    path = tmp_path / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    path.chmod(0o644)
    return str(path)


def valid(folder) -> dict:
    return {
        "listeners": {f"127.0.0.1:{free_port()}": {"pass": "applications/app"}},
        "applications": {"app": {"type": "php", "root": str(folder.root)}},
    }


def changed(config: dict, path: str, value) -> dict:
    place = config
    *folders, last = path.split("/")
    for name in folders:
        place = place.setdefault(name, {})
    place[last] = value
    return config


def own_places(folder):
    """Options of `howdah run`: other tests may use the usual places at the same time."""
    return ["--state-dir", folder / "state", "--control", f"unix:{folder}/control.sock"]


@pytest.mark.parametrize(
    "path, value, named",
    [
        ("applications/app/root", "/no/such/folder", ["applications/app/root", "/no/such/folder"]),
        ("applications/app/type", "python", ["applications/app/type", "python"]),
        ("applications/app/type", "php 5.3", ["applications/app/type", "5.3"]),
        ("applications/app/type", 7, ["applications/app/type"]),
        ("applications/app/processes", "many", ["applications/app/processes"]),
        ("applications/app/processes", -1, ["applications/app/processes"]),
        ("applications/app/colour", "blue", ["applications/app", "colour"]),
        (
            "applications/app/options",
            {"admin": {"memory_limit": ["x"]}},
            ["applications/app/options/admin/memory_limit"],
        ),
        ("listeners", {"127.0.0.1:1": {"pass": "applications/missing"}}, ["missing"]),
        ("listeners", {"127.0.0.1:1": {"pass": "routes"}}, ["routes"]),
        ("listeners", {"nonsense": {"pass": "applications/app"}}, ["nonsense"]),
        ("settings", {"http": {"max_body_size": "big"}}, ["settings/http/max_body_size"]),
        ("settings", {"https": {}}, ["https"]),
        ("routes", [{"action": {"return": 99999}}], ["return"]),
        ("routes", [{"action": {}}], ["action"]),
        ("routes", [{"match": {"colour": "blue"}, "action": {"return": 200}}], ["colour"]),
    ],
)
def test_a_wrong_configuration_is_rejected_with_its_path(folder, tmp_path, path, value, named):
    config = write_config(tmp_path, changed(valid(folder), path, value))
    line = error_of(howdah("run", *own_places(tmp_path), "--config", config))
    for word in named:
        assert word in line, line


def test_a_configuration_that_is_not_json_is_an_error(tmp_path):
    config = write_config(tmp_path, '{"listeners": {},\n "applications": {,}}')
    line = error_of(howdah("run", *own_places(tmp_path), "--config", config))
    assert "config.json" in line and re.search(r"line 2|:2", line)


def test_a_missing_configuration_is_an_error():
    assert "/no/such/config.json" in error_of(howdah("run", "--config", "/no/such/config.json"))


def test_comments_may_have_bytes_that_are_not_utf8(folder, tmp_path):
    """As for `config check`."""
    folder.php("index.php", "echo 'hello';")
    path = tmp_path / "config.json"

    def arguments(port: int) -> list[str]:
        config = changed(valid(folder), "listeners", {f"127.0.0.1:{port}": {"pass": "applications/app"}})
        path.write_bytes(b"// \xfcbung\n" + json.dumps(config).encode())
        return ["run", "--config", str(path)]

    with Howdah(arguments) as server:
        assert server.get("/").text == "hello"
    assert howdah("config", "check", path).returncode == 0


@pytest.mark.parametrize("layout", ["plain", "index", "public"])
def test_a_printed_configuration_serves_the_same(folder, tmp_path, layout):
    """`serve --print-config | run --config -` serves the same as `serve`."""
    folder.php(
        {"plain": "tool.php", "index": "index.php", "public": "public/index.php"}[layout],
        "echo 'script ', $_SERVER['REQUEST_URI'], $_SERVER['SCRIPT_NAME'], getenv('COLOUR'), ini_get('memory_limit');",
    )
    folder.write("hello.txt", "hello")
    folder.write("sub/index.html", "sub")
    folder.write(".env", "secret")
    folder.write("source.phtml", "secret")
    folder.write("public/hello.txt", "public hello")
    options = ["--env", "COLOUR=blue", "--ini", "memory_limit=77M", "--processes", "2"]
    port = free_port()
    printed = howdah("serve", folder.root, "--listen", f"127.0.0.1:{port}", *options, "--print-config")
    assert printed.returncode == 0 and printed.stderr == ""
    config = json.loads(printed.stdout)
    path = write_config(tmp_path, printed.stdout)
    targets = [
        "/", "/hello.txt", "/sub", "/sub/", "/.env", "/source.phtml", "/nothing", "/nothing.php", "/tool.php", "/tool.php/info",
        "/index.php", "/index.php/info?x=1", "/a/b/c?d", "/hello.txt/x.php", "/%2e%2e/site/hello.txt", "/sub/../hello.txt",
    ]  # fmt: skip

    def behaviour(server: Howdah) -> list:
        answers = [server.get(target) for target in targets]
        return [
            (
                target,
                a.status,
                a.body,
                a.header("Content-Type"),
                (a.header("Location") or "").replace(str(server.port), "PORT"),
            )
            for target, a in zip(targets, answers)
        ]

    with Howdah.serve(folder, *options[:4], processes=2) as served:
        expected = behaviour(served)
        workers = len(served.workers(count=2))
    assert any(status == 200 for _, status, *_ in expected)
    with Howdah(lambda _: ["run", "--config", path], ready=lambda server: f":{port}" in server.stdout) as running:
        running.port = port
        assert behaviour(running) == expected
        (name,) = config["applications"]
        assert len(running.workers(name, 2)) == workers


# --- Listeners


def test_several_listeners_serve(folder, socket_path):
    path = socket_path
    folder.php("index.php", "echo $_SERVER['SERVER_ADDR'], ' ', $_SERVER['SERVER_PORT'], ' ', $_SERVER['REMOTE_ADDR'];")
    second = free_port()
    listen = ["127.0.0.1:{port}", f"[::1]:{second}", f"unix:{path}"]
    with Howdah.serve(folder, listen=listen, ready=lambda server: str(path) in server.stdout) as server:
        assert f"http://127.0.0.1:{server.port}" in server.stdout and f"http://[::1]:{second}" in server.stdout
        assert server.get("/").text == f"127.0.0.1 {server.port} 127.0.0.1"
        with Connection(("::1", second)) as connection:
            assert connection.request("GET", "/").text == f"::1 {second} ::1"
        with Connection(str(path)) as connection:
            assert connection.request("GET", "/").status == 200


def test_all_addresses_serve(folder):
    folder.php("index.php", "echo $_SERVER['REMOTE_ADDR'];")
    with Howdah.serve(folder, listen=["*:{port}"]) as server:
        assert server.get("/").text == "127.0.0.1"


def test_ipv6_addresses_serve(folder):
    folder.php(
        "index.php", "echo json_encode([$_SERVER['REMOTE_ADDR'], $_SERVER['SERVER_NAME'], $_SERVER['HTTP_HOST']]);"
    )
    with Howdah.serve(folder, listen=["[::1]:{port}"]) as server:
        server.host = "::1"
        got = server.get("/").json()
        assert got[0] == "::1" and got[1].strip("[]") == "::1" and got[2] == f"[::1]:{server.port}"


def test_a_unix_socket_serves(folder, socket_path):
    path = socket_path
    folder.php("index.php", "echo $_SERVER['REQUEST_URI'];")
    config = {
        "listeners": {f"unix:{path}": {"pass": "applications/app"}},
        "applications": {"app": {"type": "php", "root": str(folder.root), "index": "index.php"}},
    }
    with Howdah.run(config, ready=lambda server: str(path) in server.stdout):
        with Connection(str(path)) as connection:
            assert connection.request("GET", "/").text == "/"


# --- The access log

COMBINED = re.compile(
    r"(?P<host>\S+) - (?P<user>\S+) \[(?P<time>\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] "
    r'"(?P<request>(?:[^"\\]|\\.)*)" (?P<status>\d{3}) (?P<bytes>\d+|-) "(?P<referer>(?:[^"\\]|\\.)*)" "(?P<agent>(?:[^"\\]|\\.)*)"'
)


def logged(text: str, part: str) -> re.Match:
    (line,) = [line for line in text.splitlines() if part in line]
    match = COMBINED.fullmatch(line)
    assert match, line
    return match


def test_each_request_is_a_line_of_the_combined_log(folder, serve):
    folder.php("page.php", "http_response_code(404); echo '12345';")
    server = serve()
    server.get("/page.php?one=1", {"User-Agent": "test agent", "Referer": "http://example.org/"})
    wait_for(lambda: "one=1" in server.stdout)
    entry = logged(server.stdout, "one=1")
    assert entry["host"] == "127.0.0.1" and entry["request"] == "GET /page.php?one=1 HTTP/1.1"
    assert (entry["status"], entry["bytes"]) == ("404", "5")
    assert (entry["referer"], entry["agent"]) == ("http://example.org/", "test agent")


def test_files_and_rejections_are_logged(folder, serve):
    folder.write("hello.txt", "hello")
    log = folder.scratch / "access.log"
    server = serve("--access-log", str(log))
    server.get("/hello.txt?file"), server.get("/missing?file-not"), server.request("HEAD", "/hello.txt?head")
    server.get("/hello.txt?range", {"Range": "bytes=0-1"})
    # Each thread writes its lines by itself, so the last request need not be the last line.
    wait_for(lambda: log.exists() and log.read_text().count("\n") == 4, "four lines")
    text = log.read_text()
    assert (logged(text, "?file H")["status"], logged(text, "?file H")["bytes"]) == ("200", "5")
    assert logged(text, "file-not")["status"] == "404"
    assert logged(text, "?head")["bytes"] in ("0", "-")
    assert (logged(text, "range")["status"], logged(text, "range")["bytes"]) == ("206", "2")
    assert "?file" not in server.stdout


def test_a_client_cannot_forge_a_line(folder, serve):
    folder.write("hello.txt", "hello")
    server = serve()
    server.get("/hello.txt?quote", {"User-Agent": 'a" 200 "forged\\', "Referer": "\xe9 red"})
    server.get("/hello.txt<")  # A malformed request is logged, too.
    wait_for(lambda: '"-" 400' in server.stdout)
    server.get("/hello.txt?end")
    wait_for(lambda: "?end" in server.stdout)
    entry = logged(server.stdout, "quote")
    assert entry["status"] in ("200", "400")
    assert "\x1b" not in server.stdout and "\x7f" not in server.stdout


def test_a_configuration_can_set_the_access_log(folder, run):
    log = folder.scratch / "configured.log"
    folder.php("index.php", "echo 1;")
    config = {"applications": {"app": {"type": "php", "root": str(folder.root), "index": "index.php"}}}
    server = run({**config, "access_log": str(log)})
    server.get("/?configured")
    wait_for(lambda: log.exists() and "configured" in log.read_text())
    assert logged(log.read_text(), "configured")["status"] == "200"
    quiet = run(config)
    quiet.get("/?quiet")
    assert "quiet" not in quiet.stdout


def test_requests_can_be_left_out_of_the_access_log(folder, run):
    """By status, URI and header, without a template."""
    log = folder.scratch / "access.log"
    folder.php("index.php", "http_response_code((int) ($_GET['status'] ?? 200));")
    skip = [{"uri": "/health"}, {"status": ["200-299", 304], "headers": {"User-Agent": "probe/*"}}]
    routes = [
        {"match": {"uri": "/health"}, "action": {"rewrite": "/", "pass": "applications/app"}},
        {"action": {"pass": "applications/app"}},
    ]
    applications = {"app": {"type": "php", "root": str(folder.root), "script": "index.php", "processes": 1}}
    server = run({"routes": routes, "applications": applications, "access_log": {"path": str(log), "skip": skip}})
    probe = {"User-Agent": "probe/1"}
    for target, headers in (
        ("/health?skipped", {}), ("/health?status=500&skipped", {}), ("/?skipped", probe), ("/?status=500&logged1", probe),
        ("/?status=304&skipped", probe), ("/?logged2", {}),
    ):  # fmt: skip
        server.get(target, headers)
    wait_for(lambda: "logged1" in log.read_text() and "logged2" in log.read_text(), "the lines")
    assert "skipped" not in log.read_text()


def test_working_directory_is_applied(folder, run):
    folder.php("index.php", "echo getcwd();")
    folder.php("script.php", "echo 'always ', $_SERVER['REQUEST_URI'];")
    app = {"type": "php", "root": str(folder.root), "working_directory": str(folder.scratch)}
    assert run({"applications": {"app": {**app, "index": "index.php"}}}).get("/").text == str(folder.root)
    server = run({"applications": {"app": {**app, "script": "script.php"}}})
    for target in ("/", "/index.php", "/a/b.css", "/missing.php"):
        assert server.get(target).text == f"always {target}"


def test_the_environment_of_the_caller_can_be_inherited(folder):
    folder.php("index.php", "echo getenv('OF_THE_CALLER'), ' ', $_SERVER['OF_THE_CALLER'] ?? 'none';")
    with Howdah.serve(folder, "--inherit-env", environ={**os.environ, "OF_THE_CALLER": "kept"}) as server:
        assert server.get("/").text == "kept kept"
