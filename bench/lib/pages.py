"""The requested pages, their document roots, and the parts of a response that are equal on all servers."""

import json
import random
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent
SYMFONY = BENCH.parent / "examples" / "symfony"


@dataclass(frozen=True)
class Site:
    """One document root; each server opens a port for each site."""
    name: str
    root: Path
    front_controller: str | None = None
    # The folder of worker.php, the script of worker mode, if that is not the root.
    worker_folder: Path | None = None


@dataclass(frozen=True)
class Page:
    name: str
    path: str
    # Takes from a body the part that must be equal on all servers.
    essence: callable
    site: str = "pages"
    php: bool = True
    needs_backends: bool = False


def _whole(body):
    return body


def _shape(body):
    """The keys of a JSON object and its values that are the same on each request and each server."""
    document = json.loads(body)
    return sorted(document), document.get("ini"), document.get("php")


def _phpinfo(body):
    """The headings of phpinfo(), without the SAPI's own (see verify.SAPI_EXTENSIONS)."""
    headings = re.findall(rb'<h2><a name="module_([^"]+)"', body)
    return b"</html>" in body[-20:], sorted(set(headings) - {b"cgi-fcgi", b"howdah", b"pcntl"})


PAGES = [
    Page("hello", "/hello.php", _whole),
    Page("json", "/json.php", _shape),
    Page("phpinfo", "/phpinfo.php", _phpinfo),
    Page("loop", "/loop.php", _phpinfo),
    Page("session", "/session.php", _whole, needs_backends=True),
    Page("10k", "/10k.jpg", _whole, php=False),
    Page("1m", "/1m.jpg", _whole, php=False),
]
SYMFONY_PAGE = Page("symfony", "/", _shape, site="symfony")
PROBE_PATH = "/probe.php"


def by_name(names, symfony=False):
    known = {page.name: page for page in PAGES + [SYMFONY_PAGE]}
    return [known[name] for name in names] + ([SYMFONY_PAGE] if symfony and "symfony" not in names else [])


def write_site(run_dir, mariadb=None):
    """The document root: the scripts of bench/pages, the static files, and how to reach the database."""
    root = run_dir / "root"
    shutil.copytree(BENCH / "pages", root)
    noise = random.Random(1)
    (root / "10k.jpg").write_bytes(noise.randbytes(10 * 1024))
    (root / "1m.jpg").write_bytes(noise.randbytes(1024 * 1024))
    if mariadb:
        (root / "database.php").write_text(mariadb.php_source())
    for path in root.iterdir():
        path.chmod(0o644)
    root.chmod(0o755)
    return Site("pages", root)


def symfony_site():
    return Site("symfony", SYMFONY / "public", "index.php", worker_folder=SYMFONY)
