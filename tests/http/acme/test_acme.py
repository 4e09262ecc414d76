"""Certificates by themselves: a small authority on this machine issues them, and really looks at the challenges."""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

from support.acme.server import Authority
from support.acme.signatures import encode
from support.acme.site import AcmeSite
from support.http.client import Connection
from support.machine import free_port
from support.server import Howdah
from support.waiting import wait_for

NAME = "shop.example"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("challenge", ["tls-alpn-01", "http-01"])
def test_a_certificate_is_obtained(site, authority, challenge):
    authority.bad_nonces = 2
    site = site()
    site.set_acme(NAME, challenges=challenge, contact="ops@shop.example")
    site.wait_for_certificate(NAME)
    assert [order["kind"] for order in authority.orders] == [challenge]
    assert authority.contacts == [["mailto:ops@shop.example"]]
    state = site.server.directory / "state/acme"
    stored = state / f"certificates/{NAME}.pem"
    assert (mode(state / "certificates"), mode(stored)) == (0o700, 0o600)
    [account] = (state / "accounts").iterdir()
    assert (mode(state / "accounts"), mode(account)) == (0o700, 0o600)
    status = site.status()[NAME]
    assert (status["state"], status["authority"]) == ("valid", authority.directory)
    assert status["expires"].endswith("GMT") and status["renewal"].endswith("GMT") and "last_error" not in status
    shown = site.server.api("GET", "/certificates").json()[f"acme/{NAME}"]
    assert shown["chain"][0]["subject"]["alt_names"] == [NAME]
    # Keys are nowhere to be seen.
    secret = stored.read_text().split("PRIVATE KEY-----")[1].splitlines()[1]
    assert secret not in site.server.stderr + json.dumps(shown)
    log = site.server.stderr
    assert f"{NAME} has no certificate yet" in log and f"has issued a certificate of {NAME}, valid until" in log


def test_a_temporary_certificate_bridges_the_first_minute(site, authority):
    """The authority is down at the start: the listener is not dead, and the log has the reason."""
    authority.stop()
    site = site()
    site.set_acme(NAME)
    context = ssl._create_unverified_context()
    with Connection(("127.0.0.1", site.tls_port)) as connection:
        connection.socket = context.wrap_socket(connection.socket, server_hostname=NAME)
        assert connection.request("GET", "/").status == 200
    wait_for(lambda: re.search(rf"has not issued a certificate of {NAME} .*cannot connect to 127.0.0.1", site.server.stderr))
    status = wait_for(lambda: (known := site.status()[NAME]).get("last_error") and known)
    assert status["state"] == "temporary" and "cannot be used" in status["last_error"]
    authority.start()
    site.wait_for_certificate(NAME)
    assert "last_error" not in site.status()[NAME]


LONG = "x" * 60_000


@pytest.mark.parametrize(
    "what, reason",
    [
        ("problem", "refuses the order"),
        ("token", "a token that RFC 8555 does not allow"),
        ("long token", "a token that RFC 8555 does not allow"),
        ("chain", "something that is too long"),
    ],
)
def test_a_hostile_authority_costs_its_own_order_only(site, authority, what, reason):
    """Each order has its result at once: the process with the orders of other authorities is not killed."""
    match what:
        case "problem":
            authority.refused[NAME] = LONG
        case "token":
            authority.token = "<script>alert(1)</script>"
        case "long token":
            authority.token = LONG
        case "chain":
            # Short enough, but each character needs six in a message.
            authority.chain = "\1" * 40_000
    site = site()
    site.set_acme(NAME, challenges="http-01")
    status = wait_for(lambda: (known := site.status()[NAME]).get("last_error") and known)
    assert reason in status["last_error"] and len(status["last_error"]) < 2000
    assert "does not answer" not in site.server.stderr and len(site.server.stderr) < 20_000


@pytest.mark.parametrize("member", ["newNonce", "newAccount", "newOrder"])
def test_a_directory_without_urls_is_an_error_that_names_the_member(site, authority, member):
    authority.members = {member: "no URL"}
    site = site()
    site.set_acme(NAME, challenges="http-01")
    status = wait_for(lambda: (known := site.status()[NAME]).get("last_error") and known)
    expected = f'the directory of 127.0.0.1:{authority.port} has no URL as its "{member}": "no URL"'
    assert expected in status["last_error"] and "panic" not in site.server.stderr
    authority.members = {}
    site.wait_for_certificate(NAME)


def test_a_stored_certificate_needs_no_authority(site, authority, tmp_path):
    """It is served from the first connection on, also by a new router, and so is the account used again."""
    state = str(tmp_path / "state")
    options = ("--state-dir", state, "--control", f"unix:{tmp_path}/control.sock")
    first = site(*options)
    first.server.control = tmp_path / "control.sock"
    first.set_acme(NAME)
    serial = first.wait_for_certificate(NAME)
    port = first.tls_port
    first.server.stop()
    authority.stop()
    server = Howdah(lambda _: ["run", *options], ready=lambda server: "is ready" in server.stderr)
    server.control = tmp_path / "control.sock"
    second = AcmeSite.of(server, authority, port)
    try:
        assert second.certificate(NAME) == serial
        second.server.router().kill(signal.SIGKILL)
        assert second.certificate(NAME) == serial
        authority.start()
        second.set_acme(NAME, "www.shop.example")
        second.wait_for_certificate("www.shop.example")
        assert len(authority.accounts) == 1 and authority.issued == [NAME, "www.shop.example"]
    finally:
        second.server.stop()


@pytest.mark.parametrize("why", ["the authority's window", "two thirds of its life"])
def test_a_certificate_is_renewed_without_losing_a_connection(site, authority, tmp_path, why):
    state = tmp_path / "state"
    if why == "two thirds of its life":
        (state / "acme/certificates").mkdir(parents=True)
        bundle = authority.issuer.bundle(NAME, since_days=-61, until_days=29)
        (state / f"acme/certificates/{NAME}.pem").write_text(bundle)
    else:
        authority.renews_at_once = True
    site = site("--state-dir", str(state), "--control", f"unix:{tmp_path}/control.sock")
    site.server.control = tmp_path / "control.sock"
    site.set_acme(NAME)
    with site.clients(NAME) as clients:
        expected = [NAME, NAME] if authority.renews_at_once else [NAME]
        wait_for(lambda: authority.issued == expected or clients.failures, f"the renewal: {site.server.stderr}")
        text = lambda: (state / f"acme/certificates/{NAME}.pem").read_text()
        wait_for(lambda: "directory: " in text() and site.status()[NAME]["state"] == "valid")
        assert site.wait_for_certificate(NAME)
    if authority.renews_at_once:
        assert len(authority.replaced) == 1, "the authority knows which certificate is replaced"


def test_fifty_names_have_fifty_certificates(site, authority):
    site = site()
    names = [f"n{number}.shop.example" for number in range(50)]
    authority.refused = {"n7.shop.example": "caa"}
    site.set_acme(*names)
    wait_for(lambda: len(set(authority.issued)) == 49, "49 certificates")
    status = wait_for(lambda: (all_ := site.status()) and [s["state"] for s in all_.values()].count("valid") == 49 and all_)
    assert sorted(status) == sorted(names)
    assert status["n7.shop.example"]["state"] == "temporary" and "CAA" in status["n7.shop.example"]["last_error"]
    assert len(authority.accounts) == 1, "one account for all"
    for name in ("n0.shop.example", "n49.shop.example"):
        site.wait_for_certificate(name)
    assert site.certificate("n7.shop.example") == "temporary"


def test_other_requests_below_the_path_of_challenges_are_ordinary(site, authority):
    """Another program, such as certbot, may wait for them."""
    site = site()
    site.put("routes", [{"match": {"uri": "/.well-known/acme-challenge/*"}, "action": {"return": 204}}])
    site.set_acme(NAME, challenges="http-01")
    site.wait_for_certificate(NAME)
    assert site.server.get("/.well-known/acme-challenge/other").status == 204
    # After the order, the token is no longer known.
    assert site.server.get(f"/.well-known/acme-challenge/{authority.orders[0]['token']}").status == 204


def test_the_process_is_unprivileged_and_leaves_when_it_has_nothing_to_do(site, authority):
    authority.delay = 0.3
    site = site()
    site.set_acme(NAME)
    process = wait_for(lambda: site.server.titled("howdah: acme"))[0]
    if os.geteuid() == 0:
        wait_for(lambda: os.stat(f"/proc/{process.pid}/task").st_uid != 0 or not process.alive())
    process.kill(signal.SIGKILL)
    wait_for(lambda: "the process that obtains certificates" in site.server.stderr)
    authority.delay = 0
    site.wait_for_certificate(NAME)


def test_an_external_account_is_bound(site, authority):
    authority.external_key = b"0123456789abcdef0123456789abcdef"
    site = site()
    site.set_acme(NAME)
    wait_for(lambda: 'add \\"external_account\\"' in site.server.stderr or 'add "external_account"' in site.server.stderr)
    key = encode(authority.external_key)
    account = {"key_id": "kid-1", "hmac_key": key}
    site.set_acme(NAME, authorities={"directory": authority.directory, "external_account": account})
    site.wait_for_certificate(NAME)
    assert key not in site.server.api("GET", "/config").text and key not in site.server.stderr


# --- Failures


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("dns", "add an A or AAAA record"),
        ("connection", "port 443 of shop.example cannot be reached"),
        ("unauthorized", "another machine answers for shop.example"),
        ("caa", "change the CAA record"),
        ("rejectedIdentifier", "issues no certificates for shop.example"),
    ],
)
def test_a_refusal_is_logged_with_its_remedy(site, authority, kind, expected):
    authority.refused = {NAME: kind}
    site = site()
    site.set_acme(NAME, challenges=["tls-alpn-01"])
    status = wait_for(lambda: (known := site.status()[NAME]).get("last_error") and known)
    assert expected in status["last_error"]
    wait_for(lambda: expected in site.server.stderr)
    authority.refused = {}
    site.wait_for_certificate(NAME)


def test_the_other_challenge_is_tried(site, authority):
    """Port 443 leads elsewhere, as behind a proxy that ends TLS."""
    site = site()
    authority.tls_port = site.server.port
    site.set_acme(NAME)
    site.wait_for_certificate(NAME)
    assert [order["kind"] for order in authority.orders] == ["tls-alpn-01", "http-01"]
    stored = (site.server.directory / f"state/acme/certificates/{NAME}.pem").read_text()
    assert "challenge: http-01\n" in stored, "the renewal begins with the one that works"


def test_the_pause_that_an_authority_wants_is_respected(site, authority):
    authority.rate_limits = [3]
    site = site()
    site.set_acme(NAME)
    site.wait_for_certificate(NAME)
    times = [at for at, kind in authority.requests if kind == "new-order"]
    assert len(times) == 2 and times[1] - times[0] >= 3
    assert "rate limit is reached" in site.server.stderr


def test_an_authority_that_is_down_at_the_renewal_stops_nothing(site, authority):
    """Its answer to another question, with a `Retry-After` of hours, is no pause for this one."""
    site = site()
    site.set_acme(NAME)
    serial = site.wait_for_certificate(NAME)
    wait_for(lambda: "renewal" in [kind for _, kind in authority.requests])
    authority.stop()
    site.set_acme(NAME, "www.shop.example")
    wait_for(lambda: "cannot connect" in site.status()["www.shop.example"].get("last_error", ""))
    assert site.certificate(NAME) == serial
    authority.start()
    site.wait_for_certificate("www.shop.example")


def test_failures_are_repeated_after_growing_pauses(site, authority):
    authority.refused = {NAME: "dns"}
    site = site(divider=200)
    site.set_acme(NAME, challenges="http-01")
    wait_for(lambda: len(authority.orders) >= 5, "five attempts")
    times = [at for at, kind in authority.requests if kind == "new-order"][:5]
    pauses = [later - earlier for earlier, later in zip(times, times[1:])]
    # 60 s, 120 s, 240 s, 480 s, each a tenth more or less, divided by 200.
    assert all(pause >= 0.9 * expected for pause, expected in zip(pauses, [0.27, 0.54, 1.08, 2.16]))


def test_the_next_authority_is_asked(site, authority, tmp_path):
    with Authority(tmp_path / "down") as down:
        down.is_down = True
        site = site()
        authorities = [{"directory": down.directory}, {"directory": authority.directory}]
        site.set_acme(NAME, authorities=authorities)
        site.wait_for_certificate(NAME)
        assert site.status()[NAME]["authority"] == authority.directory
        assert "503" in site.server.stderr


def test_a_silent_authority_delays_no_names_of_others(site, authority):
    """It accepts connections, and never answers. Its names come first, by the alphabet and by the configuration."""
    site = site()
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        directories = f"http://127.0.0.1:{silent.getsockname()[1]}/directory", authority.directory
        names = [f"a{number}.silent.example" for number in range(30)], [f"n{number}.{NAME}" for number in range(6)]
        listeners = site.server.api("GET", "/config/listeners").json()
        for port, directory, domains in zip((free_port(), site.tls_port), directories, names):
            acme = {"domains": domains, "authorities": {"directory": directory}}
            listeners[f"127.0.0.1:{port}"] = {"pass": "routes", "tls": {"acme": acme}}
        site.put("listeners", listeners)
        wait_for(lambda: len(authority.issued) == len(names[1]), "certificates of the other authority", timeout=25)
        asked = [line for line in site.server.stderr.splitlines() if f"asking {directories[0]}" in line]
        assert 1 <= len(asked) <= 8, "its own orders have begun, and none has ended yet"


def test_a_certificate_for_another_name_is_refused(site, authority):
    authority.lies = True
    site = site()
    site.set_acme(NAME)
    status = wait_for(lambda: (known := site.status()[NAME]).get("last_error") and known)
    assert "has not sent a certificate that can be used" in status["last_error"]
    assert site.certificate(NAME) == "temporary"
    authority.lies = False
    site.wait_for_certificate(NAME)


def test_an_account_that_the_authority_has_forgotten_is_made_again(site, authority):
    site = site()
    site.set_acme(NAME)
    site.wait_for_certificate(NAME)
    authority.accounts.clear()
    site.set_acme(NAME, "www.shop.example")
    site.wait_for_certificate("www.shop.example")
    assert len(authority.accounts) == 1


def test_a_state_directory_without_space_does_not_stop_the_listener(site, authority):
    site = site()
    folder = site.server.directory / "state/acme"
    folder.write_text("in the way")
    site.set_acme(NAME)
    site.wait_for_certificate(NAME)
    assert "is used, but lost at the end of howdah" in site.server.stderr
    folder.unlink()


def test_a_domain_that_is_removed_is_no_longer_obtained(site, authority):
    authority.refused = {"gone.example": "dns"}
    site = site()
    site.set_acme(NAME, "gone.example")
    site.wait_for_certificate(NAME)
    site.set_acme(NAME)
    assert list(site.status()) == [NAME]
    answer = site.server.api("DELETE", f"/certificates/acme%2F{NAME}")
    assert (answer.status, answer.json()["error"]) == (400, "Certificate is used in the configuration.")
    answer = site.server.api("PUT", f"/certificates/acme%2F{NAME}", "x")
    assert (answer.status, answer.json()["error"]) == (400, "Invalid certificate name.")
    site.put(f"listeners/127.0.0.1:{site.tls_port}", {"pass": "routes"})
    assert site.status() == {}


# --- DNS-01

HOOK = """#!/bin/sh
set -eu
test "$HOWDAH_DNS_NAME" = "_acme-challenge.$HOWDAH_DOMAIN"
case $2 in
    add) echo "$HOWDAH_DNS_VALUE" >> "$1/$HOWDAH_DNS_NAME" ;;
    remove) echo "$HOWDAH_DNS_VALUE" >> "$1/removed" ;;
esac
"""


@pytest.fixture
def hook(authority, tmp_path):
    hook = tmp_path / "authority" / "hook"
    hook.write_text(HOOK)
    hook.chmod(0o755)
    for place in (tmp_path, *tmp_path.parents):
        if place.stat().st_uid == os.geteuid() and place != Path("/"):
            place.chmod(place.stat().st_mode | 0o055)
    return hook


def test_a_wildcard_is_proven_over_the_dns(site, authority, hook):
    site = site()
    dns = {"command": [str(hook), str(authority.zone)], "wait": 0}
    site.set_acme("*.shop.example", NAME, dns=dns)
    site.wait_for_certificate("any.shop.example")
    site.wait_for_certificate(NAME)
    assert {order["kind"] for order in authority.orders} == {"dns-01"}
    added = (authority.zone / f"_acme-challenge.{NAME}").read_text().split()
    wait_for(lambda: sorted((authority.zone / "removed").read_text().split()) == sorted(added))
    assert (site.server.directory / "state/acme/certificates/_.shop.example.pem").exists()


def test_a_command_that_fails_is_shown(site, authority, hook):
    hook.write_text("#!/bin/sh\necho no token >&2\nexit 3\n")
    site = site()
    site.set_acme("*.shop.example", dns={"command": str(hook), "wait": 0})
    status = wait_for(lambda: (known := site.status()["*.shop.example"]).get("last_error") and known)
    assert "failed with `add`" in status["last_error"] and "no token" in status["last_error"]


def open_record(site, authority) -> str:
    """The value of a record that an order waits with."""
    site.set_acme("*.shop.example", dns={"command": [str(authority.zone.parent / "hook"), str(authority.zone)], "wait": 3600})
    record = authority.zone / f"_acme-challenge.{NAME}"
    return wait_for(lambda: record.exists() and record.read_text().strip())


def removed(authority) -> list[str]:
    file = authority.zone / "removed"
    return file.read_text().split() if file.exists() else []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_a_stop_leaves_no_record(site, authority, hook, number):
    site = site()
    value = open_record(site, authority)
    site.server.stop(number)
    assert removed(authority) == [value]


def test_a_stop_waits_for_a_command_that_adds_a_record(site, authority, hook):
    hook.write_text(HOOK.replace("add) ", 'add) touch "$1/begun"; sleep 1; '))
    site = site()
    site.set_acme("*.shop.example", dns={"command": [str(hook), str(authority.zone)], "wait": 3600})
    wait_for((authority.zone / "begun").exists)
    site.server.stop()
    assert removed(authority) == (authority.zone / f"_acme-challenge.{NAME}").read_text().split()


def test_a_command_that_hangs_delays_a_stop_for_seconds(site, authority, hook):
    hook.write_text(HOOK.replace("remove) ", "remove) sleep 60; "))
    site = site()
    value = open_record(site, authority)
    site.server.send_signal(signal.SIGTERM)
    assert site.server.exit_code(timeout=20) == 0
    assert f'the record _acme-challenge.{NAME} stays in the DNS ("{value}"); remove it yourself' in site.server.stderr


def test_the_record_of_a_killed_process_is_removed_by_the_next_one(site, authority, hook):
    site = site()
    value = open_record(site, authority)
    site.server.titled("howdah: acme")[0].kill(signal.SIGKILL)
    wait_for(lambda: value in removed(authority))
    assert f"removing the record _acme-challenge.{NAME}, which a process that was killed has left" in site.server.stderr


def test_a_stop_removes_what_a_killed_process_has_left(site, authority, hook):
    site = site(divider=1)
    value = open_record(site, authority)
    site.server.titled("howdah: acme")[0].kill(signal.SIGKILL)
    wait_for(lambda: "the process that obtains certificates" in site.server.stderr)
    site.server.stop()
    assert removed(authority) == [value]


@pytest.mark.parametrize("key, curve", [("p256", "P-256"), ("p384", "P-384")])
def test_the_kind_of_the_key_is_chosen(site, key, curve):
    site = site()
    site.set_acme(NAME, key=key)
    site.wait_for_certificate(NAME)
    stored = site.server.directory / f"state/acme/certificates/{NAME}.pem"
    shown = subprocess.run(["openssl", "pkey", "-in", stored, "-noout", "-text"], capture_output=True, text=True)
    assert f"NIST CURVE: {curve}" in shown.stdout, shown.stderr
