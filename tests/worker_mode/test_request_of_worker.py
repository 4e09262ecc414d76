"""A request in worker mode sees its own superglobals, input, headers and session, and the state of the boot."""

import json

import pytest

WORKER_SITE = {
    "boot": "$_SERVER['BOOT_VALUE'] = 'of the boot'; $_ENV['DOTENV'] = 'kept'; putenv('BOOT_ENV=boot');"
    "final class Counter { public static int $count = 0; public static array $seen = []; }",
    "env": {"CONFIGURED": "yes"},
}


def test_one_process_answers_and_keeps_its_state(worker_site):
    path = worker_site.page("echo getmypid(), ' ', ++Counter::$count;")
    first, second, third = [worker_site.server.get(path).text.split() for _ in range(3)]
    assert first[0] == second[0] == third[0]
    assert int(third[1]) == int(second[1]) + 1 == int(first[1]) + 2


def test_superglobals_are_those_of_the_request(worker_site):
    path = worker_site.page(
        "echo json_encode([$_GET, $_POST, $_COOKIE, $_REQUEST, array_keys($_FILES), $_SERVER['REQUEST_METHOD'],"
        "$_SERVER['QUERY_STRING'] ?? null, $_SERVER['HTTP_X_USER'] ?? null, $_SERVER['CONTENT_TYPE'] ?? null,"
        "$_SERVER['PHP_AUTH_USER'] ?? null, getenv('HTTP_X_USER'), file_get_contents('php://input')]);"
    )
    form = "application/x-www-form-urlencoded"
    full = worker_site.server.request(
        "POST",
        path + "?g=1",
        {"Content-Type": form, "Cookie": "c=3", "X-User": "ada", "Authorization": "Basic YWRhOnNlY3JldA=="},
        "p=2",
    )
    assert full.json() == [
        {"g": "1"}, {"p": "2"}, {"c": "3"}, {"g": "1", "p": "2"}, [], "POST", "g=1", "ada", form, "ada", "ada", "p=2",
    ]  # fmt: skip
    empty = worker_site.server.get(path)
    assert empty.json() == [[], [], [], [], [], "GET", "", None, None, None, False, ""]


def test_entries_of_the_boot_stay_and_those_of_a_request_do_not(worker_site):
    path = worker_site.page(
        "echo json_encode([$_SERVER['BOOT_VALUE'], $_SERVER['MINE'] ?? null, $_ENV['DOTENV'] ?? null,"
        "$_ENV['MINE'] ?? null, getenv('BOOT_ENV'), getenv('MINE'), $_SERVER['CONFIGURED'], $_SERVER['HOWDAH_WORKER']]);"
        "$_SERVER['MINE'] = $_ENV['MINE'] = 'secret'; $_SERVER['BOOT_VALUE'] = 'changed'; $_ENV['DOTENV'] = 'changed';"
        "putenv('MINE=secret'); putenv('BOOT_ENV=changed');"
    )
    expected = ["of the boot", None, "kept", None, "boot", False, "yes", "1"]
    assert [worker_site.server.get(path).json() for _ in range(3)] == [expected] * 3


def test_uploaded_files_are_removed_after_their_request(worker_site):
    path = worker_site.page(
        "$old = Counter::$seen; $new = $_FILES['f']['tmp_name'] ?? null; Counter::$seen = [$new];"
        "echo json_encode([$new ? file_get_contents($new) : null, count($_FILES), array_filter($old, 'file_exists')]);"
    )
    body = '--b\r\nContent-Disposition: form-data; name="f"; filename="x.txt"\r\n\r\nthe file\r\n--b--\r\n'
    upload = {"Content-Type": "multipart/form-data; boundary=b"}
    for _ in range(2):
        assert worker_site.server.post(path, body, upload).json() == ["the file", 1, []]
    assert worker_site.server.get(path).json() == [None, 0, []]


def test_a_body_that_no_script_reads_does_not_disturb_the_next_request(worker_site):
    silent, reads = worker_site.page("echo 'x';"), worker_site.page("echo strlen(file_get_contents('php://input'));")
    with worker_site.server.connect() as connection:
        for length in [1, 300_000, 5]:
            assert connection.request("POST", silent, body=b"x" * length).text == "x"
            assert connection.request("POST", reads, body=b"y" * length).text == str(length)


def test_a_kept_stream_of_the_input_is_closed_after_its_request(worker_site):
    keep = worker_site.page("Counter::$seen = [fopen('php://input', 'r')]; echo fread(Counter::$seen[0], 3);")
    use = worker_site.page("echo gettype(Counter::$seen[0]);")
    assert worker_site.server.post(keep, "abcdef").text == "abc"
    assert worker_site.server.get(use).text == "resource (closed)"


def test_headers_and_status_do_not_leak(worker_site):
    sets = worker_site.page(
        "http_response_code(418); header('X-Mine: 1'); setcookie('user', 'ada'); header_register_callback(function () {"
        "header('X-Callback: 1'); }); echo 'a';"
    )
    plain = worker_site.page("echo json_encode([http_response_code(), headers_list()]);")
    first = worker_site.server.get(sets)
    assert (first.status, first.header("X-Mine"), first.header("X-Callback")) == (418, "1", "1")
    second = worker_site.server.get(plain)
    assert (second.status, second.header("X-Mine"), second.header("Set-Cookie")) == (200, None, None)
    assert second.json()[0] == 200 and not any("Mine" in line for line in second.json()[1])


def test_a_session_belongs_to_its_client(worker_site):
    path = worker_site.page(
        "if (isset($_GET['peek'])) { echo json_encode($_SESSION ?? null); return; }"
        "session_save_path(SCRATCH); session_start(); $_SESSION['user'] ??= $_GET['user'];"
        "echo json_encode([$_SESSION['user'], session_id() !== '']);"
    )

    def cookie_of(response):
        return {"Cookie": response.all("Set-Cookie")[0].split(";")[0]}

    ada, bob = [cookie_of(worker_site.server.get(f"{path}?user={user}")) for user in ("ada", "bob")]
    for _ in range(3):
        assert worker_site.server.get(path + "?user=x", ada).json() == ["ada", True]
        assert worker_site.server.get(path + "?user=x", bob).json() == ["bob", True]
        assert worker_site.server.get(path + "?peek").text == "null", "no session without session_start()"


def test_filter_input_reads_the_request(worker_site):
    path = worker_site.page("echo json_encode([filter_input(INPUT_GET, 'a'), filter_input(INPUT_COOKIE, 'c')]);")
    assert worker_site.server.get(path + "?a=1", {"Cookie": "c=2"}).json() == ["1", "2"]
    assert worker_site.server.get(path).json() == [None, None]


def test_filters_of_the_server_variables_see_their_own_request(worker_site):
    reads = worker_site.page(
        "$mine = filter_input(INPUT_SERVER, 'HTTP_X_MINE'); $_SERVER['HTTP_X_MINE'] = 'changed';"
        "echo json_encode([$mine, filter_has_var(INPUT_SERVER, 'HTTP_X_MINE'), filter_input(INPUT_SERVER, 'REQUEST_METHOD'),"
        "filter_input(INPUT_SERVER, 'HTTP_X_MINE')]);"
    )
    # Its shutdown function is the first that asks for the filter's copy.
    late = worker_site.page(
        "register_shutdown_function(fn () => print(json_encode(filter_input(INPUT_SERVER, 'HTTP_X_MINE'))));"
    )
    for name in ("ada", "bob"):
        assert worker_site.server.get(reads, {"X-Mine": name}).json() == [name, True, "GET", name]
        assert worker_site.server.get(late, {"X-Mine": name}).json() == name
        assert worker_site.server.get(late).json() is None
        assert worker_site.server.get(reads).json() == [None, False, "GET", None]


def test_many_and_long_variables_arrive_and_are_gone_afterwards(worker_site):
    path = worker_site.page("echo json_encode(array_filter($_SERVER, fn ($key) => str_contains($key, 'X_'), ARRAY_FILTER_USE_KEY));")
    for count in (80, 0, 3):
        headers = {f"X-{number}": "v" * (number * 20) for number in range(count)}
        assert worker_site.server.get(path, headers).json() == ({f"HTTP_X_{n}": "v" * (n * 20) for n in range(count)} or [])


@pytest.mark.parametrize(
    "keep",
    {
        "copy": "Counter::$seen = ['all' => $_SERVER];",
        "reference": "Counter::$seen = ['all' => &$_SERVER];",
        "entries": "foreach ($_SERVER as $name => &$value) { Counter::$seen['all'][$name] = &$value; }",
        "iterator": "Counter::$seen = ['all' => iterator_to_array($it = new ArrayIterator($_SERVER)), 'it' => $it];",
        "generator": "$g = (function () { foreach ($_SERVER as $n => $v) { yield $n => $v; } })(); $g->current();"
        " Counter::$seen = ['all' => $_SERVER, 'g' => $g];",
        "changed": "$_SERVER['OWN'] = 1; $_SERVER['HTTP_X_USER'] .= '!'; unset($_SERVER['REQUEST_METHOD']);"
        " Counter::$seen = ['all' => ['HTTP_X_USER' => rtrim($_SERVER['HTTP_X_USER'], '!')]];",
        "unset": "Counter::$seen = ['all' => ['HTTP_X_USER' => $_SERVER['HTTP_X_USER']]]; unset($GLOBALS['_SERVER']);",
        "string": "Counter::$seen = ['all' => ['HTTP_X_USER' => $_SERVER['HTTP_X_USER']]];",
    }.items(),
    ids=lambda keep: keep[0],
)
def test_kept_server_variables_stay_those_of_their_request(worker_site, keep):
    """A worker uses the table of $_SERVER again, unless a script has it."""
    keeps = worker_site.page(keep[1])
    sees = worker_site.page(
        "echo json_encode([Counter::$seen['all']['HTTP_X_USER'] ?? null, $_SERVER['HTTP_X_USER'] ?? null,"
        "$_SERVER['OWN'] ?? null, $_SERVER['REQUEST_METHOD'], $_SERVER['PHP_AUTH_USER'] ?? null, $_SERVER['QUERY_STRING'],"
        "$_SERVER['BOOT_VALUE'], count($_SERVER), array_key_last($_SERVER), strlen($_SERVER['REMOTE_PORT']) > 1]);"
    )
    with worker_site.server.connect() as connection:
        for user in ("ada", "grace"):
            before = connection.request("GET", sees, {"X-User": "eve"}).json()
            connection.request("GET", keeps, {"X-User": user})
            for other in ("bob", "a-longer-name", ""):
                expected = [user, other, None, "GET", None, f"q={other}", "of the boot", *before[7:]]
                assert connection.request("GET", f"{sees}?q={other}", {"X-User": other}).json() == expected
            basic = {"X-User": "bob", "Authorization": "Basic YWRhOnNlY3JldA=="}
            assert connection.request("GET", sees, basic).json()[4] == "ada"
            assert connection.request("GET", sees).json()[:5] == [user, None, None, "GET", None]
            assert connection.request("GET", sees, {"X-Others": "1", "X-User": "x"}).json()[:4] == [user, "x", None, "GET"]
            assert connection.request("GET", sees, {"X-User": "y", "X-Others": "1"}).json()[:4] == [user, "y", None, "GET"]


def test_request_time_is_that_of_the_request(worker_site):
    path = worker_site.page("echo abs(microtime(true) - $_SERVER['REQUEST_TIME_FLOAT']) < 5 ? 'now' : 'old';")
    assert [worker_site.server.get(path).text for _ in range(2)] == ["now", "now"]


def test_streaming_and_the_client_that_leaves(worker_site):
    pid = worker_site.worker()
    path = worker_site.page(
        "touch(SCRATCH . '/streams'); while (true) { echo str_repeat('x', 8192); flush(); usleep(1000); }"
    )
    with worker_site.server.connect() as connection:
        connection.send_request("GET", path)
        response, pieces = connection.stream()
        assert response.status == 200 and next(pieces)
    # The handler ends, and the worker goes on.
    assert worker_site.worker() == pid
    ignores = worker_site.page(
        "ignore_user_abort(true); echo 'x'; flush(); await(SCRATCH . '/gone');"
        "do { echo str_repeat('x', 8192); flush(); usleep(1000); } while (!connection_aborted());"
        "file_put_contents(SCRATCH . '/status', connection_status());"
    )
    with worker_site.server.connect() as connection:
        connection.send_request("GET", ignores)
        response, pieces = connection.stream()
        assert next(pieces)
    (worker_site.scratch / "gone").touch()
    assert worker_site.value("[connection_status(), ignore_user_abort(), getmypid()]") == [0, 0, pid]
    assert (worker_site.scratch / "status").read_text() == "1"


def test_finish_request_answers_before_the_handler_ends(worker_site):
    path = worker_site.page(
        "echo 'early'; fastcgi_finish_request(); await(SCRATCH . '/answered'); touch(SCRATCH . '/went-on'); echo 'late';"
    )
    assert worker_site.server.get(path).text == "early"
    (worker_site.scratch / "answered").touch()
    assert json.loads(worker_site.get("echo json_encode(file_exists(SCRATCH . '/went-on'));").text) is True


def test_head_has_no_body(worker_site):
    path = worker_site.page("echo 'body';")
    assert worker_site.server.request("HEAD", path).body == b""
    assert worker_site.server.get(path).text == "body"
