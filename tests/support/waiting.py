"""Waiting for a condition, never for a time."""

import time
from typing import Callable

# The longest time that anything that must happen may take on a busy machine. A test that reaches it fails.
PATIENCE = 30.0


def wait_for(condition: Callable[[], object], what: str = "", timeout: float = PATIENCE):
    """Calls `condition` until it returns something true, and returns that."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout:g} s in vain for {what or condition}; last: {value!r}")
        time.sleep(0.01)
