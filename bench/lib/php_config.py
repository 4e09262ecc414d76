"""The one php.ini and the one folder of extensions that every server under test gets.

Debian keeps a scan directory for each SAPI (/etc/php/8.2/fpm/conf.d, …/embed/conf.d). Here one is made of FPM's, and
PHP_INI_SCAN_DIR names it to both servers. The php.ini is Debian's for FPM with the lines below at its end.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from lib.process_tree import BenchError

ALWAYS = """
; --- bench ---
opcache.enable = 1
opcache.memory_consumption = 128
realpath_cache_size = 4M
error_log = {error_log}
"""

SESSIONS = """
session.save_handler = redis
session.save_path = "tcp://127.0.0.1:{redis_port}"
"""


@dataclass(frozen=True)
class PhpConfig:
    version: str  # "8.2"
    ini_file: Path
    scan_dir: Path
    user: str | None  # the user of PHP; None: the user of the bench

    def environment(self):
        """The environment of both servers: small, as phpinfo() prints it."""
        return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PHP_INI_SCAN_DIR": str(self.scan_dir)}


def write(run_dir, version, redis_port=None):
    debian = Path(f"/etc/php/{version}/fpm")
    if not (debian / "php.ini").is_file():
        raise BenchError(f"{debian}/php.ini does not exist: install php{version}-fpm, or choose another --php")
    scan_dir = run_dir / "conf.d"
    scan_dir.mkdir()
    for link in sorted((debian / "conf.d").glob("*.ini")):
        (scan_dir / link.name).symlink_to(os.path.realpath(link))
    user = "www-data" if os.geteuid() == 0 else None
    error_log = run_dir / "php-error.log"
    error_log.touch()
    error_log.chmod(0o666)
    ini_file = run_dir / "php.ini"
    text = (debian / "php.ini").read_text() + ALWAYS.format(error_log=error_log)
    if redis_port:
        text += SESSIONS.format(redis_port=redis_port)
    ini_file.write_text(text)
    return PhpConfig(version, ini_file, scan_dir, user)


def executable(name, package):
    """The path of a program, also from /usr/sbin, which is not on every PATH."""
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if not found:
        raise BenchError(f"{name} is not installed: apt-get install {package}")
    return found
