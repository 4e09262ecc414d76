"""Folders to serve, with the permissions that PHP's user needs.

Run as root, howdah serves a folder of root's as www-data: `readable()` opens a folder and the parents that pytest
closes, and `Folder` does so by itself.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from pathlib import Path

PREAMBLE = (
    "if (!function_exists('await')) { function await(string $file): void "
    "{ for ($turn = 0; !file_exists($file) && $turn < 15000; $turn++) { usleep(1000); } } }"
)
"""The beginning of every script of `Folder.php`: SCRATCH, the folder in which PHP may write, and await(FILE), which
waits until the file exists (for at most 15 s: a failed test must not leave a hanging worker)."""


def readable(path: os.PathLike | str) -> Path:
    """Lets every user read everything in `path` and enter the folders above it that belong to the current user."""
    path = Path(path)
    for entry in [path, *path.rglob("*")] if path.is_dir() else [path]:
        if not entry.is_symlink():
            mode = entry.stat().st_mode
            entry.chmod(mode | (0o555 if entry.is_dir() else 0o444))
    for parent in path.resolve().parents:
        if parent.stat().st_uid == os.geteuid() and str(parent).startswith(tempfile.gettempdir() + "/"):
            parent.chmod(parent.stat().st_mode | 0o711)
    return path


class Folder:
    """A folder to serve (`root`), and beside it a `scratch` folder in which PHP may write."""

    def __init__(self, path: os.PathLike | str):
        self.root = Path(path) / "site"
        self.scratch = Path(path) / "scratch"
        self.root.mkdir(parents=True)
        self.scratch.mkdir()
        self.scratch.chmod(0o777)
        readable(self.root)

    def write(self, name: str, content: str | bytes = "") -> Path:
        """Makes the file `name` (relative to the root) with its folders, readable for everyone."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        # opcache does not keep a file that changed in the last two seconds.
        os.utime(path, (time.time() - 60,) * 2)
        for made in [path, *path.parents]:
            if made == self.root:
                break
            made.chmod(0o644 if made == path else 0o755)
        return path

    def php(self, name: str, code: str) -> Path:
        """Makes a PHP script of `code` (without the opening tag), which may use SCRATCH and `await`; see PREAMBLE."""
        return self.write(name, f"<?php const SCRATCH = {json.dumps(str(self.scratch))}; {PREAMBLE}\n{code}\n")

    def copy(self, *sources: os.PathLike | str) -> None:
        """Copies files, or what is in folders, into the root."""
        for source in map(Path, sources):
            if source.is_dir():
                shutil.copytree(source, self.root, dirs_exist_ok=True)
            else:
                shutil.copy(source, self.root)
        readable(self.root)
