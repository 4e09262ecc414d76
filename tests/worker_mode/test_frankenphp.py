"""Worker scripts of FrankenPHP run unchanged."""

# The loop that FrankenPHP's documentation shows.
LOOP = """
ignore_user_abort(true);
$handler = static function () {
    switch (parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH)) {
        case '/headers': header('X-Mine: 1'); echo json_encode([frankenphp_request_headers(), frankenphp_response_headers()]); break;
        case '/finish': echo 'early'; $first = frankenphp_finish_request(); echo 'late';
            file_put_contents(SCRATCH . '/finished', json_encode([$first, frankenphp_finish_request()])); break;
        case '/log': frankenphp_log('a message', FRANKENPHP_LOG_LEVEL_WARN, ['user' => 'ada']); break;
        case '/send': header('X-Early: 1'); headers_send(201); echo headers_sent() ? 'sent' : 'pending'; break;
        case '/range': try { headers_send((int) $_GET['status']); } catch (ValueError $error) { echo $error->getMessage(); } break;
        case '/hints': header('Link: </a.css>; rel=preload'); headers_send(103); echo headers_sent() ? 'sent' : 'pending'; break;
        default: echo json_encode([getmypid(), $_SERVER['FRANKENPHP_WORKER'] ?? null, $_SERVER['MAX_REQUESTS'] ?? null]);
    }
};
$maxRequests = (int) ($_SERVER['MAX_REQUESTS'] ?? 0);
for ($nbRequests = 0; !$maxRequests || $nbRequests < $maxRequests; ++$nbRequests) {
    $keepRunning = \\frankenphp_handle_request($handler);
    gc_collect_cycles();
    if (!$keepRunning) {
        break;
    }
}
"""

WORKER_SITE = {"loop": LOOP}


def test_a_worker_knows_its_mode(worker_site):
    pid, mode, most = worker_site.server.get("/").json()
    assert mode == "1" and most is None
    assert worker_site.server.get("/").json()[0] == pid


def test_max_requests_of_the_environment_replaces_workers(start_worker):
    site = start_worker(loop=LOOP, env={"MAX_REQUESTS": "2"})
    pids = [site.server.get("/").json()[0] for _ in range(6)]
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4] == pids[5]


def test_headers_of_request_and_response(worker_site):
    request, response = worker_site.server.get("/headers", {"X-User": "ada"}).json()
    assert request["X-User"] == "ada" and response["X-Mine"] == "1"


def test_finish_request_completes_the_response(worker_site):
    assert worker_site.server.get("/finish").text == "early"
    worker_site.server.get("/")
    assert (worker_site.scratch / "finished").read_text() == "[true,false]"


def test_log_writes_a_line_with_its_context(worker_site):
    worker_site.server.get("/log")
    worker_site.server.wait_for_log_line("WARN", 'a message {"user":"ada"}')


def test_headers_send(worker_site):
    answer = worker_site.server.get("/send")
    assert (answer.status, answer.header("X-Early"), answer.text) == (201, "1", "sent")
    hints = worker_site.server.get("/hints")
    assert (hints.status, hints.interim, hints.text) == (200, [103], "pending")
    assert hints.header("Link") == "</a.css>; rel=preload"


def test_headers_send_rejects_what_is_no_status(worker_site):
    for status in [0, 99, 1000, 65736, -1]:
        answer = worker_site.server.get(f"/range?status={status}")
        assert (answer.status, "must be between 100 and 999" in answer.text) == (200, True), status


def test_classic_mode_has_no_functions_of_worker_mode(folder, serve):
    folder.php("index.php", "echo json_encode(array_map('function_exists', ['frankenphp_handle_request', 'howdah\\handle_request']));")
    assert serve().get("/").json() == [False, False]
