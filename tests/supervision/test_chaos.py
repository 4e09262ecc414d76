"""Whatever is killed, each client's answer is right or an honest 5xx, and nothing is left behind.

HOWDAH_TEST_CHAOS_SECONDS (8) is how long it goes on; the whole bar is 60.
"""

import contextlib
import os
import random
import threading
import time
from pathlib import Path

import pytest

from support.client import Connection
from support.processes import Process
from support.server import Howdah
from support.waiting import wait_for

SECONDS = float(os.environ.get("HOWDAH_TEST_CHAOS_SECONDS", "8"))
CLIENTS = 8
WORKERS = 4
TITLES = {"worker": 'howdah: "app" worker', "prototype": 'howdah: "app" prototype', "router": "howdah: router"}
WEIGHTS = {"worker": 8, "prototype": 1, "router": 1}


class Clients:
    """Each asks for a number of its own and looks whether the answer is about that number."""

    def __init__(self, server):
        self.server, self.stopped = server, threading.Event()
        self.right, self.honest, self.lost, self.wrong = 0, 0, 0, []
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self._run, args=(number,)) for number in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def _run(self, number):
        connection, count = None, 0
        while not self.stopped.is_set():
            count += 1
            asked = f"{number}-{count}"
            try:
                connection = connection or Connection((self.server.host, self.server.port), timeout=20)
                answer = connection.request("GET", f"/echo.php?{asked}")
                with self.lock:
                    if answer.status == 200 and answer.text == f"you asked for {asked}":
                        self.right += 1
                    elif answer.status in (502, 503):
                        self.honest += 1
                    else:
                        self.wrong.append((asked, answer.status, answer.text[:100]))
                if answer.header("Connection") == "close":
                    connection.close()
                    connection = None
            except (OSError, EOFError, AssertionError, ValueError):
                # The router died while it had the connection.
                with self.lock:
                    self.lost += 1
                if connection:
                    connection.close()
                connection = None

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join()


def children(pid):
    """Without a look at all processes of the machine: there are many, and ten looks a second."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def victims(server, title):
    below = children(server.pid)
    below += [child for parent in below for child in children(parent)]
    return [process for pid in below if (process := Process.of(pid)) and process.title == title and process.state != "Z"]


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.xdist_group("heavy")
def test_random_deaths_cost_their_own_requests_and_nothing_else(folder):
    folder.php("echo.php", "usleep(2000); echo 'you asked for ', $_SERVER['QUERY_STRING'];")
    config = {"applications": {"app": {"type": "php", "root": str(folder.root), "processes": WORKERS}}}
    with Howdah.run(config) as server:
        server.workers(count=WORKERS)
        before = descriptors(server.pid)
        clients = Clients(server)
        dice = random.Random(4)
        killed = {"worker": 0, "prototype": 0, "router": 0}
        until, due = time.monotonic() + SECONDS, time.monotonic()
        tries = 0
        while time.monotonic() < until:
            tries += 1
            for kind in sorted(TITLES, key=lambda kind: dice.random() ** (1 / WEIGHTS[kind]), reverse=True):
                # Whose prototype has just died is there again a moment later: meanwhile another kind has to die.
                found = victims(server, TITLES[kind])
                if found:
                    with contextlib.suppress(ProcessLookupError):
                        dice.choice(found).kill()
                        killed[kind] += 1
                    break
            due += 0.1
            time.sleep(max(0.0, due - time.monotonic()))
        # Everything comes back by itself.
        wait_for(lambda: server.get("/echo.php?end").text == "you asked for end", "an answer", timeout=20)
        clients.stop()
        print(f"{killed} killed in {tries} tries, {tries / SECONDS:.1f} a second: {clients.right} right, {clients.honest} 502 or 503, {clients.lost} lost with a router")
        assert tries > 8 * SECONDS and sum(killed.values()) > 5 * SECONDS, (tries, killed)
        assert clients.wrong == []
        assert clients.right > 10 * SECONDS
        # One request for each worker, those of the connections of each router; a prototype's workers finish theirs.
        assert clients.honest <= killed["worker"] + CLIENTS * killed["router"], (clients.honest, killed)
        assert clients.lost <= CLIENTS * killed["router"], (clients.lost, killed)
        server.workers(count=WORKERS)
        server.prototype()

        def idle():
            now = server.api("GET", "/status/applications/app").json()
            return now["requests"]["active"] == 0 and now["processes"]["idle"] == WORKERS

        wait_for(idle, "no request is left in a slot", timeout=20)
        assert server.zombies() == []
        wait_for(lambda: descriptors(server.pid) <= before, "no descriptor is left", timeout=20)
