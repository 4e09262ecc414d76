"""How the authority looks at the answers to its challenges: over loopback, on the ports that stand for 80 and 443."""

from __future__ import annotations

import hashlib
import http.client
import socket
import ssl
from pathlib import Path

from support.acme.signatures import encode

# OID 1.3.6.1.5.5.7.1.31, in DER, then TRUE (critical), then an octet string with one of 32 bytes.
ACME_IDENTIFIER = bytes.fromhex("06082b0601050507011f0101ff042204 20".replace(" ", ""))


class Failed(Exception):
    """With the type of ACME's error, and its detail."""

    def __init__(self, kind: str, detail: str):
        super().__init__(kind, detail)
        self.kind, self.detail = kind, detail


def http_01(port: int, domain: str, token: str, authorization: str) -> None:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", f"/.well-known/acme-challenge/{token}", headers={"Host": domain})
        answer = connection.getresponse()
        body = answer.read(10_000).decode()
    except OSError as error:
        raise Failed("connection", str(error)) from error
    if answer.status != 200 or body.strip() != authorization:
        raise Failed("unauthorized", f"Invalid response: {answer.status} {body[:50]!r}")


def tls_alpn_01(port: int, domain: str, authorization: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["acme-tls/1"])
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
            with context.wrap_socket(plain, server_hostname=domain) as stream:
                protocol, certificate = stream.selected_alpn_protocol(), stream.getpeercert(binary_form=True)
                rest = stream.recv(1)
    except ssl.SSLError as error:
        raise Failed("tls", str(error)) from error
    except OSError as error:
        raise Failed("connection", str(error)) from error
    digest = hashlib.sha256(authorization.encode()).digest()
    if protocol != "acme-tls/1" or ACME_IDENTIFIER + digest not in certificate or domain.encode() not in certificate:
        raise Failed("unauthorized", f"not the certificate of the challenge ({protocol})")
    assert rest == b"", "the connection carries nothing else"


def dns_01(zone: Path, domain: str, authorization: str) -> None:
    """The zone is a folder with a file for each name, and in it a line for each value."""
    record = zone / f"_acme-challenge.{domain.removeprefix('*.')}"
    values = record.read_text().split() if record.exists() else []
    if encode(hashlib.sha256(authorization.encode()).digest()) not in values:
        raise Failed("unauthorized", f"No TXT record with the right value found at {record.name}")
