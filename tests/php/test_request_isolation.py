"""A request leaves no state in its worker. Each script leaks one kind of state; the next script looks for it."""

import os
import random
from pathlib import Path

import pytest

SITE = {
    "processes": 1,
    "environ": {"OF_THE_SERVER": "1"},
    "ini": {"display_errors": "0", "memory_limit": "64M", "output_buffering": "0"},
}

PROBE = """
    $environment = getenv(); unset($environment['REMOTE_PORT'], $environment['REQUEST_TIME'], $environment['REQUEST_TIME_FLOAT']); ksort($environment);
    $server = array_keys($_SERVER); sort($server);
    echo json_encode([
        'pid' => getmypid(),
        'environment' => $environment,
        'server' => $server,
        'globals' => array_keys($GLOBALS),
        'variables' => [$_GET, $_POST, $_COOKIE, $_FILES, $_REQUEST, file_get_contents('php://input')],
        'ini' => array_map(fn ($v) => $v['local_value'], ini_get_all()),
        'locale' => setlocale(LC_ALL, 0),
        'number' => 1.5 . '',
        'timezone' => date_default_timezone_get(),
        'folder' => getcwd(),
        'umask' => umask(),
        'include path' => get_include_path(),
        'encoding' => [mb_internal_encoding(), mb_language(), mb_substitute_character()],
        'errors' => [error_reporting(), error_get_last(), set_error_handler(null), set_exception_handler(null)],
        'libxml' => [libxml_use_internal_errors(), count(libxml_get_errors())],
        'classes' => array_slice(get_declared_classes(), -1),
        'functions' => get_defined_functions()['user'],
        'constants' => array_diff(array_keys(get_defined_constants(true)['user'] ?? []), ['SCRATCH']),
        'autoloaders' => spl_autoload_functions(),
        'wrappers' => stream_get_wrappers(),
        'filters' => stream_get_filters(),
        'included' => get_included_files(),
        'output' => [ob_get_level(), ob_list_handlers(), headers_sent(), http_response_code()],
        'headers' => array_diff(headers_list(), []),
        'session' => [session_id(), session_status(), session_save_path(), $_SESSION ?? null],
        'connection' => [connection_status(), ignore_user_abort()],
        'gc' => gc_enabled(),
        'posix' => [posix_geteuid(), posix_getegid(), posix_getpgid(0) === posix_getpgid(getmypid())],
        'signals' => preg_replace('/.*(SigBlk.*?)SigCgt.*/s', '$1', file_get_contents('/proc/self/status')),
        'cancelled' => register_shutdown_function(fn () => null),
    ]);"""

LEAKS = {
    "environment": "putenv('LEAK=1'); putenv('PATH=/leak'); putenv('TZ=Asia/Tokyo'); $_SERVER['LEAK'] = $_ENV['LEAK'] = 1;",
    "superglobals": "$_GET['x'] = $_POST['x'] = $_COOKIE['x'] = $_FILES['x'] = $_REQUEST['x'] = 1; $GLOBALS['leak'] = 1;",
    "ini_set": "ini_set('memory_limit', '32M'); ini_set('display_errors', '1'); ini_set('precision', '3'); ini_set('user_agent', 'leak'); ini_set('session.name', 'LEAK');",
    "locale": "setlocale(LC_ALL, 'C.UTF-8', 'de_DE.UTF-8', 'C.utf8'); date_default_timezone_set('Asia/Tokyo');",
    "folder": "chdir('/'); umask(0); set_include_path('/leak');",
    "mbstring": "mb_internal_encoding('ISO-8859-1'); mb_language('ja'); mb_substitute_character('none');",
    "handlers": """error_reporting(0); set_error_handler(fn () => true); set_exception_handler(fn () => null);
        spl_autoload_register(fn () => null); libxml_use_internal_errors(true); simplexml_load_string('<a>');
        stream_wrapper_unregister('http'); stream_wrapper_unregister('phar'); class Leak extends php_user_filter {}
        stream_filter_register('leak', 'Leak');""",
    "definitions": "class LeakedClass { static $n = 1; } function leaked_function() { static $n = 0; return ++$n; } define('LEAKED', 1); leaked_function();",
    "output": "ob_start(); ob_start(fn ($x) => $x); ob_start(null, 10); echo 'x'; ob_implicit_flush(); output_add_rewrite_var('leak', '1');",
    "headers": "header('X-Leak: 1'); http_response_code(404); setcookie('leak', '1'); header_register_callback(fn () => null);",
    "session": "session_save_path(SCRATCH); session_name('LEAK'); session_id('leak'); session_start(); $_SESSION['x'] = 1;",
    "abort": "ignore_user_abort(true); gc_disable(); set_time_limit(1); error_log('x', 4);",
    "signals": "pcntl_signal(SIGTERM, fn () => null); pcntl_sigprocmask(SIG_BLOCK, [SIGUSR1, SIGTERM, SIGCHLD]);",
    "exception": "throw new Exception('leak');",
    "fatal error": "ob_start(); class A { function __destruct() { throw new Exception('x'); } } $a = new A; missing();",
    "memory": "ob_start(); $x = []; while (true) { $x[] = str_repeat('x', 100000); }",
    "exit": "function f() { ob_start(); exit('x'); } f();",
    "finish": "echo 'x'; fastcgi_finish_request(); putenv('LEAK=1'); chdir('/');",
    "shutdown": "register_shutdown_function(function () { putenv('LEAK=1'); ini_set('precision', 3); chdir('/'); ob_start(); });",
    "streams": "$f = fopen('php://temp', 'w+'); $s = stream_socket_server('tcp://127.0.0.1:0'); $d = opendir('.'); $GLOBALS['keep'] = [$f, $s, $d];",
    "cycles": "for ($i = 0; $i < 20000; $i++) { $a = new stdClass; $a->self = $a; }",
    "random": "mt_srand(1); srand(1);",
}  # fmt: skip


def probe_of(site):
    path = site.page(PROBE)

    def probe():
        with site.server.connect() as connection:
            got = connection.request("GET", path).json()
        return got

    return probe


@pytest.mark.parametrize("code", LEAKS.values(), ids=LEAKS.keys())
def test_a_request_leaves_no_state_behind(site, server, code):
    probe = probe_of(site)
    probe()
    before = probe()
    leaking = site.page(code)
    for _ in range(3):
        server.request(
            "POST", leaking + "?leak=1", {"Cookie": "leak=1", "X-Leak": "1", "Authorization": "Basic eDp5"}, "leak=1"
        )
        after = probe()
        assert after == before


def test_static_variables_are_reset(site):
    path = site.page("class C { static $n = 0; } function f() { static $n = 0; return ++$n; } echo ++C::$n, f(), f();")
    assert [site.server.get(path).text for _ in range(5)] == ["112"] * 5


def test_relative_includes_are_resolved_from_the_script_folder(site, server):
    site.write("deep/part.inc", "<?php return 'deep';")
    site.write("deep/page.php", "<?php echo (include 'part.inc'), (include './part.inc'), ' ', getcwd();")
    site.write("part.inc", "<?php return 'top';")
    site.write("top.php", "<?php echo (include 'part.inc'), (include './part.inc'), ' ', getcwd(); chdir('/');")
    for _ in range(4):
        assert server.get("/deep/page.php").text == f"deepdeep {site.root}/deep"
        assert server.get("/top.php").text == f"toptop {site.root}"
        assert server.get("/deep/page.php/info").text == f"deepdeep {site.root}/deep"


def test_a_folder_that_was_replaced_is_entered_again(site, server):
    site.write("swapped/page.php", "<?php echo file_get_contents('number.txt');")
    site.write("swapped/number.txt", "1")
    assert server.get("/swapped/page.php").text == "1"
    (site.root / "swapped").rename(site.root / "former")
    site.write("swapped/page.php", "<?php echo file_get_contents('number.txt');")
    site.write("swapped/number.txt", "2")
    assert server.get("/swapped/page.php").text == "2"


def test_shutdown_functions_run_in_the_folder_of_the_worker_as_under_fpm(site, server):
    code = "<?php register_shutdown_function(fn () => print(' ' . getcwd())); echo getcwd();"
    site.write("one/page.php", code)
    site.write("two/page.php", code)
    answers = [server.get(path).text.split() for path in ("/one/page.php", "/two/page.php") * 2]
    assert [inside for inside, _ in answers] == [f"{site.root}/one", f"{site.root}/two"] * 2
    afterwards = {after for _, after in answers}
    assert len(afterwards) == 1 and str(site.root) not in afterwards.pop()


SIGNALS = "echo preg_replace('/.*(SigBlk.*?)CapInh.*/s', '$1', file_get_contents('/proc/self/status'));"

CHANGED_SIGNALS = {
    "ignored": "pcntl_signal(SIGTERM, SIG_IGN); pcntl_signal(SIGALRM, SIG_IGN);",
    "handled": "pcntl_async_signals(true); pcntl_signal(SIGHUP, fn () => print(1)); pcntl_signal(SIGCHLD, fn () => print(2));",
    "default": "pcntl_signal(SIGPROF, SIG_DFL); pcntl_signal(SIGTERM, SIG_DFL);",
    "blocked": "pcntl_sigprocmask(SIG_SETMASK, [SIGHUP, SIGUSR1, SIGALRM]);",
    "by a closure": "$set = pcntl_signal(...); $set(SIGUSR1, SIG_IGN); call_user_func('pcntl_signal', SIGUSR2, SIG_IGN);",
    "and a fatal error": "pcntl_signal(SIGINT, SIG_IGN); pcntl_sigprocmask(SIG_BLOCK, [SIGINT]); missing();",
}


@pytest.mark.parametrize("code", CHANGED_SIGNALS.values(), ids=CHANGED_SIGNALS.keys())
def test_signals_that_a_script_changes_are_as_before_in_the_next_request(site, server, code):
    probe, change = site.page(SIGNALS), site.page(code)
    before = server.get(probe).text
    assert "SigCgt" in before
    for _ in range(3):
        server.get(change)
        assert server.get(probe).text == before


def test_signals_that_an_extension_changes_are_repaired_after_some_requests(folder, serve):
    """No function of pcntl shows such a change to howdah: a worker checks from time to time."""
    if not site_has_ffi(folder, serve):
        pytest.skip("this PHP has no FFI")
    folder.php("probe.php", SIGNALS)
    folder.php(
        "change.php",
        """$c = FFI::cdef('long signal(int, long); int sigprocmask(int, const unsigned long *, void *);');
        $set = $c->new('unsigned long[16]'); $set[0] = 1 << (SIGUSR1 - 1);
        echo $c->signal(SIGTERM, 1), $c->sigprocmask(SIG_BLOCK, $set, null);""",
    )
    server = serve(processes=1, ini={"ffi.enable": "1"})
    before = server.get("/probe.php").text
    assert server.get("/change.php").text.endswith("0")
    assert server.get("/probe.php").text != before
    with server.connect() as connection:
        after = [connection.request("GET", "/probe.php").text for _ in range(130)]
    assert after[-1] == before


def site_has_ffi(folder, serve):
    folder.php("loaded.php", "echo json_encode(extension_loaded('ffi'));")
    return serve(processes=1).get("/loaded.php").json()


def test_tick_functions_run_and_do_not_outlive_their_request(site, server):
    ticking = site.page(
        "declare(ticks=1); $n = 0; function tick() { global $n; $n++; } register_tick_function('tick'); $x = 1; $y = 2; echo $n;"
    )
    silent = site.page("declare(ticks=1); $n = 0; $x = 1; $y = 2; echo $n;")
    first = server.get(ticking).text
    assert int(first) >= 2
    for _ in range(3):
        assert server.get(silent).text == "0"
        assert server.get(ticking).text == first


def test_commands_run_by_php_get_a_clean_process(site, server):
    """They inherit no descriptor of howdah, no blocked signal, and only the ignored signals of PHP-FPM."""
    inside = site.get("echo shell_exec('ls -l /proc/self/fd; grep -E \"^Sig(Blk|Ign)\" /proc/self/status');").text
    descriptors = [line.split(" -> ")[1] for line in inside.splitlines() if " -> " in line]
    assert all("memfd" not in d and "eventfd" not in d and "socket" not in d for d in descriptors), inside
    # PHP keeps the script open while it runs; ls has three descriptors and the folder that it lists.
    assert len([d for d in descriptors if not d.endswith(".php")]) <= 4, inside
    masks = dict(line.split(":\t") for line in inside.splitlines() if line.startswith("Sig"))
    assert int(masks["SigBlk"], 16) == 0
    ignored = {number for number in range(1, 65) if int(masks["SigIgn"], 16) >> (number - 1) & 1}
    assert not ignored & {1, 2, 3, 10, 12, 14, 15, 17}, ignored


def test_pipes_to_commands_work(site):
    code = """
        exec('yes | head -3', $lines, $status);
        $p = proc_open(['cat'], [['pipe', 'r'], ['pipe', 'w']], $pipes);
        fwrite($pipes[0], 'through a pipe'); fclose($pipes[0]); $out = stream_get_contents($pipes[1]);
        echo json_encode([$lines, $status, $out, proc_close($p), shell_exec('exit 3') === null]);"""
    assert site.get(code).json() == [["y", "y", "y"], 0, "through a pipe", 0, True]


def rss_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1])
    raise AssertionError("no Private_Dirty")


def test_a_worker_is_clean_after_many_requests(site, server):
    """After some thousand mixed requests: the same worker, the same responses, no more memory, no more descriptors."""
    harmless = [name for name in LEAKS if name not in ("memory",)]
    pages = [site.page(LEAKS[name]) for name in harmless] + [site.page("echo str_repeat('x', 300000);"), "/request.php"]
    probe = probe_of(site)
    draw = random.Random(1)

    def round(requests: int):
        for _ in range(requests // 100):
            with server.connect() as connection:
                for _ in range(100):
                    body = b"x=1&" + b"y" * draw.choice([0, 100, 40_000])
                    headers = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": "a=b"}
                    connection.request("POST", draw.choice(pages) + "?q=1", headers, body)

    round(1500)
    before, (worker,) = probe(), server.workers()
    memory, descriptors = rss_kib(worker.pid), len(os.listdir(f"/proc/{worker.pid}/fd"))
    round(3000)
    assert probe() == before
    assert before["pid"] == worker.pid
    assert len(os.listdir(f"/proc/{worker.pid}/fd")) == descriptors
    assert rss_kib(worker.pid) < memory + 1500, "KiB of private memory"
