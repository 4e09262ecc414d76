"""Certificates made by openssl, and a client that checks them."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

from support.http.client import Connection
from support.server import Howdah


def openssl(*arguments, cwd, **how) -> bytes:
    return subprocess.run(["openssl", *map(str, arguments)], cwd=cwd, check=True, capture_output=True, **how).stdout


class Authority:
    """A root and an intermediate certificate, which signs bundles in PEM."""

    EC = ("ec", "-pkeyopt", "ec_paramgen_curve:P-256")

    def __init__(self, folder: Path):
        self.folder = folder
        self.number = 0
        authority = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        self._request("root", "/C=DE/O=Howdah Tests/CN=Root", *authority, "-x509", "-days", "30")
        self._signed("middle", "/O=Howdah Tests/CN=Middle", "root", "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign")
        self.root = str(folder / "root.pem")

    def bundle(self, *names: str, key=EC, days: int = 30) -> str:
        """A certificate for these names, the intermediate, and the key. The first name is the common name."""
        self.number += 1
        file = f"leaf{self.number}"
        kinds = {name: "IP" if name.replace(".", "").isdigit() else "DNS" for name in names}
        extension = "subjectAltName=" + ",".join(f"{kind}:{name}" for name, kind in kinds.items())
        self._signed(file, f"/C=DE/ST=Berlin/O=Shop/OU={self.number}/CN={names[0]}", "middle", extension, key, days)
        return "".join((self.folder / part).read_text() for part in (f"{file}.pem", "middle.pem", f"{file}.key"))

    def server_context(self, *names: str, days: int = 30) -> ssl.SSLContext:
        """For a server with a certificate for these names."""
        path = self.folder / f"{'-'.join(names)}{days}.pem"
        path.write_text(self.bundle(*names, days=days))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def _request(self, file, subject, *more, key=EC):
        openssl(
            "req", "-newkey", *key, "-nodes", "-keyout", f"{file}.key", "-out", f"{file}.pem", "-subj", subject, *more,
            cwd=self.folder,
        )  # fmt: skip

    def _signed(self, file, subject, issuer, extension, key=EC, days=30):
        self._request(file, subject, key=key)
        (self.folder / f"{file}.ext").write_text(extension)
        # Later versions accept no number of days below zero, and earlier ones no dates.
        past = ("-not_before", "20200101000000Z", "-not_after", "20200102000000Z")
        validity = past if days < 0 and ssl.OPENSSL_VERSION_INFO >= (3, 4) else ("-days", days)
        openssl(
            "x509", "-req", "-in", f"{file}.pem", "-CA", f"{issuer}.pem", "-CAkey", f"{issuer}.key", *validity,
            "-extfile", f"{file}.ext", "-out", f"{file}.pem", "-CAcreateserial", cwd=self.folder,
        )  # fmt: skip


class Client:
    """A client that trusts the authority."""

    def __init__(self, authority: Authority, server: Howdah, name: str = "shop.example"):
        self.context = ssl.create_default_context(cafile=authority.root)
        self.server = server
        self.name = name
        self.session = None

    def connect(self, address=None, timeout: float = 30) -> Connection:
        connection = Connection(address or (self.server.host, self.server.port), timeout)
        try:
            plain = connection.socket
            connection.socket = self.context.wrap_socket(plain, server_hostname=self.name, session=self.session)
        except BaseException:
            connection.close()
            raise
        connection.host = self.name
        return connection

    def get(self, target: str = "/", headers=()):
        with self.connect() as connection:
            response = connection.request("GET", target, headers)
            self.resumed = connection.socket.session_reused
            self.session = connection.socket.session
            return response

    def common_name(self) -> str:
        with self.connect() as connection:
            return dict(pair[0] for pair in connection.socket.getpeercert()["subject"])["commonName"]


def put(server: Howdah, name: str, pem: str):
    answer = server.api("PUT", f"/certificates/{name}", pem)
    assert answer.status == 200 and answer.json() == {"success": "Certificate chain uploaded."}, answer.text
    return answer
