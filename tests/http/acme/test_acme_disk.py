"""A state directory without space: no certificate is lost, and no listener is down."""

import os
import signal

import pytest

from support.acme.site import AcmeSite
from support.faults.file_systems import fill, small_disk
from support.machine import needs_root
from support.server import Howdah
from support.waiting import wait_for

NAME = "shop.example"
PAGE = 4096
STORED = "which could not be stored before, is stored now"


@pytest.fixture
def place(authority, tmp_path):
    """A state directory of a few KiB, and the options of a howdah that uses it."""
    with small_disk(tmp_path / "state", "size=64k,mode=755") as disk:
        yield disk, ("--state-dir", str(disk), "--control", f"unix:{tmp_path}/control.sock")


def start_again(authority, options, port) -> AcmeSite:
    server = Howdah(lambda _: ["run", *options], ready=lambda server: "is ready" in server.stderr)
    return AcmeSite.of(server, authority, port)


@needs_root
@pytest.mark.parametrize("free_pages", [0, 2])
def test_a_full_disk_loses_no_certificate(site, authority, place, tmp_path, free_pages):
    """With two pages there is room for the account, and for the first half of the certificate."""
    disk, options = place
    folder = disk / "acme/certificates"
    folder.mkdir(parents=True)
    stored = folder / f"{NAME}.pem"
    stored.write_text(authority.issuer.bundle(NAME, since_days=-61, until_days=29))
    former = stored.read_text()
    authority.is_talkative = True
    authority.stop()
    first = site(*options)
    first.server.control = tmp_path / "control.sock"
    first.set_acme(NAME)
    old = first.wait_for_certificate(NAME)
    wait_for(lambda: first.status()[NAME].get("last_error"))
    ballast = fill(disk)
    os.truncate(ballast, ballast.stat().st_size - free_pages * PAGE)
    with first.clients(NAME):
        authority.start()
        new = first.wait_for_certificate(NAME, other_than=old)
        wait_for(lambda: "is used, but lost at the end of howdah if it cannot be stored before" in first.server.stderr)
        assert "No space left" in first.server.stderr and "make room" in first.server.stderr
        assert ("the account at" in first.server.stderr) == (free_pages == 0)
        assert stored.read_text() == former, "the old file is whole"
        assert [entry.name for entry in folder.iterdir()] == [stored.name], "the disk has no halves"
    first.server.router().kill(signal.SIGKILL)
    assert first.certificate(NAME) == new, "also for another router"
    assert STORED not in first.server.stderr
    ballast.unlink()
    wait_for(lambda: f"the certificate of {NAME}, {STORED}" in first.server.stderr)
    assert stored.read_text() != former and stored.stat().st_mode & 0o777 == 0o600
    assert len(list((disk / "acme/accounts").iterdir())) == 1
    assert first.server.stderr.count("is used, but lost") == 1, "one line for an outage"
    first.server.stop()
    authority.stop()
    second = start_again(authority, options, first.tls_port)
    try:
        assert second.certificate(NAME) == new
    finally:
        second.server.stop()


@needs_root
def test_space_that_is_there_at_the_end_is_used(site, authority, place, tmp_path):
    disk, options = place
    authority.delay = 0.3
    first = site(*options, divider=1)
    first.server.control = tmp_path / "control.sock"
    first.set_acme(NAME)
    ballast = fill(disk)
    serial = first.wait_for_certificate(NAME)
    wait_for(lambda: "is used, but lost" in first.server.stderr)
    ballast.unlink()
    first.server.stop()
    second = start_again(authority, options, first.tls_port)
    try:
        assert second.certificate(NAME) == serial
        assert authority.issued == [NAME]
    finally:
        second.server.stop()


@needs_root
def test_an_uploaded_certificate_is_replaced_whole_or_not_at_all(site, authority, place, tmp_path):
    disk, options = place
    site = site(*options)
    site.server.control = tmp_path / "control.sock"
    bundle = authority.issuer.bundle(NAME, -1, 30)
    more = open(authority.issuer.root).read() * 12
    assert site.server.api("PUT", "/certificates/shop", bundle).status == 200
    ballast = fill(disk)
    os.truncate(ballast, ballast.stat().st_size - PAGE)
    answer = site.server.api("PUT", "/certificates/shop", bundle + more)
    assert answer.status == 500 and "make room" in answer.json()["detail"]
    chain = site.server.api("GET", "/certificates/shop").json()["chain"]
    assert len(chain) == 2 and len((disk / "certs/shop").read_text()) < PAGE
    assert [entry.name for entry in (disk / "certs").iterdir()] == ["shop"]
    ballast.unlink()
    assert site.server.api("PUT", "/certificates/shop", bundle + more).status == 200
    site.server.stop()
