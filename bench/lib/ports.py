"""Free loopback ports, and waiting until a server that was just started accepts connections."""

import socket
import time
from pathlib import Path

from lib.process_tree import BenchError


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_port(port, process, log, timeout=60.0):
    """Raises with the end of the log if the process exits or the timeout passes."""
    deadline = time.monotonic() + timeout
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with socket.socket() as client:
                client.settimeout(1)
                client.connect(("127.0.0.1", port))
            return
        except OSError:
            time.sleep(0.05)
    raise BenchError(f"{process.args[0]} did not start; the end of {log}:\n{end_of(log)}")


def end_of(log, lines=15):
    path = Path(log)
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else "(no log)"
