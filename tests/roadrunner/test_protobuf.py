"""Contexts in protobuf, for workers that understand them."""

import base64
import json

import pytest

from support.http_applications import configuration, pids, wait_until_gone
from support.roadrunner_applications import assert_context_of_get, frame, hostile_application, roadrunner_application

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def workers(run, folder):
    """Starts a server with the worker of the tests, which understands protobuf."""

    def start(**options):
        environment = {"UNDERSTANDS_PROTO": "1"}
        return run(configuration(roadrunner_application(folder, environment, **{"codec": "proto", **options})))

    return start


def test_a_request_has_the_context_of_roadrunner(workers):
    server = workers()
    headers = [("X-TWO", "1"), ("x-two", ""), ("Cookie", "sid=a%20b+c; x=\u00e9; y=%ff"), ("X-Bytes", "\udce9")]
    page = server.request("GET", "/context?a=1&b[]=%20", headers=headers).json()
    got, raw = page["context"], base64.b64decode(page["raw"])
    assert_context_of_get(got, server, "/context", "a=1&b[]=%20")
    assert got["codec"] == "proto" and got["headers"]["X-Two"] == ["1", ""] and "Host" not in got["headers"]
    assert got["cookies"]["sid"] == "a b c"
    # Bytes that are not UTF-8 arrive as they are: PHP's serialize() quotes them with their length.
    assert b's:7:"X-Bytes";a:1:{i:0;s:1:"\xe9";}' in raw and b's:1:"y";s:1:"\xff";' in raw


def test_a_worker_that_understands_both_gets_json_by_default(workers):
    server = workers(codec="json")
    got = server.get("/context").json()["context"]
    assert "codec" not in got and got["method"] == "GET"


def test_forms_and_uploads_arrive_parsed(workers):
    server = workers()
    page = server.request("POST", "/context", headers=FORM, body="a[x]=1&b=2").json()
    assert page["context"]["parsed"] is True
    assert json.loads(base64.b64decode(page["body"])) == {"a": {"x": "1"}, "b": "2"}
    part = b'--XX\r\nContent-Disposition: form-data; name="f"; filename="x"\r\n\r\ncontent\r\n--XX--\r\n'
    head = {"Content-Type": "multipart/form-data; boundary=XX"}
    [[_, text, _]] = server.request("POST", "/uploads", headers=head, body=part).json()["contents"]
    assert text == "content"


@pytest.mark.parametrize("relay", ["pipes", "unix"])
def test_a_response_has_the_status_and_headers_of_the_worker(workers, relay):
    server = workers(relay=relay)
    wanted = {"status": 404, "headers": {"Set-Cookie": ["a=1", "b=2"], "ETag": '"x"', "X-Empty": ""}, "body": "text"}
    response = server.post("/response", json.dumps(wanted))
    assert (response.status, response.text) == (404, "text")
    assert response.all("Set-Cookie") == ["a=1", "b=2"] and response.header("ETag") == '"x"'
    assert response.all("X-Empty") == [""]
    for status in (-1, 99, 1 << 40):
        assert server.post("/response", json.dumps({"status": status, "headers": {}, "body": ""})).status == 502
    stream = server.get("/stream?chunks=12")
    assert (stream.status, stream.all("X-Stream"), stream.text.count("chunk")) == (201, ["a", "b"], 12)
    assert server.get("/error").status == 500
    assert server.get("/").json()["requests"] == 7, "one worker has answered all of them"


def test_a_wrong_message_is_answered_502_and_the_worker_is_killed(run, folder):
    server = run({"applications": {"app": hostile_application(folder, codec="proto")}})
    correct = b"\x08\xc8\x01" + b"\x12\x08\x0a\x01A\x12\x03\x0a\x01b"
    for wrong in [correct[:-1], b'{"status":200,"headers":{}}', b"\x08" + b"\xff" * 11, b"\x12\x7f" + b"x" * 5]:
        [before] = pids(server)
        assert server.post("/", frame(context=wrong, flags=0x80)).status == 502
        wait_until_gone(before)
        response = server.post("/", frame(context=correct, body=b"fine", flags=0x80))
        assert (response.status, response.header("A"), response.body) == (200, "b", b"fine")
    assert server.stderr.count("its response is not the protobuf message of a response; killing it; answering 502") == 4
