"""The lab as a tool of the probes: `howdah lab serve` starts a stack of a lab file, `howdah lab load` sends requests to it."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from lib import process_tree
from lib.process_tree import BenchError

BENCH = Path(__file__).resolve().parent.parent
PHP = "8.2"


@dataclass(frozen=True)
class Server:
    """A stack that serves."""
    url: str
    roots: list[int]
    # {"front": pids, "php": pids} at its start.
    processes: dict
    folder: Path

    def settle(self):
        """Waits until it is idle: it may still work for clients that have disconnected."""
        deadline = time.monotonic() + 30
        before = process_tree.cpu_seconds(self.roots)
        while time.monotonic() < deadline:
            time.sleep(0.3)
            now = process_tree.cpu_seconds(self.roots)
            if now - before <= 0.02:
                return
            before = now


@dataclass(frozen=True)
class Figures:
    """The outcomes of a load."""
    requests: int
    good: int
    failed: int
    per_second: float
    # The whole report: one of the `runs` of results.json.
    report: dict


def executable() -> Path:
    """The release executable, or the one that HOWDAH names."""
    path = Path(os.environ.get("HOWDAH", BENCH.parent / "target" / "release" / "howdah"))
    if not path.is_file():
        raise BenchError(f"{path} does not exist: make build, or set HOWDAH=/path/to/howdah")
    return path


@contextlib.contextmanager
def serve(stack, *, lab="cost", workers=None):
    """A stack of bench/LAB.lab.json; stopped at the end."""
    command = [executable(), "lab", "serve", BENCH / f"{lab}.lab.json", stack, "--json"]
    command += ["--workers", workers] if workers else []
    process = process_tree.start(command, stdout=subprocess.PIPE)
    try:
        line = process.stdout.readline().decode()
        if not line.startswith("{"):
            raise BenchError((line + process.stdout.read().decode()).strip())
        served = json.loads(line)
        yield Server(served["url"], served["started"], served["processes"], Path(served["folder"]))
    finally:
        process_tree.stop(process, sig=signal.SIGINT)


def load(*urls, schedule=None, connections=None, seconds=None, requests=None, expect=None, timeout=30, cores=None, during=None):
    """Sends a load and returns its Figures. `during` is called while it runs."""
    command = [executable(), "lab", "load", "--json", "--timeout", f"{timeout}s"]
    command += ["--schedule", schedule] if schedule else []
    command += ["--connections", connections] if connections else []
    command += ["--duration", f"{seconds * 1000:.0f}ms"] if seconds else []
    command += ["--requests", requests] if requests else []
    command += ["--expect", expect] if expect else []
    command += ["--cores", ",".join(map(str, cores))] if cores else []
    process = process_tree.start([*command, "--", *urls], stdout=subprocess.PIPE)
    try:
        if during:
            during()
        text = process.communicate()[0].decode()
    finally:
        process_tree.stop(process)
    if process.returncode:
        raise BenchError(text.strip())
    report = json.loads(text)
    return Figures(report["requests"], report["right"], report["failed"], report["requests_per_second"], report)


def flawless(*urls, **options) -> Figures:
    """`load`; raises if a request failed."""
    figures = load(*urls, **options)
    if figures.failed or not figures.good:
        raise BenchError(f"{' '.join(urls)}: {figures.failed} requests failed: {figures.report['errors']}")
    return figures


def raise_file_limit():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
