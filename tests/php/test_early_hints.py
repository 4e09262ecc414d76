"""headers_send(103): responses before the response of a script."""

import pytest

from support.waiting import wait_for

LINK = ("Link", "</a.css>; rel=preload")


def test_hints_arrive_while_the_script_works(folder, serve):
    go_on = folder.scratch / "go-on"
    folder.php("index.php", """
        header('Link: </a.css>; rel=preload');
        $first = headers_send(103);
        header('Link: </b.js>; rel=preload', false);
        header('content-type: text/plain');
        $second = headers_send(103);
        while (!file_exists(SCRATCH . '/go-on')) { usleep(1000); clearstatcache(); }
        header_remove('Link');
        echo json_encode([$first, $second, headers_sent(), headers_list()]);
    """)
    server = serve()
    with server.connect() as connection:
        for _ in range(2):
            go_on.unlink(missing_ok=True)
            connection.send_request("GET", "/")
            first, second = connection.head(), connection.head()
            assert (first.status, first.reason) == (103, "Early Hints")
            assert LINK in first.headers and first.header("Content-Type") is None
            assert second.all("Link") == [LINK[1], "</b.js>; rel=preload"]
            go_on.touch()
            got = connection.response()
            assert (got.status, got.interim, got.header("Link")) == (200, [], None)
            assert got.json()[:3] == [0, 0, False]


def test_nothing_is_sent_after_the_response_has_begun(folder, serve):
    result = folder.scratch / "result"
    folder.php("index.php", """
        echo 'x'; while (ob_get_level()) ob_end_flush(); flush();
        $late = headers_send(103);
        fastcgi_finish_request();
        file_put_contents(SCRATCH . '/result', json_encode([$late !== 0, headers_send(103) !== 0]));
    """)
    server = serve()
    got = server.get("/")
    assert (got.status, got.interim, got.text) == (200, [], "x")
    wait_for(lambda: result.exists() and result.read_text() == "[true,true]")


def test_a_client_with_http_1_0_gets_none(folder, serve):
    folder.php("index.php", "header('Link: </a.css>'); echo headers_send(103);")
    raw = serve().raw(b"GET / HTTP/1.0\r\n\r\n")
    assert b" 103 " not in raw and raw.endswith(b"\r\n\r\n0")


@pytest.mark.parametrize("method, body", [("HEAD", None), ("POST", b"x" * 100_000)])
def test_any_request_gets_them(folder, serve, method, body):
    folder.php("index.php", "header('Link: </a.css>'); headers_send(103); echo strlen(file_get_contents('php://input'));")
    with serve().connect() as connection:
        for _ in range(3):
            got = connection.request(method, "/", body=body)
            assert (got.status, got.interim) == (200, [103])


def test_a_script_that_sends_very_many_or_wrong_ones_harms_itself_only(folder, serve):
    folder.php("many.php", "header('X: ' . str_repeat('x', 1000)); for ($i = 0; $i < 5000; $i++) headers_send(103); echo 'end';")
    folder.php("wrong.php", "header('Content-Length: 3'); header('Transfer-Encoding: chunked'); header('Connection: close'); header('X-Sendfile: /srv/a'); header('X-Accel-Redirect: /a'); header('X-A: 1'); headers_send(103); header_remove(); echo 'four';")
    folder.php("only.php", "headers_send(103); exit;")
    folder.php("switch.php", "headers_send(101); headers_send(100); headers_send(199); echo 'end';")
    folder.php("dies.php", "headers_send(103); posix_kill(getmypid(), 9);")
    server = serve()
    with server.connect() as connection:
        got = connection.request("GET", "/many.php")
        assert (got.text, len(got.interim) < 20) == ("end", True)
        connection.send_request("GET", "/wrong.php")
        assert [name for name, _ in connection.head().headers if not name.startswith("X-Powered")] == ["X-A"]
        assert connection.response().text == "four"
        assert (connection.request("GET", "/only.php").interim, connection.request("GET", "/only.php").text) == ([103], "")
        assert connection.request("GET", "/switch.php").interim == [199]
        assert connection.request("GET", "/dies.php").status == 502
        assert connection.request("GET", "/many.php").text == "end"


def test_a_fork_sends_none(folder, serve):
    folder.php("index.php", "if (!($child = pcntl_fork())) { headers_send(103); exit; } pcntl_waitpid($child, $status); echo 'parent';")
    got = serve().get("/")
    assert (got.text, got.interim) == ("parent", [])


def test_the_configuration_sends_hints_to_browsers_that_navigate(folder, run):
    folder.php("index.php", """
        if (isset($_GET['wait'])) { while (!file_exists(SCRATCH . '/go-on')) { usleep(1000); clearstatcache(); } }
        http_response_code((int) ($_GET['status'] ?? 200));
    """)
    (folder.root / "a.css").write_text("a {}")
    hints = ["</a.css>; rel=preload", "<https://cdn.example>; rel=preconnect"]
    action = {"pass": "applications/app", "early_hints": hints}
    server = run({
        "listeners": {"127.0.0.1:{port}": {"pass": "routes"}},
        "routes": [{"action": {"share": f"{folder.root}$uri", "types": ["!application/x-httpd-php"], "fallback": action}}],
        "applications": {"app": {"type": "php", "root": str(folder.root), "script": "index.php", "processes": 1}},
    })
    with server.connect() as connection:
        connection.send_request("GET", "/page?wait=1", headers={"Sec-Fetch-Mode": "navigate"})
        hint = connection.head()
        assert (hint.status, hint.all("Link"), len(hint.headers)) == (103, hints, 2)
        (folder.scratch / "go-on").touch()
        response = connection.response()
        assert (response.status, response.all("Link")) == (200, hints)

        for method, target, headers in (
            ("POST", "/page", {}), ("GET", "/page", {"Sec-Fetch-Mode": "cors"}), ("GET", "/page?status=404", {"Sec-Fetch-Mode": "cors"}),
        ):
            connection.send_request(method, target, headers=headers)
            head = connection.response(method)
            assert head.status in (200, 404) and head.all("Link") == (hints if head.status == 200 else [])
        connection.send_request("GET", "/a.css")
        assert connection.response().all("Link") == []
