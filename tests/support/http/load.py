"""Load: clients that send requests until they are stopped and check each answer; and loads of `howdah lab load`.

    with Load(server, lambda client, turn: client.get("/").status != 200 and "not 200", clients=4) as load:
        ...
    load.assert_flawless()
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from typing import Callable

from support.http.client import Connection, Headers, Response
from support.server import EXECUTABLE, Howdah
from support.waiting import PATIENCE


class LoadClient:
    """A client that keeps its connection until the server closes it or an error breaks it."""

    def __init__(self, server: Howdah, number: int, timeout: float):
        self.server, self.number, self.timeout = server, number, timeout
        self.connections = 0
        self.connection: Connection | None = None

    def get(self, target: str, headers: Headers = ()) -> Response:
        if self.connection is None:
            self.connection = self.server.connect(self.timeout)
            self.connections += 1
        response = self.connection.request("GET", target, headers)
        if response.header("Connection") == "close":
            self.close()
        return response

    def close(self) -> None:
        if self.connection:
            self.connection.close()
        self.connection = None


Check = Callable[[LoadClient, int], object]
"""Sends the requests of one turn. Gets the client and the turn's number (from 1); returns a description of an error, or
a false value."""


class Load:
    """Clients, each in a thread of its own, that repeat a check until the load stops."""

    def __init__(
        self,
        server: Howdah,
        *checks: Check,
        clients: int = 1,
        turns_per_second: float | None = None,
        timeout: float = PATIENCE,
    ):
        """Starts `clients` clients per check, which together do `turns_per_second`; without it, they never pause."""
        self.correct = 0
        self.wrong: list[object] = []
        """The errors that checks returned."""
        self.broken: list[str] = []
        """Connection errors, and responses that are not HTTP."""
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        repeated = [check for check in checks for _ in range(clients)]
        self._pause = len(repeated) / turns_per_second if turns_per_second else 0.0
        self.clients = [LoadClient(server, number, timeout) for number in range(len(repeated))]
        self._threads = [threading.Thread(target=self._run, args=pair) for pair in zip(self.clients, repeated)]
        for thread in self._threads:
            thread.start()

    def _run(self, client: LoadClient, check: Check) -> None:
        turn, due = 0, time.monotonic()
        while not self._stopped.is_set():
            turn += 1
            try:
                wrong = check(client, turn)
                with self._lock:
                    if wrong:
                        self.wrong.append(wrong)
                    else:
                        self.correct += 1
            except Exception as error:
                with self._lock:
                    self.broken.append(f"client {client.number}, turn {turn}: {error!r}")
                client.close()
            due += self._pause
            time.sleep(max(0.0, due - time.monotonic()))
        client.close()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def assert_flawless(self) -> None:
        """Asserts that each response until now was right."""
        failures = self.wrong + self.broken
        assert not failures, (len(failures), failures[:5])

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_) -> None:
        self.stop()


def load_at_rates(url: str, *steps: str, connections: int = 1500, expect: str | None = None, socket=None) -> dict:
    """The outcomes of requests at fixed rates: each step is `REQUESTS_PER_SECOND:SECONDS`.

    "outcomes": {"200": 5, "503": 2, "reset": 1}; "others": the times of all but the right ones; "seconds": by the second in
    which a request was due.
    """
    schedule = " ".join("const({}, {}s)".format(*step.split(":")) for step in steps)
    return _load(url, "--schedule", schedule, connections=connections, expect=expect, socket=socket)


def load_of_clients(url: str, clients: int, seconds: float, *, keep_alive: bool = True, expect: str | None = None) -> dict:
    """The same of clients without a pause. Without `keep_alive`, each request has a connection of its own."""
    options = ["--duration", f"{seconds}s", *([] if keep_alive else ["--no-keep-alive"])]
    return _load(url, *options, connections=clients, expect=expect)


def _load(url: str, *options: str, connections: int, expect: str | None, socket=None) -> dict:
    command = [EXECUTABLE, "lab", "load", "--json", "--timeout", "60s", "--connections", str(connections), *options]
    if socket:
        command += ["--socket", socket]
    if expect:
        command += ["--expect", expect]
    done = subprocess.run([*command, "--", url], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    outcomes = {**run["statuses"], **{kind: count for kind, count in run["errors"].items() if kind != "wrong_status"}}
    # A response 200 with another body.
    outcomes["200"] = outcomes.get("200", 0) - run["errors"].get("wrong_body", 0)
    # Later ones have only outcomes of requests that were due before.
    due = max((second["second"] + 1 for second in run["seconds"] if second["sent"]), default=0)
    return {
        "outcomes": {outcome: count for outcome, count in outcomes.items() if count},
        "others": run["failure_latency"]["percentiles"],
        "seconds": [{"ok": second["right"], "p99": (second["latency"] or {}).get("p99", 0.0)} for second in run["seconds"][:due]],
    }
