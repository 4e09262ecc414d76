"""The machine that the tests run on: users, ports, and marks for tests that need more than every machine has."""

import os
import random
import socket
import subprocess

import pytest

NOBODY = "nobody"  # words: keep
WWW_DATA = "www-data"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes users: run the tests as root")


def needs_ffi(server) -> None:
    """Skips the test unless the page /exits.php, which uses FFI, works."""
    if server.get("/exits.php").status == 500:
        pytest.skip("this PHP has no FFI")


def needs_mounts() -> None:
    """Skips a test that needs a mount namespace: some containers and a chroot do not allow one."""
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no mount namespaces here: {tried.stderr.strip()}")


def free_port() -> int:
    """A TCP port without a listener, below the range from which the kernel takes ports for clients.

    Tests that run beside each other have ports of their own: one may close a listener, and open it again.
    """
    side, sides = (os.environ.get(f"PYTEST_XDIST_WORKER{name}", "") for name in ("", "_COUNT"))
    side, sides = int(side.removeprefix("gw") or 0), int(sides or 1)
    while True:
        port = random.randrange(10240 + side, 32000, sides)
        with socket.socket() as v4, socket.socket(socket.AF_INET6) as v6:
            try:
                v4.bind(("0.0.0.0", port))
                v6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                v6.bind(("::", port))
            except OSError:
                continue
            return port
