"""NGINX Unit, built from source: the folder UNIT_PREFIX has sbin/unitd and lib/unit/modules.

bench/README.md has the commands that build it.
"""

import http.client
import json
import os
import socket
import subprocess
from pathlib import Path

from lib import process_tree
from lib.ports import free_port, wait_for_port, wait_for_socket
from lib.process_tree import BenchError


class Unit:
    name = "unit"

    def __init__(self, run_dir, stack, sites, php, processes, environment, cores=None):
        prefix = prefix_of_unit()
        if not prefix:
            raise BenchError("NGINX Unit is not built: set UNIT_PREFIX to the --prefix of its build (bench/README.md)")
        unitd = prefix / "sbin" / "unitd"
        done = subprocess.run([unitd, "--version"], capture_output=True, text=True)
        self.version = (done.stdout + done.stderr).partition("\n")[0]
        self.ports = {site.name: free_port() for site in sites}
        folder = run_dir / "unit"
        state = folder / "state"
        state.mkdir(parents=True)
        control, log = folder / "control.sock", run_dir / "unit.log"
        self.process = process_tree.start(
            [unitd, "--no-daemon", "--control", f"unix:{control}", "--pid", folder / "pid", "--log", log,
             "--modulesdir", prefix / "lib" / "unit" / "modules", "--statedir", state, "--tmpdir", folder,
             *(["--user", php.user, "--group", php.user] if php.user else [])],
            env=php.environment(), cores=cores, log=log)
        stack.callback(process_tree.stop, self.process)
        self.roots = [self.process.pid]
        self.logs = [log]
        wait_for_socket(control, self.process, log)
        put(control, self._config(sites, php, processes, environment))
        for port in self.ports.values():
            wait_for_port(port, self.process, log)

    def front_processes(self):
        return process_tree.titled(self.roots, "unit: router")

    def php_workers(self):
        return process_tree.titled(self.roots, 'unit: "bench" application')

    def _config(self, sites, php, processes, environment):
        application = {
            "type": "php",
            "targets": {site.name: {"root": str(site.root), "index": "index.php"} for site in sites},
            "options": {"file": str(php.ini_file)},
            "processes": processes,
            "environment": environment,
        }
        if php.user:
            application["user"] = application["group"] = php.user
        return {
            "listeners": {f"127.0.0.1:{self.ports[site.name]}": {"pass": f"routes/{site.name}"} for site in sites},
            "routes": {site.name: [
                {"match": {"uri": ["*.php", "*.php/*"]}, "action": {"pass": f"applications/bench/{site.name}"}},
                {"action": {"share": f"{site.root}$uri"}},
            ] for site in sites},
            "applications": {"bench": application},
        }


def prefix_of_unit():
    """The folder that Unit was installed in; None without one."""
    prefix = os.environ.get("UNIT_PREFIX")
    return Path(prefix) if prefix and Path(prefix, "sbin", "unitd").is_file() else None


def put(control, configuration):
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(control))
    connection.request("PUT", "/config", json.dumps(configuration))
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    if response.status != 200:
        raise BenchError(f"NGINX Unit refuses its configuration: {body}")
