"""Fixtures of the tests of labs."""

import shutil
import tempfile
from pathlib import Path

import pytest

from support.folders import readable
from support.labs import processes_in
from support.server import REPOSITORY


@pytest.fixture
def place(monkeypatch):
    """The folder for the labs' own folders; at the end, nothing is left in it and no process works there."""
    # A short path: unix sockets are in it.
    place = Path(tempfile.mkdtemp(prefix="lab-"))
    place.chmod(0o755)
    monkeypatch.setenv("TMPDIR", str(place))
    yield place
    assert processes_in(place) == []
    place.rmdir()


@pytest.fixture
def examples(tmp_path) -> Path:
    """A copy of examples/, which PHP's user can read."""
    shutil.copytree(REPOSITORY / "examples", tmp_path / "examples")
    readable(tmp_path)
    return tmp_path / "examples"
