"""Worker scripts that use howdah as symfony/runtime's FrankenPHP runner (Symfony 7.4 and 8) and Laravel Octane's worker do.

The scripts here are written for these tests: with the originals they share the functions, variables and values that
they expect of the server, and the order in which they use them.
"""

import pytest

from support.waiting import wait_for

SYMFONY = r"""
if (!($_SERVER['FRANKENPHP_WORKER'] ?? false)) { exit(1); }
class Kernel {
    public int $handled = 0;
    public int $clones = 0;
    public array $terminated = [];
    public function __clone() { $this->clones++; $this->handled = 0; }
    public function handle(): string {
        if ($_SERVER['REQUEST_URI'] === '/exit') { echo 'left'; exit; }
        return json_encode([
            'pid' => getmypid(), 'handled' => ++$this->handled, 'clones' => $this->clones, 'terminated' => $this->terminated,
            'post' => $_POST, 'dotenv' => $_SERVER['FROM_DOTENV'] ?? null, 'mode' => $_SERVER['APP_RUNTIME_MODE'],
            'host' => $_SERVER['HTTP_HOST'], 'reporting' => error_reporting(),
        ]);
    }
    public function terminate(string $uri): void {
        if ($uri === '/slow') { await(SCRATCH . '/continue'); }
        $this->terminated[] = $uri;
    }
}
// The error handler of debug mode.
set_error_handler(function (int $level, string $message) { if ($level & error_reporting()) { throw new ErrorException($message); } return true; });

ignore_user_abort(true);
$_SERVER['FROM_DOTENV'] = 'kept';
$server = array_filter($_SERVER, fn (string $key) => !str_starts_with($key, 'HTTP_'), ARRAY_FILTER_USE_KEY);
$clones = filter_var($server['FRANKENPHP_RESET_KERNEL'] ?? false, FILTER_VALIDATE_BOOL);
$server['APP_RUNTIME_MODE'] = $clones ? 'web=1&worker=2' : 'web=1&worker=1';
$most = (int) ($_SERVER['FRANKENPHP_LOOP_MAX'] ?? 500);
$kernel = new Kernel();
$reporting = error_reporting();
$handler = function () use ($server, $reporting, &$kernel, &$uri): void {
    error_reporting($reporting);
    $last = error_get_last();
    if ($last && ($last['type'] & E_WARNING) && str_starts_with($last['message'], 'frankenphp_handle_request(')) {
        error_clear_last();
        $uri = null;
        http_response_code(400);
        return;
    }
    $_SERVER += $server;
    $uri = $_SERVER['REQUEST_URI'];
    echo $kernel->handle();
};
$count = 0;
do {
    error_reporting($reporting & ~E_WARNING);
    $goes_on = frankenphp_handle_request($handler);
    error_reporting($reporting);
    error_clear_last();
    if ($uri) { $kernel->terminate($uri); }
    if ($clones) { $kernel = clone $kernel; }
    gc_collect_cycles();
} while ($goes_on && ($most <= 0 || ++$count < $most));
exit(0);
"""

OCTANE = r"""
if (!($_SERVER['FRANKENPHP_WORKER'] ?? false) || !function_exists('frankenphp_handle_request')) { exit(1); }
ignore_user_abort(true);
ini_set('display_errors', 'stderr');
$_ENV['APP_RUNNING_IN_CONSOLE'] = false;
$base = $_SERVER['APP_BASE_PATH'] ?? $_ENV['APP_BASE_PATH'] ?? null;
if (!is_string($base)) { echo 'no base path'; exit(11); }
// Laravel's boot: every error becomes an exception.
ini_set('display_errors', 'Off');
error_reporting(-1);
set_error_handler(function (int $level, string $message) { if ($level & error_reporting()) { throw new ErrorException($message); } });
file_put_contents('php://stderr', "booted\n");
$most = $_ENV['MAX_REQUESTS'] ?? $_SERVER['MAX_REQUESTS'] ?? 1000;
$seconds = $_ENV['REQUEST_MAX_EXECUTION_TIME'] ?? $_SERVER['REQUEST_MAX_EXECUTION_TIME'] ?? null;
if ($seconds !== null) { set_time_limit((int) $seconds); }
$count = 0;
try {
    $handler = static function () use ($base): void {
        try {
            if ($_SERVER['REQUEST_URI'] === '/broken') { throw new RuntimeException('as ordered'); }
            if ($_SERVER['REQUEST_URI'] === '/endless') { while (true); }
            // Laravel's middleware ValidatePostSize.
            if (($_SERVER['CONTENT_LENGTH'] ?? 0) > 100) { http_response_code(413); return; }
            echo json_encode(['pid' => getmypid(), 'base' => $base, 'octane' => $_SERVER['LARAVEL_OCTANE'] ?? null]);
        } catch (Throwable $error) {
            error_log('octane: ' . $error->getMessage(), 4);
            http_response_code(500);
            echo 'Internal Server Error';
            file_put_contents('php://stderr', json_encode(['message' => $error->getMessage()]) . "\n");
        }
    };
    while ($count < $most && frankenphp_handle_request($handler)) { $count++; }
} finally {
    touch(SCRATCH . '/terminated-' . getmypid());
}
"""
OCTANE_ENVIRONMENT = {"APP_BASE_PATH": "/srv/shop", "LARAVEL_OCTANE": "1"}
SMALL = {"post_max_size": "100", "max_input_vars": "3"}
TOO_LARGE = ("a=" + "x" * 200, {"Content-Type": "application/x-www-form-urlencoded"})
TOO_MANY = ("a&b&c&d&e", {"Content-Type": "application/x-www-form-urlencoded"})


@pytest.fixture
def symfony(start_worker):
    def start(**environment: str):
        return start_worker(loop=SYMFONY, ini=SMALL, env=environment).server
    return start


@pytest.fixture
def octane(start_worker):
    def start(**environment: str):
        return start_worker(loop=OCTANE, ini=SMALL, env=OCTANE_ENVIRONMENT | environment)
    return start


def test_symfony_s_runner_keeps_its_kernel_and_the_variables_of_the_boot(symfony):
    server = symfony()
    first, second = server.get("/one").json(), server.get("/two").json()
    assert (first["handled"], second["handled"], second["terminated"]) == (1, 2, ["/one"])
    assert first["pid"] == second["pid"] and first["dotenv"] == "kept" and first["mode"] == "web=1&worker=1"
    assert first["host"] == f"127.0.0.1:{server.port}", "no header of the boot, and those of the request"
    assert first["reporting"] == second["reporting"]


def test_symfony_s_runner_terminates_after_the_response(start_worker):
    site = start_worker(loop=SYMFONY)
    assert site.server.get("/slow").json()["terminated"] == [], "the response does not wait for terminate()"
    (site.scratch / "continue").touch()
    assert site.server.get("/next").json()["terminated"] == ["/slow"]


def test_symfony_s_runner_clones_its_kernel(symfony):
    server = symfony(FRANKENPHP_RESET_KERNEL="1")
    answers = [server.get("/").json() for _ in range(3)]
    assert [(answer["handled"], answer["clones"], answer["mode"]) for answer in answers] == [
        (1, clones, "web=1&worker=2") for clones in range(3)]


def test_symfony_s_runner_leaves_its_loop_after_loop_max(symfony):
    server = symfony(FRANKENPHP_LOOP_MAX="2")
    pids = [server.get("/").json()["pid"] for _ in range(6)]
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4] == pids[5]


def test_symfony_s_runner_survives_exit(symfony):
    server = symfony()
    pid = server.get("/").json()["pid"]
    assert server.get("/exit").text == "left"
    assert server.get("/").json()["pid"] == pid


@pytest.mark.parametrize("form", [TOO_LARGE, TOO_MANY], ids=["large", "many fields"])
def test_symfony_s_runner_rejects_a_form_that_php_cannot_take(symfony, form):
    server = symfony()
    before = server.get("/").json()
    assert server.post("/form", *form).status == 400
    after = server.post("/form", "a=1", form[1]).json()
    assert (after["pid"], after["post"]) == (before["pid"], {"a": "1"})
    assert after["terminated"] == ["/"], "the runner has not terminated the rejected request"


def test_octane_s_worker_boots_with_the_environment_of_its_server(octane):
    site = octane()
    answers = [site.server.get("/").json() for _ in range(3)]
    assert answers == [{"pid": answers[0]["pid"], "base": "/srv/shop", "octane": "1"}] * 3
    wait_for(lambda: "booted" in site.server.stderr, "the line of the boot on php://stderr")


def test_octane_s_worker_handles_max_requests_and_terminates(octane):
    site = octane(MAX_REQUESTS="2")
    pids = [site.server.get("/").json()["pid"] for _ in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3]
    wait_for((site.scratch / f"terminated-{pids[0]}").exists, "the end of the worker")


def test_octane_s_worker_reports_an_exception_and_goes_on(octane):
    site = octane()
    pid = site.server.get("/").json()["pid"]
    answer = site.server.get("/broken")
    assert (answer.status, answer.text) == (500, "Internal Server Error")
    assert site.server.get("/").json()["pid"] == pid
    site.server.wait_for_log_line("GET /broken", "octane: as ordered")
    wait_for(lambda: '{"message":"as ordered"}' in site.server.stderr, "the line on php://stderr")


@pytest.mark.parametrize("form, status", [(TOO_LARGE, 413), (TOO_MANY, 200)], ids=["large", "many fields"])
def test_octane_s_application_handles_a_form_that_php_cannot_take(octane, form, status):
    """Its error handler throws, which must not end a request before the application has it."""
    site = octane()
    pid = site.server.get("/").json()["pid"]
    assert site.server.post("/form", *form).status == status
    assert site.server.get("/").json()["pid"] == pid


def test_octane_s_time_limit_is_one_of_each_request(octane):
    site = octane(REQUEST_MAX_EXECUTION_TIME="1")
    pid = site.server.get("/").json()["pid"]
    assert site.server.get("/endless").status == 500
    assert site.server.get("/").json()["pid"] != pid
