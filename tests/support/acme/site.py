"""A howdah whose certificates come from the authority of the test."""

from __future__ import annotations

import json
import socket
import ssl
import threading

from support.acme.server import Authority
from support.http.client import Connection
from support.machine import free_port
from support.server import Howdah
from support.waiting import wait_for

OK = [{"action": {"return": 200}}]


class AcmeSite:
    """A plain listener, on the port that the authority takes for 80, and one with TLS, on the port for 443."""

    def __init__(self, run, authority: Authority, *options: str, divider: int = 600, environ=None):
        self.authority = authority
        self.server: Howdah = run(
            {"routes": OK},
            *options,
            environ={"HOWDAH_TEST_ACME_TIME_DIVIDER": str(divider), **(environ or {})},
        )
        self.tls_port = free_port()
        authority.http_port, authority.tls_port = self.server.port, self.tls_port

    @classmethod
    def of(cls, server: Howdah, authority: Authority, tls_port: int) -> "AcmeSite":
        """A howdah that was started in another way."""
        site = cls.__new__(cls)
        site.server, site.authority, site.tls_port = server, authority, tls_port
        return site

    def set_acme(self, *domains: str, **options):
        """Puts the listener with TLS into the configuration."""
        authorities = options.pop("authorities", [{"directory": self.authority.directory}])
        acme = {"domains": list(domains), "authorities": authorities, **options}
        listener = {"pass": "routes", "tls": {"acme": acme}}
        return self.put(f"listeners/127.0.0.1:{self.tls_port}", listener)

    def put(self, path: str, value):
        answer = self.server.api("PUT", f"/config/{path}", json.dumps(value))
        assert answer.status == 200, answer.text
        return answer

    def certificate(self, name: str, root: str | None = None) -> str:
        """The serial number of the certificate that clients get, who trust the authority; "temporary" for another one."""
        context = ssl.create_default_context(cafile=root or self.authority.issuer.root)
        try:
            with socket.create_connection(("127.0.0.1", self.tls_port), timeout=30) as plain:
                with context.wrap_socket(plain, server_hostname=name) as stream:
                    return stream.getpeercert()["serialNumber"]
        except ssl.SSLCertVerificationError:
            return "temporary"

    def wait_for_certificate(self, name: str, other_than: str = "temporary") -> str:
        def issued():
            serials = {self.certificate(name) for _ in range(4)}
            return len(serials) == 1 and not serials & {"temporary", other_than} and serials.pop()

        return wait_for(issued, f"a certificate of {name}; log:\n{self.server.stderr[-3000:]}")

    def clients(self, name: str) -> "SteadyClients":
        return SteadyClients(self, name)

    def status(self) -> dict:
        return self.server.api("GET", "/status").json().get("certificates", {})


class SteadyClients:
    """Requests over one connection that is kept, and over a new one each time, while a block runs. None of them fails,
    and some come after all that the block has done."""

    def __init__(self, site: AcmeSite, name: str):
        self.site, self.name = site, name
        self.failures: list[Exception] = []
        self.answers = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "SteadyClients":
        self._thread.start()
        return self

    def __exit__(self, kind, *_) -> None:
        try:
            if kind is None:
                before = self.answers
                wait_for(lambda: self.answers > before + 2 or self.failures)
        finally:
            self._done.set()
            self._thread.join()
        if kind is None:
            assert not self.failures

    def _connect(self) -> Connection:
        connection = Connection(("127.0.0.1", self.site.tls_port))
        context = ssl._create_unverified_context()
        connection.socket = context.wrap_socket(connection.socket, server_hostname=self.name)
        return connection

    def _run(self) -> None:
        try:
            with self._connect() as kept:
                while not self._done.is_set():
                    assert kept.request("GET", "/").status == 200
                    with self._connect() as other:
                        assert other.request("GET", "/").status == 200
                    self.answers += 2
        except Exception as error:
            self.failures.append(error)
