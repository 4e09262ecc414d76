"""Commands of howdah that run until they exit."""

import os
import subprocess
from typing import Mapping

from support.server import EXECUTABLE


def howdah(
    *arguments, stdin: str | bytes = "", env: Mapping[str, str] = {}, prefix=(), cwd=None, timeout: float = 60
) -> subprocess.CompletedProcess:
    """Runs `howdah ARGUMENTS` until it exits; `env` adds to the environment."""
    result = subprocess.run(
        [*prefix, str(EXECUTABLE), *map(str, arguments)],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=timeout,
        cwd=cwd,
        env={**os.environ, **env},
    )
    result.stdout, result.stderr = result.stdout.decode(), result.stderr.decode()
    assert "panicked" not in result.stderr, result.stderr
    return result


def error_of(result: subprocess.CompletedProcess) -> str:
    """The error message, which is one line. The log may have warnings before it."""
    assert result.returncode == 1, (result.returncode, result.stdout, result.stderr)
    (line,) = (line for line in result.stderr.splitlines() if " WARN " not in line)
    assert line.startswith("howdah: "), line
    assert "panicked" not in line and "os error" not in line, line
    return line
