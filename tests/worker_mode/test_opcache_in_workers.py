"""opcache's restart, after opcache_reset() or when its memory is full, in worker mode.

A restart waits until no process runs a request; for PHP a worker script is one. When a worker boots after
opcache.force_restart_timeout seconds, opcache kills all processes that run a request."""

import time

from support.waiting import wait_for

PAGES = """
    match ($_SERVER['REQUEST_URI']) {
        '/reset' => print(json_encode(opcache_reset())),
        '/timeout' => print(ini_get('opcache.force_restart_timeout')),
        default => print(getmypid()),
    };
"""
SCRIPT = f"while (howdah\\handle_request(static function () {{ {PAGES} }})) {{ }}"


def application(folder, **options) -> dict:
    folder.php("worker.php", SCRIPT)
    return {"type": "php", "root": str(folder.root), "processes": 2, "worker": {"script": "worker.php"}, **options}


def workers(server) -> set[int]:
    return {worker.pid for worker in server.workers(count=2)}


def test_a_restart_of_opcache_kills_no_worker(folder, run):
    server = run({"applications": {"app": application(folder)}})
    assert server.get("/timeout").text == "0"
    before = workers(server)
    assert server.get("/reset").text == "true"
    # The next worker that boots would make opcache kill the other one, if there were a timeout.
    server.workers(count=2)[0].kill()
    after = wait_for(lambda: len(now := workers(server)) == 2 and now != before and now, "a worker that replaces the killed one")
    assert len(after & before) == 1, "the other worker lives"
    assert server.get("/").status == 200


def test_the_configuration_may_set_the_timeout(folder, run):
    options = {"admin": {"opcache.force_restart_timeout": "1"}}
    server = run({"applications": {"app": application(folder, options=options)}})
    assert server.get("/timeout").text == "1"
    before = workers(server)
    assert server.get("/reset").text == "true"
    time.sleep(1.5)
    server.workers(count=2)[0].kill()
    # This is what happens with PHP's own value of 180 s.
    wait_for(lambda: not workers(server) & before, "that opcache kills the other worker")


def test_classic_mode_keeps_the_value_of_php(folder, run):
    folder.php("index.php", "echo ini_get('opcache.force_restart_timeout');")
    server = run({"applications": {"app": {"type": "php", "root": str(folder.root), "processes": 1}}})
    assert server.get("/").text == "180"
