"""Logs for machines: JSON with stable names, the id of each request, and that of its trace."""

import json
import re

import pytest

from support.folders import Folder
from support.server import Howdah, stop_all
from support.waiting import wait_for

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
MADE = re.compile("[0-9a-f]{32}")
NAMES = [
    "time", "application", "request_id", "trace_id", "client", "user", "host", "method", "uri", "status", "body_bytes",
    "seconds", "referer", "user_agent", "content_type",
]  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = Folder(tmp_path_factory.mktemp("shop"))
    folder.php("index.php", "echo $_SERVER['HTTP_X_REQUEST_ID'] ?? 'none';")
    folder.php("dies.php", "posix_kill(getmypid(), 9);")
    return folder


def start(site: Folder, request_id, *options: str) -> Howdah:
    http = {} if request_id is None else {"request_id": request_id}
    return Howdah.run(
        {
            "routes": [
                {"match": {"uri": "/traced"}, "action": {"return": 204, "response_headers": {"X-Trace": "$trace_id"}}},
                {"action": {"pass": "applications/shop"}},
            ],
            "applications": {"shop": {"type": "php", "root": str(site.root), "processes": 1}},
            "settings": {"http": http},
            "access_log": {"path": str(site.scratch / "access.log"), "format": "json"},
        },
        *options,
    )


@pytest.fixture
def server(site):
    (site.scratch / "access.log").unlink(missing_ok=True)
    server = start(site, {"response": True}, "--log-format", "json")
    yield server
    stop_all([server])


def lines(site: Folder, count: int) -> list[dict]:
    """The lines of the access log, once there are this many."""
    path = site.scratch / "access.log"
    wait_for(lambda: path.exists() and path.read_text().count("\n") >= count, f"{count} lines")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_access_log_line_has_stable_names_and_types(server, site):
    server.get("/index.php?a=\"b\"", [("User-Agent", 'x"\\y'), ("traceparent", f"00-{TRACE}-00f067aa0ba902b7-01")])
    [line] = lines(site, 1)
    # Another connection may be that of another thread, which writes its own lines.
    server.raw(b"nonsense\r\n\r\n")
    _, nonsense = lines(site, 2)
    assert list(line) == list(nonsense) == NAMES
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d", line["time"])
    assert (line["application"], line["status"], line["body_bytes"], line["trace_id"]) == ("shop", 200, 32, TRACE)
    assert (line["client"], line["method"], line["uri"], line["user"]) == ("127.0.0.1", "GET", '/index.php?a=%22b%22', None)
    assert line["user_agent"] == 'x"\\y' and isinstance(line["seconds"], float)
    assert MADE.fullmatch(line["request_id"])
    assert (nonsense["status"], nonsense["application"], nonsense["method"]) == (400, None, None)


@pytest.mark.parametrize("sent", ["5f3c-1_2.3:4", "a" * 128])
def test_a_well_formed_id_goes_to_php_the_log_and_back(server, site, sent):
    response = server.get("/index.php", [("X-Request-Id", sent)])
    assert (response.text, response.header("X-Request-Id")) == (sent, sent)
    assert lines(site, 1)[-1]["request_id"] == sent


@pytest.mark.parametrize("sent", ["", "a" * 129, "a b", "<script>", "\x1b[2J".replace("\x1b", "~"), "$(id)", "a;b"])
def test_any_other_id_is_replaced(server, sent):
    response = server.get("/index.php", [("X-Request-Id", sent)])
    assert MADE.fullmatch(response.text) and response.header("X-Request-Id") == response.text


def test_each_request_has_its_own_id(server):
    ids = {server.get("/index.php").text for _ in range(5)} | {server.get("/traced").header("X-Request-Id")}
    assert len(ids) == 6 and all(MADE.fullmatch(id) for id in ids)


def test_the_error_log_names_the_request_and_its_trace(server):
    headers = [("X-Request-Id", "order-7"), ("traceparent", f"00-{TRACE}-00f067aa0ba902b7-01")]
    assert server.get("/dies.php", headers).status == 502

    def found():
        logged = [json.loads(line) for line in server.stderr.splitlines() if line.startswith("{")]
        return [line for line in logged if "answered 502" in line["message"]]

    [line] = wait_for(found, "the line")
    assert (line["request_id"], line["trace_id"], line["application"]) == ("order-7", TRACE, "shop")


def test_a_trace_that_is_not_valid_is_none(server, site):
    for sent in (f"00-{TRACE}", f"00-{'0' * 32}-00f067aa0ba902b7-01", "x"):
        assert not server.get("/traced", [("traceparent", sent)]).header("X-Trace")
    assert [line["trace_id"] for line in lines(site, 3)] == [None, None, None]
    good = server.get("/traced", [("traceparent", f"00-{TRACE}-00f067aa0ba902b7-01")])
    assert good.header("X-Trace") == TRACE
    assert lines(site, 4)[-1]["trace_id"] == TRACE


def test_ids_of_clients_need_not_be_accepted(site):
    server = start(site, {"accept": False})
    try:
        response = server.get("/index.php", [("X-Request-Id", "order-7")])
        assert MADE.fullmatch(response.text) and response.header("X-Request-Id") is None
    finally:
        stop_all([server])


def test_without_the_setting_the_header_is_the_clients(site):
    server = start(site, None)
    try:
        assert server.get("/index.php", [("X-Request-Id", "<a b>")]).text == "<a b>"
        assert server.get("/index.php").text == "none"
    finally:
        stop_all([server])
