"""A folder of PHP pages that one worker script runs, with one server for many tests."""

import itertools
import json
import random
from concurrent.futures import ThreadPoolExecutor

from support.folders import Folder
from support.http.client import Response
from support.server import Howdah
from support.waiting import wait_for

LOOP = """
$handler = static function (): void { require __DIR__ . parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH); };
while (howdah\\handle_request($handler)) { }
"""
"""A worker script that runs the page of the request's path."""


class WorkerSite(Folder):
    """`boot` is PHP code that runs before the loop of the worker script."""

    def __init__(self, path, boot: str = "", loop: str = LOOP, processes: int = 1, **how):
        super().__init__(path)
        self.numbers = itertools.count(1)
        self.php("worker.php", boot + loop)
        self.server = Howdah.serve(self, "--worker", "worker.php", processes=processes, **how)

    def page(self, code: str) -> str:
        """Makes a page under a new name, and returns its URL path."""
        name = f"page{next(self.numbers)}.php"
        # The worker script has defined SCRATCH and await().
        self.write(name, f"<?php\n{code}\n")
        return "/" + name

    def get(self, code: str, headers=(), query: str = "") -> Response:
        """The response of a page to a GET request."""
        return self.server.get(self.page(code) + query, headers)

    def post(self, code: str, body, headers=(), query: str = "") -> Response:
        return self.server.post(self.page(code) + query, body, headers)

    def value(self, code: str, headers=(), query: str = ""):
        """The value of a PHP expression within a request."""
        return json.loads(self.get(f"echo json_encode({code});", headers, query).text)

    def worker(self) -> int:
        """The process that answers; with one process, always the same unless it was replaced."""
        return self.value("getmypid()")


def failures_of_killed_workers(server: Howdah, clients: int, requests: int) -> tuple[list[int], int]:
    """Kills up to ten workers, one after the other, while clients send requests to a page that repeats its parameter `m`.
    Returns the statuses of the failed requests, and the number of kills."""
    failed = []

    def client(number: int) -> None:
        for turn in range(requests):
            answer = server.get(f"/?m={number}-{turn}")
            if answer.status == 200:
                assert answer.text == f"{number}-{turn}"
            else:
                failed.append(answer.status)

    kills = 0
    with ThreadPoolExecutor(clients) as pool:
        all_clients = [pool.submit(client, number) for number in range(clients)]
        while kills < 10 and not all(one.done() for one in all_clients):
            victim = random.choice(wait_for(server.workers, "a worker"))
            victim.kill()
            wait_for(lambda victim=victim: not victim.alive(), "its death")
            kills += 1
        for one in all_clients:
            one.result()
    return failed, kills
