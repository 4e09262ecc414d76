"""howdah, started with `howdah run` and a configuration that serves what nginx_fpm.py serves."""

import json
import os
import subprocess
from pathlib import Path

from lib import process_tree
from lib.ports import free_port, wait_for_port
from lib.process_tree import BenchError

REPOSITORY = Path(__file__).resolve().parent.parent.parent
EXECUTABLE = Path(os.environ.get("HOWDAH", REPOSITORY / "target" / "release" / "howdah"))


class Howdah:
    name = "howdah"

    def __init__(self, run_dir, stack, sites, php, processes, environment, cores=None):
        command = program(php.version)
        self.ports = {site.name: free_port() for site in sites}
        self.version = subprocess.run([command, "--version"], capture_output=True, text=True).stdout.partition("\n")[0]
        config_file = run_dir / f"{self.name}.json"
        config_file.write_text(json.dumps(self._config(sites, php, processes, environment), indent=2))
        log = run_dir / f"{self.name}.log"
        self.process = process_tree.start(
            [command, "run", "--config", config_file, "--state-dir", run_dir / f"{self.name}-state",
             "--control", f"unix:{run_dir}/{self.name}.sock"],
            env=php.environment(), cores=cores, log=log)
        stack.callback(self._stop)
        self.roots = [self.process.pid]
        self.logs = [log]
        for port in self.ports.values():
            wait_for_port(port, self.process, log)

    def front_processes(self):
        return process_tree.titled(self.roots, "howdah: router")

    def php_workers(self):
        return process_tree.titled(self.roots, 'howdah: "bench" worker')

    def _stop(self):
        left = process_tree.stop(self.process)
        if left:
            print(f"bench: howdah left processes behind after SIGTERM: {left}", flush=True)

    def _config(self, sites, php, processes, environment):
        application = {
            **_application(php, processes, environment),
            "targets": {site.name: _target(site) for site in sites},
        }
        return {
            "listeners": {f"127.0.0.1:{self.ports[site.name]}": {"pass": f"routes/{site.name}"} for site in sites},
            "routes": {site.name: _routes(site) for site in sites},
            "applications": {"bench": application},
        }


class HowdahWorkerMode(Howdah):
    """Each site is an application of its own, whose workers keep it in memory: its script is worker.php."""

    name = "howdah-worker"
    worker = {"script": "worker.php"}

    def php_workers(self):
        return [worker for site in self.ports for worker in process_tree.titled(self.roots, f'howdah: "{site}" worker')]

    def _config(self, sites, php, processes, environment):
        application = _application(php, processes, environment)
        return {
            "listeners": {f"127.0.0.1:{self.ports[site.name]}": {"pass": f"applications/{site.name}"} for site in sites},
            "applications": {
                site.name: {**application, "root": str(site.worker_folder or site.root), "worker": self.worker}
                for site in sites
            },
        }


class HowdahWorkerReboot(HowdahWorkerMode):
    """The same, with a Symfony kernel that is booted again after each request."""

    name = "howdah-worker-reboot"

    def _config(self, sites, php, processes, environment):
        return super()._config(sites, php, processes, {**environment, "HOWDAH_AFTER_REQUEST": "reboot-kernel"})


class HowdahAsyncMode(HowdahWorkerMode):
    """The script async.php, which holds the requests of many clients in each worker."""

    name = "howdah-async"
    worker = {"script": "async.php", "concurrency": 500}


def program(php_version):
    """The release executable, or the one that HOWDAH names."""
    _existing(EXECUTABLE.with_name(f"howdah-php{php_version}"))
    return _existing(EXECUTABLE)


def load_generator():
    """howdah-load, beside howdah."""
    return _existing(EXECUTABLE.with_name("howdah-load"))


def _existing(path):
    if not path.is_file():
        raise BenchError(f"{path} does not exist: cargo build --release, or set HOWDAH=/path/to/howdah")
    return path


def _application(php, processes, environment):
    application = {
        "type": f"php {php.version}",
        "options": {"file": str(php.ini_file)},
        "processes": processes,
        "environment": environment,
    }
    if php.user:
        application["user"] = application["group"] = php.user
    return application


def _target(site):
    target = {"root": str(site.root), "index": "index.php"}
    if site.front_controller:
        target["front_controller"] = site.front_controller
    return target


def _routes(site):
    application = {"pass": f"applications/bench/{site.name}"}
    files = {"share": f"{site.root}$uri"}
    if site.front_controller:
        files["fallback"] = application
    return [{"match": {"uri": ["*.php", "*.php/*"]}, "action": application}, {"action": files}]
