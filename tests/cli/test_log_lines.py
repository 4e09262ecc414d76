"""The parts of a log line: the request, the application, the time, in text and in JSON."""

import json
import re

import pytest

from support.pipes import Fifo
from support.server import Howdah
from support.waiting import wait_for

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z"


def application(folder, **options) -> dict:
    return {"type": "php", "root": str(folder.root), "processes": 1, **options}


def faulty(folder) -> dict:
    folder.php("header.php", "header('A name: x'); echo 'ok';")
    folder.php("notice.php", "echo $nothing; error_log('a message'); echo 'ok';")
    folder.php("fatal.php", "function f() { throw new Exception('one'); } f();")
    return {"applications": {"shop": application(folder, options={"admin": {"display_errors": "0", "log_errors": "1"}})}}


def line_with(server: Howdah, words: str) -> str:
    return wait_for(lambda: next((line for line in server.stderr.splitlines() if words in line), None), words)


def test_a_line_about_a_request_has_the_request(folder, run):
    server = run(faulty(folder))
    assert server.get("/header.php?token=secret").text == "ok"
    line = line_with(server, "a header that HTTP does not allow")
    assert re.match(TIME + "  WARN ", line)
    for part in ('application="shop"', 'method="GET"', 'uri="/header.php"', 'client="127.0.0.1"'):
        assert part in line
    assert "secret" not in server.stderr


def test_the_client_is_the_one_that_a_trusted_proxy_names(folder, run):
    config = faulty(folder)
    forwarded = {"source": ["127.0.0.1"], "client_ip": "X-Forwarded-For"}
    config["listeners"] = {"127.0.0.1:{port}": {"pass": "applications/shop", "forwarded": forwarded}}
    server = run(config)
    server.get("/header.php", {"X-Forwarded-For": "192.0.2.7"})
    assert 'client="192.0.2.7"' in line_with(server, "a header that HTTP does not allow")


def test_a_message_of_php_has_its_request(folder, run):
    server = run(faulty(folder))
    server.get("/notice.php?token=secret"), server.get("/fatal.php")
    notice = line_with(server, "Undefined variable")
    assert re.match(TIME + r'  WARN "shop" GET /notice\.php: PHP Warning:  Undefined variable \$nothing in ', notice)
    assert re.match(TIME + r'  INFO "shop" GET /notice\.php: a message$', line_with(server, "a message"))
    assert re.match(TIME + r' ERROR "shop" GET /fatal\.php: PHP Fatal error:  Uncaught Exception', line_with(server, "Fatal"))
    assert "secret" not in server.stderr


def test_every_line_may_be_json(folder, run):
    server = run(faulty(folder), "--log-format", "json")
    for name in ("header", "notice", "fatal"):
        server.get(f"/{name}.php")
    line_with(server, "Uncaught Exception")
    lines = [json.loads(line) for line in server.stderr.splitlines()]
    assert all({"time", "level", "message"} <= set(line) for line in lines)

    def found(words: str) -> dict:
        return next(line for line in lines if words in line["message"])

    header = found("a header that HTTP does not allow")
    assert (header["application"], header["method"], header["uri"]) == ("shop", "GET", "/header.php")
    assert header["client"] == "127.0.0.1" and header["level"] == "WARN" and re.fullmatch(TIME, header["time"])
    fatal = found("Uncaught Exception")
    assert (fatal["level"], fatal["application"], fatal["uri"]) == ("ERROR", "shop", "/fatal.php")
    assert "Stack trace:\n#0" in fatal["message"], "several lines are one object"


def test_serve_has_the_option_too(folder, serve):
    folder.php("notice.php", "error_log('a message');")
    server = serve("--log-format", "json", processes=1)
    server.get("/notice.php")
    assert json.loads(line_with(server, "a message"))["application"] == "app"


def test_an_unknown_setting_is_warned_about(folder, run, serve):
    folder.php("index.php", "echo ini_get('memory_limit');")
    server = run({"applications": {"shop": application(folder, options={"admin": {"memory_limt": "77M"}})}})
    warning = 'applications/shop/options/admin: PHP has no setting "memory_limt"; did you mean "memory_limit"?'
    assert warning in line_with(server, "memory_limt")
    served = serve(processes=1, ini={"no_such.thing": "1", "memory_limit": "99M"})
    assert "is its extension loaded?" in line_with(served, "no_such.thing")
    assert served.get("/").text == "99M" and "memory_limit" not in served.stderr


# --- The log of an application


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_lines_that_its_scripts_cause_are_in_the_applications_own_log(folder, run, form):
    config = faulty(folder)
    own = folder.scratch / "own.log"
    shop = config["applications"]["shop"]
    config["applications"] = {"shop": {**shop, "stderr": str(own)}, "other": shop}
    folder.php("kill.php", "posix_kill(getmypid(), SIGKILL);")
    config["listeners"] = {"127.0.0.1:{port}": {"pass": "routes"}}
    config["routes"] = [
        {"match": {"query": "other"}, "action": {"pass": "applications/other"}},
        {"action": {"pass": "applications/shop"}},
    ]
    server = run(config, "--log-format", form)
    assert server.get("/header.php").text == "ok" and server.get("/none.php").status == 404
    assert server.get("/header.php?other").text == "ok"
    assert server.get("/kill.php").status == 502
    causes = ("a header that HTTP does not allow", "no such script: answered 404")
    wait_for(lambda: all(cause in own.read_text() for cause in causes), "the lines in the application's log")
    if form == "json":
        header = next(line for line in map(json.loads, own.read_text().splitlines()) if causes[0] in line["message"])
        assert (header["level"], header["application"], header["uri"]) == ("WARN", "shop", "/header.php")
    else:
        assert re.search(rf'^{TIME}  WARN a script set {causes[0]}.* application="shop" .*uri="/header.php"', own.read_text(), re.M)
    # Of its workers, and of the other application, the server's log has the lines.
    death = line_with(server, "a worker died; its request, GET /kill.php")
    assert "shop" in death and "a worker died" not in own.read_text()
    assert "other" in line_with(server, causes[0]) and server.stderr.count(causes[0]) == 1 and causes[1] not in server.stderr


def test_an_applications_own_log_that_is_not_read_blocks_no_request(folder, run):
    own = Fifo(folder.scratch / "own")
    config = faulty(folder)
    config["applications"]["shop"]["stderr"] = str(own.path)
    server = run(config)
    own.fill()
    for _ in range(30):
        assert server.get("/header.php").text == "ok"
    own.read()
    wait_for(lambda: own.text.count("a header that HTTP does not allow") == 20, "the lines")
    own.close()


# --- Requests that fail


def test_a_missing_script_is_logged_once(folder, run):
    config = {"applications": {"shop": application(folder, index="start.php")}}
    server = run(config)
    for _ in range(3):
        assert server.get("/").status == 404
    assert server.get("/sub/none.php").status == 404
    for script, uri in (("start.php", "/"), ("sub/none.php", "/sub/none.php")):
        server.wait_for_log_line("no such script: answered 404", f'script="{folder.root}/{script}"', f'uri="{uri}"', 'application="shop"')


def test_a_request_that_is_not_valid_is_logged_with_its_reason(folder, run):
    server = run(faulty(folder))
    answers = [
        server.raw(data)
        for data in (b"GET / HTTP/1.1\r\n\r\n", b"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/1.1\r\nA B: 1\r\n\r\n")
    ]
    assert all(b" 400 " in answer.split(b"\r\n")[0] for answer in answers)
    found = lambda: [line for line in server.stderr.splitlines() if "a request that is not valid: answered 400" in line]
    wait_for(lambda: len(found()) == 3, "the lines")
    assert all("reason=" in line and "127.0.0.1" in line for line in found()), found()


def test_tls_on_a_plain_port_is_named(folder, run):
    server = run(faulty(folder))
    client_hello = bytes.fromhex("16030100a5010000a10303") + bytes(160)
    for _ in range(3):
        assert b" 400 " in server.raw(client_hello)
    server.wait_for_log_line("TLS handshake on a plain HTTP port", 'client="127.0.0.1"')
