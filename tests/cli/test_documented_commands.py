"""The commands in docs/ and README.md, as they are printed there.

Each page's commands run in an own mount and network namespace, in which /srv/shop, the state directory and all ports are
free. The current folder has what the pages name: the configurations FILE and shop.json, the folder DIR with worker.php, api.php and server.php, a
certificate, results of a lab in before and after.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from support.command_line import howdah
from support.folders import Folder, readable
from support.machine import needs_root
from support.server import EXECUTABLE, REPOSITORY

PAGES = [*sorted((REPOSITORY / "docs").rglob("*.md")), REPOSITORY / "README.md"]
COMMAND = re.compile(r"(\$ )?(howdah [a-z]|target/release/howdah [a-z]|(cat .*\| )?(curl|\$CURL) |etag=)")
# Commands that run until a signal ends them.
SERVERS = ("howdah run", "howdah serve", "target/release/howdah serve")
# The same for clients, and a line that shows that they work.
WATCHES = {"howdah top": "shop", "howdah dashboard": "^dashboard http"}
# Commands about an application in worker mode.
WORKER_MODE = ("howdah leaks",)
# Commands that record for some seconds, and for how many here.
RECORDING = re.compile(r"^(howdah (?:leaks|profile) \w+)( --seconds \d+)?")
SHORT_RECORDING = r"\1 --seconds 2"
# The synopsis of a command is not a command.
SYNOPSIS = {"howdah serve [DIR] [OPTIONS]"}
# It takes minutes; tests/lab runs labs.
LONG = {"howdah lab run --quick /srv/shop/lab.json"}

SHOP = {
    "listeners": {"127.0.0.1:8099": {"pass": "routes"}},
    "routes": [{"action": {"share": "/srv/shop/public$uri", "fallback": {"pass": "applications/shop"}}}],
    "applications": {
        "shop": {
            "type": "php",
            "root": "/srv/shop/public",
            "front_controller": "index.php",
            "slow_log": {"threshold": 0.01},
        }
    },
    "upstreams": {"api": {"servers": {"10.0.0.5:8080": {}, "10.0.0.6:8080": {}}}},
}


def commands(page: Path) -> list[str]:
    """The commands in the code blocks of a page, each with the lines that continue it. Examples of errors are left out."""
    found = []
    lines = page.read_text().splitlines()
    fenced = False
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        fenced ^= line.startswith("```")
        code = line[4:] if line.startswith("    ") else line if fenced else ""
        if not COMMAND.match(code):
            continue
        command = code.removeprefix("$ ")
        while not is_complete(command):
            command += "\n" + lines[number].strip()
            number += 1
        if number < len(lines) and lines[number].strip().startswith("howdah: "):
            continue
        if command not in SYNOPSIS | LONG:
            found.append(RECORDING.sub(SHORT_RECORDING, command))
    return found


def is_complete(command: str) -> bool:
    """Whether no further line belongs to the command: a quotation or a backslash would continue it."""
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return False
    return not command.endswith("\\")


def test_the_pages_have_commands():
    """The pattern finds them."""
    total = sum(len(commands(page)) for page in PAGES)
    assert total >= 25, total
    assert any("etag=$(howdah config get --etag)" in command for command in commands(REPOSITORY / "docs/control-api.md"))
    assert sum("$CURL" in command for command in commands(REPOSITORY / "docs/tls.md")) == 4


@pytest.fixture
def place(tmp_path) -> Path:
    """The current folder of the commands."""
    place = readable(tmp_path) / "here"
    place.mkdir()
    Folder(place / "DIR")
    for name in ("FILE", "shop.json"):
        (place / name).write_text(json.dumps(SHOP))
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=shop.example.com", "-addext", "subjectAltName=DNS:shop.example.com",
         "-keyout", place / "privkey.pem", "-out", place / "fullchain.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    (place / "internal-ca.pem").write_text((place / "fullchain.pem").read_text())
    for name in ("before", "after"):
        (place / name).mkdir()
        shutil.copy(REPOSITORY / "crates/lab/testdata/results-sample.json", place / name / "results.json")
    (place / "bin").mkdir()
    (place / "bin/howdah").symlink_to(EXECUTABLE)
    (place / "target/release").mkdir(parents=True)
    (place / "target/release/howdah").symlink_to(EXECUTABLE)
    return place


PREPARATION = """set -euo pipefail
curl() { command curl --fail-with-body "$@"; }
CURL="curl --unix-socket /run/howdah/control.sock"
for folder in /srv /run/howdah /var/lib/howdah; do mkdir -p "$folder"; mount -t tmpfs -o mode=0755 tmpfs "$folder"; done
ip link set lo up
mkdir -p /srv/shop/public ~/shop
echo '<?php usleep(20000); echo "shop";' > /srv/shop/public/index.php
cp /srv/shop/public/index.php ~/shop
cp /srv/shop/public/index.php DIR
echo '<?php while (howdah\\handle_request(fn () => print("worker"))) { }' > DIR/worker.php
cp DIR/worker.php /srv/shop/public
cp DIR/worker.php DIR/api.php
cat > DIR/server.php <<'SCRIPT'
<?php
while (howdah\\Async\\is_running()) {
    [$read, $none] = [[howdah\\Async\\stream()], null];
    stream_select($read, $none, $none, 60);
    while ($request = howdah\\Async\\accept()) { $request->respond(200, [], "async"); }
}
SCRIPT
wait_for_line() { n=0; until grep -q "$1" "$2" 2>/dev/null; do n=$((n + 1)); [ "$n" -lt 600 ] || { cat "$2" >&2; exit 9; }; sleep 0.05; done; }
"""
WITH_SERVER = """howdah run --config shop.json > first 2>&1 &
server=$!
wait_for_line '^howdah ' first
howdah serve DIR --listen 127.0.0.1:8098 > second 2>&1 &
beside=$!
wait_for_line '^control ' second
# A profile needs requests that run meanwhile.
while sleep 0.01; do command curl -s http://127.0.0.1:8099/ > /dev/null || true; done &
load=$!
"""


def client(command: str) -> str:
    shown = f"echo '+' {shlex.quote(command)} >&2\n"
    if watched := [line for name, line in WATCHES.items() if command.startswith(name)]:
        # A shell without a terminal makes background commands ignore SIGINT.
        return (
            f"{shown}(exec {command}\n) > watch 2>&1 &\nwatch=$!\nwait_for_line '{watched[0]}' watch\n"
            'kill "$watch"; wait "$watch" || true\n'
        )
    if command.startswith(WORKER_MODE):
        return (
            "howdah config delete /applications/shop/front_controller\n"
            "echo '{\"script\": \"worker.php\"}' | howdah config put /applications/shop/worker -\n"
            f"{shown}{command}\n"
        )
    return f"{shown}{command}\n"


def script(listed: list[str]) -> str:
    """All commands of a page. A server is started alone, and stopped when its first line comes."""
    servers = [command for command in listed if command.startswith(SERVERS) and "--print-config" not in command]
    clients = [command for command in listed if command not in servers]
    text = PREPARATION
    if clients:
        text += WITH_SERVER + "".join(map(client, clients))
        text += 'kill "$load"; kill "$server" "$beside"; wait "$server" "$beside"\n'
    for number, command in enumerate(servers):
        # `exec`, so that the signal goes to howdah and not to the shell.
        text += f"echo '+' {shlex.quote(command)} >&2\n(exec {command}\n) > server{number} 2>&1 &\nserver=$!\n"
        text += f"wait_for_line '^howdah ' server{number}\nkill \"$server\"; wait \"$server\"\n"
    return text


@needs_root
@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.stem)
def test_the_commands_of_a_page_work(place, page):
    listed = commands(page)
    if any("--php 8.2" in command for command in listed) and "PHP 8.2" not in howdah("--version").stdout:
        pytest.skip("a command names PHP 8.2")
    environ = {
        **os.environ, "PATH": f"{place}/bin:{os.environ['PATH']}", "HOME": str(place), "EDITOR": "true", "VISUAL": "true",
    }  # fmt: skip
    namespaces = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child"]
    result = subprocess.run(
        [*namespaces, "--mount-proc", "bash", "-c", script(listed)],
        cwd=place, env=environ, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert result.returncode == 0, f"{result.stderr}\n{result.stdout}"
