"""Waits for conditions, never for a time."""

import time
from typing import Callable

# The time in seconds within which an expected event must happen, even on a busy machine. After that the test fails.
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
