"""A howdah whose certificates come from the authority of the test."""

from __future__ import annotations

import json
import socket
import ssl

from support.acme.server import Authority
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

    def status(self) -> dict:
        return self.server.api("GET", "/status").json().get("certificates", {})
