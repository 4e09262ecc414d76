"""Requests of many users at random in async mode: no byte of one request is in the answer to another.

The number of requests is HOWDAH_INTERLEAVED_REQUESTS, or 10,000.
"""

import os
import random
import re
from concurrent.futures import ThreadPoolExecutor

from support.worker_site import failures_of_killed_workers

REQUESTS = int(os.environ.get("HOWDAH_INTERLEAVED_REQUESTS", 10_000))
CLIENTS = 40
MARKER = re.compile(rb"marker-[0-9a-z]{12}")

# Each request waits some times, at random, and repeats its marker in its head and in all parts of its answer.
SERVER = """
serve(function (Request $request): void {
    $query = $request->query();
    $body = $request->body();
    $marker = $query['m'] ?? $request->header('X-Marker');
    $answer = json_encode([$request->method(), $request->uri(), $request->headers(), $request->server(), $query, $body]);
    $headers = ['X-Marker' => $marker, 'Content-Type' => 'application/json'];
    if (mt_rand(0, 1)) {
        later(mt_rand(0, 20) / 1000, fn () => $request->respond(200, $headers, $answer . str_repeat($marker, mt_rand(0, 3000))));
        return;
    }
    $parts = [$answer, ...array_fill(0, mt_rand(0, 5), str_repeat($marker, mt_rand(1, 300)))];
    $step = function () use (&$step, &$parts, $request, $headers): void {
        static $isStarted = false;
        if (!$isStarted) { $isStarted = true; $request->start(200, $headers); }
        elseif ($parts) { $request->write(array_shift($parts)); }
        else { $request->end(); return; }
        later(mt_rand(0, 10) / 1000, $step);
    };
    $step();
});
"""


def marker_of(chance: random.Random) -> str:
    return "marker-" + "".join(chance.choices("0123456789abcdefghijklmnopqrstuvwxyz", k=12))


def exchange(connection, marker: str, chance: random.Random):
    kind = chance.randrange(3)
    if kind == 0:
        return connection.request("GET", f"/{marker}?m={marker}", {"Cookie": f"c={marker}"})
    body = (marker * chance.choice([0, 1, 100, 5000])).encode()
    return connection.request("POST", "/" if kind == 1 else f"/?m={marker}", {"X-Marker": marker}, body)


def test_no_request_sees_another(start):
    site = start(SERVER, processes=2, concurrency=50)

    def client(seed: int) -> None:
        chance = random.Random(seed)
        with site.server.connect() as connection:
            for number in range(REQUESTS // CLIENTS):
                marker = marker_of(chance)
                answer = exchange(connection, marker, chance)
                everything = answer.body + repr(answer.headers).encode()
                found = set(MARKER.findall(everything))
                assert answer.status == 200 and found == {marker.encode()}, (seed, number, marker, found)
                assert answer.header("X-Marker") == marker

    pids = {process.pid for process in site.server.workers(count=2)}
    seed = random.randrange(1 << 30)
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(client, range(seed, seed + CLIENTS)))
    assert {process.pid for process in site.server.workers()} == pids, "the workers have survived"
    assert "violation" not in site.server.stderr and "freed the object" not in site.server.stderr


def test_killed_workers_cost_only_their_own_requests(start):
    concurrency = 10
    site = start("serve(fn (Request $request) => later(0.02, fn () => text($request, $request->query()['m'])));",
                 processes=3, concurrency=concurrency)
    failed, kills = failures_of_killed_workers(site.server, clients=20, requests=150)
    assert set(failed) <= {502} and 0 < len(failed) <= kills * concurrency, (kills, failed)
    assert len(site.server.workers(count=3)) == 3
