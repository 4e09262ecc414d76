"""`basic_auth` of an action: users and passwords."""

import base64
import contextlib
import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.waiting import PATIENCE, wait_for

# "secret", as `htpasswd -nbB`, `htpasswd -nb`, `htpasswd -nbs` and `openssl passwd -6` hash it.
BCRYPT = "$2y$04$pySP2fDnpXp78VFbmb2zRuzYIRfOZEOEPBoj6FBu2h0zvbR8DaWCe"
APR1 = "$apr1$8sFt66rZ$eup.HOtZcQ/VrnApBM3rR/"
SHA1 = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="
SHA512 = "$6$abc$IdWKNKTJEb8LxY7CGg8YBXlvtfZzFw7Mp/r6niK9YB2mdvgY..TKjv1T..8RadRt2qvUHYRLr/TsVArtr91iR1"
PLAIN = "secret"


def basic(user: str, password: str = "secret") -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


@pytest.fixture
def users(folder):
    """A file with users, which the router's user can read."""
    return folder.write("users", f"# staff\nbob:{APR1}\ncarol:{SHA1}:a comment\ndan:{SHA512}\neve:{PLAIN}\nann:{SHA1}\n")


@pytest.fixture
def site(folder, run, users):
    folder.php("index.php", "echo json_encode(array_intersect_key($_SERVER, array_flip(['REMOTE_USER', 'AUTH_TYPE', 'PHP_AUTH_PW'])));")
    folder.write("docs/index.html", "the docs")
    protected = {"realm": "the staff", "users": {"ann": BCRYPT}, "user_file": str(users)}
    return run(
        {
            "routes": [
                {"match": {"uri": "/open"}, "action": {"rewrite": "/", "pass": "applications/app"}},
                {"match": {"uri": "/docs/*"}, "action": {"share": f"{folder.root}$uri", "basic_auth": protected}},
                {
                    "match": {"uri": "/limited"},
                    "action": {"return": 204, "basic_auth": protected, "rate_limit": {"requests": 3, "per": "1h"}},
                },
                {"action": {"rewrite": "/", "pass": "applications/app", "basic_auth": protected}},
            ],
            "applications": {"app": {"type": "php", "root": str(folder.root), "script": "index.php", "processes": 1}},
            "access_log": {"path": f"{folder.scratch}/access.log"},
        }
    )


@pytest.mark.parametrize("user", ["ann", "bob", "carol", "dan"])
def test_a_user_with_the_right_password_is_let_in(site, user):
    assert site.get("/", basic(user)).json() == {"REMOTE_USER": user, "AUTH_TYPE": "Basic", "PHP_AUTH_PW": "secret"}
    assert site.get("/docs/", basic(user)).text == "the docs"


@pytest.mark.parametrize(
    "headers",
    [{}, basic("ann", "Secret"), basic("ann", ""), basic("nosuch"), basic("eve"), basic(""), {"Authorization": "Basic x"}, {"Authorization": "Bearer x"}],
    ids=["none", "wrong", "empty", "unknown", "plain text in the file", "no name", "malformed", "another scheme"],
)
def test_other_requests_are_asked_for_a_password(site, headers):
    for path in ("/", "/docs/", "/docs/nothing"):
        answer = site.get(path, headers)
        assert (answer.status, answer.header("WWW-Authenticate")) == (401, 'Basic realm="the staff", charset="UTF-8"')
        assert "<h1>401 Unauthorized</h1>" in answer.text


def test_a_wrong_password_is_logged_with_the_client(site):
    before = len(site.stderr)
    for user in ("ann", "no\"such"):
        assert site.get("/", basic(user, "Secret")).status == 401
        name = user.replace('"', '\\\\"')
        line = rf'WARN wrong user or password: answered 401 user="{name}" method="GET" uri="/" client="127\.0\.0\.1"$'
        wait_for(lambda: re.search(line, site.stderr[before:], re.M), line)
    before = len(site.stderr)
    assert site.get("/").status == 401
    assert site.get("/", basic("ann")).status == 200 and "password" not in site.stderr[before:], "no password was wrong"


def test_several_passwords_are_none(site):
    """Once, the first one was verified, and the application got both."""
    for other in (basic("root"), basic("ann"), {"Authorization": "Bearer x"}):
        before = len(site.stderr)
        assert site.get("/", [*basic("ann").items(), *other.items()]).status == 401
        line = r'WARN more than one header Authorization: answered 401 method="GET" uri="/" client="127\.0\.0\.1"$'
        wait_for(lambda: re.search(line, site.stderr[before:], re.M), line)
    assert site.get("/open", [*basic("ann").items(), *basic("root").items()]).status == 200, "an action without basic_auth"


def test_only_a_verified_user_is_shown_to_php_and_in_the_log(site, folder):
    assert site.get("/open", basic("ann")).json() == {"PHP_AUTH_PW": "secret"}, "the password was not verified"
    site.get("/1", basic("ann"))
    site.get("/2", basic("ann", "wrong"))
    site.get("/3?ä", basic("bob"))
    log = folder.scratch / "access.log"
    wait_for(lambda: log.exists() and len(log.read_text().splitlines()) == 4)
    # Two event loops write in any order.
    assert sorted(line.split(" [")[0] for line in log.read_text().splitlines()) == [
        "127.0.0.1 - -",
        "127.0.0.1 - -",
        "127.0.0.1 - ann",
        "127.0.0.1 - bob",
    ]


def test_a_changed_file_is_read_again(site, users):
    assert site.get("/", basic("frank")).status == 401
    users.write_text(f"frank:{APR1}\n")
    assert site.get("/", basic("frank")).status == 200
    # A password that was right is remembered for some seconds.
    wait_for(lambda: site.get("/", basic("bob")).status == 401)
    users.unlink()
    assert site.get("/", basic("nosuch")).status == 500
    assert "cannot be read" in site.stderr
    assert site.get("/", basic("ann")).status == 200, "a user of the configuration"


def test_a_file_that_cannot_be_used_is_rejected(site):
    path = "/config/routes/1/action/basic_auth/user_file"
    for wrong, reason in (("/nowhere/users", "does not exist"), ("/dev/null", "is not a file")):
        answer = site.api("PUT", path, json.dumps(wrong))
        assert answer.status == 500 and "routes/1/action/basic_auth/user_file: " in answer.text and reason in answer.text, answer.text
    assert site.get("/docs/", basic("bob")).text == "the docs", "the configuration before is active"


def test_guesses_of_one_client_are_limited(site):
    statuses = [site.get("/limited", basic("ann", f"guess {n}")).status for n in range(5)]
    assert statuses == [401, 401, 401, 429, 429]


def test_slow_hashes_do_not_block_other_requests(site):
    """bcrypt with cost 13 takes a second, and other requests are answered before the first guess."""
    slow = "$2y$13$" + BCRYPT[7:]
    assert site.api("PUT", "/config/routes/1/action/basic_auth/users", json.dumps({"ann": slow})).status == 200
    with ThreadPoolExecutor(4) as pool:
        guesses = [pool.submit(site.get, "/docs/", basic("ann", f"guess {n}")) for n in range(4)]
        others = 0
        while not any(guess.done() for guess in guesses):
            assert site.get("/open").status == 200
            others += 1
        assert [guess.result().status for guess in guesses] == [401] * 4
    assert others


def test_one_client_that_guesses_leaves_places_to_others(site):
    """Each hash takes a quarter of a second. Once, a hundred guesses of one client took all places, and all others were answered 503."""
    slow = "$2y$11$" + BCRYPT[7:]
    assert site.api("PUT", "/config/routes/1/action/basic_auth/users", json.dumps({"ann": slow})).status == 200
    with contextlib.ExitStack() as stack:
        for number in range(120):
            guess = stack.enter_context(site.connect())
            guess.send_request("GET", "/docs/", basic("ann", f"guess {number}"))
        site.wait_for_log_line("too many passwords of one client wait for their verification; answering 503")
        other = stack.enter_context(socket.create_connection((site.host, site.port), source_address=("127.0.0.9", 0)))
        password = basic("bob")["Authorization"]
        other.sendall(f"GET /docs/ HTTP/1.1\r\nHost: x\r\nAuthorization: {password}\r\nConnection: close\r\n\r\n".encode())
        other.settimeout(PATIENCE)
        assert other.recv(15) == b"HTTP/1.1 200 OK"
