"""A `howdah dashboard` beside a server, and a browser's requests to it.

    with Dashboard("--control", f"unix:{server.control}") as dashboard:
        page = dashboard.log_in()
        assert page.get("now").json()["reachable"]
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Callable, Iterator

from support.http.client import Connection, Headers, Response
from support.server import EXECUTABLE
from support.waiting import PATIENCE, wait_for

URL = re.compile(r"^dashboard http://(\S+):(\d+)/#([0-9a-f]{64})$", re.M)


class Dashboard:
    """The process. Its history is in a folder of its own, unless an option names another one."""

    def __init__(self, *options: str, listen: str = "127.0.0.1:0"):
        self.place = tempfile.TemporaryDirectory(prefix="howdah-dashboard-")
        if "--history" not in options:
            options = (*options, "--history", f"{self.place.name}/history")
        self.output = Path(self.place.name) / "output"
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", str(EXECUTABLE), "dashboard", "--listen", listen, *options],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        try:
            wait_for(lambda: URL.search(self.text) or self.process.poll() is not None, "the dashboard's URL")
            self.host, port, self.token = URL.search(self.text).groups()
        except BaseException:
            self.kill()
            raise
        self.port = int(port)

    @property
    def text(self) -> str:
        return self.output.read_text()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}/#{self.token}"

    def request(self, method: str, path: str, headers: Headers = (), body=None) -> Response:
        with Connection(("127.0.0.1", self.port)) as connection:
            return connection.request(method, path, headers, body)

    def log_in(self) -> Page:
        origin = f"http://127.0.0.1:{self.port}"
        response = self.request("POST", "/api/login", [("Host", origin[7:]), ("Origin", origin)], self.token)
        assert response.status == 200, response
        return Page(self, origin, response.header("Set-Cookie").split(";")[0], response.json()["key"])

    def stop(self) -> None:
        """As an operator does, with Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(PATIENCE) == 0, self.text
        assert "panicked" not in self.text, self.text

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.place.cleanup()

    def __enter__(self) -> Dashboard:
        return self

    def __exit__(self, kind, *_) -> None:
        try:
            if kind is None and self.process.poll() is None:
                self.stop()
        finally:
            self.kill()


class Page:
    """A browser that has logged in."""

    def __init__(self, dashboard: Dashboard, origin: str, cookie: str, key: str):
        self.dashboard, self.origin = dashboard, origin
        self.headers = [("Host", origin[7:]), ("Cookie", cookie), ("X-Howdah-Key", key)]

    def get(self, path: str) -> Response:
        return self.dashboard.request("GET", f"/api/{path}", [*self.headers, ("Sec-Fetch-Site", "same-origin")])

    @contextlib.contextmanager
    def ask(self, path: str) -> Iterator[Connection]:
        """A connection with a request whose response is not read yet."""
        with Connection(("127.0.0.1", self.dashboard.port)) as connection:
            connection.send_request("GET", f"/api/{path}", [*self.headers, ("Sec-Fetch-Site", "same-origin")])
            yield connection

    def send(self, method: str, path: str, body: object = None) -> Response:
        text = body if isinstance(body, (str, bytes)) else json.dumps(body)
        return self.dashboard.request(method, f"/api/{path}", [*self.headers, ("Origin", self.origin)], text)

    def wait(self, path: str, condition: Callable[[dict], object], what: str = ""):
        """Reads the path until the condition holds for it, and returns what the condition returned."""
        return wait_for(lambda: condition(self.get(path).json()), what or path)
