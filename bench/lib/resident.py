"""Resident applications: RoadRunner's workers on howdah, and Swoole, in both of its modes.

Swoole is in no package of Debian: SWOOLE names its extension, modules/swoole.so (bench/README.md has the commands).
Both run PHP's command line, with opcache on.
"""

import os
import subprocess
from pathlib import Path

from lib import process_tree
from lib.howdah import REPOSITORY, Howdah
from lib.php_config import executable
from lib.ports import free_port, wait_for_port
from lib.process_tree import BenchError

LIBRARY = REPOSITORY / "examples" / "roadrunner" / "Worker.php"


class HowdahRoadRunner(Howdah):
    """The pages as a RoadRunner application."""

    name = "howdah-roadrunner"

    def php_workers(self):
        [supervisor] = self.roots
        return [pid for pid in process_tree.tree([supervisor]) if process_tree.title(pid).endswith("roadrunner.php")]

    def _config(self, sites, php, processes, environment):
        [site] = sites
        library = site.root / "Worker.php"
        library.write_text(LIBRARY.read_text())
        library.chmod(0o644)
        command = [_php(php), "-c", str(php.ini_file), "-d", "opcache.enable_cli=1", str(site.root / "roadrunner.php")]
        application = {
            "type": "roadrunner",
            "command": command,
            "processes": processes,
            "environment": {**environment, **php.environment(), "LIBRARY": str(library)},
        }
        if php.user:
            application["user"] = application["group"] = php.user
        return {
            "listeners": {f"127.0.0.1:{self.ports[site.name]}": {"pass": "applications/bench"}},
            "applications": {"bench": application},
        }


class Swoole:
    """Its worker processes get requests from a process that reads all connections."""

    name = "swoole-process"
    mode = "process"

    def __init__(self, run_dir, stack, sites, php, processes, environment, cores=None):
        extension = swoole_extension()
        if not extension:
            raise BenchError("Swoole is not built: set SWOOLE to its modules/swoole.so (bench/README.md)")
        [site] = sites
        self.ports = {site.name: free_port()}
        log = run_dir / f"{self.name}.log"
        as_user = ["setpriv", "--reuid", php.user, "--regid", php.user, "--clear-groups"] if php.user else []
        command = [*as_user, _php(php), "-c", php.ini_file, "-d", "opcache.enable_cli=1", "-d", f"extension={extension}",
                   site.root / "swoole.php"]
        variables = {"PORT": str(self.ports[site.name]), "MODE": self.mode, "PROCESSES": str(processes)}
        self.process = process_tree.start(
            command, env={**php.environment(), **environment, **variables}, cores=cores, log=log)
        stack.callback(process_tree.stop, self.process)
        self.roots = [self.process.pid]
        self.logs = [log]
        wait_for_port(self.ports[site.name], self.process, log)
        done = subprocess.run([_php(php), "-d", f"extension={extension}", "-r", "echo SWOOLE_VERSION;"],
                              capture_output=True, text=True)
        self.version = f"Swoole {done.stdout}"

    def front_processes(self):
        return self.roots

    def php_workers(self):
        return [pid for pid in process_tree.tree(self.roots) if pid not in self.roots]


class SwooleBase(Swoole):
    """Each worker process reads its own connections."""

    name = "swoole-base"
    mode = "base"


def swoole_extension():
    """Swoole's extension; None without one."""
    path = os.environ.get("SWOOLE")
    return Path(path) if path and Path(path).is_file() else None


def _php(php):
    return executable(f"php{php.version}", f"php{php.version}-cli")
