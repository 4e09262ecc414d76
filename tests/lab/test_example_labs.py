"""The five example labs with all stacks that this machine has, each in a few seconds."""

import json
import subprocess

import pytest

from support.labs import assert_all_answered, run_lab, shortened
from support.server import REPOSITORY

pytestmark = pytest.mark.usefixtures("place")

LABS = ["one-pool-or-many", "resident-or-fpm", "seven-servers", "tcp-or-unix", "unit-or-fpm"]
# Stacks that `make test` installs nothing for: tests/lab/test_stacks.py has them.
PEERS = {"unit", "swoole", "nginx-swoole", "reactphp", "php-pm", "roadrunner", "frankenphp"}


@pytest.fixture(scope="module", autouse=True)
def packages():
    """MariaDB and Symfony."""
    done = subprocess.run([REPOSITORY / "tests/apps/install-packages.sh"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize("name", LABS)
def test_an_example_races_all_servers_of_debian(examples, name):
    path = shortened(examples / "labs" / name / "lab.json", workers=2)
    content = json.loads(path.read_text())
    manifests = {stack if isinstance(stack, str) else stack["name"]: stack if isinstance(stack, str) else stack.get("stack", stack["name"])
                 for stack in content["stacks"]}
    # howdah-http has ReactPHP or Swoole behind it.
    stacks = [stack for stack, manifest in manifests.items() if manifest not in PEERS | {"howdah-http"}]
    results, _ = run_lab(path, "--stacks", ",".join(stacks))
    assert results["skipped"] == []
    assert_all_answered(results)
    assert not [check for check in results["checks"] if check["state"] == "failed"]


def test_each_example_is_here():
    assert sorted(path.parent.name for path in (REPOSITORY / "examples/labs").glob("*/lab.json")) == LABS
