#!/bin/sh
# Makes an empty MariaDB for a lab, with a database, a user and two rows: mariadb.sh FOLDER
set -eu
command -v mariadb-install-db >/dev/null || { echo "MariaDB is not installed: apt-get install mariadb-server" >&2; exit 1; }
mkdir "$1/data" "$1/tmp"
# As root, the server runs as mysql, to which its data must belong.
[ "$(id -u)" != 0 ] || chown mysql "$1/data" "$1/tmp"
mariadb-install-db --no-defaults --user=mysql --auth-root-authentication-method=normal --skip-test-db \
    --datadir="$1/data" --tmpdir="$1/tmp" --innodb-log-file-size=8M >"$1/install.log" 2>&1 || { tail -5 "$1/install.log" >&2; exit 1; }
cat >"$1/init.sql" <<'SQL'
CREATE DATABASE lab;
CREATE USER 'lab'@'127.0.0.1' IDENTIFIED BY 'lab';
GRANT SELECT ON lab.* TO 'lab'@'127.0.0.1';
CREATE TABLE lab.user (user_id INT PRIMARY KEY, user_name VARCHAR(40), mobile_tel CHAR(11), KEY (mobile_tel)) ENGINE=InnoDB;
CREATE TABLE lab.user_bank (user_id INT PRIMARY KEY, bank_name VARCHAR(40), account CHAR(16)) ENGINE=InnoDB;
INSERT INTO lab.user VALUES (1, 'one', '15200000001'), (2, 'two', '15200000002');
INSERT INTO lab.user_bank VALUES (1, 'A bank', '0000111122223333'), (2, 'B bank', '4444555566667777');
SQL
