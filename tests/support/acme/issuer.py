"""The part of the authority that signs certificates, with `openssl ca`, which can choose both dates."""

from __future__ import annotations

import datetime
import subprocess
import threading
from pathlib import Path

CONFIGURATION = """
[ca]
default_ca = authority
[authority]
database = {folder}/index.txt
rand_serial = yes
new_certs_dir = {folder}/issued
certificate = {folder}/ca.pem
private_key = {folder}/ca.key
default_md = sha256
policy = anything
copy_extensions = copy
x509_extensions = leaf
unique_subject = no
[anything]
commonName = optional
[leaf]
basicConstraints = critical,CA:FALSE
authorityKeyIdentifier = keyid
subjectKeyIdentifier = hash
[req]
distinguished_name = name
[name]
"""


class Issuer:
    def __init__(self, folder: Path):
        self.folder = folder
        (folder / "issued").mkdir(parents=True)
        (folder / "index.txt").touch()
        (folder / "ca.cnf").write_text(CONFIGURATION.format(folder=folder))
        self._openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "ca.key", "-out",
            "ca.pem", "-subj", "/O=Fake ACME/CN=Issuer", "-days", "30", "-addext", "basicConstraints=critical,CA:TRUE",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign",
        )  # fmt: skip
        self.root = str(folder / "ca.pem")
        self.lock = threading.Lock()
        self.number = 0

    def sign(self, csr: bytes, since_days: float = -0.01, until_days: float = 90) -> str:
        """The chain for a request in DER, valid from and until these days from now."""
        with self.lock:
            self.number += 1
            number = self.number
            (self.folder / f"{number}.csr").write_bytes(csr)
            self._openssl(
                "ca", "-batch", "-notext", "-config", "ca.cnf", "-inform", "DER", "-in", f"{number}.csr", "-out",
                f"{number}.pem", "-startdate", _time(since_days), "-enddate", _time(until_days),
            )  # fmt: skip
        return (self.folder / f"{number}.pem").read_text() + Path(self.root).read_text()

    def bundle(self, name: str, since_days: float, until_days: float) -> str:
        """A certificate with its key, as PEM."""
        self._openssl(
            "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "leaf.key", "-outform",
            "DER", "-out", "leaf.csr", "-subj", "/", "-addext", f"subjectAltName=DNS:{name}",
        )  # fmt: skip
        chain = self.sign((self.folder / "leaf.csr").read_bytes(), since_days, until_days)
        return chain + (self.folder / "leaf.key").read_text()

    def names(self, csr: bytes) -> list[str]:
        """The names in a request."""
        text = self._openssl("req", "-inform", "DER", "-noout", "-text", "-verify", input=csr).decode()
        line = text.split("Subject Alternative Name:")[1].splitlines()[1]
        return [name.strip().removeprefix("DNS:") for name in line.split(",")]

    def _openssl(self, *arguments, **how) -> bytes:
        run = subprocess.run(["openssl", *arguments], cwd=self.folder, capture_output=True, **how)
        assert run.returncode == 0, run.stderr.decode()
        return run.stdout


def _time(days: float) -> str:
    then = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=days)
    return then.strftime("%Y%m%d%H%M%SZ")
