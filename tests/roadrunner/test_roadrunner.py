"""Applications of the type `roadrunner`: requests, responses, and the life of their workers."""

import base64
import contextlib
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.http.client import ClosedWithoutResponse
from support.http.load import Load
from support.http_applications import assert_changes_lose_no_request, change, configuration, pids, wait_until_gone
from support.processes import Process
from support.roadrunner_applications import assert_context_of_get, roadrunner_application
from support.waiting import wait_for

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture(params=["pipes", "unix"])
def relay(request):
    return request.param


@pytest.fixture
def workers(run, folder, relay):
    """Starts a server with the worker of the tests, which has these options."""

    def start(environment=None, time_divider=1, **options):
        application = roadrunner_application(folder, environment, **{"relay": relay, **options})
        return run(configuration(application), time_divider=time_divider)

    return start


def context(server, *arguments, **options):
    """The request as the worker got it: its context, and its body."""
    page = server.request(*arguments, **options).json()
    return page["context"], base64.b64decode(page["body"])


# --- Requests


def test_a_worker_answers_as_the_user_of_the_application(workers, folder, relay):
    server = workers()
    first, second = server.get("/").json(), server.get("/").json()
    assert (first["requests"], second["requests"]) == (1, 2) and first["pid"] == second["pid"]
    assert (first["mode"], first["relay"].partition(":")[0], first["cwd"]) == ("http", relay, str(folder.root))
    assert pids(server) == [first["pid"]]
    if os.geteuid() == 0:
        assert first["uid"] != 0


def test_a_request_has_the_context_of_roadrunner(workers):
    server = workers()
    headers = [
        ("X-TWO", "1"),
        ("x-two", "2"),
        ("Cookie", "sid=a%20b+c; x=\u00e9; x=2"),
        ("Proxy", "http://attacker"),
    ]
    got, body = context(server, "GET", "/context?a=1&b[]=%20", headers=headers)
    assert body == b""
    assert_context_of_get(got, server, "/context", "a=1&b[]=%20")
    assert got["headers"]["X-Two"] == ["1", "2"]
    assert not {"Host", "Proxy"} & set(got["headers"])
    assert got["cookies"]["sid"] == "a b c" and got["cookies"]["x"] == "2"
    assert got["attributes"] in ([], {})


@pytest.mark.parametrize("size", [0, 1, 4080, 100_000, 5_000_000])
def test_a_body_arrives_as_it_was_sent(workers, size):
    server = workers()
    body = os.urandom(size)
    response = server.post("/echo", body, {"Content-Type": "application/octet-stream"})
    assert response.body == body


def test_a_body_in_a_file_arrives(run, folder):
    config = configuration(roadrunner_application(folder))
    config["settings"] = {"http": {"body_buffer_size": 1000, "chunked_transform": True}}
    server = run(config)
    body = os.urandom(300_000)
    assert server.post("/echo", body).body == body
    assert server.post("/echo", [body[:100_000], body[100_000:]]).body == body


def test_a_form_arrives_parsed(workers):
    server = workers()
    got, body = context(server, "POST", "/context", headers=FORM, body="z=1&b%5Bx%5D=2&b[y][]=3&b[y][]=4&e=%C3%A9+%zz&w=%ff")
    assert got["parsed"] is True
    fields = json.loads(body)
    assert fields == {"z": "1", "b": {"x": "2", "y": ["3", "4"]}, "e": "\u00e9 %zz", "w": "\ufffd"}
    assert list(fields) == ["z", "b", "e", "w"]
    assert context(server, "POST", "/context", headers=FORM, body="")[0]["parsed"] is False


def multipart(*parts):
    """A body of parts: their headers, and their contents."""
    body = b"".join(b"--XX\r\n" + head.encode() + b"\r\n\r\n" + content + b"\r\n" for head, content in parts)
    return {"headers": {"Content-Type": "multipart/form-data; boundary=XX"}, "body": body + b"--XX--\r\n"}


def test_uploads_are_files_that_the_worker_reads(workers):
    server = workers()
    content = os.urandom(200_000)
    request = multipart(
        ('Content-Disposition: form-data; name="field"', b"value"),
        ('Content-Disposition: form-data; name="f"; filename="a\\b \\"c\\".bin"\r\nContent-Type: image/x', content),
        ('Content-Disposition: form-data; name="g[]"; filename="1"', b"one"),
        ('Content-Disposition: form-data; name="g[]"; filename="2"', b""),
        ('Content-Disposition: form-data; name="none"; filename=""', b""),
    )
    got, _ = context(server, "POST", "/context", **request)
    assert got["parsed"] is True
    uploads = got["uploads"]
    assert {key: uploads["f"][key] for key in ("name", "mime", "size", "error")} == {
        "name": 'b "c".bin',
        "mime": "image/x",
        "size": 200_000,
        "error": 0,
    }
    assert [upload["size"] for upload in uploads["g"]] == [3, 0] and uploads["none"]["error"] == 4
    page = server.request("POST", "/uploads", **multipart(*[
        ('Content-Disposition: form-data; name="a"', b"1"),
        ('Content-Disposition: form-data; name="f"; filename="x"', b"content"),
    ])).json()
    [[path, text, mode]] = page["contents"]
    assert (text, page["form"]) == ("content", {"a": "1"}) and mode in ("0640", "0600")
    wait_for(lambda: not os.path.exists(path), "the end of the file")


def test_a_raw_body_is_not_parsed(workers):
    server = workers(raw_body=True)
    got, body = context(server, "POST", "/context", headers=FORM, body="a=1")
    assert (got["parsed"], body) == (False, b"a=1")


def test_a_wrong_form_is_answered_400_and_reaches_no_worker(workers):
    server = workers()
    for body in [b"", b"--XX\r\n\r\nx", b"--XXa\r\n"]:
        response = server.post("/context", body or b" ", {"Content-Type": "multipart/form-data; boundary=XX"})
        assert response.status == 400
    assert server.post("/context", b"x", {"Content-Type": "multipart/form-data"}).status == 400
    assert server.get("/").json()["requests"] == 1


# --- Responses


def respond(server, status, headers, body=""):
    return server.post("/response", json.dumps({"status": status, "headers": headers, "body": body}))


def test_a_response_has_the_status_and_headers_of_the_worker(workers):
    server = workers()
    response = respond(server, 404, {"Set-Cookie": ["a=1", "b=2"], "ETag": '"x"', "content-length": "999"}, "text")
    assert (response.status, response.text) == (404, "text")
    assert response.all("Set-Cookie") == ["a=1", "b=2"] and response.header("ETag") == '"x"'
    assert response.all("Content-Length") == ["4"]
    assert respond(server, 204, {}).status == 204
    assert respond(server, 205, {}, "x").body == b""
    response = server.request("HEAD", "/")
    assert response.status == 200 and response.body == b"" and int(response.header("Content-Length")) > 10


@pytest.mark.parametrize("status", [99, 1000, -1, 70000])
def test_a_status_that_http_does_not_allow_is_answered_502(workers, status):
    server = workers()
    before = server.get("/").json()["pid"]
    assert respond(server, status, {}).status == 502
    assert server.get("/").json()["pid"] == before


def test_headers_that_http_does_not_allow_are_left_out(workers):
    server = workers()
    response = respond(server, 200, {"X-Good": "1", "X-Bad": "a\r\nSet-Cookie: x=1", "X Y": "2", "Transfer-Encoding": "x"})
    assert response.status == 200 and response.header("X-Good") == "1"
    assert not response.all("Set-Cookie") and not response.all("X-Bad") and response.body == b""


@pytest.mark.parametrize("kib", [1, 64, 65, 700, 5000])
def test_a_response_of_any_size_arrives(workers, kib):
    server = workers()
    response = server.get(f"/big?kib={kib}")
    assert response.body == b"0123456789abcdef" * kib * 64
    assert response.all("Content-Length") == [str(kib * 1024)]


def test_a_stream_arrives_as_it_is_written(workers, folder):
    server = workers()
    go_on = folder.scratch / "go-on"
    with server.connect() as connection:
        connection.send_request("GET", f"/stream?chunks=30&after={go_on}")
        response, chunks = connection.stream()
        assert (response.status, response.all("X-Stream")) == (201, ["a", "b"])
        first = next(chunks)
        go_on.touch()
        assert first + b"".join(chunks) == b"".join(b"chunk %d\n" % number for number in range(1, 31))
    assert server.get("/stream?chunks=0").status == 201


def test_a_stream_ends_when_the_client_leaves(workers, folder):
    server = workers()
    log = folder.scratch / "log"
    with server.connect() as connection:
        connection.send_request("GET", f"/endless?log={log}")
        _, chunks = connection.stream()
        next(chunks)
    text = wait_for(lambda: log.exists() and log.read_text(), "the end of the stream")
    assert text == f"stopped {server.get('/').json()['pid']}"


def test_an_error_frame_is_answered_500_and_logged(workers):
    server = workers()
    before = server.get("/").json()["pid"]
    response = server.get("/error")
    assert response.status == 500 and "database" not in response.text
    server.wait_for_log_line("a worker answered with an error", "no database for this request", 'application="app"')
    assert server.get("/").json()["pid"] == before


def test_text_that_php_prints_goes_to_the_log(workers):
    server = workers()
    assert server.get("/print").text == "page"
    server.wait_for_log_line("printed by a page")


def test_a_request_that_a_worker_refuses_goes_to_another_one(workers, folder):
    server = workers({"FIRST_REFUSES": str(folder.scratch / "refused")})
    [first] = pids(server)
    assert server.get("/").json()["pid"] != first
    wait_until_gone(first)
    response = server.get("/refuse")
    assert response.status == 502
    server.wait_for_log_line("3 workers asked to be replaced")


# --- Limits


def test_a_worker_is_replaced_after_its_number_of_requests(workers):
    server = workers(limits={"requests": 2})
    pages = [server.get("/").json() for _ in range(5)]
    assert [page["requests"] for page in pages] == [1, 2, 1, 2, 1]
    assert len({page["pid"] for page in pages}) == 3
    assert "exited" not in server.stderr


def test_a_worker_that_grows_is_replaced(workers):
    server = workers(limits={"memory": "20M"})
    [before] = pids(server)
    assert server.get("/leak?mib=5").text == str(before)
    assert server.get("/leak?mib=40").text == str(before)
    wait_until_gone(before)
    assert server.get("/").json()["requests"] == 1
    assert "exited" not in server.stderr


def test_old_workers_are_replaced_one_at_a_time(workers):
    server = workers(processes=3, ttl=1)
    before = pids(server)
    states = "/status/applications/app/processes"

    def check(client, _):
        response = client.get("/")
        return response.status != 200 and response.status

    with Load(server, check, clients=3) as load:

        def replaced() -> bool:
            ready = [worker for worker in server.api("GET", states).json()["workers"] if worker["state"] == "ready"]
            assert len(ready) >= 2
            return not {worker["pid"] for worker in ready} & set(before)

        wait_for(replaced, "other workers")
    load.assert_flawless()
    assert "exited" not in server.stderr


def test_a_worker_that_is_idle_for_too_long_is_replaced(workers):
    server = workers(processes=2, idle_ttl=1)
    before = pids(server)
    wait_until_gone(*before)
    wait_for(lambda: len(pids(server)) == 2, "other workers")
    assert server.get("/").json()["requests"] == 1 and not set(pids(server)) & set(before)
    # A worker that has requests is not idle.
    server = workers(processes=1, idle_ttl=2)
    [busy] = pids(server)
    for number in range(30):
        page = server.get("/sleep?ms=100")
        assert page.text == f"1 {busy}", number
    assert "exited" not in server.stderr


def test_a_request_that_takes_too_long_is_answered_504(workers):
    server = workers(limits={"timeout": 1})
    [before] = pids(server)
    assert server.get("/sleep?ms=60000").status == 504
    wait_until_gone(before)
    server.wait_for_log_line("a request runs for longer than 1 s (limits/timeout); killing its worker; answering 504")
    assert server.get("/").json()["pid"] != before


def test_a_request_that_waits_too_long_is_answered_503(workers, folder):
    server = workers(limits={"queue_timeout": 0.2})
    started, end = folder.scratch / "started", folder.scratch / "end"
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(server.get, f"/wait?started={started}&for={end}")
        wait_for(started.exists, "the request")
        response = server.get("/")
        assert response.status == 503 and response.header("Retry-After")
        end.touch()
        assert waiting.result().status == 200
    assert server.get("/").status == 200
    server.wait_for_log_line("no worker takes a request in time: answered 503", "workers=1")

    def rejected():
        return server.api("GET", "/status/applications/app/requests").json()["refused"] == 1

    wait_for(rejected, "the number of rejected requests")


# --- Changes


def test_changes_and_restarts_under_load_lose_no_request(workers):
    assert_changes_lose_no_request(workers(processes=2), "/sleep?ms=20")


def test_a_request_in_progress_is_finished_by_the_old_worker(workers, folder):
    server = workers()
    [old] = pids(server)
    started, end = folder.scratch / "started", folder.scratch / "end"
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(server.get, f"/wait?started={started}&for={end}")
        wait_for(started.exists, "the request")
        assert change(server, {"VERSION": "2"}).status == 200
        assert server.get("/").json()["version"] == "2" and Process.of(old).alive()
        end.touch()
        assert waiting.result().text == f"1 {old}"
    wait_until_gone(old)


@pytest.mark.parametrize("relay", ["pipes"], indirect=True)
@pytest.mark.parametrize(
    "environment, options, expected",
    [
        ({"BOOT_FAILS": "1"}, {}, ["its process 1 exited with code 78 before it was ready", "no database\nat boot"]),
        ({"BOOT_PRINTS": "1"}, {}, ["it is not a worker of RoadRunner: it wrote", "Warning: something is deprecated"]),
        ({"BOOT_HANGS": "1"}, {}, ["its process 1 was not ready within"]),
        ({}, {"command": "php no-such-worker.php"}, ["Could not open input file: no-such-worker.php"]),
        ({}, {"command": "no-such-program"}, ["code 127", 'cannot start "no-such-program": there is no such program']),
        ({}, {"command": "yes"}, ['it is not a worker of RoadRunner: it wrote "y y y']),
    ],
    ids=["exit", "text", "silence", "script", "program", "no worker"],
)
def test_a_worker_that_does_not_boot_is_the_answer_to_the_change(workers, folder, environment, options, expected):
    server = workers(time_divider=10)
    before = pids(server)
    application = roadrunner_application(folder, environment, **options)
    response = server.api("PUT", "/config/applications/app", application)
    assert response.status == 500, response.text
    for text in expected:
        assert text in response.json()["detail"], response.text
    assert server.get("/").status == 200 and pids(server) == before


# --- Deaths


@pytest.mark.parametrize("path", ["/die", "/exit"])
def test_a_worker_that_dies_costs_its_request_and_is_replaced(workers, path):
    server = workers()
    [before] = pids(server)
    assert server.get(path).status == 502
    assert server.get("/").json()["pid"] != before
    server.wait_for_log_line('process 1 of "app"', f"pid {before}", "starting another one in 0 ms")
    server.wait_for_log_line("a worker died during this request; answering 502", f'uri="{path}"')


def test_deaths_of_idle_workers_cost_no_request(workers):
    server = workers(processes=2)

    def check(client, _):
        response = client.get("/")
        return response.status != 200 and response.status

    for _ in range(3):
        victims = wait_for(lambda: len(pids(server)) == 2 and pids(server), "two workers")
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        # Before its end, a killed process may still take a request. The router may not know of its end yet.
        wait_until_gone(*victims)
        with Load(server, check, clients=2) as load:
            wait_for(lambda: load.correct > 20, "requests")
        load.assert_flawless()


def test_killed_workers_cost_only_their_own_requests(workers):
    server = workers(processes=2)
    failed, kills = [], 0

    def check(client, number):
        response = client.get(f"/context?number={number}")
        if response.status == 502:
            failed.append(number)
            return False
        return response.status != 200 or response.json()["context"]["rawQuery"] != f"number={number}"

    with Load(server, check, clients=4) as load:
        for _ in range(5):
            victim = wait_for(lambda: len(pids(server)) == 2 and pids(server)[0], "two workers")
            os.kill(victim, signal.SIGKILL)
            wait_until_gone(victim)
            kills += 1
    load.assert_flawless()
    assert len(failed) <= kills, (failed, kills)


def test_a_router_that_is_killed_gets_new_workers(workers, folder):
    server = workers(processes=2)
    before = pids(server)
    started, end = folder.scratch / "started", folder.scratch / "end"
    with server.connect() as lost:
        lost.send_request("GET", f"/wait?started={started}&for={end}")
        wait_for(started.exists, "the request")
        router = server.router()
        router.kill()
        wait_for(lambda: server.router() not in (None, router), "another router")
        end.touch()

    def answer():
        with contextlib.suppress(ClosedWithoutResponse, OSError):
            return server.get("/")

    page = wait_for(answer, "an answer").json()
    assert page["pid"] not in before and page["requests"] == 1
    wait_until_gone(*before)


def test_a_stop_leaves_no_worker_and_no_file(workers):
    server = workers(processes=2, environment={"EXIT_CODE": "0"})
    before = pids(server)
    path = server.request("POST", "/uploads", **multipart(
        ('Content-Disposition: form-data; name="f"; filename="x"', b"content"))).json()["contents"][0][0]
    server.stop()
    wait_until_gone(*before)
    assert not os.path.exists(os.path.dirname(path))
    assert "Uncaught" not in server.output()["stderr"], "the workers were asked to exit"
