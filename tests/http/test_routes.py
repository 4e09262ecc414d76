"""Routes: each condition and each action, end to end. One server; one route per case."""

import json
from pathlib import Path

import pytest

from support.folders import Folder, readable
from support.http.client import Connection
from support.machine import free_port
from support.server import Howdah, stop_all
from support.waiting import wait_for

OTHERS = {"action": {"return": 404}}


def site(folder):
    folder.write("file.txt", "a file")
    folder.write("index.html", "an index")
    folder.write("other.htm", "another index")
    folder.write("image.png", b"png")
    folder.write("sub/inner.txt", "inner")
    folder.php("where.php", "echo json_encode(array_map(fn($k) => $_SERVER[$k] ?? null, array_combine($_GET['k'], $_GET['k'])));")
    return folder


# A condition, requests that match it, and requests that do not. A request is a target, with headers and a method if
# needed.
CONDITIONS = {
    "uri exact": ({"uri": "/a"}, ["/a", "/a?x", "/b/../a", "/%61"], ["/a/", "/A", "/ab"]),
    "uri wildcard": ({"uri": "/a/*.php"}, ["/a/.php", "/a/b/c.php"], ["/a/x", "/b/a/x.php"]),
    "uri negation": ({"uri": "!/a*"}, ["/b"], ["/a", "/ab"]),
    "uri regular expression": ({"uri": "~^/v[0-9]+$"}, ["/v1", "/v22"], ["/v", "/v1x"]),
    "uri negated regular expression": ({"uri": "!~^/v[0-9]+$"}, ["/v"], ["/v1"]),
    "uri array": ({"uri": ["/a", "/b*", "!/bad"]}, ["/a", "/b1"], ["/bad", "/c"]),
    "uri encoded": ({"uri": "/a%20b"}, ["/a%20b"], ["/a%2520b"]),
    "host": ({"host": "*.example.com"}, [("/", [("Host", "A.Example.Com:80")])], [("/", [("Host", "example.org")])]),
    "method": ({"method": ["GET", "PU*"]}, ["/", ("/", [], "PUT")], [("/", [], "POST")]),
    "arguments": (
        {"arguments": {"mode": "strict", "n": "!0"}},
        ["/?mode=strict&n=1", "/?n=1&mode=stric%74"],
        ["/?mode=strict", "/?mode=strict&n=0", "/?mode=lax&n=1"],
    ),
    "arguments array": ({"arguments": [{"a": "1"}, {"b": "2"}]}, ["/?a=1", "/?b=2&a=3"], ["/?a=2", "/?b=1"]),
    "query": ({"query": "a=*&b"}, ["/?a=1&b", "/?a=%26&b"], ["/?b", "/"]),
    "query empty": ({"query": ""}, ["/", "/?"], ["/?x"]),
    "cookies": ({"cookies": {"s": "x*"}}, [("/", [("Cookie", "a=1; s=xy")])], ["/", ("/", [("Cookie", "s=y")])]),
    "headers": (
        {"headers": {"X-Kind": ["a", "b*"], "Accept": "!*json*"}},
        [("/", [("X-Kind", "bb"), ("Accept", "text/html")])],
        [("/", [("X-Kind", "bb")]), ("/", [("X-Kind", "c"), ("Accept", "x")]), ("/", [("X-Kind", "a"), ("Accept", "a/json")])],
    ),
    "source": ({"source": "127.0.0.1"}, ["/"], []),
    "source other": ({"source": ["10.0.0.0/8", "!127.0.0.1", "::1"]}, [], ["/"]),
    "source ranges and ports": ({"source": "127.0.0.1-127.0.0.9:1-65535"}, ["/"], []),
    "destination": ({"destination": "127.0.0.0/8:{port}"}, ["/"], []),
    "destination other port": ({"destination": "*:1"}, [], ["/"]),
    "scheme": ({"scheme": "http"}, ["/"], []),
    "scheme other": ({"scheme": "https"}, [], ["/"]),
    "if": ({"if": "$arg_debug"}, ["/?debug=1"], ["/?debug=", "/?debug=0", "/"]),
    "if negated": ({"if": "!$header_x_skip"}, ["/"], [("/", [("X-Skip", "yes")])]),
    "all of them": ({"uri": "/a*", "method": "GET", "arguments": {"x": "1"}}, ["/ab?x=1"], ["/ab", "/b?x=1"]),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("routes")
    folder = site(Folder(path))
    readable(path)
    server = Howdah.run({"routes": [OTHERS], "applications": {"app": {"type": "php", "root": str(folder.root)}}})
    server.folder = folder
    yield server
    stop_all([server])


def routed(server, steps, settings=None):
    """Replaces all steps by these."""
    config = server.api("GET", "/config").json()
    config["routes"] = steps
    config["settings"] = settings or {}
    answer = server.api("PUT", "/config", config)
    assert answer.status == 200, answer.text


def ask(server, request):
    target, headers, method = (request, [], "GET") if isinstance(request, str) else (*request, "GET")[:3]
    return server.request(method, target, headers)


@pytest.mark.parametrize("condition, yes, no", CONDITIONS.values(), ids=CONDITIONS)
def test_conditions_match(server, condition, yes, no):
    condition = json.loads(json.dumps(condition).replace("{port}", str(server.port)))
    routed(server, [{"match": condition, "action": {"return": 299}}, OTHERS])
    assert {str(request): ask(server, request).status for request in yes} == {str(request): 299 for request in yes}
    assert {str(request): ask(server, request).status for request in no} == {str(request): 404 for request in no}


def test_the_first_matching_step_is_taken(server):
    routed(server, [{"match": {"uri": "/a"}, "action": {"return": 201}}, {"action": {"return": 202}}, OTHERS])
    assert [server.get(path).status for path in ("/a", "/b")] == [201, 202]


def test_no_matching_step_gives_404(server):
    routed(server, [{"match": {"uri": "/a"}, "action": {"return": 201}}])
    assert server.get("/b").status == 404


# --- Actions


def test_return_with_a_location(server):
    routed(server, [{"action": {"return": 301, "location": "https://$host$request_uri"}}])
    answer = server.get("/a%20b?c=d", headers=[("Host", "example.com")])
    assert (answer.status, answer.header("Location")) == (301, "https://example.com/a%20b?c=d")


def test_share_of_several_paths_with_variables(server):
    root = server.folder.root
    routed(server, [{"action": {"share": [f"{root}/$arg_where$uri", f"{root}/sub$uri", f"{root}$uri"]}}])
    assert server.get("/file.txt").text == "a file"
    assert server.get("/inner.txt").text == "inner"
    assert server.get("/inner.txt?where=sub").text == "inner"
    assert server.get("/nothing").status == 404


def test_share_serves_the_index(server):
    routed(server, [{"action": {"share": f"{server.folder.root}$uri", "index": "other.htm"}}])
    assert server.get("/").text == "another index"


def test_share_with_types(server):
    share = {"share": f"{server.folder.root}$uri", "types": ["image/*", "!image/gif"]}
    routed(server, [{"action": share}])
    assert [server.get(path).status for path in ("/image.png", "/file.txt")] == [200, 403]
    routed(server, [{"action": {**share, "fallback": {"return": 299}}}])
    assert [server.get(path).status for path in ("/image.png", "/file.txt", "/nothing")] == [200, 299, 299]


def test_share_with_chroot_and_links(server):
    root = server.folder.root
    (root / "sub/out.txt").unlink(missing_ok=True)
    (root / "sub/out.txt").symlink_to(root / "file.txt")
    share = {"share": f"{root}$uri", "chroot": f"{root}/sub"}
    routed(server, [{"action": share}])
    assert [server.get(path).status for path in ("/sub/inner.txt", "/file.txt", "/sub/out.txt")] == [200, 404, 404]
    routed(server, [{"action": {"share": f"{root}$uri", "follow_symlinks": False}}])
    assert [server.get(path).status for path in ("/sub/inner.txt", "/sub/out.txt")] == [200, 404]
    routed(server, [{"action": {"share": f"{root}$uri", "follow_symlinks": True}}])
    assert server.get("/sub/out.txt").text == "a file"


def test_share_without_mounts(server):
    # /proc is another file system below /.
    routed(server, [{"action": {"share": "/$uri", "follow_symlinks": True, "traverse_mounts": False}}])
    assert server.get("/proc/version").status == 404
    routed(server, [{"action": {"share": "/$uri", "follow_symlinks": True}}])
    assert server.get("/proc/version").status == 200


def test_fallback_of_a_fallback(server):
    root = server.folder.root
    routed(server, [{"action": {"share": f"{root}/a$uri", "fallback": {"share": f"{root}/sub$uri", "fallback": {"return": 299}}}}])
    assert [server.get(path).status for path in ("/inner.txt", "/nothing")] == [200, 299]


def test_the_application_sees_the_rewritten_uri_and_the_query_of_the_request(server):
    query = "k[]=SCRIPT_NAME&k[]=REQUEST_URI&k[]=QUERY_STRING"
    for rewrite in ("/where.php", "/where.php?x=1"):
        routed(server, [{"match": {"uri": "/old"}, "action": {"rewrite": rewrite, "pass": "applications/app"}}, OTHERS])
        got = server.get(f"/old?{query}").json()
        assert got == {"SCRIPT_NAME": "/where.php", "REQUEST_URI": f"/old?{query}", "QUERY_STRING": query}


def test_rewrite_applies_to_the_following_steps(server):
    config = server.api("GET", "/config").json()
    config["listeners"] = {f"127.0.0.1:{server.port}": {"pass": "routes/first"}}
    config["routes"] = {
        "first": [{"action": {"rewrite": "/new$uri", "pass": "routes/second"}}],
        "second": [{"match": {"uri": "/new/a"}, "action": {"return": 299}}, OTHERS],
    }
    assert server.api("PUT", "/config", config).status == 200
    assert [server.get(path).status for path in ("/a", "/new/a")] == [299, 404]
    config["listeners"] = {f"127.0.0.1:{server.port}": {"pass": "routes"}}
    config["routes"] = [OTHERS]
    assert server.api("PUT", "/config", config).status == 200


def test_pass_with_variables(server):
    config = server.api("GET", "/config").json()
    config["listeners"] = {f"127.0.0.1:{server.port}": {"pass": "routes/$arg_to"}}
    config["routes"] = {"a": [{"action": {"return": 201}}], "b": [{"action": {"return": 202}}]}
    assert server.api("PUT", "/config", config).status == 200
    assert [server.get(f"/?to={to}").status for to in ("a", "b", "c", "")] == [201, 202, 404, 404]
    config["listeners"] = {f"127.0.0.1:{server.port}": {"pass": "routes"}}
    config["routes"] = [OTHERS]
    assert server.api("PUT", "/config", config).status == 200


def test_response_headers(server):
    headers = {"X-Uri": "$uri", "Cache-Control": "max-age=1", "Last-Modified": None, "X-Type": "$response_header_content_type"}
    action = {"share": f"{server.folder.root}$uri", "response_headers": headers}
    routed(server, [{"action": action}])
    answer = server.get("/file.txt")
    assert answer.header("X-Uri") == "/file.txt" and answer.header("Cache-Control") == "max-age=1"
    assert answer.header("Last-Modified") is None and answer.header("X-Type").startswith("text/plain")
    assert server.get("/nothing").header("X-Uri") is None, "error responses get no headers"


def test_the_request_uri_of_a_whole_url_is_its_path_and_query(server):
    routed(server, [{"action": {"return": 301, "location": "https://$host$request_uri"}}])
    raw = server.raw(b"GET http://a.example/x?y HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    assert b"\r\nLocation: https://a.example/x?y\r\n" in raw


def test_methods_that_a_file_does_not_allow_go_to_the_fallback(server):
    """As in NGINX Unit, only GET and HEAD request the file."""
    share = {"share": f"{server.folder.root}$uri", "fallback": {"return": 204}}
    routed(server, [{"action": share}])
    for method in ("POST", "OPTIONS", "DELETE"):
        assert server.request(method, "/file.txt").status == 204
    for method in ("GET", "HEAD"):
        assert server.request(method, "/file.txt").status == 200


# --- Listeners


def test_forwarded_headers_set_the_client_address_and_scheme(server):
    config = server.api("GET", "/config").json()
    forwarded = {"client_ip": "X-Forwarded-For", "protocol": "X-Forwarded-Proto", "source": "127.0.0.0/8", "recursive": True}
    saved = config["listeners"]
    config["listeners"] = {f"127.0.0.1:{server.port}": {"pass": "applications/app", "forwarded": forwarded}}
    assert server.api("PUT", "/config", config).status == 200
    target = "/where.php?k[]=REMOTE_ADDR&k[]=HTTPS&k[]=REQUEST_SCHEME"
    sent = [("X-Forwarded-For", "6.6.6.6, 1.2.3.4, 127.0.0.2"), ("X-Forwarded-Proto", "https")]
    assert server.get(target, headers=sent).json() == {"REMOTE_ADDR": "1.2.3.4", "HTTPS": "on", "REQUEST_SCHEME": "https"}
    forwarded["source"] = "10.0.0.0/8"
    assert server.api("PUT", "/config", config).status == 200
    assert server.get(target, headers=sent).json() == {"REMOTE_ADDR": "127.0.0.1", "HTTPS": None, "REQUEST_SCHEME": "http"}
    config["listeners"] = saved
    assert server.api("PUT", "/config", config).status == 200


def test_an_abstract_unix_socket_and_a_backlog(server):
    name = f"howdah-test-{server.pid}"
    routed(server, [{"action": {"return": 299}}])
    path = f"/config/listeners/unix:@{name}"
    assert server.api("PUT", path, {"pass": "routes", "backlog": 5}).status == 200
    with Connection("\0" + name) as connection:
        assert connection.request("GET", "/").status == 299
    assert server.api("DELETE", path).status == 200


# --- Logs


def test_the_format_and_the_condition_of_the_access_log(server):
    log = server.folder.scratch / "access.log"
    form = {"uri": "$uri", "status": "$status", "sent": "$body_bytes_sent", "ua": "$header_user_agent", "id": "$request_id"}
    routed(server, [{"action": {"share": f"{server.folder.root}$uri"}}])
    settings = {"path": str(log), "format": form, "if": "!$arg_quiet"}
    assert server.api("PUT", "/config/access_log", settings).status == 200
    server.get("/file.txt?quiet=1")
    server.get("/file.txt", headers=[("User-Agent", 'a "quoted" one')])
    (line,) = wait_for(lambda: log.read_text().splitlines(), "a line")
    entry = json.loads(line)
    assert len(entry.pop("id")) == 32
    assert entry == {"uri": "/file.txt", "status": "200", "sent": "6", "ua": 'a "quoted" one'}
    assert server.api("PUT", "/config/access_log/format", "\"$remote_addr $request_line\"").status == 200
    server.get("/file.txt?x")
    wait_for(lambda: log.read_text().splitlines()[-1] == "127.0.0.1 GET /file.txt?x HTTP/1.1", "a line as text")
    assert server.api("DELETE", "/config/access_log").status == 200


def test_log_route_logs_the_way_of_a_request(server):
    share = {"share": f"{server.folder.root}/none$uri", "rewrite": "/rewritten", "fallback": {"return": 299}}
    steps = [{"match": {"uri": "/other"}, "action": {"return": 298}}, {"match": {"uri": "/logged"}, "action": share}]
    routed(server, steps, {"http": {"log_route": True}})
    assert [server.get(path).status for path in ("/logged", "/lost")] == [299, 404]
    ways = {
        "/logged": ['"routes/0" discarded', '"routes/1" selected', 'URI rewritten to "/rewritten"', '"fallback" taken'],
        "/lost": ['"routes/0" discarded', '"routes/1" discarded', 'no step of "routes" matches'],
    }
    for path, way in ways.items():
        wait_for(lambda: way[-1] in server.stderr, "the last line of the log")
        lines = [line for line in server.stderr.splitlines() if f" GET {path}: " in line]
        assert len(lines) == len(way) and all(f" GET {path}: {step}" in line for line, step in zip(lines, way)), lines


def test_a_configuration_of_a_well_known_article(folder):
    """One PUT of the whole configuration, as articles about Unit show it."""
    folder.php("index.php", "phpinfo();")
    with Howdah.run({"listeners": {}, "routes": []}, ready=lambda server: "howdah" in server.stdout) as server:
        port = free_port()
        answer = server.api(
            "PUT",
            "/config",
            {
                "listeners": {f"*:{port}": {"pass": "routes"}},
                "routes": [
                    {
                        "match": {"uri": "!/index.php"},
                        "action": {"share": f"{folder.root}$uri", "fallback": {"pass": "applications/php"}},
                    },
                    {"action": {"pass": "applications/php"}},
                ],
                "applications": {
                    "php": {
                        "type": "php",
                        "root": str(folder.root),
                        "index": "index.php",
                        "processes": {"max": 120, "spare": 5, "idle_timeout": 20},
                    }
                },
            },
        )
        assert answer.json() == {"success": "Reconfiguration done."}
        server.port = port
        for path in ("/", "/index.php"):
            assert "PHP Version" in server.get(path).text


@pytest.mark.parametrize("threads", [1, 3])
def test_listen_threads_sets_the_number_of_router_threads(folder, threads):
    folder.write("file.txt", "a file")
    config = {"routes": [{"action": {"share": f"{folder.root}$uri"}}], "settings": {"listen_threads": threads}}
    with Howdah.run(config) as server:
        assert server.get("/file.txt").status == 200
        tasks = Path(f"/proc/{server.router().pid}/task").glob("*/comm")
        assert sum(task.read_text().startswith("event loop") for task in tasks) == threads


def test_a_new_connection_wakes_one_thread(folder):
    folder.write("file.txt", "a file")
    config = {"routes": [{"action": {"share": f"{folder.root}$uri"}}], "settings": {"listen_threads": 8}}
    with Howdah.run(config) as server:
        tasks = Path(f"/proc/{server.router().pid}/task").iterdir()
        loops = [task for task in tasks if (task / "comm").read_text().startswith("event loop")]

        def sleeps() -> list[int]:
            """How often each thread has gone to sleep."""
            texts = [(loop / "status").read_text() for loop in loops]
            return [int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0]) for text in texts]

        before = sleeps()
        for _ in range(500):
            assert server.get("/file.txt", headers={"Connection": "close"}).status == 200
        slept = sorted(after - before for before, after in zip(before, sleeps()))
        # Each also looks around four times a second.
        assert sum(slept[:-1]) < 250 and slept[-1] > 50, slept
