"""Marks for tests that need more than every machine has."""

import os

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes users: run the tests as root")


def needs_ffi(server) -> None:
    """Skips the test unless the page /exits.php, which uses FFI, works."""
    if server.get("/exits.php").status == 500:
        pytest.skip("this PHP has no FFI")
