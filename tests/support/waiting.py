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


def longest_wait(server, path: str, seconds: float) -> float:
    """How long one request for `path`, of those that are sent one after another in this time, waited at most for its answer 200."""
    longest, until = 0.0, time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.monotonic()
        assert server.get(path).status == 200
        longest = max(longest, time.monotonic() - began)
    return longest
