"""One howdah with a configuration and files of the benchmark's own, without a server to compare it with."""

import contextlib
import json
import re
import sys
import tempfile
from pathlib import Path

from lib import process_tree
from lib.lab import executable, raise_file_limit
from lib.ports import free_port, wait_for_port

LOGGED_TROUBLE = re.compile(r" (WARN|ERROR) ")
LAST_LINES = 20


class OneHowdah:
    """`start` starts it; it stops, and its folder is removed, when the context ends."""

    def __init__(self):
        raise_file_limit()
        self.program = executable()
        self.process = None
        self._stack = contextlib.ExitStack()
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="howdah-bench-")))
        self.folder.chmod(0o755)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        log = self.folder / "log"
        if kind is process_tree.BenchError and log.exists():
            lines = [line for line in log.read_text(errors="replace").splitlines() if LOGGED_TROUBLE.search(line)]
            print("\n".join(["howdah's log:", *lines[-LAST_LINES:]]), file=sys.stderr)
        self._stack.close()

    def write_files(self, files):
        """Writes {name: text} into the folder."""
        for name, text in files.items():
            (self.folder / name).write_text(text)

    def start(self, passes, *, cores=None, **configuration):
        """Starts it with a listener for each of `passes`, {name: the listener, or its "pass"}. Returns {name: base URL}."""
        ports = {name: free_port() for name in passes}
        options = {name: listener if isinstance(listener, dict) else {"pass": listener} for name, listener in passes.items()}
        listeners = {f"127.0.0.1:{port}": options[name] for name, port in ports.items()}
        config_file, log = self.folder / "config.json", self.folder / "log"
        config_file.write_text(json.dumps({"listeners": listeners, **configuration}))
        self.process = process_tree.start(
            [self.program, "run", "--config", config_file, "--state-dir", self.folder / "state"], cores=cores, log=log)
        self._stack.callback(lambda: process_tree.stop(self.process))
        for port in ports.values():
            wait_for_port(port, self.process, log)
        return {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
