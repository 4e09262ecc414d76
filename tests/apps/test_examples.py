"""The applications of examples/, started as in their READMEs."""

import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.apps.files import browser_of
from support.server import REPOSITORY

pytestmark = pytest.mark.xdist_group("examples")

EXAMPLES = REPOSITORY / "examples"
SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module")
def example(space):
    """A copy of an example, because not every user may read the folder of a checkout."""
    def copy(name: str) -> Path:
        return Path(shutil.copytree(EXAMPLES / name, space / name))
    return copy


@pytest.fixture(scope="module")
def hello(example, serve):
    return serve(example("hello"))


@pytest.fixture(scope="module")
def symfony(example, serve):
    folder = example("symfony")
    server = serve(folder, "--php-ini", str(folder / "php.ini"), processes=2)
    yield server
    for cache in kernel_caches(folder):
        shutil.rmtree(cache)


def kernel_caches(folder: Path) -> list[Path]:
    """The kernel's folders in /dev/shm that were made for the code in `folder`."""
    containers = SHARED_MEMORY.glob("howdah-symfony-*/*/prod/Container*/*Container.php")
    return [container.parents[2] for container in containers if str(folder) in container.read_text()]


def test_hello_greets_with_the_version_and_the_sapi(hello):
    page = browser_of(hello).get("/").ok()
    assert page.content_type == "text/html" and page.title == "Hello"
    assert re.search(r"Hello from PHP 8\.\d+\.\d+ \(fpm-fcgi\), served by howdah/\d", page.text), page.describe()


def test_hello_has_a_static_style_sheet(hello):
    page = browser_of(hello).get("/").ok()
    style = browser_of(hello).get(page.links(r"\.css$")[0]).ok()
    assert style.content_type == "text/css" and style.body == (EXAMPLES / "hello/style.css").read_bytes()
    assert browser_of(hello).get("/README.md").ok().text.startswith("# hello")


def test_symfony_is_recognised_by_its_public_folder(symfony, space):
    assert "public/index.php" in symfony.stdout or str(space / "symfony/public") in symfony.stdout


def test_symfony_reports_what_it_runs_on(symfony):
    page = browser_of(symfony).get("/").ok()
    assert page.headers["Content-Type"] == "application/json"
    report = page.json()
    assert report["env"] == "prod" and report["type"] == "howdah" and 0 <= report["random_num"] <= 100_000
    version = report["php"].pop("version")
    assert re.fullmatch(r"8\.\d+\.\d+.*", version)
    assert report["php"] == {
        "date.timezone": "Europe/Paris", "display_errors": "", "error_log": "/proc/self/fd/2",
        "error_reporting": "32767", "log_errors": "1", "memory_limit": "256M", "opcache.enable": "1",
        "opcache.max_accelerated_files": "20000", "opcache.memory_consumption": "256",
        "opcache.validate_timestamps": "0", "realpath_cache_size": "4096K", "realpath_cache_ttl": "600",
        "short_open_tag": ""}


def test_symfony_is_answered_by_every_process_each_with_numbers_of_its_own(symfony):
    with ThreadPoolExecutor(8) as pool:
        pages = list(pool.map(lambda _: browser_of(symfony).get("/").ok().json(), range(200)))
    assert {page["pid"] for page in pages} == {worker.pid for worker in symfony.workers(count=2)}
    assert len({page["random_num"] for page in pages}) > 150


def test_symfony_keeps_its_kernel_in_shared_memory(symfony, space):
    browser_of(symfony).get("/").ok()
    caches = kernel_caches(space / "symfony")
    assert len(caches) == 1, caches
    worker = symfony.workers()[0]
    assert caches[0].parent.name == "howdah-symfony-" + worker.status("Uid").split()[0]
    assert not (space / "symfony/var").exists()


@pytest.fixture(scope="module")
def symfony_worker(serve, space):
    folder = Path(shutil.copytree(EXAMPLES / "symfony", space / "worker-of-symfony"))
    server = serve(folder, "--php-ini", str(folder / "php.ini"), "--worker", "worker.php", processes=2)
    yield server
    for cache in kernel_caches(folder):
        shutil.rmtree(cache)


def test_symfony_boots_once_in_worker_mode(symfony_worker):
    with ThreadPoolExecutor(4) as pool:
        pages = list(pool.map(lambda _: browser_of(symfony_worker).get("/").ok().json(), range(200)))
    assert {page["pid"] for page in pages} <= {worker.pid for worker in symfony_worker.workers(count=2)}
    assert len({page["random_num"] for page in pages}) > 150 and {page["env"] for page in pages} == {"prod"}
    page = browser_of(symfony_worker).get("/no/such/route")
    assert page.status == 404


def test_symfony_answers_what_has_no_route_itself(symfony):
    page = browser_of(symfony).get("/no/such/route")
    assert page.status == 404 and "Not Found" in page.text, page.describe()
    page = browser_of(symfony).post("/", {})
    assert page.status == 405 and page.headers["Allow"] == "GET", page.describe()
    for path in ("/config/services.yaml", "/../config/services.yaml", "/src/Kernel.php", "/php.ini"):
        page = browser_of(symfony).get(path)
        assert page.status in (400, 404) and "App" not in page.text, page.describe()


@pytest.fixture(scope="module", params=["classic", "worker"])
def slim(request, serve, space):
    repository = space / f"slim-{request.param}"
    folder = shutil.copytree(EXAMPLES / "slim", repository / "examples/slim")
    shutil.copytree(REPOSITORY / "php", repository / "php")
    options = ["--worker", "index.php"] if request.param == "worker" else []
    return serve(folder, *options, processes=1)


def test_slim_runs_as_it_is_in_both_modes(slim):
    assert slim.get("/").text == "Hello from Slim\n"
    for name in ("Ada", "Bea"):
        answer = slim.get(f"/hello/{name}")
        assert answer.header("Content-Type").startswith("application/json") and answer.json()["hello"] == name
    missing = slim.get("/no/such/route")
    assert missing.status == 404 and "Page Not Found" in missing.text
    assert slim.get("/../bootstrap.php").status in (400, 404)
