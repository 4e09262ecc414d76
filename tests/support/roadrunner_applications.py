"""RoadRunner applications: the worker of `roadrunner/`, and the configurations that run it."""

from __future__ import annotations

import shutil
import struct
import zlib
from pathlib import Path

from support.server import REPOSITORY

WORKER = Path(__file__).parent / "roadrunner" / "worker.php"
PROTO = WORKER.with_name("ProtoWorker.php")
LIBRARY = REPOSITORY / "examples/roadrunner/Worker.php"
HOSTILE = Path(__file__).parent / "roadrunner" / "hostile.py"
PYTHON = shutil.which("python3", path="/usr/bin:/bin")


def roadrunner_application(folder, environment: dict[str, str] | None = None, **options) -> dict:
    """The application with the worker, copied into the folder, where its user can read it."""
    script = folder.write("worker.php", WORKER.read_text())
    folder.write("Worker.php", LIBRARY.read_text())
    folder.write("ProtoWorker.php", PROTO.read_text())
    return {
        "type": "roadrunner",
        "command": f"php {script}",
        "processes": 1,
        "working_directory": str(folder.root),
        "environment": {"VERSION": "1", **(environment or {})},
        **options,
    }


def hostile_application(folder, environment: dict[str, str] | None = None, **options) -> dict:
    """Workers that answer with the bytes of the request."""
    return {
        "type": "roadrunner",
        "command": [PYTHON, str(folder.write("hostile.py", HOSTILE.read_text()))],
        "processes": 1,
        # Some workers do not read the order to stop.
        "stop_timeout": 0.5,
        "environment": environment or {},
        **options,
    }


def frame(context: bytes = b'{"status":200,"headers":{}}', body: bytes = b"", **header) -> bytes:
    """A frame of a worker; the options of `header` make it a wrong one."""
    payload = context + body
    options = header.get("options", (len(context),))
    first = header.get("first", 0x13 + len(options))
    start = struct.pack("<BBI", first, header.get("flags", 0), header.get("length", len(payload)))
    checksum = header.get("checksum", zlib.crc32(start))
    head = start + struct.pack("<IBB", checksum, header.get("stream", 0), 0)
    return head + b"".join(struct.pack("<I", option) for option in options) + payload


def assert_context_of_get(context: dict, server, path: str, query: str) -> None:
    """`context` is that of a GET request of this machine, without a body."""
    names = ("remoteAddr", "protocol", "method", "uri", "rawQuery", "parsed", "uploads")
    assert {name: context[name] for name in names} == {
        "remoteAddr": "127.0.0.1",
        "protocol": "HTTP/1.1",
        "method": "GET",
        "uri": f"http://127.0.0.1:{server.port}{path}?{query}",
        "rawQuery": query,
        "parsed": False,
        "uploads": None,
    }
