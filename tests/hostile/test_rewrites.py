"""Values that a client chooses, in the path of a `rewrite`."""

import pytest

from support.http.upstream import Upstream, answers, ok

# The target, and the answer to it. The files outside of `public` are private, and `/admin/*` is forbidden.
TARGETS = [
    ("/a.txt", 200, "public"),
    ("/admin/a.txt", 403, None),
    ("/%61dmin/a.txt", 403, None),
    ("/%2561dmin/a.txt", 404, None),
    ("/%25%36%31dmin/a.txt", 404, None),
    ("/%252e%252e/private/s.txt", 404, None),
    ("/x.php%3F.png", 404, None),
    ("/x.php%23.png", 404, None),
    ("/x%2500", 404, None),
    ("/x%25", 404, None),
    ("/by-name?name=a.txt", 200, "public"),
    ("/by-name?name=../private/s.txt", 404, None),
    ("/by-name?name=b/../../private/s.txt", 404, None),
    ("/by-name?name=%252e%252e/private/s.txt", 404, None),
    ("/by-name?name=a.txt%00", 404, None),
    ("/as-sent/admin/../a.txt?x=/../..", 404, None),
]


@pytest.fixture
def server(application, folder, run):
    folder.write("public/a.txt", "public")
    folder.write("public/admin/a.txt", "an administrator's")
    folder.write("private/s.txt", "private")
    folder.php("public/x.php", "echo 'a script';")
    share = {"share": f"{folder.root}$uri", "fallback": {"pass": "applications/app"}}
    routes = [
        {"match": {"uri": "/admin/*"}, "action": {"return": 403}},
        {"match": {"uri": "/by-name"}, "action": {"rewrite": "/public/$arg_name", **share}},
        {"match": {"uri": "/as-sent/*"}, "action": {"rewrite": "/public$request_uri", **share}},
        {"action": {"rewrite": "/public$uri", **share}},
    ]
    return run({"listeners": {"127.0.0.1:{port}": {"pass": "routes"}}, "routes": routes, "applications": {"app": application}})


def test_a_rewrite_does_not_decode_values_again(server):
    for target, status, text in TARGETS:
        response = server.get(target)
        assert response.status == status, target
        assert text is None or response.text == text, target
    assert "ERROR" not in server.stderr


def test_an_upstream_gets_a_path_below_that_of_the_rewrite(run):
    with Upstream(answers(ok(b"ok"))) as upstream:
        action = {"rewrite": "/v1$uri", "proxy": upstream.url}
        server = run({"listeners": {"127.0.0.1:{port}": {"pass": "routes"}}, "routes": [{"action": action}]})
        targets = ["/api/%252e%252e/%252e%252e/internal/secret", "/api/x%2500", "/api/a%3Fb%23c?d=e", "/api/%25%0a"]
        assert [server.get(target).status for target in targets] == [200] * len(targets)
        assert [request.line.split()[1] for request in upstream.requests] == [
            "/v1/api/%252e%252e/%252e%252e/internal/secret",
            "/v1/api/x%2500",
            "/v1/api/a%3Fb%23c?d=e",
            "/v1/api/%25%0A",
        ]
        assert "ERROR" not in server.stderr
