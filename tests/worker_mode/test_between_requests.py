"""Code of the worker script that runs between two requests, as the end of a framework's own request does."""

import pytest

LOOP = """
class Later { public static string $code = ''; }
$handler = static function (): void { require __DIR__ . parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH); };
while (howdah\\handle_request($handler)) { $code = Later::$code; Later::$code = ''; eval($code); }
"""


@pytest.fixture
def site(start_worker):
    return start_worker(loop=LOOP)


def then(code: str) -> str:
    """A page after whose response this code runs."""
    return f"Later::$code = {php_string(code)}; echo getmypid();"


def php_string(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def test_a_session_is_written_and_not_seen_by_the_next_client(site):
    login = site.get("session_start(); $_SESSION['user'] = 'ada'; echo session_id();")
    cookie = {"Cookie": f"PHPSESSID={login.text}"}
    # The session's identifier is still set between the requests.
    site.get(then("session_start(); $_SESSION['seen'] = 1;"), cookie)
    peek = "json_encode([$_SESSION ?? null, session_status() === PHP_SESSION_NONE, session_id()])"
    assert site.value(f"json_decode({peek})") == [None, True, ""]
    assert site.get("session_start(); echo json_encode($_SESSION);", cookie).json()["user"] == "ada", "its lock is free"


def test_a_session_does_not_stay_locked_while_the_worker_waits(start_worker):
    site = start_worker(loop=LOOP, processes=2)
    login = site.get("session_start(); $_SESSION['user'] = 'ada'; echo session_id();")
    cookie = {"Cookie": f"PHPSESSID={login.text}"}
    for _ in range(4):
        assert site.get("session_start(); " + then("session_id($_COOKIE['PHPSESSID']); session_start();"), cookie).status == 200
        for _ in range(3):
            assert site.get("session_start(); echo $_SESSION['user'];", cookie).text == "ada"


@pytest.mark.parametrize(
    "code, logged",
    [
        ("ob_start(); echo 'mail'; file_put_contents(SCRATCH . '/mail', ob_get_clean());", None),
        ("echo 'written-between';", "written-between"),
        ("ob_start(); echo 'kept-in-a-buffer';", "kept-in-a-buffer"),
        ("register_shutdown_function(fn () => print('at-the-end'));", "at-the-end"),
        ("header('X-Between: 1'); http_response_code(404); setcookie('between', '1');", None),
        ("set_error_handler(fn () => true); ini_set('precision', 5); putenv('BETWEEN=1'); chdir('/usr');", None),
        ("throw_and_catch();", None),
    ],
)
def test_nothing_of_it_reaches_the_next_response(site, code, logged):
    code = code.replace("throw_and_catch();", "try { throw new Exception('x'); } catch (Exception) { }")
    pid = site.get(then(code)).text
    after = site.get(
        "echo json_encode([getmypid(), ini_get('precision'), getenv('BETWEEN'), getcwd() === '/usr', headers_list(),"
        " set_error_handler(null), ob_get_level() > 1]);"
    )
    assert after.status == 200 and not [name for name, _ in after.headers if name.lower() in ("x-between", "set-cookie")]
    worker, precision, variable, has_moved, headers, handler, has_buffer = after.json()
    assert str(worker) == pid, "the worker goes on"
    assert (precision, variable, has_moved, handler, has_buffer) == ("14", False, False, None, False)
    assert not any("Between" in header for header in headers)
    if logged:
        site.server.wait_for_log_line(logged)
    if "mail" in code:
        assert (site.scratch / "mail").read_text() == "mail"


def test_its_last_output_is_in_the_log_when_the_script_leaves_its_loop(site):
    first = site.get(then("ob_start(); echo 'farewell'; exit;")).text
    assert site.get("echo getmypid();").text != first
    site.server.wait_for_log_line("farewell")
