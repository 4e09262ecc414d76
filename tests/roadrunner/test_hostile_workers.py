"""Workers of RoadRunner that break the rules of the protocol: each costs its own request, and is replaced."""

import os
import random

import pytest

from support.http.client import ProtocolError
from support.http.load import Load
from support.http_applications import pids, wait_until_gone
from support.roadrunner_applications import frame, hostile_application, roadrunner_application
from support.waiting import wait_for

OK = b'{"status":200,"headers":{}}'
HUGE = 0xFFFFFFFF


@pytest.fixture(params=["pipes", "unix"])
def relay(request):
    return request.param


def two_applications(folder, relay, **options) -> dict:
    """A configuration with a hostile application, and another one at /other."""
    return {
        "applications": {"app": hostile_application(folder, relay=relay, **options), "other": roadrunner_application(folder)},
        "listeners": {"127.0.0.1:{port}": {"pass": "routes"}},
        "routes": [
            {"match": {"uri": "/other"}, "action": {"rewrite": "/", "pass": "applications/other"}},
            {"action": {"pass": "applications/app"}},
        ],
    }


@pytest.fixture
def server(run, folder, relay):
    return run(two_applications(folder, relay))


def is_healthy(server) -> bool:
    return server.post("/", frame(body=b"fine")).body == b"fine" and server.get("/other").status == 200


WRONG = {
    "text": (b"<br />\n<b>Warning</b>: something is deprecated", "it wrote something that is not a frame"),
    "checksum": (frame(checksum=1), "it wrote something that is not a frame"),
    "version": (frame(first=0x24), "it wrote something that is not a frame"),
    "too many options": (frame(first=0x1F), "it wrote something that is not a frame"),
    "no option": (frame(context=b"", options=()), "its response has 0 options"),
    "two options": (frame(options=(5, 5)), "its response has 2 options"),
    "a context beyond its frame": (frame(options=(1000,)), "has a context of 1000 bytes"),
    "a huge context": (frame(options=(HUGE,), length=HUGE), "a status and headers of 4294967295 bytes"),
    "an endless stream of headers": (frame(context=b"x" * 300_000), "a status and headers of 300000 bytes"),
    "a context that is not JSON": (frame(context=b"{"), "is not the JSON of a response"),
    "a context without a status": (frame(context=b"{}"), "is not the JSON of a response"),
    "a context that is not protobuf": (frame(context=b"\x08", flags=0x80), "is not the protobuf message of a response"),
    "protobuf without its flag": (frame(context=b"\x08\xc8\x01"), "is not the JSON of a response"),
    "no context": (frame(context=b"", body=b"x"), "its response has no status"),
    "only an early hint": (frame(context=b'{"status":103}'), "its response has no status"),
    "a control frame": (frame(context=b'{"pid":1}', options=(), flags=1), "a control frame in place of a response"),
    "two answers": (frame() + frame(), "it wrote more than its answer"),
    "a huge error": (frame(context=b"", options=(), flags=0x40, length=HUGE), "its error frame is"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_answer_is_answered_502_and_the_worker_is_killed(server, name):
    answer, reason = WRONG[name]
    [before] = pids(server)
    assert server.post("/", answer).status == 502
    wait_until_gone(before)
    server.wait_for_log_line("a worker broke the rules of its protocol", reason, "killing it; answering 502", 'uri="/"')
    assert is_healthy(server)


def test_an_early_hint_is_not_the_response(server):
    answer = frame(context=b'{"status":103,"headers":{"Link":["</x>"]}}', stream=1) + frame(body=b"final")
    response = server.post("/", answer)
    assert (response.status, response.interim, response.body, response.all("Link")) == (200, [103], b"final", [])
    assert is_healthy(server)


def test_an_early_hint_arrives_before_the_response(server):
    hint = frame(context=b'{"status":103,"headers":{"Link":["</x>"]}}', stream=1)
    with server.connect() as connection:
        connection.send_request("POST", "/hang", body=hint)
        head = connection.head()
        assert (head.status, head.headers) == (103, [("Link", "</x>")])


def test_a_body_that_breaks_off_closes_the_connection(server):
    [before] = pids(server)
    with pytest.raises((ProtocolError, ConnectionError)):
        # Longer than what is read ahead: the client has the head when the worker dies.
        server.post("/exit", frame(body=b"x" * 200_000, length=HUGE))
    wait_until_gone(before)
    assert is_healthy(server)


def test_a_death_within_the_head_is_answered_502(server):
    for answer in [b"", frame()[:5], frame()[:20]]:
        [before] = wait_for(lambda: pids(server), "a worker")
        assert server.post("/exit", answer).status == 502
        wait_until_gone(before)
    assert is_healthy(server)


def test_a_worker_that_writes_after_its_answer_is_replaced(server):
    [before] = pids(server)
    # It writes the same frame again and again. The second one came together with the first one, or after it.
    response = server.post("/more", frame(body=b"right"))
    assert response.body == b"right" or response.status == 502
    # In the second case, the next request finds it; a frame that comes while this request runs looks like its answer.
    response = server.post("/", frame(body=b"fine"))
    assert response.body in (b"right", b"fine") or response.status == 502
    assert server.get("/other").status == 200
    wait_until_gone(before)
    assert is_healthy(server)


def test_a_worker_that_closes_its_output_is_killed(server, relay):
    [before] = pids(server)
    assert server.post("/close", b"").status == 502
    wait_until_gone(before)
    server.wait_for_log_line('process 1 of "app"', f"after it had closed its {'pipes' if relay == 'pipes' else 'connection'}; killing it")
    assert is_healthy(server)


def test_an_endless_answer_ends_with_its_client(run, folder, relay):
    server = run({"applications": {"app": hostile_application(folder, relay=relay, limits={"timeout": 2})}})
    [before] = pids(server)
    with server.connect() as connection:
        head = [("Content-Type", "application/octet-stream")]
        connection.send_request("POST", "/more", head, frame(body=b"x" * 100_000, stream=1))
        response, chunks = connection.stream()
        assert response.status == 200 and next(chunks)
    # The limit of the request's time ends the worker.
    wait_until_gone(before)
    assert server.post("/", frame(body=b"fine")).body == b"fine"


def test_a_worker_that_reads_no_request_is_killed_at_its_limit(run, folder, relay):
    application = hostile_application(folder, {"READS_NOTHING": "1"}, relay=relay, limits={"timeout": 1})
    server = run({"applications": {"app": application}})
    [before] = pids(server)
    assert server.post("/", b"x" * 1_000_000).status == 504
    wait_until_gone(before)


def test_random_answers_harm_no_other_request(run, folder, relay):
    # Each of many processes has its own pauses between its starts.
    server = run(two_applications(folder, relay, processes=6))
    generator = random.Random(int(os.environ.get("HOWDAH_TEST_SEED", "16")))

    def answer() -> bytes:
        body = generator.randbytes(generator.choice([0, 1, 100, 5000]))
        answer = bytearray(generator.choice([frame(body=body), frame(body=body, stream=1) + frame(context=b""), body]))
        for _ in range(generator.randrange(3)):
            if answer:
                answer[generator.randrange(len(answer))] ^= 1 << generator.randrange(8)
        return bytes(answer)

    def check(client, _):
        response = client.get("/other")
        return response.status != 200 and response.status

    with Load(server, check, clients=2) as load:
        for _ in range(40):
            try:
                # An answer that is not complete is ended by the worker's death.
                assert server.post("/exit", answer()).status in range(100, 1000)
            except (ProtocolError, ConnectionError):
                pass
    load.assert_flawless()
    assert wait_for(lambda: is_healthy(server), "a healthy worker")
    assert "panicked" not in server.stderr
