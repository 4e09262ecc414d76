"""The bench set up: a folder in /tmp, Redis and MariaDB if a page needs them, php.ini, the sites, and the servers.

Use as a context manager; leaving it, for whatever reason, stops what was started, the last first, and removes the
folder.
"""

import contextlib
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from lib import pages, php_config, process_tree
from lib.backends import MariaDb, Redis
from lib.howdah import Howdah, HowdahAsyncMode, HowdahWorkerMode, HowdahWorkerReboot
from lib.howdah_fastcgi import HowdahFastCgi, HowdahFastCgiTcp
from lib.nginx_fpm import NginxFpm
from lib.nginx_howdah import NginxHowdah
from lib.resident import HowdahRoadRunner, Swoole, SwooleBase
from lib.unit import Unit

SERVERS = {"nginx-fpm": NginxFpm, "howdah": Howdah}
# Only the benchmarks that name them use them: resident applications, and servers that no package of Debian has.
PEERS = {"howdah-worker": HowdahWorkerMode, "howdah-worker-reboot": HowdahWorkerReboot, "howdah-async": HowdahAsyncMode, "howdah-roadrunner": HowdahRoadRunner, "howdah-fastcgi": HowdahFastCgi, "howdah-fastcgi-tcp": HowdahFastCgiTcp, "nginx-howdah": NginxHowdah, "unit": Unit,
         "swoole-process": Swoole, "swoole-base": SwooleBase}


class Workbench:
    def __init__(self, server_names, chosen_pages, *, php_version, processes, pin=False, keep=False):
        self.server_names = server_names
        self.pages = chosen_pages
        self.php_version = php_version
        self.processes = processes
        self.keep = keep
        self.server_cores, self.load_cores = placement() if pin else (None, None)
        self.servers = []
        self.redis = None
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        raise_file_limit()
        signal.signal(signal.SIGTERM, _interrupt)
        signal.signal(signal.SIGHUP, _interrupt)
        try:
            self._set_up()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_):
        # A second Ctrl-C must not leave servers behind.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._stack.close()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def _set_up(self):
        run_dir = Path(tempfile.mkdtemp(prefix="howdah-bench-"))
        run_dir.chmod(0o755)
        if not self.keep:
            self._stack.callback(shutil.rmtree, run_dir, ignore_errors=True)
        self.run_dir = run_dir
        mariadb = None
        if any(page.needs_backends for page in self.pages):
            self.redis = Redis(run_dir, self._stack, self.server_cores)
            mariadb = MariaDb(run_dir, self._stack, self.server_cores)
        php = php_config.write(run_dir, self.php_version, self.redis and self.redis.port)
        sites = [pages.write_site(run_dir, mariadb)]
        if any(page.site == "symfony" for page in self.pages):
            sites.append(pages.symfony_site())
        for name in self.server_names:
            self.servers.append((SERVERS | PEERS)[name](
                run_dir, self._stack, sites, php, self.processes, {"APP_ENV": "prod"}, self.server_cores))

    def url(self, server, page):
        return f"http://127.0.0.1:{server.ports[page.site]}{page.path}"

    def settle(self, server):
        """Waits until the server is idle: it may still work for clients that have disconnected."""
        deadline = time.monotonic() + 30
        before = process_tree.cpu_seconds(server.roots)
        while time.monotonic() < deadline:
            time.sleep(0.3)
            now = process_tree.cpu_seconds(server.roots)
            if now - before <= 0.02:
                return
            before = now
        print(f"bench: {server.name} did not come to rest within 30 s", file=sys.stderr)


def raise_file_limit():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def placement():
    """The servers' cores and the load generator's: half each."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise process_tree.BenchError("--pin needs at least two cores")
    half = (len(cores) + 1) // 2
    return set(cores[:half]), set(cores[half:])


def _interrupt(*_):
    raise KeyboardInterrupt
