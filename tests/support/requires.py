"""Marks for tests that need more than every machine has."""

import os

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes users: run the tests as root")
