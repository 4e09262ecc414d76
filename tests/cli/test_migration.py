"""The configurations of docs/migration.md are complete and valid."""

import json
import re

import pytest

from support.command_line import howdah
from support.server import REPOSITORY

PAGE = (REPOSITORY / "docs/migration.md").read_text()
CONFIGURATIONS = re.findall(r"```json\n(.*?)```", PAGE, re.S)


def test_the_page_has_a_configuration_for_each_kind_of_server():
    kinds = [next(iter(json.loads(text)["applications"].values()))["type"] for text in CONFIGURATIONS]
    assert kinds == ["php", "php", "roadrunner", "http"]


@pytest.mark.parametrize("text", CONFIGURATIONS)
def test_a_configuration_is_valid(text):
    done = howdah("config", "check", "-", stdin=text)
    assert done.returncode == 0, done.stderr
