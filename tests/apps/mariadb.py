"""A MariaDB server of the tests' own: data, socket and port in its folder, gone when stopped."""

import ctypes
import os
import secrets
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

START_SECONDS = 60
PR_SET_PDEATHSIG = 1


@dataclass
class Account:
    """A database with a user of its own, who may do everything in it."""
    database: str
    user: str
    password: str


class MariaDb:
    def __init__(self, folder: Path):
        self.socket = folder / "mariadb.sock"
        self.host = "127.0.0.1"
        self.port = _free_port()
        self._log = folder / "mariadb.log"
        data = folder / "data"
        user = ["--user=root"] if os.geteuid() == 0 else []
        common = [f"--datadir={data}", *user, "--innodb-log-file-size=8M",
                  "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0"]
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal",
             "--skip-test-db", *common],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        self._process = subprocess.Popen(
            ["mariadbd", "--no-defaults", *common, f"--socket={self.socket}",
             f"--bind-address={self.host}", f"--port={self.port}", "--skip-log-bin",
             "--innodb-buffer-pool-size=64M", "--performance-schema=OFF",
             f"--pid-file={folder / 'mariadb.pid'}"],
            stdout=open(self._log, "wb"), stderr=subprocess.STDOUT,
            preexec_fn=_die_with_parent, start_new_session=True)
        self._wait_until_ready()

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

    def _wait_until_ready(self):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                self.query("SELECT 1")
                return
            except AssertionError:
                time.sleep(0.1)
        self._process.kill()
        raise AssertionError("mariadbd did not start:\n" + self._log.read_text()[-3000:])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _die_with_parent():
    """So that no server survives a test run that was killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
