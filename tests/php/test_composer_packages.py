"""The form of the Composer packages in php/. Tests of their behaviour: tests/worker_mode and tests/apps."""

import json
import re
import subprocess

import pytest

from support.server import REPOSITORY

PACKAGES = sorted(path.parent for path in (REPOSITORY / "php").glob("*/composer.json"))
SOURCES = sorted(path for package in PACKAGES for path in package.rglob("*.php"))


def test_there_are_packages():
    assert PACKAGES and SOURCES


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_a_package_describes_itself(package):
    composer = json.loads((package / "composer.json").read_text())
    assert composer["name"] == f"howdah/{package.name}" and composer["license"] == "Apache-2.0" and composer["description"]
    assert composer["require"]["php"] == ">=8.1"
    readme = (package / "README.md").read_text()
    assert readme.startswith(f"# {composer['name']}\n") and f"composer require {composer['name']}" in readme.replace(" --dev", "")
    assert f"({package.name})" in (REPOSITORY / "php/README.md").read_text()


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(REPOSITORY / "php")))
def test_a_source_is_strict_and_where_its_class_is_loaded_from(source):
    checked = subprocess.run(["php", "-n", "-l", source], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
    text = source.read_text()
    assert "\ndeclare(strict_types=1);\n" in text
    assert max(map(len, text.splitlines())) <= 120
    package = next(package for package in PACKAGES if package in source.parents)
    for prefix, folder in json.loads((package / "composer.json").read_text()).get("autoload", {}).get("psr-4", {}).items():
        if package / folder not in source.parents:
            continue
        namespace = prefix + "\\".join(source.relative_to(package / folder).parts[:-1])
        assert f"\nnamespace {namespace.rstrip(chr(92))};\n" in text
        assert re.search(rf"^(final |readonly |abstract )*(class|interface|trait|enum) {source.stem}\b", text, re.M)
