"""The wall clock jumps: certificates are renewed in time, and once."""

import time

import pytest

from support.faults.clock import DAY, WallClock
from support.waiting import wait_for

NAME = "shop.example"


@pytest.fixture
def clock(folder, tmp_path) -> WallClock:
    return WallClock(tmp_path)


@pytest.fixture
def stored(authority, tmp_path):
    """Stores a certificate that is valid from and until these days from now."""

    def store(since_days: float, until_days: float):
        folder = tmp_path / "state/acme/certificates"
        folder.mkdir(parents=True)
        (folder / f"{NAME}.pem").write_text(authority.issuer.bundle(NAME, since_days, until_days))
        return ("--state-dir", str(tmp_path / "state"), "--control", f"unix:{tmp_path}/control.sock")

    return store


def questions(authority) -> int:
    return [kind for _, kind in authority.requests].count("renewal")


@pytest.mark.parametrize("days", [70, 3650])
def test_a_clock_that_jumps_ahead_renews_once(site, authority, clock, days):
    """Also while the certificates that the authority issues are old, or expired, by this clock."""
    site = site(environ=clock.environ, divider=20_000)
    site.set_acme(NAME)
    first = site.wait_for_certificate(NAME)
    with site.clients(NAME):
        clock.set_off(days * DAY)
        second = site.wait_for_certificate(NAME, other_than=first)
        wait_for(lambda: f"the clock of this machine is {days} days ahead of that of http" in site.server.stderr)
        # By then, at one renewal for each LEAST_PAUSE, there would be a dozen.
        before = questions(authority)
        wait_for(lambda: questions(authority) > before + 2)
        assert authority.issued == [NAME, NAME] and len(authority.orders) == 2
        assert site.status()[NAME]["state"] == "valid"
        clock.set_off(0)
        wait_for(lambda: f"has jumped back by {days} days" in site.server.stderr)
        before = questions(authority)
        wait_for(lambda: questions(authority) > before + 1)
        assert len(authority.orders) == 2 and site.certificate(NAME) == second
    assert f"has jumped ahead by {days} days" in site.server.stderr
    assert site.server.stderr.count("set it, because") == 1


def test_a_clock_that_jumps_back_delays_no_renewal(site, authority, clock, stored, tmp_path):
    """The certificate lives for seconds: by the clock, its renewal is a year away."""
    site = site(*stored(0, 15 / DAY), environ=clock.environ)
    site.server.control = tmp_path / "control.sock"
    site.set_acme(NAME)
    assert authority.issued == []
    clock.set_off(-365 * DAY)
    with site.clients(NAME):
        wait_for(lambda: authority.issued == [NAME], "the renewal")
        wait_for(lambda: "the clock of this machine is 365 days behind that of http" in site.server.stderr)
        site.wait_for_certificate(NAME)
        clock.set_off(0)
        wait_for(lambda: "has jumped ahead by 365 days" in site.server.stderr)
        assert site.status()[NAME]["state"] == "valid" and authority.issued == [NAME]


def test_a_start_in_1970_uses_what_is_stored(site, authority, clock, stored, tmp_path):
    """A machine without a battery has the time some seconds after its start."""
    clock.set_off(100 - int(time.time()))
    site = site(*stored(-10, 80), environ=clock.environ)
    site.server.control = tmp_path / "control.sock"
    site.set_acme(NAME)
    with site.clients(NAME):
        serial = site.wait_for_certificate(NAME)
        assert site.status()[NAME]["state"] == "valid"
        clock.set_off(0)
        wait_for(lambda: "the clock of this machine has jumped ahead by" in site.server.stderr)
        assert authority.orders == [] and site.certificate(NAME) == serial
        clock.set_off(70 * DAY)
        site.wait_for_certificate(NAME, other_than=serial)
