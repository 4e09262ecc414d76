"""The changes that a request makes in PHP do not reach the next one, and those of the boot stay."""

import pytest

WORKER_SITE = {
    "boot": "ini_set('precision', '7'); date_default_timezone_set('Asia/Tokyo');"
    "set_error_handler(function ($level, $message) { echo \"boot handler: $message\"; return true; });"
    "register_tick_function(function () {}); final class Kept { public static array $things = []; }"
    # The file that libxml opens for `probe://x`, if it does, and the options of its context.
    "final class Probe { public $context; public static $seen; function url_stat() { return []; } function stream_open($path) { "
    "self::$seen = [$path, $this->context ? stream_context_get_options($this->context) : []]; return false; } }"
    "function probe() { ob_start(); Probe::$seen = []; stream_wrapper_register('probe', Probe::class); (new DOMDocument)->load('probe://x');"
    "stream_wrapper_unregister('probe'); ob_end_clean(); return Probe::$seen; }",
    "ini": {"error_reporting": "32767"},
}

# The code of a request → an expression that must have the same value after it as before.
CHANGES = {
    "a setting": ("ini_set('user_agent', 'mine'); ini_set('precision', '3');", "[ini_get('user_agent'), ini_get('precision')]"),
    "ini_restore": ("ini_restore('precision');", "[ini_get('precision'), 1 / 3]"),
    "error_reporting": ("error_reporting(0);", "error_reporting()"),
    "set_time_limit": ("set_time_limit(7);", "ini_get('max_execution_time')"),
    "memory_limit": ("ini_set('memory_limit', '777M');", "ini_get('memory_limit')"),
    "include_path": ("set_include_path('/nowhere');", "get_include_path()"),
    "ignore_user_abort": ("ignore_user_abort(true);", "ignore_user_abort()"),
    "timezone": ("date_default_timezone_set('Europe/Berlin');", "date_default_timezone_get()"),
    "locale": ("setlocale(LC_ALL, 'C.UTF-8', 'C.utf8', 'POSIX');", "setlocale(LC_ALL, 0)"),
    "folder": ("chdir('/');", "getcwd()"),
    "umask": ("umask(0o777);", "umask()"),
    "environment": ("putenv('LEFT=1'); putenv('PATH=/nowhere');", "[getenv('LEFT'), getenv('PATH')]"),
    "error handler": ("set_error_handler(fn () => true);", "(function () { ob_start(); trigger_error('x'); return ob_get_clean(); })()"),
    "removed error handler": ("restore_error_handler();", "(function () { ob_start(); trigger_error('x'); return ob_get_clean(); })()"),
    "exception handler": ("set_exception_handler(fn () => print('leaked'));", "set_exception_handler(null)"),
    "last error": ("set_error_handler(null); @trigger_error('x');", "error_get_last()"),
    "output buffers": ("ob_start(); ob_start(); echo 'a';", "ob_get_level()"),
    "stream wrapper": ("stream_wrapper_register('mine', Kept::class);", "in_array('mine', stream_get_wrappers())"),
    "removed stream wrapper": ("stream_wrapper_unregister('data');", "file_get_contents('data:,x')"),
    "default context": ("stream_context_set_default(['http' => ['header' => 'Authorization: mine']]);",
                        "stream_context_get_options(stream_context_get_default())"),
    "strtok": ("strtok('a b c', ' ');", "(function () { ob_start(); $token = strtok(' '); ob_end_clean(); return $token; })()"),
    "random seed": ("mt_srand(5);", "(function () { $n = mt_rand(); mt_srand(5); return $n === mt_rand(); })()"),
    "session name": ("session_name('mine');", "session_name()"),
    "session handler": ("session_set_save_handler(new SessionHandler());", "ini_get('session.save_handler')"),
    "signal mask": ("pcntl_sigprocmask(SIG_BLOCK, [SIGUSR1]);", "(function () { pcntl_sigprocmask(SIG_UNBLOCK, [SIGUSR2], $old); return $old; })()"),
    "internal encoding": ("mb_internal_encoding('ISO-8859-1');", "[mb_internal_encoding(), mb_strlen(\"\\u{e4}\")]"),
    "substitute character": ("mb_substitute_character('none');", "mb_substitute_character()"),
    "mbstring's language": ("mb_language('ja');", "mb_language()"),
    "detect order": ("mb_detect_order(['EUC-JP']);", "mb_detect_order()"),
    "output encoding": ("mb_http_output('SJIS');", "mb_http_output()"),
    "XML errors": ("libxml_use_internal_errors(true); simplexml_load_string('<');",
                   "[libxml_use_internal_errors(), count(libxml_get_errors())]"),
    "XML stream context": ("libxml_set_streams_context(stream_context_create(['http' => ['header' => 'Authorization: mine']]));", "probe()"),
    "XML entity loader": ("libxml_set_external_entity_loader(fn () => null);", "probe()"),
    "XML without files": ("libxml_disable_entity_loader(true);", "probe()"),
    "asynchronous signals": ("pcntl_async_signals(true);", "pcntl_async_signals()"),
    "autoglobal": ("$_SESSION = ['user' => 'ada'];", "isset($_SESSION)"),
    "header callback": ("header_register_callback(fn () => header('X-Left: 1'));", "headers_list()"),
    "removed file wrapper": ("stream_wrapper_unregister('file');", "[file_exists(__FILE__), strlen(file_get_contents(__FILE__)) > 0]"),
    "replaced file wrapper": ("stream_wrapper_unregister('file'); stream_wrapper_register('file', Kept::class);",
                              "[in_array('file', stream_get_wrappers()), is_file(__FILE__)]"),
    "function of the session handler": (
        "$yes = fn () => true; session_set_save_handler($yes, $yes, fn () => 'x', $yes, $yes, fn () => 0);",
        "[ini_get('session.save_handler'), session_module_name()]",
    ),
    "collector": ("gc_disable();", "gc_enabled()"),
    "output buffer with a callback": ("ob_start(fn ($text) => 'left');", "[ob_get_level(), ob_list_handlers()]"),
    "implicit flush": ("ob_implicit_flush();", "ob_get_status(true)"),
    "maximum of time in a function": ("set_time_limit(1); ini_set('max_execution_time', '2');", "ini_get('max_execution_time')"),
    "tick function": ("register_tick_function(fn () => print('tick'));", "(function () { ob_start(); declare(ticks=1) { $a = 1; } return ob_get_clean(); })()"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_the_next_request_does_not_see(change, worker_site):
    acts, expression = CHANGES[change]
    before = worker_site.value(expression)
    pid = worker_site.worker()
    assert worker_site.get(acts).status == 200
    assert worker_site.value(expression) == before
    assert worker_site.worker() == pid, "the same worker"


# The code of a request → an expression that is true in the next request, because the application must reset that.
KEPT = {
    "static property": ("Kept::$things['static property'] = 1;", "isset(Kept::$things['static property'])"),
    "global variable": ("$GLOBALS['left'] = 1;", "isset($GLOBALS['left'])"),
    "autoloader": ("spl_autoload_register(function ($class) { if ($class === 'Loaded') { eval('final class Loaded {}'); } });",
                   "class_exists('Loaded')"),
    "class and function": ("final class Declared {} function declared() {}", "class_exists('Declared', false) && function_exists('declared')"),
    "constant": ("define('LEFT_CONSTANT', 1);", "defined('LEFT_CONSTANT')"),
    "stream filter": ("final class Filter extends php_user_filter {} stream_filter_register('left.filter', Filter::class);",
                      "in_array('left.filter', stream_get_filters())"),
}  # fmt: skip


@pytest.mark.parametrize("what", KEPT)
def test_the_next_request_sees_what_the_application_must_reset(what, worker_site):
    acts, expression = KEPT[what]
    assert worker_site.value(f"(bool) ({expression})") is False
    assert worker_site.get(acts).status == 200
    assert worker_site.value(f"(bool) ({expression})") is True


def test_the_settings_of_the_boot_stay(worker_site):
    for _ in range(3):
        assert worker_site.value("[ini_get('precision'), date_default_timezone_get()]") == ["7", "Asia/Tokyo"]
        assert worker_site.get("trigger_error('x');").text == "boot handler: x"


@pytest.mark.parametrize("visible", ["public", "private"])
def test_what_the_boot_has_set_for_xml_stays(start_worker, visible):
    loader = f"final class Loader {{ {visible} static function load($id, $path) {{ return \"$path-of-boot\"; }}" \
        "static function set() { libxml_set_external_entity_loader([self::class, 'load']); } } Loader::set();"
    context = "libxml_set_streams_context(stream_context_create(['http' => ['header' => 'boot']]));"
    site = start_worker(boot=WORKER_SITE["boot"] + loader + context)
    of_boot = ["probe://x-of-boot", {"http": {"header": "boot"}}]
    pid = site.worker()
    assert site.value("probe()") == of_boot
    for change in (CHANGES["XML stream context"][0], CHANGES["XML without files"][0]):
        site.get(change)
        assert site.value("probe()") == of_boot and site.worker() == pid
    for callback in ("null", "fn () => null"):
        assert site.get(f"libxml_set_external_entity_loader({callback});").status == 200
        # A private method cannot be set again: the worker is replaced.
        assert site.value("probe()") == of_boot and (site.worker() == pid) == (visible == "public")


def test_shutdown_functions_run_at_the_end_of_their_request(worker_site):
    path = worker_site.page(
        "register_shutdown_function(function () { echo ' first'; register_shutdown_function(fn () => print(' nested')); });"
        "register_shutdown_function(function () { echo ' second'; exit; }); echo 'handler';"
        "if (isset($_GET['exit'])) { exit(' exit'); }"
    )
    assert worker_site.server.get(path).text == "handler first second"
    assert worker_site.server.get(path + "?exit").text == "handler exit first second"
    assert worker_site.get("echo 'x';").text == "x"


def test_output_buffers_are_flushed_in_their_request(worker_site):
    path = worker_site.page("ob_start(fn ($text) => strtoupper($text)); echo 'a'; ob_start(); echo 'b';")
    assert [worker_site.server.get(path).text for _ in range(2)] == ["AB", "AB"]


def test_destructors_of_a_request_run_in_it(worker_site):
    path = worker_site.page(
        "$o = new class { function __destruct() { echo ' destructed'; } };"
        "$g = (function () { try { yield 1; yield 2; } finally { echo ' finally'; } })(); $g->current(); echo 'x';"
    )
    answers = [worker_site.server.get(path).text for _ in range(3)]
    assert all(sorted(answer.split()) == ["destructed", "finally", "x"] for answer in answers), answers


def test_peak_memory_is_that_of_the_request(worker_site):
    worker_site.get("$x = str_repeat('x', 50_000_000); echo strlen($x);")
    assert worker_site.value("memory_get_peak_usage()") < 40_000_000


def test_an_exception_of_a_destructor_in_the_restore_is_logged(worker_site):
    pid = worker_site.worker()
    answer = worker_site.get(
        "final class Late { function __destruct() { throw new LogicException('late destructor'); } function __invoke() {} }"
        "set_error_handler(new Late); echo 'x';"
    )
    assert (answer.status, answer.text) == (200, "x")
    assert worker_site.worker() == pid
    worker_site.server.wait_for_log_line("ERROR", "Uncaught LogicException: late destructor")


def test_an_error_handler_that_a_session_sets_at_the_start_of_a_request_stays(start_worker):
    boot = """
    session_write_close();
    final class Waking {
        function __wakeup() { set_error_handler(function ($level, $message) { echo "session: $message "; return true; }); }
    }
    set_error_handler(function ($level, $message) { echo "boot: $message"; return true; });
    """
    site = start_worker(boot=boot, ini={"session.auto_start": "1"})
    cookie = {"Cookie": "PHPSESSID=" + site.get("$_SESSION['waking'] = new Waking; echo session_id();").text}
    for _ in range(2):
        code = "trigger_error('a'); restore_error_handler(); trigger_error('b');"
        assert site.get(code, cookie).text == "session: a boot: b"
    assert site.get("trigger_error('c');").text == "boot: c"
