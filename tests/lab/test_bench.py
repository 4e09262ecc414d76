"""bench/: its lab files can be read, and `howdah-bench` races one of them and runs a probe."""

import json
import os
import shutil
import subprocess

import pytest

from support.command_line import error_of, howdah
from support.folders import readable
from support.server import EXECUTABLE, REPOSITORY

pytestmark = pytest.mark.usefixtures("place")
BENCH = REPOSITORY / "bench"


@pytest.fixture
def bench(examples, tmp_path):
    """Runs `howdah-bench` of a copy that PHP's user can read."""
    shutil.copytree(BENCH, tmp_path / "bench", ignore=shutil.ignore_patterns("results", "__pycache__"))
    readable(tmp_path / "bench")

    def run(*arguments, executable=EXECUTABLE) -> subprocess.CompletedProcess:
        command = [tmp_path / "bench/howdah-bench", *arguments]
        environment = {**os.environ, "HOWDAH": str(executable)}
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200)

    return run


@pytest.mark.parametrize("path", sorted(BENCH.glob("*.lab.json")), ids=lambda path: path.name)
def test_each_lab_of_bench_is_read(path):
    # The lab is read before the stack is looked for.
    assert "the lab has no stack \"none\"" in error_of(howdah("lab", "serve", path, "none"))


def test_a_race_chooses_from_its_lab_file(bench, tmp_path):
    found = tmp_path / "found.json"
    choice = ["--servers", "howdah,nginx-fpm", "--pages", "hello", "--connections", "20", "--seconds", "0.2", "--json", found]
    done = bench("cost", "--quick", *choice)
    assert done.returncode == 0, done.stderr
    results = json.loads(found.read_text())
    assert [stack["name"] for stack in results["stacks"]] == ["howdah", "nginx-fpm"] and [load["name"] for load in results["loads"]] == ["hello-20"]
    assert all(set(run["usage"]["roles"]) == {"front", "php"} for run in results["runs"])
    assert any("× nginx-fpm" in line for line in done.stdout.splitlines()), done.stdout
    assert "invalid choice" in bench("compares").stderr
    assert "'helo' is unknown" in bench("compare", "--pages", "helo").stderr


def test_a_race_without_a_choice_has_the_servers_of_its_bars(bench):
    done = bench("cost", "--loads", "hello-20,symfony-20", executable="/bin/true")
    cost, symfony = [line for line in done.stdout.splitlines() if line.startswith("$ ")]
    assert "--stacks howdah,nginx-fpm,unit" in cost and "--stacks" not in symfony, done.stdout


def test_a_probe_starts_a_stack_of_the_lab(bench):
    done = bench("worker_memory", "--pages", "hello", "--steps", "5,20", "--processes", "1")
    assert "met: flat" in done.stdout, done.stdout + done.stderr
