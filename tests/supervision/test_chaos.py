"""Random deaths: each response is right or a 502 or 503, and no process or descriptor is left over.

HOWDAH_TEST_CHAOS_SECONDS (8) sets the duration; docs/performance.md has the result of 60 s.
"""

import contextlib
import os
import random
import time

from support.http.load import Load
from support.processes import Process, children, open_descriptors
from support.server import Howdah
from support.waiting import wait_for

SECONDS = float(os.environ.get("HOWDAH_TEST_CHAOS_SECONDS", "8"))
CLIENTS = 8
WORKERS = 4
TITLES = {"worker": 'howdah: "app" worker', "prototype": 'howdah: "app" prototype', "router": "howdah: router"}
WEIGHTS = {"worker": 8, "prototype": 1, "router": 1}


def ask(client, turn):
    """Requests a page with a unique number, and compares the response with it."""
    number = f"{client.number}-{turn}"
    answer = client.get(f"/echo.php?{number}")
    if answer.status in (502, 503):
        return answer.status
    if (answer.status, answer.text) != (200, f"you asked for {number}"):
        return number, answer.status, answer.text[:100]


def victims(server, title):
    below = children(server.pid)
    below += [child for parent in below for child in children(parent)]
    return [process for pid in below if (process := Process.of(pid)) and process.title == title and process.state != "Z"]


def test_random_deaths_cost_their_own_requests_and_nothing_else(folder):
    folder.php("echo.php", "usleep(2000); echo 'you asked for ', $_SERVER['QUERY_STRING'];")
    config = {"applications": {"app": {"type": "php", "root": str(folder.root), "processes": WORKERS}}}
    with Howdah.run(config) as server:
        server.workers(count=WORKERS)
        before = open_descriptors(server.pid)
        load = Load(server, ask, clients=CLIENTS, timeout=20)
        dice = random.Random(4)
        killed = {"worker": 0, "prototype": 0, "router": 0}
        until, due = time.monotonic() + SECONDS, time.monotonic()
        tries = 0
        while time.monotonic() < until:
            tries += 1
            for kind in sorted(TITLES, key=lambda kind: dice.random() ** (1 / WEIGHTS[kind]), reverse=True):
                # A killed process may not have a successor yet: then a process of another kind is killed.
                found = victims(server, TITLES[kind])
                if found:
                    with contextlib.suppress(ProcessLookupError):
                        dice.choice(found).kill()
                        killed[kind] += 1
                    break
            due += 0.1
            time.sleep(max(0.0, due - time.monotonic()))
        # All processes are replaced.
        wait_for(lambda: server.get("/echo.php?end").text == "you asked for end", "an answer", timeout=20)
        load.stop()
        honest = [answer for answer in load.wrong if answer in (502, 503)]
        wrong = [answer for answer in load.wrong if answer not in (502, 503)]
        print(f"{killed} killed in {tries} tries, {tries / SECONDS:.1f} a second: {load.correct} right, {len(honest)} 502 or 503, {len(load.broken)} lost with a router")
        assert tries > 4 * SECONDS and sum(killed.values()) > 2 * SECONDS, (tries, killed)
        assert wrong == []
        assert load.correct > 10 * SECONDS
        # The death of a worker costs one request, that of a router one per connection, that of a prototype none.
        assert len(honest) <= killed["worker"] + CLIENTS * killed["router"], (len(honest), killed)
        assert len(load.broken) <= CLIENTS * killed["router"], (load.broken, killed)
        server.workers(count=WORKERS)
        server.prototype()

        def idle():
            now = server.api("GET", "/status/applications/app").json()
            return now["requests"]["active"] == 0 and now["processes"]["idle"] == WORKERS

        wait_for(idle, "no request is left in a slot", timeout=20)
        assert server.zombies() == []
        wait_for(lambda: open_descriptors(server.pid) <= before, "no descriptor is left", timeout=20)
