"""Certificates from Pebble, Let's Encrypt's authority for tests: `make acme-tests`.

Pebble rejects a third of the nonces, checks what the RFC demands, and looks at the challenges over loopback. Its own DNS
server answers 127.0.0.1 for all names, and has the TXT records that the tests add.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from support.acme.site import AcmeSite
from support.faults.clock import DAY, WallClock
from support.faults.file_systems import fill, small_disk
from support.http.client import Connection
from support.http.tls import Authority as OpensslAuthority
from support.machine import free_port, needs_root
from support.server import REPOSITORY
from support.waiting import wait_for

PROGRAMS = REPOSITORY / "target/pebble"
NAME = "shop.example"
ACCOUNT = ("kid-1", "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W")


class SlowDns:
    """Between Pebble, which asks over TCP, and its DNS server: answers come after `delay` seconds, and none comes while
    `is_silent`."""

    def __init__(self, server: int):
        self.server, self.delay, self.is_silent, self.questions = server, 0.0, False, 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        self.socket.close()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self.socket.accept()[0]
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(("127.0.0.1", self.server)) as server:
            while question := client.recv(4096):
                self.questions += 1
                if self.is_silent:
                    continue
                server.sendall(question)
                answer = server.recv(4096)
                time.sleep(self.delay)
                client.sendall(answer)


class Pebble:
    """Pebble and its DNS server. `issuer.root` is the certificate that clients trust."""

    def __init__(self, folder: Path, **options):
        folder.mkdir()
        folder.chmod(0o755)
        self.folder = folder
        own = OpensslAuthority(folder)
        self.roots = Path(own.root).read_text()
        bundle = own.bundle("localhost", "127.0.0.1")
        self.context = ssl.create_default_context(cafile=own.root)
        (folder / "server.pem").write_text(bundle.split("-----BEGIN PRIVATE")[0])
        (folder / "server.key").write_text("-----BEGIN PRIVATE" + bundle.split("-----BEGIN PRIVATE")[1])
        self.port, self.management, self.dns, self.dns_management = (free_port() for _ in range(4))
        self.http_port = self.tls_port = 0
        self.resolver = SlowDns(self.dns)
        self.options = options
        self.issuer = self
        self.root = ""
        self.processes: list[subprocess.Popen] = []
        command = [PROGRAMS / "pebble-challtestsrv", "-dnsserver", f"127.0.0.1:{self.dns}", "-defaultIPv6", "", "-doh", ""]
        command += ["-http01", "", "-https01", "", "-tlsalpn01", "", "-management", f"127.0.0.1:{self.dns_management}"]
        self._run(command)

    @property
    def directory(self) -> str:
        return f"https://localhost:{self.port}/dir"

    def start(self) -> None:
        """Without memory of what was before."""
        config = {
            "listenAddress": f"127.0.0.1:{self.port}",
            "managementListenAddress": f"127.0.0.1:{self.management}",
            "certificate": str(self.folder / "server.pem"),
            "privateKey": str(self.folder / "server.key"),
            "httpPort": self.http_port,
            "tlsPort": self.tls_port,
            "domainBlocklist": ["blocked.example"],
            "retryAfter": {"authz": 1, "order": 1},
            "profiles": {"default": {"description": "default", "validityPeriod": 7776000}},
            **self.options,
        }
        file = self.folder / "config.json"
        file.write_text(json.dumps({"pebble": config}))
        self._run([PROGRAMS / "pebble", "-strict", "-config", str(file), "-dnsserver", f"127.0.0.1:{self.resolver.port}"])
        wait_for(self._is_up, "Pebble")
        root = self.folder / "root.pem"
        root.write_bytes(self.manage("roots/0"))
        self.root = str(root)

    def stop(self) -> None:
        """Stops Pebble; its DNS server goes on."""
        process = self.processes.pop()
        process.kill()
        process.wait()

    def close(self) -> None:
        self.resolver.close()
        for process in self.processes:
            process.kill()
            process.wait()

    def set_address(self, name: str, address: str) -> None:
        """Changes the record of a name."""
        record = json.dumps({"host": f"{name}.", "addresses": [address]}).encode()
        for what in ("clear-a", "add-a"):
            url = f"http://127.0.0.1:{self.dns_management}/{what}"
            urllib.request.urlopen(urllib.request.Request(url, record), timeout=30).read()

    def manage(self, path: str, body: object = None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        return self._ask(f"https://localhost:{self.management}/{path}", data)

    def _ask(self, url: str, data=None) -> bytes:
        with urllib.request.urlopen(url, data, context=self.context, timeout=30) as answer:
            return answer.read()

    def _is_up(self) -> bool:
        try:
            return bool(self._ask(self.directory) and self.manage("roots/0"))
        except (urllib.error.URLError, ConnectionError):
            return False

    def _run(self, command) -> None:
        environ = {"PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": "30", "PATH": os.environ["PATH"]}
        log = open(self.folder / "log", "ab")
        self.processes.append(subprocess.Popen(list(map(str, command)), env=environ, stdout=log, stderr=log))


@pytest.fixture
def pebble(tmp_path):
    started = []

    def make(**options) -> Pebble:
        started.append(Pebble(tmp_path / f"pebble{len(started)}", **options))
        return started[-1]

    yield make
    [pebble.close() for pebble in started]


@pytest.fixture
def site(run):
    def make(pebble: Pebble, *options: str, divider: int = 600, is_up=True, control=None, **how) -> AcmeSite:
        site = AcmeSite(run, pebble, *options, divider=divider, **how)
        site.server.control = control or site.server.control
        answer = site.server.api("PUT", "/certificates/pebble", pebble.roots)
        assert answer.status == 200, answer.text
        if is_up:
            pebble.start()
        return site

    return make


def authorities(pebble: Pebble, **more) -> list:
    return [{"directory": pebble.directory, "roots": "pebble", **more}]


@pytest.mark.parametrize("challenge", ["http-01", "tls-alpn-01"])
def test_a_certificate_is_obtained(pebble, site, challenge):
    pebble = pebble()
    site = site(pebble)
    site.set_acme(NAME, challenges=challenge, authorities=authorities(pebble), contact="ops@shop.example")
    site.wait_for_certificate(NAME)
    assert len(site.status()) == 1 and site.status()[NAME]["state"] == "valid"


def test_200_names_have_200_certificates(pebble, site):
    pebble = pebble()
    site = site(pebble)
    names = [f"n{number}.shop.example" for number in range(199)]
    site.set_acme(*names, "blocked.example", authorities=authorities(pebble))
    wait_for(lambda: [s["state"] for s in site.status().values()].count("valid") == 199, "199 certificates", 120)
    site.wait_for_certificate("n0.shop.example")
    site.wait_for_certificate("n198.shop.example")
    assert "issues no certificates for blocked.example" in site.status()["blocked.example"]["last_error"]


def test_a_certificate_is_renewed_when_the_authority_wants_it(pebble, site):
    """While Pebble is down, too: then after its return, with another account. No connection is lost."""
    pebble = pebble()
    # The authority is asked again after six hours, and the certificate is an hour old.
    site = site(pebble, divider=6000)
    site.set_acme(NAME, authorities=authorities(pebble))
    first = site.wait_for_certificate(NAME)
    stored = site.server.directory / f"state/acme/certificates/{NAME}.pem"
    leaf = stored.read_text().split("-----END CERTIFICATE-----")[0] + "-----END CERTIFICATE-----\n"
    window = {"suggestedWindow": {"start": "2020-01-01T00:00:00Z", "end": "2020-01-02T00:00:00Z"}}
    done, failures, answers = threading.Event(), [], [0]

    def ask():
        context = ssl._create_unverified_context()
        try:
            with Connection(("127.0.0.1", site.tls_port)) as connection:
                connection.socket = context.wrap_socket(connection.socket, server_hostname=NAME)
                while not done.is_set():
                    assert connection.request("GET", "/").status == 200
                    answers[0] += 1
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        body = {"Certificate": leaf[leaf.index("-----BEGIN"):], "ARIResponse": json.dumps(window)}
        pebble.manage("set-renewal-info/", body)
        second = site.wait_for_certificate(NAME, other_than=first)
        pebble.stop()
        # The next one is obtained from a Pebble that knows nothing of the account.
        site.set_acme(NAME, "www.shop.example", authorities=authorities(pebble))
        wait_for(lambda: "cannot connect" in site.status()["www.shop.example"].get("last_error", ""))
        assert site.certificate(NAME, pebble.root) == second
        pebble.start()
        site.wait_for_certificate("www.shop.example")
    finally:
        done.set()
        thread.join()
    assert not failures and answers[0] > 0


def test_an_external_account_is_bound(pebble, site):
    keys = dict([ACCOUNT])
    pebble = pebble(externalAccountBindingRequired=True, externalAccountMACKeys=keys)
    site = site(pebble)
    site.set_acme(NAME, authorities=authorities(pebble))
    wait_for(lambda: "external_account" in site.status()[NAME].get("last_error", ""))
    account = {"key_id": ACCOUNT[0], "hmac_key": ACCOUNT[1]}
    site.set_acme(NAME, authorities=authorities(pebble, external_account=account))
    site.wait_for_certificate(NAME)


def test_a_wildcard_is_proven_over_the_dns(pebble, site, tmp_path):
    pebble = pebble()
    hook = pebble.folder / "hook"
    url = f"http://127.0.0.1:{pebble.dns_management}"
    hook.write_text(
        f"""#!/bin/sh
set -eu
case $1 in
    add) path=set-txt ;;
    remove) path=clear-txt ;;
esac
exec curl -fsS -d "{{\\"host\\": \\"$HOWDAH_DNS_NAME.\\", \\"value\\": \\"$HOWDAH_DNS_VALUE\\"}}" {url}/$path
"""
    )
    hook.chmod(0o755)
    for place in (tmp_path, *tmp_path.parents[:-1]):
        if place.stat().st_uid == os.geteuid():
            place.chmod(place.stat().st_mode | 0o055)
    site = site(pebble)
    site.set_acme("*.shop.example", dns={"command": str(hook), "wait": 0}, authorities=authorities(pebble))
    site.wait_for_certificate("any.shop.example")


def test_a_name_that_leads_elsewhere_is_refused(pebble, site):
    """Until the DNS is right."""
    pebble = pebble()
    site = site(pebble)
    pebble.set_address(NAME, "127.0.0.77")
    site.set_acme(NAME, authorities=authorities(pebble), challenges=["http-01"])
    # Pebble may refuse the nonces of the first attempts, too.
    wait_for(lambda: "port 80 of shop.example cannot be reached" in (site.status()[NAME].get("last_error") or ""), "the refusal")
    assert site.certificate(NAME) == "temporary"
    pebble.set_address(NAME, "127.0.0.1")
    site.wait_for_certificate(NAME)


def test_a_slow_or_silent_dns_delays_a_certificate_only(pebble, site):
    pebble = pebble()
    site = site(pebble)
    # Pebble waits for two seconds.
    pebble.resolver.delay = 1
    site.set_acme("slow.example", authorities=authorities(pebble))
    with site.clients("slow.example"):
        first = site.wait_for_certificate("slow.example")
        assert pebble.resolver.questions > 0
        # No answer at all: the names that are there already are served, and the new one is tried again.
        pebble.resolver.is_silent = True
        site.set_acme("slow.example", "silent.example", authorities=authorities(pebble))
        status = wait_for(lambda: (known := site.status()["silent.example"]).get("last_error") and known, timeout=90)
        assert "silent.example" in status["last_error"], status
        assert (site.certificate("slow.example"), site.certificate("silent.example")) == (first, "temporary")
        pebble.resolver.delay, pebble.resolver.is_silent = 0, False
        site.wait_for_certificate("silent.example")


def test_an_authority_that_is_down_at_the_start_is_asked_again(pebble, site):
    pebble = pebble()
    site = site(pebble, is_up=False)
    site.set_acme(NAME, authorities=authorities(pebble))
    with site.clients(NAME):
        wait_for(lambda: "cannot connect" in site.status()[NAME].get("last_error", ""))
        assert site.status()[NAME]["state"] == "temporary"
        pebble.start()
        site.wait_for_certificate(NAME)


def test_a_clock_that_jumps_renews_once(pebble, site, tmp_path, folder):
    clock = WallClock(tmp_path)
    # The server of Pebble itself has a certificate of 30 days.
    pebble = pebble(profiles={"default": {"description": "default", "validityPeriod": 30 * DAY}})
    site = site(pebble, divider=20_000, environ=clock.environ)
    site.set_acme(NAME, authorities=authorities(pebble))
    first = site.wait_for_certificate(NAME)
    with site.clients(NAME):
        clock.set_off(25 * DAY)
        second = site.wait_for_certificate(NAME, other_than=first)
        wait_for(lambda: "the clock of this machine is 25 days ahead" in site.server.stderr)
        clock.set_off(0)
        wait_for(lambda: "has jumped back by 25 days" in site.server.stderr)
        assert site.certificate(NAME) == second and site.status()[NAME]["state"] == "valid"
    assert site.server.stderr.count(f"has issued a certificate of {NAME}") == 2


@needs_root
def test_a_full_disk_loses_no_certificate(pebble, site, tmp_path):
    with small_disk(tmp_path / "state", "size=64k,mode=755") as disk:
        pebble = pebble()
        control = tmp_path / "control.sock"
        site = site(pebble, "--state-dir", str(disk), "--control", f"unix:{control}", control=control, is_up=False)
        site.set_acme(NAME, authorities=authorities(pebble))
        ballast = fill(disk)
        pebble.start()
        with site.clients(NAME):
            serial = site.wait_for_certificate(NAME)
            wait_for(lambda: "is used, but lost at the end of howdah" in site.server.stderr)
            ballast.unlink()
            wait_for(lambda: f"the certificate of {NAME}, which could not be stored before" in site.server.stderr)
            assert (disk / f"acme/certificates/{NAME}.pem").exists() and site.certificate(NAME) == serial
        site.server.stop()
