"""Requests of many users at random: no byte of one request is in the answer to another.

Each request has a marker. It puts the marker into everything that PHP offers for it, ends in one of several ways, and its
answer must contain its own marker and no other one. The number of requests is bounded for CI: HOWDAH_INTERLEAVED_REQUESTS
is another one, such as 100000.
"""

import os
import random
import re
from concurrent.futures import ThreadPoolExecutor

from support.worker_site import failures_of_killed_workers

REQUESTS = int(os.environ.get("HOWDAH_INTERLEAVED_REQUESTS", 3000))
CLIENTS = 8
MARKER = re.compile(rb"marker-[0-9a-z]{12}")

WORKER_SITE = {"processes": 2, "boot": "final class Kept { public static $last; }"}

# The handler shows the state that it finds, and then leaves its marker everywhere.
PAGE = """
session_save_path(SCRATCH);
$marker = $_GET['m'] ?? $_POST['m'] ?? $_SERVER['HTTP_X_MARKER'];
$way = (int) ($_GET['way'] ?? 0);
header("X-Marker: $marker");
$found = [
    $_GET, $_POST, $_COOKIE, $_REQUEST, array_map(fn ($f) => $f['name'], $_FILES), $_SERVER, $_ENV, getenv(),
    headers_list(), getallheaders(), file_get_contents('php://input'), error_get_last(), ini_get('user_agent'),
    $_SESSION ?? null, ob_get_level(), @strtok(' '), get_include_path(), date_default_timezone_get(),
    stream_context_get_options(stream_context_get_default()), filter_input(INPUT_GET, 'm'), stream_get_wrappers(),
    libxml_get_errors(), ob_list_handlers(), setlocale(LC_ALL, 0), mb_internal_encoding(), session_name(), getcwd(),
];
echo json_encode($found, JSON_PARTIAL_OUTPUT_ON_ERROR);
ini_set('user_agent', $marker);
set_include_path("/$marker");
putenv("LEFT=$marker");
$_SERVER['LEFT'] = $_ENV['LEFT'] = $marker;
$_SESSION = [$marker];
strtok("a $marker $marker", ' ');
stream_context_set_default(['http' => ['header' => $marker]]);
set_error_handler(function () use ($marker) { echo $marker; return true; });
set_exception_handler(function () use ($marker) { echo $marker; });
register_shutdown_function(function () use ($marker) { echo $marker; });
header_register_callback(function () use ($marker) { header("X-Late: $marker"); });
stream_wrapper_register($marker, Kept::class);
libxml_use_internal_errors(true);
simplexml_load_string("<$marker");
setlocale(LC_ALL, 'C.UTF-8');
date_default_timezone_set('Europe/Berlin');
session_name($marker);
$abandoned = (function () use ($marker) { try { yield 1; yield 2; } finally { echo $marker; } })();
$abandoned->current();
$destructed = new class($marker) {
    public function __construct(private string $marker) {}
    public function __destruct() { echo $this->marker; }
};
ob_start(fn (string $text): string => $text . $marker);
ob_start();
echo $marker;
if ($way === 1) { exit($marker); }
if ($way === 2) { throw new Exception($marker); }
if ($way === 3) { setcookie('left', $marker); session_start(); $_SESSION['m'] = $marker; }
if ($way === 4) { ob_end_flush(); flush(); usleep(500); echo $marker; }
if ($way === 5) { fastcgi_finish_request(); echo $marker; }
if ($way === 6) { trigger_error($marker); }
if ($way === 7) { restore_error_handler(); @trigger_error($marker); }
"""


def exchange(connection, path: str, marker: str, chance: random.Random):
    target = f"{path}?way={chance.randrange(8)}"
    kind = chance.randrange(4)
    if kind == 0:
        return connection.request("GET", f"{target}&m={marker}", {"Cookie": f"c={marker}"})
    if kind == 1:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        return connection.request("POST", target, form, f"m={marker}&pad={'x' * chance.randrange(20_000)}")
    if kind == 2:
        body = f'--b\r\nContent-Disposition: form-data; name="f"; filename="{marker}"\r\n\r\n{marker}\r\n--b--\r\n'
        upload = {"Content-Type": "multipart/form-data; boundary=b", "X-Marker": marker}
        return connection.request("POST", target, upload, body)
    return connection.request("PUT", target, {"X-Marker": marker, "Authorization": "Basic bTptYXJrZXI="}, marker)


def test_no_request_sees_another(worker_site):
    path = worker_site.page(PAGE)

    def client(seed: int) -> int:
        chance = random.Random(seed)
        with worker_site.server.connect() as connection:
            for number in range(REQUESTS // CLIENTS):
                marker = "marker-" + "".join(chance.choices("0123456789abcdefghijklmnopqrstuvwxyz", k=12))
                answer = exchange(connection, path, marker, chance)
                everything = answer.body + repr(answer.headers).encode()
                found = set(MARKER.findall(everything))
                assert found == {marker.encode()}, (seed, number, marker, found, everything[:4000])
                assert answer.status in (200, 500), (answer.status, everything[:4000])
        return REQUESTS // CLIENTS

    pids = {process.pid for process in worker_site.server.workers()}
    seed = random.randrange(1 << 30)
    with ThreadPoolExecutor(CLIENTS) as pool:
        assert sum(pool.map(client, range(seed, seed + CLIENTS))) > 0
    assert {process.pid for process in worker_site.server.workers()} == pids, "the workers have survived"


def test_killed_workers_cost_only_their_own_requests(start_worker):
    site = start_worker(processes=2, loop="while (howdah\\handle_request(fn () => print($_GET['m']))) { }")
    failed, kills = failures_of_killed_workers(site.server, clients=4, requests=200)
    assert set(failed) <= {502} and len(failed) <= kills, failed


def test_a_restart_under_load_loses_no_request(folder, run):
    folder.php("worker.php", "usleep(50000); while (howdah\\handle_request(fn () => print($_GET['m']))) { }")
    application = {"type": "php", "root": str(folder.root), "processes": 2, "worker": {"script": "worker.php"}}
    server = run({"applications": {"app": application}})
    ends = []

    def client(number: int) -> int:
        turn = 0
        while not ends:
            turn += 1
            answer = server.get(f"/?m={number}-{turn}")
            assert (answer.status, answer.text) == (200, f"{number}-{turn}")
        return turn

    with ThreadPoolExecutor(4) as pool:
        clients = [pool.submit(client, number) for number in range(4)]
        try:
            for _ in range(3):
                assert server.api("POST", "/control/applications/app/restart").status == 200
        finally:
            ends.append(True)
        assert all(client.result() > 0 for client in clients)
