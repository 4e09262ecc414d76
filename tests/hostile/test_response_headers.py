"""Scripts with thousands of response headers, or long ones."""

import pytest

from support.waiting import wait_for

DIFFERENT = "for ($n = 0; $n < %d; $n++) { header(\"X-Header-$n: value\"); }"
SAME = "for ($n = 0; $n < %d; $n++) { header('X-Header: value', false); }"


@pytest.fixture
def server(folder, application, run):
    folder.php("different.php", DIFFERENT % 25_000 + "echo 'body';")
    folder.php("same.php", SAME % 25_000 + "echo 'body';")
    folder.php("long.php", "for ($n = 0; $n < 300; $n++) { header(\"X-Long-$n: \" . str_repeat('v', 8000)); } echo 'body';")
    folder.php("more.php", DIFFERENT % 1001)
    folder.php("many.php", DIFFERENT % 900 + "echo 'body';")
    return run({"applications": {"app": application}})


@pytest.mark.parametrize("script", ["different", "same", "long"])
def test_a_response_with_too_many_headers_is_answered_502(server, script):
    router = server.router()
    with server.connect() as connection:
        for _ in range(3):
            assert connection.request("GET", f"/{script}.php").status == 502
        assert connection.request("GET", "/").text == "here", "the connection goes on"
    assert server.router() == router and "panicked" not in server.stderr
    wait_for(lambda: "answered 502" in server.stderr, "a line with the reason")


def test_a_response_with_many_headers_is_sent(server):
    response = server.get("/many.php")
    assert response.text == "body" and len([name for name, _ in response.headers if name.startswith("x-header-") or name.startswith("X-Header-")]) == 900


def test_no_connection_stays_counted(server):
    with server.connect() as kept:
        assert kept.request("GET", "/").status == 200
        for _ in range(5):
            assert server.get("/more.php").status == 502
        wait_for(lambda: server.api("GET", "/status/connections").json()["closed"] == 5, "5 closed connections")
