"""Commands and limits of an operator have the same effects in worker mode as in classic mode."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

from support.background import Background
from support.command_line import howdah
from support.http.client import Response
from support.waiting import wait_for

WORKER = """
static $kept = [];
function hot(float $seconds): void { for ($end = microtime(true) + $seconds; microtime(true) < $end;) { md5('x'); } }
function answer(): void
{
    match (parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH)) {
        '/leak' => $GLOBALS['kept'][] = str_repeat(random_bytes(1024), 2048),
        '/hot' => hot(3),
        '/wait' => await(SCRATCH . '/go'),
        '/nap' => usleep(50000),
        '/warm' => file_put_contents(SCRATCH . '/warm', json_encode([$_SERVER['HOWDAH_WARM_UP'] ?? null, getmypid()]) . "\\n", FILE_APPEND),
        '/broken' => throw new RuntimeException('no database'),
        default => null,
    };
    echo getmypid();
}
while (howdah\\handle_request(answer(...))) { }
"""


def start(folder, run, **options):
    folder.php("worker.php", WORKER)
    application = {"type": "php", "root": str(folder.root), "processes": 1, "worker": {"script": "worker.php"}, **options}
    return run({"applications": {"app": application}})


def processes(server) -> dict:
    return server.api("GET", "/status/applications/app").json()["processes"]


def test_a_worker_that_keeps_too_much_is_replaced_after_a_request(folder, run):
    server = start(folder, run, limits={"memory": "32M"})
    answers = [server.get("/leak") for _ in range(40)]
    assert [answer.status for answer in answers] == [200] * 40, "a replacement costs no request"
    pids = {answer.text for answer in answers}
    assert 2 <= len(pids) <= 6, pids
    line = wait_for(lambda: re.search(r'worker of "app" \(pid (\d+)\) grew (\d+) MiB in (\d+) requests', server.stderr), "the line")
    assert line[1] in pids and 32 <= int(line[2]) < 48 and int(line[3]) >= 10


def test_a_profile_has_the_functions_of_the_handler(folder, run):
    server = start(folder, run)
    asking = Background(server.get, "/hot")
    result = howdah("profile", "app", "--seconds", "1", "--control", f"unix:{server.control}", cwd=server.directory)
    assert asking.result().status == 200
    assert result.returncode == 0 and re.search(r"^ *\d+\.\d %  (hot|md5|microtime)$", result.stdout, re.M), result.stdout


def test_a_request_that_waits_too_long_for_a_worker_is_answered_503(folder, run):
    server = start(folder, run, limits={"queue_timeout": 0.5})
    running = Background(server.get, "/wait")
    wait_for(lambda: processes(server)["idle"] == 0, "it runs")
    late = server.get("/late")
    assert late.status == 503 and int(late.header("Retry-After")) >= 1
    (folder.scratch / "go").touch()
    assert running.result().status == 200 and server.get("/").status == 200


def test_warm_up_requests_are_answered_before_clients_are(folder, run):
    server = start(folder, run, warm_up=["/warm", "/warm"])
    seen = [json.loads(line) for line in (folder.scratch / "warm").read_text().splitlines()]
    assert seen == [["1", int(server.get("/").text)]] * 2
    broken = server.api("PUT", "/config/applications/app/warm_up", ["/broken"])
    assert broken.status == 500 and "/broken" in broken.json()["detail"] and "500" in broken.json()["detail"], broken.text
    assert server.get("/").status == 200


def test_a_pool_grows_for_requests_that_wait_and_no_request_waits_for_a_boot(folder, run):
    def nap(_) -> Response:
        return server.get("/nap")

    server = start(folder, run, processes={"max": 6, "spare": 1, "idle_timeout": 60})
    with ThreadPoolExecutor(6) as clients:
        answers = list(clients.map(nap, range(120)))
    assert {answer.status for answer in answers} == {200}
    assert len({answer.text for answer in answers}) > 1 and processes(server)["running"] > 1
