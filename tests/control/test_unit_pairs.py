"""Configurations and requests whose answers were recorded from NGINX Unit (tests/unit_compat), played against howdah.

A case without a reason is answered as by Unit. A case with a reason is answered as its member "howdah" has it, and is a
line of the table of differences in docs/configuration.md.
"""

import json
import os

import pytest

from support.folders import readable
from support.machine import free_port
from support.server import REPOSITORY, Howdah, stop_all
from support.unit_pairs import NOT_RECORDED, Pair, in_any_order, pairs, topics, with_differences

PAGE = REPOSITORY / "docs/configuration.md"
PAIRS = [pair for file in topics() for pair in pairs(file)]


class Listening:
    """howdah with the listener of one case."""

    def __init__(self, server: Howdah):
        self.server = server
        self.address = f"127.0.0.1:{free_port()}"
        self.error = None

    def put(self, configuration):
        response = self.server.api("PUT", "/config", configuration)
        self.error = response.json().get("detail")
        return response

    def edit(self, method, path, body=None):
        return self.server.api(method, path, body)


@pytest.fixture(scope="module")
def server():
    server = Howdah.run({"routes": [{"action": {"return": 204}}]})
    yield server
    stop_all([server])


def installed(server: Howdah, version: str) -> bool:
    modules = server.api("GET", "/status").json()["modules"]["php"]
    modules = modules if isinstance(modules, list) else [modules]
    # The full version is known while an application runs on it.
    return any(f"{module['version']}.".startswith(version + ".") for module in modules)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.topic}: {pair.name}")
def test_the_answer_is_that_of_unit_or_the_documented_one(server, tmp_path, pair: Pair):
    if pair.data.get("root") and os.geteuid() != 0:
        pytest.skip("changes users: run the tests as root")
    if (version := pair.data.get("php")) and not installed(server, version):
        pytest.skip(f"needs PHP {version}")
    folder = tmp_path / "site"
    folder.mkdir()
    readable(folder)
    listening = Listening(server)
    assert in_any_order(pair.play(listening, folder)) == in_any_order(pair.expected)
    error = (listening.error or "").replace(str(folder), "{root}").replace(listening.address, "{listen}")
    assert bool(pair.error) == bool(error), error
    assert all(part in error for part in (pair.error or "").split("…")), error


def test_a_difference_has_a_reason_and_a_reason_has_a_difference():
    for pair in PAIRS:
        differs = pair.expected != pair.data["unit"]
        assert differs == (pair.reason is not None) == ("howdah" in pair.data), f"{pair.topic}: {pair.name}"


def test_the_table_of_differences_is_up_to_date():
    page = PAGE.read_text()
    expected = with_differences(page, PAIRS)
    if os.environ.get("UPDATE_DOCS"):
        PAGE.write_text(expected)
    else:
        assert page == expected, "UPDATE_DOCS=1 tests/run tests/control/test_unit_pairs.py -k table"


def test_every_option_of_unit_is_recorded():
    """An option is the title of its table in docs/configuration.md and its name."""
    schema = json.loads((REPOSITORY / "crates/config/schema.json").read_text())
    objects = [schema, *schema["$defs"].values()]
    options = {
        f"{table['title']}/{name}"
        for table in objects
        if "title" in table
        for name, option in table["properties"].items()
        if option.get("x-unit") != "ours"
    }
    not_recorded = set(json.loads(NOT_RECORDED.read_text()))
    recorded = {option for pair in PAIRS for option in pair.data["options"]}
    assert options - recorded - not_recorded == set()
    assert not_recorded <= options - recorded, "recorded, or no options"
