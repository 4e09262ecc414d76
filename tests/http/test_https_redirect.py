"""`redirect` of a listener: all clients go to HTTPS."""

import pytest


def test_a_listener_sends_clients_to_https(run):
    server = run({"listeners": {"127.0.0.1:{port}": {"redirect": "https"}}})
    for host, target, location in (
        ("shop.example.com", "/a%20b?c=d&e", "https://shop.example.com/a%20b?c=d&e"),
        ("Shop.Example.Com:8080", "/", "https://shop.example.com/"),
        ("[::1]:80", "//other.example/", "https://[::1]//other.example/"),
    ):
        answer = server.get(target, {"Host": host})
        assert (answer.status, answer.header("Location")) == (301, location)
    assert server.request("POST", "/x", {"Host": "a.example"}, b"body").status == 308
    assert b" 400 " in server.raw(b"GET / HTTP/1.0\r\n\r\n").split(b"\r\n")[0], "its URL is not known"


def test_another_port_can_be_named(run):
    server = run({"listeners": {"127.0.0.1:{port}": {"redirect": "https:8443"}}})
    assert server.get("/x", {"Host": "a.example"}).header("Location") == "https://a.example:8443/x"


@pytest.mark.parametrize("passes", [True, False])
def test_the_challenges_of_a_certificate_authority_are_passed_on(folder, run, passes):
    token = folder.write(".well-known/acme-challenge/token", "proof")
    listener = {"redirect": "https", **({"pass": "routes"} if passes else {})}
    server = run(
        {
            "listeners": {"127.0.0.1:{port}": listener},
            "routes": [{"action": {"share": f"{folder.root}$uri"}}],
        }
    )
    answer = server.get("/.well-known/acme-challenge/token")
    assert (answer.status, answer.text) == ((200, token.read_text()) if passes else (301, ""))
    assert server.get("/.well-known/other").status == 301
