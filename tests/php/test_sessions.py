"""Sessions with PHP's files handler."""

from concurrent.futures import ThreadPoolExecutor

from support.http.client import Response
from support.waiting import wait_for

START = "session_save_path(SCRATCH); session_start();"


def session_of(response: Response) -> dict[str, str]:
    (cookie,) = response.all("Set-Cookie")
    return {"Cookie": cookie.split(";")[0]}


def test_a_session_is_kept_from_request_to_request(site, server):
    path = site.page(START + "$_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1; echo $_SESSION['n'];")
    first = server.get(path)
    assert first.text == "1"
    assert first.header("Cache-Control") == "no-store, no-cache, must-revalidate"
    cookie = session_of(first)
    for number in range(2, 10):
        again = server.get(path, cookie)
        assert again.text == str(number) and again.all("Set-Cookie") == []
    assert server.get(path).text == "1", "a client without the cookie has a session of its own"


def test_requests_of_one_session_wait_for_each_other(site, server):
    path = site.page(START + "$n = $_SESSION['n'] ?? 0; usleep(2000); $_SESSION['n'] = $n + 1; echo $_SESSION['n'];")
    cookie = session_of(server.get(path))
    with ThreadPoolExecutor(4) as pool:
        answers = sorted(int(answer.text) for answer in pool.map(lambda _: server.get(path, cookie), range(30)))
    assert answers == list(range(2, 32))


def test_session_write_close_releases_the_lock(site, server):
    path = site.page(
        START + "session_write_close(); if (isset($_GET['wait'])) {"
        "touch(SCRATCH . '/closed'); await(SCRATCH . '/go'); } echo 'done';"
    )
    cookie = session_of(server.get(path))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(server.get, path + "?wait", cookie)
        wait_for((site.scratch / "closed").exists)
        assert server.get(path, cookie).text == "done"
        (site.scratch / "go").touch()
        assert waiting.result().text == "done"


def test_a_session_is_renamed_and_destroyed(site, server):
    path = site.page(
        START + "if (isset($_GET['new'])) { session_regenerate_id(true); }"
        "if (isset($_GET['end'])) { session_destroy(); $_SESSION = []; }"
        "if (isset($_GET['set'])) { $_SESSION['v'] = $_GET['set']; } echo $_SESSION['v'] ?? 'nothing';"
    )
    old = session_of(server.get(path + "?set=kept"))
    new = session_of(server.get(path + "?new", old))
    assert old != new
    assert server.get(path, new).text == "kept"
    assert server.get(path, old).text == "nothing"
    server.get(path + "?end", new)
    assert server.get(path, new).text == "nothing"


def test_a_session_is_not_visible_to_a_request_without_its_cookie(site, server):
    filled = site.page(START + "$_SESSION['secret'] = 1; echo session_id();")
    probe = site.page("echo json_encode([session_id(), $_SESSION ?? null, session_status() === PHP_SESSION_NONE]);")
    for _ in range(6):
        server.get(filled)
        assert server.get(probe).json() == ["", None, True]


def test_a_session_is_written_when_the_script_fails(site, server):
    path = site.page(
        START + "if (isset($_GET['fail'])) { $_SESSION['n'] = 'written'; fail(); } echo $_SESSION['n'] ?? 'no';"
    )
    cookie = session_of(server.get(path))
    assert server.get(path + "?fail", cookie).status == 500
    assert server.get(path, cookie).text == "written"


def test_a_custom_session_handler_works(site, server):
    code = """
        class Handler implements SessionHandlerInterface {
            public function open(string $path, string $name): bool { return true; }
            public function close(): bool { return true; }
            public function read(string $id): string { return (string) @file_get_contents(SCRATCH . "/own-$id"); }
            public function write(string $id, string $data): bool { return (bool) file_put_contents(SCRATCH . "/own-$id", $data); }
            public function destroy(string $id): bool { return true; }
            public function gc(int $lifetime): int { return 0; }
        }
        session_set_save_handler(new Handler()); session_start();
        $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1; echo $_SESSION['n'];"""
    path = site.page(code)
    cookie = session_of(server.get(path))
    assert [server.get(path, cookie).text for _ in range(3)] == ["2", "3", "4"]
