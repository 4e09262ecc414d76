"""bench/record-labs and bench/self-race, in small."""

import json
import os
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from support.server import EXECUTABLE, REPOSITORY

pytestmark = pytest.mark.usefixtures("place")


def bench(name: str, *arguments, executable: Path = EXECUTABLE) -> subprocess.CompletedProcess:
    environment = {**os.environ, "HOWDAH": str(executable)}
    return subprocess.run([REPOSITORY / "bench" / name, *map(str, arguments)], capture_output=True, text=True, env=environment, timeout=240)


@pytest.fixture
def labs(folder) -> Path:
    """A folder with one small lab, and the figures of an article."""
    folder.write("index.php", "<?php echo 'hello';")
    lab = folder.root.parent / "labs" / "small"
    lab.mkdir(parents=True)
    loads = [{"name": "a", "connections": 4, "duration": "1200ms", "warm_up": "0s"}, {"name": "b", "connections": 2, "requests": 50, "warm_up": "0s"}]
    stacks = ["nginx-fpm", {"name": "php-s", "label": "php -S <5>"}, {"name": "none", "command": ["no-such-program", "{{ port }}"]}]
    content = {"title": "Small", "application": {"root": str(folder.root)}, "workers": 1, "stacks": stacks, "loads": loads, "targets": ["/"], "rounds": 2}
    (lab / "lab.json").write_text(json.dumps(content))
    figures = [
        {"load": "a", "stack": "nginx-fpm", "metric": "requests_per_second", "value": 123},
        {"load": "a", "stack": "absent", "metric": "requests_per_second", "value": 9},
        {"load": "b", "stack": "php-s", "metric": "p99", "value": 5230},
    ]
    article = {"title": "A small <lab>", "source": "x", "picture": "requests_per_second", "memory": ["nginx-fpm", "php-s"], "figures": figures}
    (lab / "article.json").write_text(json.dumps(article))
    return lab.parent


def test_one_command_runs_labs_and_writes_their_pages(labs):
    docs, out = labs.parent / "docs", labs.parent / "out"
    done = bench("record-labs", "--labs", labs, "--docs", docs, "--out", out, "--rounds", 1)
    assert done.returncode == 0, done.stderr
    page = docs / "small" / "README.md"
    text = page.read_text()
    assert text.startswith("# A small <lab>\n") and "1 round:" in text and "](picture.svg)" in text and "](memory.svg)" in text
    first = next(line for line in text.splitlines() if line.startswith("| nginx + PHP-FPM"))
    assert first.split(" | ")[1] == "123" and "| 100 |" in first
    assert "| absent | 9 | not measured here |" in text and "5,230" in text
    assert "Not raced: none (" in text
    results = json.loads((docs / "small" / "results.json").read_text())
    assert [stack["name"] for stack in results["stacks"]] == ["nginx-fpm", "php-s"] and len(results["summaries"]) == 4
    for name in ("picture.svg", "memory.svg"):
        root = ElementTree.parse(docs / "small" / name).getroot()
        labels = ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]
        assert "php -S <5>" in labels, (name, labels)
    # The text around the figures is written by hand, and stays.
    page.write_text(text.replace("# A small <lab>", "# By hand") + "\nMore by hand.\n")
    again = bench("record-labs", "--labs", labs, "--docs", docs, "--from", out, "small")
    assert again.returncode == 0, again.stderr
    assert page.read_text() == text.replace("# A small <lab>", "# By hand") + "\nMore by hand.\n"
    page.write_text("no marks")
    assert "are missing" in bench("record-labs", "--labs", labs, "--docs", docs, "--from", out).stderr
    assert "is not one of small" in bench("record-labs", "--labs", labs, "other").stderr


def test_the_pages_of_the_repository_fit_to_their_figures(tmp_path):
    """The tables and pictures of each recorded answer are those of its results.json."""
    docs = REPOSITORY / "docs" / "lab"
    names = sorted(path.parent.name for path in docs.glob("*/results.json"))
    assert len(names) >= 4
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "README.md").write_text((docs / name / "README.md").read_text())
    done = bench("record-labs", "--from", docs, "--docs", tmp_path, *names)
    assert done.returncode == 0, done.stderr
    for written in tmp_path.glob("*/*"):
        assert written.read_text() == (docs / written.parent.name / written.name).read_text(), f"bench/record-labs --from docs/lab; {written.name}"


def test_a_stack_is_raced_against_itself(tmp_path):
    found = tmp_path / "found.json"
    done = bench("self-race", "--races", 1, "--rounds", 2, "--seconds", 0.2, "--json", found, "php-s")
    if "fewer than two rounds" in done.stderr:
        # The load generator was the bottleneck: on a busy machine, that is right.
        assert "load generator" in done.stderr
        return
    assert "php-s against itself: 1 races of 2 rounds" in done.stdout, done.stderr
    (race,) = json.loads(found.read_text())["php-s"]
    assert done.returncode == 0 and 0.1 < race["requests_per_second"]["ratio"] < 10


@pytest.mark.parametrize("command", [["record-labs", "resident-or-fpm"], ["self-race"]], ids=lambda command: command[0])
def test_without_an_executable_the_error_names_how_to_build_it(tmp_path, command):
    done = bench(*command, executable=tmp_path / "howdah")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == f"bench/{command[0]}: {tmp_path}/howdah does not exist: make build, or set HOWDAH=/path/to/howdah\n"
