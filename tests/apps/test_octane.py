"""howdah/octane: the commands of Laravel Octane, and its worker. octane/octane.php stands for Octane itself."""

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.apps.files import give
from support.apps.vendor import install
from support.server import EXECUTABLE, Howdah
from support.waiting import wait_for

pytestmark = pytest.mark.xdist_group("octane")

LARAVEL = Path(__file__).parent / "laravel"
DOUBLE = Path(__file__).parent / "octane"
PROVIDERS = "Laravel\\Octane\\OctaneServiceProvider::class, Howdah\\Octane\\HowdahServiceProvider::class,"
ENVIRONMENT = {
    "APP_KEY": "base64:" + base64.b64encode(bytes(32)).decode(),
    "HOWDAH_BINARY": str(EXECUTABLE),
    "OCTANE_SERVER": "howdah",
    "LOG_CHANNEL": "stderr",
}
ROUTE = """
Route::get('/octane', fn (Request $request) => [
    'pid' => getmypid(), 'url' => url('/page'), 'file' => $_SERVER['SCRIPT_FILENAME'], 'root' => public_path(),
    'version' => env('VERSION'), 'inherited' => getenv('INHERITED'), 'octane' => getenv('LARAVEL_OCTANE'),
    'limit' => ini_get('max_execution_time'),
]);
Route::get('/dumped', function () { echo 'before the response, '; return 'the response'; });
"""


class Octane(Howdah):
    """`artisan octane:start`, which becomes a howdah."""

    def __init__(self, folder: Path, *options: str, **environment: str):
        self.environment = {"PATH": os.environ["PATH"], **ENVIRONMENT, **environment}
        super().__init__(
            lambda port: ["artisan", "octane:start", f"--port={port}", *options], environ=self.environment, cwd=folder
        )
        self.folder = folder

    def _spawn(self, command, environ, cwd, time_divider) -> None:
        command[command.index(str(EXECUTABLE))] = "php"
        super()._spawn(command, environ, cwd, time_divider)

    def artisan(self, *words: str) -> subprocess.CompletedProcess:
        return artisan(self.folder, *words, environment=self.environment)


def artisan(folder: Path, *words: str, environment=None) -> subprocess.CompletedProcess:
    environment = {"PATH": os.environ["PATH"], **ENVIRONMENT} if environment is None else environment
    return subprocess.run(["php", "artisan", *words], cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def application(space) -> Path:
    folder = Path(shutil.copytree(LARAVEL, space / "octane"))
    for name in ("app", "framework/sessions", "framework/views", "framework/cache", "logs"):
        (folder / "storage" / name).mkdir(parents=True)
    install(folder, [], ["octane"])
    shutil.copy(DOUBLE / "artisan", folder)
    shutil.copy(DOUBLE / "octane.php", folder / "vendor")
    autoload = folder / "vendor/autoload.php"
    loads = "require_once __DIR__ . '/../bootstrap/autoload.php'; require_once __DIR__ . '/octane.php';\n"
    autoload.write_text(autoload.read_text() + loads)
    config = folder / "config/app.php"
    config.write_text(config.read_text().replace("App\\RouteServiceProvider::class,", f"App\\RouteServiceProvider::class, {PROVIDERS}"))
    (folder / "config/octane.php").write_text("<?php return ['server' => env('OCTANE_SERVER'), 'max_execution_time' => 17];\n")
    with open(folder / "routes/api.php", "a") as routes:
        routes.write(ROUTE)
    (folder / ".env").write_text("VERSION=1\n")
    give(folder)
    return folder


@pytest.fixture
def octane(application):
    with Octane(application, "--workers=2", "--max-requests=50", INHERITED="yes") as server:
        yield server


def test_the_application_runs_in_workers_that_stay(octane, application):
    first, second = octane.get("/api/octane").json(), octane.get("/api/octane").json()
    assert {first["pid"], second["pid"]} <= {worker.pid for worker in octane.workers(count=2)}
    assert first["url"] == f"http://127.0.0.1:{octane.port}/page"
    assert first["file"] == f"{first['root']}/index.php" == str(application / "public/index.php")
    assert (first["inherited"], first["octane"], first["limit"], first["version"]) == ("yes", "1", "17", "1")
    assert octane.get("/api/dumped").text == "before the response, the response"
    assert octane.get("/style.css").header("Content-Type").startswith("text/css")
    assert octane.get("/api/missing").status == 404


def test_status_reload_and_stop(octane, application):
    assert octane.artisan("octane:status").returncode == 0
    workers = {worker.pid for worker in octane.workers(count=2)}
    (application / ".env").write_text("VERSION=2\n")
    reloaded = octane.artisan("octane:reload")
    assert reloaded.returncode == 0 and "Reloading workers" in reloaded.stdout, reloaded
    page = octane.get("/api/octane").json()
    assert page["version"] == "2" and page["pid"] not in workers
    (application / ".env").write_text("VERSION=1\n")

    (application / "bootstrap/app.php").rename(application / "bootstrap/away.php")
    shutil.copy(DOUBLE / "broken.php", application / "bootstrap/app.php")
    try:
        # artisan itself needs the application.
        broken = subprocess.run([EXECUTABLE, "restart", "app", "--folder", application], capture_output=True, text=True)
    finally:
        (application / "bootstrap/away.php").rename(application / "bootstrap/app.php")
    assert broken.returncode == 1 and "no such database" in broken.stderr
    assert octane.get("/api/octane").json()["version"] == "2"

    stopped = octane.artisan("octane:stop")
    assert stopped.returncode == 0 and "Stopping server" in stopped.stdout
    assert octane.exit_code() == 0
    for command in ("octane:status", "octane:stop", "octane:reload"):
        late = octane.artisan(command)
        assert late.returncode == 1 and "not running" in late.stdout, (command, late)


def test_a_worker_ends_after_its_requests_and_after_an_error(octane):
    pids = {octane.get("/api/octane").json()["pid"] for _ in range(150)}
    assert len(pids) >= 3
    failed = octane.get("/api/octane?fail=1")
    assert failed.status == 500 and failed.text == "Internal server error."
    wait_for(lambda: octane.stderr.count("octane: a worker was terminated") >= 3, "the ends of the workers")


def test_a_second_start_is_refused_and_an_old_state_file_harms_no_other_program(octane, application):
    second = octane.artisan("octane:start", "--port=1")
    assert second.returncode == 1 and "already running" in second.stdout
    state = application / "storage/logs/octane-server-state.json"
    assert json.loads(state.read_text())["masterProcessId"] == octane.pid
    with subprocess.Popen(["sleep", "60"]) as bystander:
        state.write_text(json.dumps({"masterProcessId": bystander.pid}))
        assert octane.artisan("octane:stop").returncode == 1
        assert bystander.poll() is None
        bystander.terminate()


@pytest.mark.parametrize(
    ("options", "environment", "message"),
    [
        (["--workers=many"], {}, "--workers=many: write a number from 1, or auto."),
        (["--https"], {}, "--https is not possible with howdah"),
        ([], {"HOWDAH_BINARY": "/srv/howdah"}, "/srv/howdah is not an executable: install howdah, or set HOWDAH_BINARY"),
        (["--server=rr"], {}, "Invalid server: rr."),
    ],
)
def test_a_wrong_start_explains_itself(application, options, environment, message):
    started = artisan(application, "octane:start", *options, environment={"PATH": os.environ["PATH"], **ENVIRONMENT, **environment})
    assert started.returncode == 1 and message in " ".join(started.stdout.split()), started


def test_other_servers_are_octanes(application):
    assert "reloaded another server" in artisan(application, "octane:reload", "--server=swoole").stdout


def test_a_change_of_a_file_restarts_the_workers(application):
    with Octane(application, "--watch", "--workers=1") as server:
        pid = server.get("/api/octane").json()["pid"]
        page = application / "app/Changed.php"
        page.write_text("<?php\n")
        give(page)
        wait_for(lambda: server.get("/api/octane").json()["pid"] != pid, "another worker")
