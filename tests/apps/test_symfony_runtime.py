"""A Symfony application with howdah/runtime: in classic mode, and in worker mode with each way to clean up."""

import hashlib
import itertools
import shutil
from pathlib import Path

import pytest

from support.apps import streaming
from support.apps.browser import Upload
from support.apps.files import browser_of, give
from support.apps.vendor import install
from support.server import Howdah
from support.waiting import wait_for

pytestmark = pytest.mark.xdist_group("symfony_runtime")

APPLICATION = Path(__file__).parent / "symfony"
DEBIAN = ("Symfony/Bundle/FrameworkBundle", "Symfony/Component/Runtime")
ENVIRONMENT = {"APP_RUNTIME": r"Howdah\Runtime\Runtime", "APP_ENV": "prod", "APP_DEBUG": "0"}
NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def application(space) -> Path:
    folder = Path(shutil.copytree(APPLICATION, space / "symfony"))
    install(folder, DEBIAN, ["runtime"])
    give(folder)
    return folder


@pytest.fixture(scope="module")
def start(application, serve):
    def start(*options: str, **environment: str) -> Howdah:
        return serve(application, *options, processes=1, env=ENVIRONMENT | environment)
    return start


@pytest.fixture(scope="module")
def classic(start):
    return start()


@pytest.fixture(scope="module")
def resetting(start):
    return start("--worker", "index.php")


@pytest.fixture(scope="module")
def rebooting(start):
    return start("--worker", "index.php", HOWDAH_AFTER_REQUEST="reboot-kernel")


@pytest.fixture(params=["classic", "resetting", "rebooting"])
def server(request) -> Howdah:
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["resetting", "rebooting"])
def worker(request) -> Howdah:
    return request.getfixturevalue(request.param)


@pytest.fixture
def signal_file(space) -> Path:
    """A file in PHP's folder that does not exist yet."""
    return space / f"signal-{next(NUMBERS)}"


def state(server: Howdah) -> dict:
    return server.get("/state").json()


def test_classic_mode_boots_for_each_request(classic):
    for _ in range(3):
        report = state(classic)
        assert (report["boots"], report["since_reset"], report["since_boot"]) == (1, 1, 1)


def test_services_are_reset_after_each_request(resetting):
    before = state(resetting)
    after = state(resetting)
    assert (after["pid"], after["boots"]) == (before["pid"], before["boots"])
    assert before["since_reset"] == after["since_reset"] == 1
    assert after["since_boot"] == before["since_boot"] + 1, "the container stays"


def test_the_kernel_is_rebooted_after_each_request(rebooting):
    before = state(rebooting)
    after = state(rebooting)
    assert after["pid"] == before["pid"] and after["boots"] == before["boots"] + 1
    assert after["since_reset"] == after["since_boot"] == 1


def test_the_kernel_boots_before_the_first_request(start):
    report = state(start("--worker", "index.php"))
    assert (report["boots"], report["since_boot"]) == (1, 1)


@pytest.mark.parametrize("path, status", [("/exit", 200), ("/broken_body", 500)])
def test_a_request_that_is_interrupted_leaves_nothing_behind(worker, path, status):
    before = state(worker)
    assert worker.get(path).status == status
    after = state(worker)
    assert after["pid"] == before["pid"] and after["boots"] > before["boots"], "the kernel was rebooted"
    assert after["main_request"] == "/state" and after["since_reset"] == 1


def test_errors_are_symfony_s_own(server):
    answer = server.get("/exception")
    assert answer.status == 500 and "Oops! An Error Occurred" in answer.text and "as ordered" not in answer.text
    assert server.get("/no/such/route").status == 404
    assert server.get("/exit").text == "left"
    assert state(server)["since_reset"] == 1


def test_work_after_the_response_does_not_delay_it(server, signal_file):
    answer = server.get(f"/slow_end?ends_after={signal_file}")
    assert answer.text == "complete" and not Path(f"{signal_file}.done").exists()
    signal_file.touch()
    wait_for(Path(f"{signal_file}.done").exists, "the end of the work")


def test_a_stream_arrives_as_it_is_made(server, signal_file):
    streaming.check_that_it_arrives_as_it_is_made(server, signal_file)


def test_forms_files_and_cookies(server):
    content = bytes(range(256)) * 1000
    page = browser_of(server).post("/upload", {"note": "Grüße"}, {"file": Upload("ä.bin", content)}).ok()
    assert page.json() == {"fields": {"note": "Grüße"}, "files": {"file": ["ä.bin", hashlib.sha256(content).hexdigest()]}}
    browser = browser_of(server)
    browser.get("/cookies").ok()
    assert browser.get("/cookies").ok().json() == {"first": "1", "second": "2"}
    assert browser_of(server).get("/cookies").ok().json() == []


def test_an_unknown_option_is_an_error_of_the_start(application):
    with pytest.raises(AssertionError, match='after_request: "sometimes" is not one of: reset-services, reboot-kernel'):
        Howdah.serve(application, "--worker", "index.php", env=ENVIRONMENT | {"HOWDAH_AFTER_REQUEST": "sometimes"})
