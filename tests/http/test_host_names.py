"""Servers of `proxy` and `upstreams` that are host names."""

import json

from support.command_line import howdah
from support.http.proxying import proxy_configuration, upstream_group
from support.http.upstream import Upstream, answers, ok
from support.machine import free_port

# A label of 64 letters is longer than DNS allows: the resolver answers without a server.
NO_NAME = "x" * 64


def test_a_request_goes_to_a_host_name(run):
    """`localhost` may have two addresses, of which one accepts connections."""
    with Upstream(answers(ok(b"hello"))) as upstream:
        port = upstream.address.rsplit(":", 1)[1]
        server = run(proxy_configuration({"proxy": f"http://LocalHost:{port}"}))
        for _ in range(3):
            assert server.get("/").text == "hello"
        assert [request.header("host") for request in upstream.requests] == [f"127.0.0.1:{server.port}"] * 3


def test_a_name_that_cannot_be_resolved_is_answered_502(run):
    server = run(proxy_configuration({"proxy": f"http://{NO_NAME}:80"}))
    assert server.get("/").status == 502
    server.wait_for_log_line("cannot forward a request", f'upstream="{NO_NAME}:80"', "cannot resolve the name", "502")


def test_another_server_answers_for_a_name_that_cannot_be_resolved(run):
    with Upstream(answers(ok(b"hello"))) as upstream:
        server = run(upstream_group((f"{NO_NAME}:80", 1), (upstream, 1)))
        for _ in range(4):
            assert server.get("/").text == "hello"


def test_a_host_name_that_does_not_answer_is_answered_502(run):
    port = free_port()
    server = run(proxy_configuration({"proxy": f"http://localhost:{port}"}))
    assert server.get("/").status == 502
    server.wait_for_log_line("cannot forward a request", f'upstream="localhost:{port}"', f"127.0.0.1:{port}", "refused")


def test_a_full_check_resolves_the_names(tmp_path):
    path = tmp_path / "checked.json"
    path.write_text(json.dumps({"routes": [{"action": {"proxy": f"http://{NO_NAME}:80"}}]}))
    assert howdah("config", "check", path).returncode == 0
    result = howdah("config", "check", "--full", path, "--state-dir", tmp_path / "state")
    assert result.returncode == 1 and f'cannot resolve the name of the upstream "{NO_NAME}:80"' in result.stderr, result
