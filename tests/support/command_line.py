"""Runs a command of howdah until it exits."""

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


def error_of(result: subprocess.CompletedProcess) -> str:
    """The error message, which is one line."""
    assert result.returncode == 1, (result.returncode, result.stdout, result.stderr)
    (line,) = result.stderr.splitlines()
    assert line.startswith("howdah: "), line
    assert "panicked" not in line and "os error" not in line, line
    return line
