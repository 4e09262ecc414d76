"""A separate MariaDB server: data, socket and port in its folder, removed when it is stopped."""

import contextlib
import ctypes
import os
import secrets
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from support.machine import free_port
from support.waiting import wait_for

PR_SET_PDEATHSIG = 1


@dataclass
class Account:
    """A database and a user with all rights in it."""
    database: str
    user: str
    password: str


class MariaDb:
    def __init__(self, folder: Path):
        self.socket = folder / "mariadb.sock"
        self.host = "127.0.0.1"
        self.port = free_port()
        self._log = folder / "mariadb.log"
        data = folder / "data"
        user = ["--user=root"] if os.geteuid() == 0 else []
        # A starting server removes every file that looks like a temporary table from its folder, also those of others.
        temporary = folder / "tmp"
        temporary.mkdir()
        common = [f"--datadir={data}", f"--tmpdir={temporary}", *user, "--innodb-log-file-size=8M",
                  "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0"]
        installed = subprocess.run(
            ["mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal",
             "--skip-test-db", *common],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert installed.returncode == 0, installed.stdout
        self._process = subprocess.Popen(
            ["mariadbd", "--no-defaults", *common, f"--socket={self.socket}",
             f"--bind-address={self.host}", f"--port={self.port}", "--skip-log-bin",
             "--innodb-buffer-pool-size=64M", "--performance-schema=OFF",
             f"--pid-file={folder / 'mariadb.pid'}"],
            stdout=open(self._log, "wb"), stderr=subprocess.STDOUT,
            preexec_fn=_die_with_parent, start_new_session=True)
        wait_for(self._is_ready, "mariadbd")

    def create(self, name: str) -> Account:
        account = Account(name, name, secrets.token_hex(12))
        self.query(
            f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4;"
            f"CREATE USER '{name}'@'%' IDENTIFIED BY '{account.password}';"
            f"CREATE USER '{name}'@'localhost' IDENTIFIED BY '{account.password}';"
            f"GRANT ALL ON `{name}`.* TO '{name}'@'%', '{name}'@'localhost';")
        return account

    def query(self, sql: str, database: str = "mysql") -> list[list[str]]:
        """The rows, as the command line client prints them."""
        done = subprocess.run(
            ["mariadb", "--no-defaults", "-u", "root", f"--socket={self.socket}",
             "--batch", "--skip-column-names", database],
            input=sql, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        return [line.split("\t") for line in done.stdout.splitlines()]

    def stop(self):
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, "mariadbd did not start:\n" + self._log.read_text()[-3000:]
        with contextlib.suppress(AssertionError):
            self.query("SELECT 1")
            return True
        return False


def _die_with_parent():
    """Kills the server when the test run is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
