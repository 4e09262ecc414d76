"""The control API as a client sees it: endpoints, methods, responses, access. Its messages are those of NGINX Unit."""

import re
import socket
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.control import INITIAL, returning, start_empty
from support.http.client import Connection, Response
from support.machine import free_port, needs_root
from support.server import EXECUTABLE, Howdah, stop_all
from support.waiting import wait_for

DONE = {"success": "Reconfiguration done."}
NO_VALUE = (404, "Value doesn't exist.")
NOT_ALLOWED = (405, "Method isn't allowed.")
INVALID_METHOD = (405, "Invalid method.")
INVALID_PATH = (400, "Invalid path.")
INVALID_JSON = (400, "Invalid JSON.")
INVALID = (400, "Invalid configuration.")


def answered(response: Response) -> tuple:
    """Status and short text of an error; status and body of a success."""
    got = response.json()
    return (response.status, got["error"]) if isinstance(got, dict) and "error" in got else (response.status, got)


@pytest.fixture(scope="module")
def empty_server():
    server = start_empty()
    yield server
    stop_all([server])


@pytest.fixture
def api(empty_server):
    """Sends requests to a howdah that starts each test with the initial configuration."""
    assert empty_server.api("PUT", "/config", INITIAL).status == 200
    return empty_server.api


# --- Paths and methods


@pytest.mark.parametrize(
    "path, keys",
    [
        ("/", {"config", "status"}),
        ("/config", {"listeners", "routes", "applications"}),
        ("/config/", {"listeners", "routes", "applications"}),
        ("//config", None),
        ("/config//routes/", []),
        ("/config?query=1", {"listeners", "routes", "applications"}),
        ("/status", {"connections", "requests", "applications"}),
        ("/status/connections/", {"accepted", "active", "idle", "closed"}),
        ("/status/requests/total", 0),
    ],
)
def test_readable_paths_are_answered(api, path, keys):
    response = api("GET", path)
    if keys is None:
        assert answered(response) == NO_VALUE
        return
    assert response.status == 200
    got = response.json()
    assert set(got) >= keys if isinstance(keys, set) else got == keys


@pytest.mark.parametrize(
    "method, path, expected",
    [
        ("POST", "/", INVALID_METHOD),
        ("PUT", "/", INVALID_METHOD),
        ("DELETE", "/", INVALID_METHOD),
        ("PUT", "/status", INVALID_METHOD),
        ("DELETE", "/status/requests", INVALID_METHOD),
        ("POST", "/config", NOT_ALLOWED),
        ("POST", "/config/listeners", NOT_ALLOWED),
        ("PATCH", "/config", NOT_ALLOWED),
        ("OPTIONS", "/config/routes", NOT_ALLOWED),
        ("GET", "/nonsense", NO_VALUE),
        ("PUT", "/configuration", NO_VALUE),
        ("GET", "/control", NO_VALUE),
        ("GET", "/control/applications/none", NO_VALUE),
        ("GET", "/control/applications/none/restart", NO_VALUE),
        ("POST", "/control/applications/none/restart", NO_VALUE),
        ("PUT", "/control/applications/none/restart", NOT_ALLOWED),
        ("DELETE", "/control/applications/none/restart", NOT_ALLOWED),
        ("GET", "/config/nothing", NO_VALUE),
        ("GET", "/config/routes/0", NO_VALUE),
        ("GET", "/config/routes/first", NO_VALUE),
        ("GET", "/config/listeners/x/pass", NO_VALUE),
        ("DELETE", "/config/routes/0", NO_VALUE),
        ("PUT", "/config/routes/1", NO_VALUE),
        ("PUT", "/config/routes/0/match", NO_VALUE),
        ("GET", "/config/%zz", INVALID_PATH),
        ("PUT", "/config/%ff", INVALID_PATH),
        ("DELETE", "/config/a%00b", INVALID_PATH),
        ("GET", "/status/nothing", (404, "Invalid path.")),
        ("GET", "/status/requests/total/0", (404, "Invalid path.")),
        ("GET", "/status/%zz", INVALID_PATH),
    ],
)
def test_invalid_requests_are_rejected(api, method, path, expected):
    response = api(method, path, "{}" if method in ("PUT", "POST", "PATCH") else None)
    assert answered(response) == expected
    assert response.json()["detail"]
    assert api("GET", "/config").json() == INITIAL


def test_a_put_creates_the_objects_above_it(api):
    assert answered(api("PUT", "/config/settings/http/server_version", "false")) == (200, DONE)
    assert api("GET", "/config/settings").json() == {"http": {"server_version": False}}
    # A wrong name is found as in any other change.
    response = api("PUT", "/config/setings/http/server_version", "false")
    assert answered(response) == INVALID and 'did you mean "settings"?' in response.json()["detail"]
    assert api("GET", "/config").json().keys() == {*INITIAL, "settings"}


def test_the_detail_names_the_missing_member_and_a_similar_one(api):
    assert api("GET", "/config/routs").json()["detail"].endswith('did you mean "routes"?')
    assert api("GET", "/status/request").json()["detail"].startswith("the status has no member")


# --- The form of a response


def test_a_response_has_the_form_of_unit(api):
    response = api("GET", "/config")
    assert response.header("Content-Type") == "application/json"
    assert response.header("Connection") == "close"
    assert response.header("Server").startswith("howdah/")
    assert int(response.header("Content-Length")) == len(response.body)
    assert response.text == '{\r\n\t"listeners": {},\r\n\t"routes": [],\r\n\t"applications": {}\r\n}\r\n'
    assert api("PUT", "/config", "{}").text == '{\r\n\t"success": "Reconfiguration done."\r\n}\r\n'
    assert api("GET", "/status/requests/total").text == "0\r\n"


def test_a_connection_is_for_one_request(empty_server):
    """Bytes after the request are not read."""
    with Connection(str(empty_server.control)) as connection:
        request = b"%s HTTP/1.1\r\nHost: localhost\r\n\r\n"
        connection.send(request % b"GET /config" + request % b"DELETE /config")
        assert connection.response().status == 200
        assert connection.is_closed()
    assert empty_server.api("GET", "/config").status == 200


def test_malformed_http_closes_only_its_connection(empty_server):
    for garbage in (b"nonsense\r\n\r\n", b"\x16\x03\x01\x02\x00", b"GET /config HTTP/9.9\r\n\r\n", b""):
        with Connection(str(empty_server.control)) as connection:
            connection.send(garbage)
            connection.socket.shutdown(socket.SHUT_WR)
            assert b" 200 " not in connection.rest()
    assert empty_server.api("GET", "/config").status == 200


# --- Bodies


@pytest.mark.parametrize(
    "body, location",
    [
        ("", (0, 1, 1)),
        ("{", (1, 1, 2)),
        ('{"a": 1,\n x}', (10, 2, 2)),
        ('{"listeners": {},\n "listeners": {}}', (29, 2, 12)),
        ("{} {}", (3, 1, 4)),
        (b"{\n\xff}", (2, 2, 1)),
        ("{} /* no end", (3, 1, 4)),
    ],
)
def test_a_json_error_has_its_location(api, body, location):
    response = api("PUT", "/config", body)
    assert answered(response) == INVALID_JSON
    assert tuple(response.json()["location"].values()) == location
    assert list(response.json()["location"]) == ["offset", "line", "column"]


@pytest.mark.parametrize(
    "path, body, detail",
    [
        ("/config", {"rutes": []}, 'rutes: there is no such option; did you mean "routes"?'),
        ("/config", [], "expected an object"),
        ("/config/listeners/nonsense", {"pass": "routes"}, "listeners/nonsense: "),
        ("/config/listeners/*:1", {"pass": "routs"}, "listeners/*:1/pass: "),
        ("/config/applications/my%20app", {"type": "php"}, "applications/my app: "),
        ("/config/routes/0", {}, "routes/0: "),
        ("/config/applications/x", {"type": "python"}, 'applications/x/type: "python"'),
    ],
)
def test_an_invalid_option_is_named_by_its_path(api, path, body, detail):
    response = api("PUT", path, body)
    assert answered(response) == INVALID
    assert detail in response.json()["detail"]
    assert "location" not in response.json()
    assert api("GET", "/config").json() == INITIAL


def test_comments_and_a_byte_order_mark_are_accepted(api):
    body = '\ufeff// first\n{"routes": /* all */ [\n {"action": {"return": 204}} // "last"\n]}'
    assert api("PUT", "/config", body).json() == DONE
    assert api("GET", "/config").json() == {"routes": [returning(204)]}


def test_large_bodies_are_rejected_quickly(empty_server, api):
    began = time.monotonic()
    deep = api("PUT", "/config", "[" * 10_000)
    assert answered(deep) == INVALID_JSON and "at most 127 levels" in deep.json()["detail"]
    deep = api("PUT", "/config", '{"a":' * 10_000 + "1" + "}" * 10_000)
    assert answered(deep) == INVALID_JSON
    long = api("PUT", "/config", b" " * (10 << 20))
    assert answered(long) == INVALID and "at most 4194304" in long.json()["detail"]
    assert answered(api("PUT", "/config", b" " * (20 << 20))) == (413, "Payload Too Large.")
    with Connection(str(empty_server.control)) as connection:
        chunked = connection.request("PUT", "/config", body=(b" " * (1 << 20) for _ in range(20)))
    assert answered(chunked) == (413, "Payload Too Large.")
    assert time.monotonic() - began < 10, "5 s are enough even on a busy machine"
    assert api("GET", "/config").json() == INITIAL


def test_a_body_that_ends_early_changes_nothing(empty_server, api):
    with Connection(str(empty_server.control)) as connection:
        connection.send(b'PUT /config HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"routes": []')
        connection.socket.shutdown(socket.SHUT_WR)
        assert b" 200 " not in connection.rest()
    assert api("GET", "/config").json() == INITIAL


# --- Edits


def test_a_value_is_set_replaced_and_removed(api):
    assert api("PUT", "/config/settings", {"http": {"max_body_size": 1}}).json() == DONE
    assert api("PUT", "/config/settings/http/max_body_size", "2").json() == DONE
    assert api("GET", "/config/settings/http").json() == {"max_body_size": 2}
    assert api("DELETE", "/config/settings/http/max_body_size").json() == DONE
    assert api("GET", "/config/settings").json() == {"http": {}}
    assert api("DELETE", "/config/settings").json() == DONE
    assert api("GET", "/config").json() == INITIAL
    assert api("DELETE", "/config").json() == DONE
    assert api("GET", "/config").json() == {}


def test_post_adds_to_arrays_and_indexes_lead_into_them(api):
    for status in (200, 201, 203):
        assert api("POST", "/config/routes", returning(status)).json() == DONE
    assert api("PUT", "/config/routes/3", returning(204)).json() == DONE, "the index after the last"
    assert api("PUT", "/config/routes/1/action/return", "202").json() == DONE
    assert api("DELETE", "/config/routes/0").json() == DONE
    assert api("GET", "/config/routes").json() == [returning(202), returning(203), returning(204)]
    assert answered(api("PUT", "/config/routes/4", returning(205))) == NO_VALUE
    assert answered(api("POST", "/config/routes/0", returning(205))) == NOT_ALLOWED
    assert answered(api("POST", "/config/routes", {"action": {}})) == INVALID
    assert len(api("GET", "/config/routes").json()) == 3


def test_members_keep_their_order(api):
    routes = {name: [returning(200)] for name in ("z", "a", "m")}
    api("PUT", "/config/routes", routes)
    api("PUT", "/config/routes/a", [returning(201)])
    api("PUT", "/config/routes/b", [returning(202)])
    assert list(api("GET", "/config/routes").json()) == ["z", "a", "m", "b"]


def test_a_slash_in_a_name_is_escaped(api, socket_path):
    path = "/config/listeners/unix:" + str(socket_path).replace("/", "%2F")
    assert api("PUT", path, {"pass": "routes"}).json() == DONE
    assert api("GET", "/config/listeners").json() == {f"unix:{socket_path}": {"pass": "routes"}}
    assert api("GET", path + "/pass").json() == "routes"
    with Connection(str(socket_path)) as connection:
        assert connection.request("GET", "/").status == 404
    assert api("DELETE", path.replace("%2F", "%2f")).json() == DONE
    assert not socket_path.exists()


def test_any_character_of_a_name_can_be_escaped(api):
    routes = {"a b": [returning(200)], "\xe4/\u20ac": [returning(201)], "100%": [returning(202)]}
    assert api("PUT", "/config/routes", routes).json() == DONE
    assert api("GET", "/config/routes/a%20b/0/action/return").json() == 200
    assert api("GET", "/config/routes/%C3%A4%2F%E2%82%AC/0/action/return").json() == 201
    assert api("GET", "/config/routes/100%25/0/action/return").json() == 202
    assert api("DELETE", "/config/routes/%61%20b").json() == DONE
    assert list(api("GET", "/config/routes").json()) == ["\xe4/\u20ac", "100%"]


# --- Concurrent changes are not overwritten


def test_an_etag_names_the_whole_configuration(api):
    etag = api("GET", "/config").header("ETag")
    assert re.fullmatch(r'"[0-9a-f]+"', etag)
    assert api("GET", "/config/routes").header("ETag") == etag, "the ETag of the whole configuration"
    changed = api("POST", "/config/routes", returning(200))
    assert changed.header("ETag") == api("GET", "/config").header("ETag") != etag
    assert api("PUT", "/config", INITIAL).header("ETag") == etag, "the ETag depends on the text"
    assert api("GET", "/status").header("ETag") is None


def test_if_match_rejects_a_change_of_another_version(api):
    old = api("GET", "/config").header("ETag")
    api("POST", "/config/routes", returning(200))
    new = api("GET", "/config").header("ETag")
    failed = (412, "Precondition Failed.")
    for method, path in (("PUT", "/config"), ("POST", "/config/routes"), ("DELETE", "/config/routes/0")):
        for wrong in (old, f"W/{new}", "nonsense", '""'):
            assert answered(api(method, path, returning(500), {"If-Match": wrong})) == failed
    assert api("GET", "/config/routes").json() == [returning(200)]
    assert api("POST", "/config/routes", returning(201), {"If-Match": f'"other", {new}'}).json() == DONE
    assert api("PUT", "/config/routes/1", returning(202), {"If-Match": "*"}).json() == DONE
    newest = api("GET", "/config").header("ETag")
    assert api("DELETE", "/config/routes/1", headers=[("If-Match", '"other"'), ("If-Match", newest)]).json() == DONE


def test_one_of_many_changes_with_the_same_if_match_succeeds(api):
    etag = api("GET", "/config").header("ETag")
    with ThreadPoolExecutor(20) as pool:
        change = lambda n: api("POST", "/config/routes", returning(200 + n), {"If-Match": etag}).status
        statuses = list(pool.map(change, range(20)))
    assert sorted(statuses) == [200] + [412] * 19
    assert len(api("GET", "/config/routes").json()) == 1


def test_changes_of_many_clients_are_serialized(api):
    with ThreadPoolExecutor(20) as pool:
        change = lambda n: api("POST", "/config/routes", returning(200 + n)).status
        assert list(pool.map(change, range(100))) == [200] * 100
    made = [route["action"]["return"] for route in api("GET", "/config/routes").json()]
    assert sorted(made) == list(range(200, 300))


# --- Access


def test_the_socket_is_for_its_owner(empty_server):
    mode = empty_server.control.stat().st_mode
    assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600


@needs_root
def test_another_user_is_rejected():
    """Even if the socket's file permissions allow it: the kernel reports the user of the peer."""
    with start_empty() as server:
        server.control.chmod(0o666)
        script = (
            "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
            "try:\n s.sendall(b'GET /config HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'); print(s.recv(1000))\n"
            "except (BrokenPipeError, ConnectionResetError): print(b'')"
        )
        other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        asked = subprocess.run(
            [*other, "/usr/bin/python3", "-c", script, str(server.control)], capture_output=True, text=True, timeout=30
        )
        assert asked.stdout == "b''\n", asked
        wait_for(lambda: "the control socket refused user id 65534" in server.stderr)
        assert server.api("GET", "/config").status == 200


def test_a_loopback_port_is_possible(tmp_path):
    port = free_port()
    options = ["run", "--state-dir", str(tmp_path / "state"), "--control", f"127.0.0.1:{port}"]
    with Howdah(lambda _: options, ready=lambda server: "howdah" in server.stdout):
        with Connection(("127.0.0.1", port)) as connection:
            assert connection.request("GET", "/config").json() == INITIAL


def test_silent_clients_do_not_block_others(empty_server):
    silent = [Connection(str(empty_server.control)) for _ in range(100)]
    try:
        for connection in silent[::2]:
            connection.send(b"PUT /config HTTP/1.1\r\nContent-Length: 10\r\n")
        assert empty_server.api("GET", "/config").status == 200
    finally:
        for connection in silent:
            connection.close()


# --- Over TCP


def test_the_api_works_on_a_loopback_port(tmp_path):
    port = free_port()
    options = ["--control", f"127.0.0.1:{port}", "--state-dir", str(tmp_path / "state")]
    with start_empty(*options):
        with Connection(("127.0.0.1", port)) as connection:
            assert connection.request("GET", "/config").json() == INITIAL


def test_a_port_that_others_can_reach_is_rejected(tmp_path):
    command = ["run", "--control", "*:8081", "--state-dir", str(tmp_path / "state")]
    result = subprocess.run([EXECUTABLE, *command], capture_output=True, text=True, timeout=30)
    assert result.returncode == 1
    assert "can be reached from elsewhere" in result.stderr and "127.0.0.1:PORT" in result.stderr


WEB_PAGES = [{"Origin": "http://evil.example"}, {"Host": "evil.example:8081"}, {"Sec-Fetch-Site": "cross-site"}]


@pytest.mark.parametrize("headers", WEB_PAGES)
def test_requests_of_web_pages_are_rejected(tmp_path, headers):
    port = free_port()
    with start_empty("--control", f"127.0.0.1:{port}", "--state-dir", str(tmp_path / "state")):
        with Connection(("127.0.0.1", port)) as connection:
            # A browser requests an image of a page like that.
            answer = connection.request("GET", "/control/applications/app/restart", list(headers.items()))
    assert answered(answer) == (403, "Forbidden.")


def test_any_host_header_is_accepted_on_the_unix_socket(empty_server):
    with Connection(str(empty_server.control)) as connection:
        assert connection.request("GET", "/config", [("Host", "unit")]).status == 200


def test_a_client_that_closes_its_sending_side_gets_its_response(empty_server):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(empty_server.control))
        body = b'[{"action": {"return": 218}}]'
        head = b"PUT /config/routes HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        client.sendall(head + body)
        client.shutdown(socket.SHUT_WR)
        client.settimeout(30)
        received = b""
        while chunk := client.recv(65536):
            received += chunk
    assert received.startswith(b"HTTP/1.1 200 ") and b"Reconfiguration done." in received
