"""Names on demand: a client asks for a name, the operator's program allows it, and an authority issues its certificate."""

import signal
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from support.acme.site import AcmeSite
from support.server import Howdah
from support.waiting import wait_for


class Program:
    """Allows some names, and counts the questions."""

    def __init__(self):
        self.allowed: set[str] = set()
        self.questions: list[str] = []
        self.status = 0
        program = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                url = urlsplit(self.path)
                assert url.path == "/allowed"
                [name] = parse_qs(url.query)["domain"]
                program.questions.append(name)
                self.send_response(program.status or (200 if name in program.allowed else 403))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/allowed"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def program():
    program = Program()
    yield program
    program.stop()


@pytest.fixture
def place(tmp_path):
    return tmp_path, ("--state-dir", str(tmp_path / "state"), "--control", f"unix:{tmp_path}/control.sock")


def on_demand(site: AcmeSite, program: Program, *domains: str, **options) -> None:
    acme = {"authorities": [{"directory": site.authority.directory}], "on_demand": {"ask": program.url, **options}}
    if domains:
        acme["domains"] = list(domains)
    site.put(f"listeners/127.0.0.1:{site.tls_port}", {"pass": "routes", "tls": {"acme": acme}})


def shake(site: AcmeSite, name: str | None) -> str | None:
    """The name in the certificate that a client gets; None if the handshake fails. It leaves after a second."""
    context = ssl.create_default_context(cafile=site.authority.issuer.root)
    context.check_hostname = False
    try:
        with socket.create_connection(("127.0.0.1", site.tls_port), timeout=1) as plain:
            with context.wrap_socket(plain, server_hostname=name) as stream:
                return stream.getpeercert()["subjectAltName"][0][1]
    except (ssl.SSLCertVerificationError, ConnectionError):
        return "temporary"
    except (ssl.SSLError, TimeoutError):
        return None


def test_the_first_visitor_of_an_allowed_name_waits_for_its_certificate(site, authority, program):
    program.allowed = {"customer.example"}
    site = site()
    on_demand(site, program)
    with socket.create_connection(("127.0.0.1", site.tls_port), timeout=30) as plain:
        context = ssl.create_default_context(cafile=authority.issuer.root)
        with context.wrap_socket(plain, server_hostname="Customer.example") as stream:
            stream.sendall(b"GET / HTTP/1.1\r\nHost: customer.example\r\nConnection: close\r\n\r\n")
            assert stream.recv(100).startswith(b"HTTP/1.1 200")
    assert program.questions == ["customer.example"] and authority.issued == ["customer.example"]
    assert site.status()["customer.example"]["state"] == "valid"
    assert "allows a certificate of customer.example, which a client asks for" in site.server.stderr
    # From then on, all routers have it.
    site.server.router().kill(signal.SIGKILL)
    wait_for(lambda: shake(site, "customer.example") == "customer.example")
    assert program.questions == ["customer.example"] and len(authority.orders) == 1
    shown = site.server.api("GET", "/certificates").json()
    assert shown["acme/customer.example"]["chain"][0]["subject"]["alt_names"] == ["customer.example"]


def test_strangers_cannot_make_howdah_order(site, authority, program):
    """A refused name is asked for once a minute, whatever they do, and names that are none never."""
    site = site()
    on_demand(site, program)
    with ThreadPoolExecutor(8) as pool:
        names = ["no.example", "other.example"] * 8
        assert set(pool.map(lambda name: shake(site, name), names)) == {None}
        assert set(pool.map(lambda name: shake(site, name), ["localhost", "a_b.example", "x.no.example"] * 2)) == {None}
    assert sorted(program.questions) == ["no.example", "other.example", "x.no.example"]
    assert authority.requests == [] and site.status() == {}
    # The handshake fails at once.
    start = time.monotonic()
    assert {shake(site, "no.example") for _ in range(3)} == {None}
    assert time.monotonic() - start < 2
    assert site.server.get("/").status == 200, "the other listener is as before"


def test_configured_names_are_as_ever(site, authority, program):
    program.allowed = {"customer.example"}
    site = site()
    on_demand(site, program, "shop.example")
    site.wait_for_certificate("shop.example")
    assert program.questions == []
    assert shake(site, None) == "shop.example", "without a name: the first certificate"
    assert shake(site, "no.example") is None, "not the certificate of another name"
    site.wait_for_certificate("customer.example")
    # It becomes a configured name, with the certificate that it has.
    on_demand(site, program, "customer.example")
    assert shake(site, "customer.example") == "customer.example"
    assert authority.issued == ["shop.example", "customer.example"]
    # Another listener without names on demand gets no name of it.
    site.set_acme("shop.example")
    wait_for(lambda: shake(site, "customer.example") == "shop.example")


def test_the_number_of_names_has_a_limit(site, authority, program):
    program.allowed = {f"n{number}.example" for number in range(5)}
    site = site()
    on_demand(site, program, names=2)
    for name in ("n0.example", "n1.example"):
        site.wait_for_certificate(name)
    assert shake(site, "n2.example") is None
    wait_for(lambda: "there are 2 names on demand" in site.server.stderr)
    assert sorted(authority.issued) == ["n0.example", "n1.example"] and "n2.example" not in program.questions


def test_a_program_that_does_not_answer_allows_nothing(site, authority, program):
    program.allowed, program.status = {"customer.example"}, 503
    site = site()
    on_demand(site, program)
    assert shake(site, "customer.example") is None
    wait_for(lambda: "does not answer whether customer.example may get a certificate: it answers 503" in site.server.stderr)
    assert authority.orders == []
    program.status = 0
    wait_for(lambda: shake(site, "customer.example") == "customer.example", "a question after ten seconds")


def test_a_name_that_no_authority_accepts_is_given_up(site, authority, program):
    program.allowed = {"wrong.example"}
    authority.refused = {"wrong.example": "dns"}
    site = site()
    on_demand(site, program)
    assert shake(site, "wrong.example") is None
    wait_for(lambda: "giving up this name, which is not in the configuration" in site.server.stderr)
    orders = len(authority.orders)
    assert site.status() == {} and orders == 6, "two challenges in three rounds"
    assert shake(site, "wrong.example") is None
    assert program.questions == ["wrong.example"]


@pytest.mark.parametrize("is_allowed", [True, False])
def test_a_renewal_needs_another_permission(site, authority, program, place, is_allowed):
    """The stored certificate serves from the first connection on. It is due for renewal."""
    folder, options = place
    program.allowed = {"customer.example"} if is_allowed else set()
    stored = folder / "state/acme/certificates/customer.example.pem"
    stored.parent.mkdir(parents=True)
    stored.write_text("on demand: yes\n" + authority.issuer.bundle("customer.example", since_days=-61, until_days=29))
    program.status = 500
    site = site(*options)
    site.server.control = folder / "control.sock"
    on_demand(site, program)
    wait_for(lambda: shake(site, "customer.example") == "customer.example")
    wait_for(lambda: program.questions and "does not answer whether" in site.server.stderr)
    assert stored.exists() and site.status()["customer.example"]["state"] == "valid"
    program.status = 0
    if is_allowed:
        wait_for(lambda: authority.issued == ["customer.example"], "the renewal")
        wait_for(lambda: "directory: " in stored.read_text())
        assert "on demand: yes\n" in stored.read_text()
        assert shake(site, "customer.example") == "customer.example"
    else:
        wait_for(lambda: not stored.exists(), "the removal")
        wait_for(lambda: shake(site, "customer.example") is None)
        assert authority.orders == [] and site.status() == {}
        assert "does not allow customer.example any more; its certificate is removed" in site.server.stderr


def test_a_stored_name_needs_no_question_after_a_restart(site, authority, program, place):
    folder, options = place
    program.allowed = {"customer.example"}
    first = site(*options)
    first.server.control = folder / "control.sock"
    on_demand(first, program)
    serial = first.wait_for_certificate("customer.example")
    first.server.stop()
    authority.stop()
    program.status = 500
    server = Howdah(lambda _: ["run", *options], ready=lambda server: "is ready" in server.stderr)
    second = AcmeSite.of(server, authority, first.tls_port)
    try:
        assert second.certificate("customer.example") == serial
        assert program.questions == ["customer.example"]
    finally:
        second.server.stop()


def test_the_process_that_asks_may_die(site, authority, program):
    """A question without an answer is asked again, and a name is never lost."""
    program.allowed = {"customer.example"}
    authority.delay = 0.2
    site = site()
    on_demand(site, program)
    thread = threading.Thread(target=shake, args=(site, "customer.example"))
    thread.start()
    wait_for(lambda: site.server.titled("howdah: acme"))[0].kill(signal.SIGKILL)
    thread.join()
    authority.delay = 0
    wait_for(lambda: shake(site, "customer.example") == "customer.example")
