"""`howdah serve --domain`: HTTPS without a configuration."""

import json
import subprocess

import pytest

from support.acme.server import Authority
from support.acme.site import AcmeSite
from support.machine import free_port
from support.server import EXECUTABLE

NAME = "shop.example"


def test_a_folder_is_served_with_a_certificate_of_its_own(serve, folder, tmp_path):
    folder.php("index.php", "echo $_SERVER['HTTPS'] ?? '-', $_SERVER['SERVER_NAME'];")
    certificates = tmp_path / "certificates"
    with Authority(tmp_path / "authority") as authority:
        options = ("--domain", NAME, "--email", "ops@shop.example", "--certificate-dir", str(certificates))
        options += ("--acme-directory", authority.directory)
        # The authority looks at the port as soon as howdah has the certificate's listener.
        authority.tls_port = port = free_port()
        server = serve(*options, listen=(f"127.0.0.1:{port}",), ready=lambda server: f":{port}" in server.stdout,
                       environ={"HOWDAH_TEST_ACME_TIME_DIVIDER": "600"})  # fmt: skip
        site = AcmeSite.of(server, authority, port)
        site.wait_for_certificate(NAME)
        assert f"https://127.0.0.1:{port}" in server.stdout
        assert (certificates / f"acme/certificates/{NAME}.pem").stat().st_mode & 0o777 == 0o600
        status = subprocess.run(
            [EXECUTABLE, "status", "--folder", str(folder.root)], capture_output=True, text=True, check=True
        ).stdout
        assert f"{NAME}  valid" in status, status
        assert authority.contacts == [["mailto:ops@shop.example"]]


def test_the_configuration_can_be_printed(folder):
    folder.php("index.php", "")
    command = [EXECUTABLE, "serve", str(folder.root), "--domain", NAME, "--print-config"]
    printed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert printed["listeners"] == {
        "*:443": {"pass": "routes", "tls": {"acme": {"domains": [NAME]}}},
        "*:80": {"redirect": "https:443"},
    }


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--domain", "https://shop.example"], '--domain: "https://shop.example" is not a domain name'),
        (["--domain", "*.shop.example"], "--domain: \"*.shop.example\": a wildcard is proven over the DNS only"),
        (["--domain", NAME, "--email", "ops"], '--email: "ops" is not an e-mail address'),
        (["--domain", NAME, "--acme-directory", "x"], '--acme-directory: "x" is not the URL of a directory'),
    ],
)
def test_a_wrong_option_is_named(folder, options, expected):
    command = [EXECUTABLE, "serve", str(folder.root), *options]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 1 and expected in run.stderr, run.stderr
