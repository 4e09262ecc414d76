"""A control API without a howdah behind it, for answers that a real one seldom gives: hundreds of applications, hostile
texts, a router that does not answer.

    with ControlApi(path, {"/status": {...}}) as api:
        api.answers["/status"] = (500, {"error": "Failed to get status."})
"""

from __future__ import annotations

import json
import os
import socketserver
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path


class ControlApi:
    def __init__(self, path: Path | str, answers: dict[str, object]):
        """`answers` are bodies of GET requests by their paths, or pairs of a status and a body, or functions
        that return one. Bytes are sent unchanged."""
        self.path, self.answers = str(path), answers
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                found = api.answers.get(self.path, (404, {"error": "Value doesn't exist.", "detail": "nothing"}))
                found = found() if callable(found) else found
                status, body = found if isinstance(found, tuple) else (200, found)
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("ETag", '"fixed"')
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(content)

            def address_string(self):
                return "unix"

            def log_message(self, *_):
                pass

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True
            request_queue_size = 128

        self.server = Server(self.path, Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        os.unlink(self.path)

    def __enter__(self) -> ControlApi:
        return self

    def __exit__(self, *_) -> None:
        self.close()


def status(applications: dict[str, dict]) -> dict:
    """The answer for `/status` with these applications."""
    return {
        "connections": {"accepted": 9, "active": 3, "idle": 1, "closed": 5},
        "requests": {"total": 1234},
        "applications": {
            name: {"processes": {"running": 2, "starting": 0, "idle": 1}, "requests": {"active": 1, "waiting": 0, "refused": 0}, **more}
            for name, more in applications.items()
        },
    }  # fmt: skip
