"""Redis and MariaDB for the session page: servers of the bench's own, on free loopback ports, empty at each start."""

import os
import socket
import subprocess

from lib import process_tree
from lib.php_config import executable
from lib.ports import free_port, wait_for_port
from lib.process_tree import BenchError

USER, PASSWORD, DATABASE = "bench", "bench", "bench"


class Redis:
    def __init__(self, run_dir, stack, cores=None):
        self.port = free_port()
        log = run_dir / "redis.log"
        command = [executable("redis-server", "redis-server"), "--bind", "127.0.0.1", "--port", self.port,
                   "--save", "", "--appendonly", "no", "--dir", run_dir]
        process = process_tree.start(command, cores=cores, log=log)
        stack.callback(process_tree.stop, process)
        wait_for_port(self.port, process, log)

    def forget_sessions(self):
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(b"FLUSHALL\r\n")
            connection.recv(64)


class MariaDb:
    def __init__(self, run_dir, stack, cores=None):
        self.port = free_port()
        data_dir = run_dir / "mariadb"
        log = run_dir / "mariadb.log"
        as_root = ["--user=root"] if os.geteuid() == 0 else []
        install = subprocess.run(
            [executable("mariadb-install-db", "mariadb-server"), "--no-defaults", f"--datadir={data_dir}",
             "--auth-root-authentication-method=normal", "--skip-test-db", *as_root],
            capture_output=True, text=True)
        if install.returncode:
            raise BenchError(f"mariadb-install-db failed: {install.stdout}{install.stderr}")
        grants = run_dir / "mariadb.sql"
        grants.write_text(f"CREATE DATABASE {DATABASE};\n"
                          f"CREATE USER {USER}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n"
                          f"GRANT ALL ON {DATABASE}.* TO {USER}@'127.0.0.1';\n")
        command = [executable("mariadbd", "mariadb-server"), "--no-defaults", f"--datadir={data_dir}",
                   "--bind-address=127.0.0.1", f"--port={self.port}", f"--socket={run_dir}/mariadb.sock",
                   f"--pid-file={run_dir}/mariadb.pid", f"--init-file={grants}", "--skip-name-resolve",
                   "--max-connections=4000", "--back-log=4000", "--thread-cache-size=64",
                   "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=16M", *as_root]
        process = process_tree.start(command, cores=cores, log=log)
        stack.callback(process_tree.stop, process)
        wait_for_port(self.port, process, log)

    def php_source(self):
        """database.php: what session.php includes."""
        return ("<?php\nreturn ["
                f"'dsn' => 'mysql:host=127.0.0.1;port={self.port};dbname={DATABASE}', "
                f"'user' => '{USER}', 'password' => '{PASSWORD}'];\n")

