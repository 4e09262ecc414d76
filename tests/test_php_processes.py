"""What PHP code does with processes and with howdah's own sockets, and that nobody else notices."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from harness import Howdah, Process, wait_for

# --- What code that runs in the prototype may say to the supervisor


@pytest.fixture
def victim():
    """A process that has nothing to do with PHP."""
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def says(*messages: object) -> str:
    """PHP code that says this to the supervisor: preloaded code may use FFI."""
    said = json.dumps([json.dumps(message) for message in messages])
    return f"""$c = FFI::cdef('long write(int, const char *, size_t);');
        foreach (json_decode({json.dumps(said)}) as $message) {{ $c->write(3, $message, strlen($message)); }}"""


def started(pid: int, index: int = 0) -> dict:
    return {"Started": {"worker": {"index": index, "incarnation": 0}, "pid": pid}}


BOOTED = {"Booted": {"php_version": "8", "opcache": True}}


@pytest.mark.parametrize("first", [[], [BOOTED]], ids=["before it has booted", "after it says that it has"])
def test_preloaded_code_cannot_make_the_supervisor_kill_others(folder, victim, first):
    preload = folder.php("preload.php", says(*first, started(victim.pid)) + "sleep(1);")
    with pytest.raises(AssertionError, match="exit code 1") as failure:
        Howdah.serve(folder, ini={"opcache.preload": preload})
    assert 'the application "app" does not start: its prototype broke the rules' in str(failure.value)
    assert victim.poll() is None, "it was killed"
