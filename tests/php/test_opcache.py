"""opcache: on, shared by the workers of an application, preloaded; and what must not be shared, randomness."""

import os

import pytest

from support.waiting import wait_for

STATUS = """
    $status = opcache_get_status();
    echo json_encode(['pid' => getmypid(), 'on' => $status['opcache_enabled'],
        'hits' => array_map(fn ($script) => $script['hits'], $status['scripts'])]);"""


def test_opcache_is_on(site, server):
    assert site.get(STATUS).json()["on"] is True
    assert "opcache on" in server.stdout


def test_disabled_opcache_is_reported(folder, serve):
    folder.php("index.php", "echo json_encode(opcache_get_status());")
    server = serve(ini={"opcache.enable": "0"})
    assert server.get("/").text == "false"
    assert "opcache off" in server.stdout


def test_opcache_is_shared_by_the_workers(site, server):
    """A script that one worker has compiled is in the cache of the other worker; hits are counted for both."""
    path = site.page("echo getmypid();")
    file = str(site.root) + path
    ran = {server.get(path).text for _ in range(5)}
    seen = [answer.json() for answer in site.in_each_worker(2, STATUS)]
    assert len({status["pid"] for status in seen}) == 2
    assert all(file in status["hits"] for status in seen)
    before = max(status["hits"][file] for status in seen)
    for _ in range(10):
        ran.add(server.get(path).text)
    after = [answer.json()["hits"][file] for answer in site.in_each_worker(2, STATUS)]
    assert min(after) >= before + 9, f"hits are not counted in one place: {before}, {after}, by {ran}"


def test_opcache_invalidate_applies_to_all_workers(site, server):
    path = site.page("echo 1;")
    server.get(path)
    cached = "echo json_encode([getmypid(), opcache_is_script_cached(__DIR__ . %r)]);" % path
    assert [answer.json()[1] for answer in site.in_each_worker(2, cached)] == [True, True]
    assert site.get("echo json_encode(opcache_invalidate(__DIR__ . %r, true));" % path).text == "true"
    assert [answer.json()[1] for answer in site.in_each_worker(2, cached)] == [False, False]
    assert server.get(path).text == "1"


def test_opcache_reset_restarts_the_cache_between_requests(site, server):
    """opcache restarts when no request uses its memory: a worker must not keep opcache's lock between requests."""
    path = site.page("echo 1;")
    restarts = "echo opcache_get_status(false)['opcache_statistics']['manual_restarts'];"
    before = int(site.get(restarts).text)
    assert server.get(path).text == "1"
    assert site.get("echo json_encode(opcache_reset());").text == "true"
    page = site.page(restarts)
    wait_for(lambda: int(server.get(page).text) == before + 1, "the restart")
    assert server.get(path).text == "1"
    assert site.get(STATUS).json()["on"] is True


def test_a_script_that_changes_is_compiled_again(folder, serve):
    server = None
    for number in range(5):
        path = folder.php("index.php", f"echo 'version {number}';")
        os.utime(path, (1_700_000_000 + number * 10,) * 2)
        server = server or serve(ini={"opcache.revalidate_freq": "0", "opcache.validate_timestamps": "1"})
        assert server.get("/").text == f"version {number}"


def test_the_just_in_time_compiler_works(folder, serve):
    folder.php(
        "index.php",
        """function f($n) { $s = 0; for ($i = 0; $i < $n; $i++) { $s += $i % 7; } return $s; }
        echo json_encode([opcache_get_status()['jit']['on'], f(1000000)]);""",
    )
    server = serve(ini={"opcache.jit": "tracing", "opcache.jit_buffer_size": "16M"})
    for _ in range(4):
        assert server.get("/").json() == [True, 2999997]


PRELOAD = "class Preloaded { const WHERE = 'prototype'; public static $pid; static function f() { return 'yes'; } } function preloaded() { return 1; }"


@pytest.mark.parametrize("how", ["command line", "configuration"])
def test_preloaded_classes_are_available(folder, serve, run, how):
    preload = folder.php("preload.php", PRELOAD)
    folder.php(
        "index.php",
        "echo json_encode([class_exists('Preloaded', false), Preloaded::f(), preloaded(), isset(opcache_get_status()['preload_statistics'])]);",
    )
    if how == "command line":
        server = serve(ini={"opcache.preload": str(preload)})
    else:
        options = {"admin": {"opcache.preload": str(preload)}}
        server = run(
            {
                "applications": {
                    "app": {"type": "php", "root": str(folder.root), "index": "index.php", "options": options}
                }
            }
        )
    for _ in range(4):
        assert server.get("/").json() == [True, "yes", 1, True]


def test_a_preloaded_class_is_reset_for_each_request(folder, serve):
    preload = folder.php("preload.php", "class Counter { public static $n = 0; }")
    folder.php("index.php", "echo ++Counter::$n;")
    server = serve(processes=1, ini={"opcache.preload": str(preload)})
    assert [server.get("/").text for _ in range(4)] == ["1"] * 4


SUPERGLOBALS = """
    foreach ([$_SERVER, $_ENV, $_GET, $_POST, $_COOKIE, $_FILES, $_REQUEST] as $values) { count($values); }
    getenv('PATH'); $_SERVER['PHP_SELF']; getallheaders(); headers_list(); fastcgi_finish_request(); flush();
    file_get_contents('php://input'); header('X-Preload: 1'); setcookie('a', 'b'); echo 'preloaded';"""


@pytest.mark.parametrize("jit", ["0", "1"])
def test_preloaded_code_can_read_superglobals_without_a_request(folder, serve, jit):
    """A preload script and the checks at the start run without a request."""
    preload = folder.php("preload.php", SUPERGLOBALS + "function preloaded() { return 1; }")
    folder.php("index.php", "echo json_encode([$_SERVER['PHP_SELF'], $_COOKIE['a'], preloaded()]);")
    server = serve(ini={"opcache.preload": str(preload), "auto_globals_jit": jit})
    for _ in range(2):
        assert server.get("/?x=1", {"Cookie": "a=b"}).json() == ["/index.php", "b", 1]
    assert "opcache on" in server.stdout


def test_auto_globals_jit_off_is_honoured(folder, serve):
    folder.php("index.php", "$name = '_SERVER'; echo json_encode([$$name['PHP_SELF'] ?? null, $$name['REQUEST_METHOD'] ?? null]);")
    assert serve(ini={"auto_globals_jit": "0"}).get("/").json() == ["/index.php", "GET"]


# --- Randomness

RANDOM = """
    $values = [
        'mt_rand' => mt_rand(), 'rand' => rand(), 'lcg_value' => lcg_value(), 'uniqid' => uniqid('', true),
        'random_int' => random_int(0, PHP_INT_MAX), 'random_bytes' => bin2hex(random_bytes(8)),
        'openssl' => bin2hex(openssl_random_pseudo_bytes(8)), 'shuffle' => str_shuffle(str_repeat('0123456789abcdef', 4)),
        'array_rand' => implode(',', array_rand(range(0, 1000), 10)), 'session' => session_create_id(),
    ];"""


@pytest.mark.parametrize("seeded", [False, True], ids=["fresh", "seeded before the fork"])
def test_each_worker_has_its_own_random_numbers(tmp_path, seeded):
    """Each of four workers draws a number right after its fork. The prototype may have drawn one before."""
    from support.folders import readable
    from support.server import stop_all
    from support.site import Site

    (tmp_path / "preload.php").write_text(
        "<?php mt_rand(); rand(); lcg_value(); uniqid('', true); openssl_random_pseudo_bytes(8);"
    )
    readable(tmp_path)
    site = Site(tmp_path / "s", processes=4, ini={"opcache.preload": f"{tmp_path}/preload.php"} if seeded else {})
    try:
        readable(tmp_path)
        drawn = [
            answer.json() for answer in site.in_each_worker(4, RANDOM + "echo json_encode([getmypid(), $values]);")
        ]
    finally:
        stop_all([site.server])
    assert len({pid for pid, _ in drawn}) == 4
    for source in drawn[0][1]:
        assert len({values[source] for _, values in drawn}) == 4, f"{source}: {[values[source] for _, values in drawn]}"


def test_one_worker_has_new_random_numbers_in_each_request(folder, serve):
    folder.php("index.php", RANDOM + "echo json_encode($values);")
    server = serve(processes=1)
    drawn = [server.get("/").json() for _ in range(20)]
    for source in drawn[0]:
        assert len({values[source] for values in drawn}) == 20, source


def test_a_seed_does_not_persist_to_the_next_request(folder, serve):
    folder.php("index.php", "if (isset($_GET['seed'])) { mt_srand(42); } echo mt_rand();")
    server = serve(processes=1)
    seeded = server.get("/?seed").text
    drawn = []
    for _ in range(10):
        assert server.get("/?seed").text == seeded
        drawn.append(server.get("/").text)
    assert len(set(drawn)) == 10
