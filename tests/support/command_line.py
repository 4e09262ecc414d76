"""Runs a command of howdah to its end."""

import subprocess

from support.server import EXECUTABLE


def howdah(*arguments: str, prefix=(), cwd=None, timeout=30) -> subprocess.CompletedProcess:
    return subprocess.run(
        [*prefix, str(EXECUTABLE), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=cwd,
    )


def refused(result: subprocess.CompletedProcess) -> str:
    """The one line that says why."""
    assert result.returncode == 1, (result.returncode, result.stdout, result.stderr)
    (line,) = result.stderr.splitlines()
    assert line.startswith("howdah: "), line
    assert "panicked" not in line and "os error" not in line, line
    return line
