"""The board and the alerts of contrib/: each expression uses metrics and labels that howdah has."""

import importlib.util
import json
import re

import pytest

from support.server import REPOSITORY

CONTRIB = REPOSITORY / "contrib"
ADDED_BY_PROMETHEUS = {"instance", "job", "le"}
FUNCTIONS = {
    "sum", "rate", "increase", "histogram_quantile", "time", "changes", "by", "label_values", "up",
}  # fmt: skip


def families() -> dict[str, set[str]]:
    """The names of samples with their labels, from the table of docs/observability.md, which is made from the code."""
    found = {}
    for line in (REPOSITORY / "docs/observability.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0].startswith("`howdah_"):
            name, labels = cells[0].strip("`"), set(re.findall(r"`(\w+)`", cells[2]))
            suffixes = ("_bucket", "_sum", "_count") if cells[1] == "histogram" else ("",)
            found.update({name + suffix: labels for suffix in suffixes})
    assert len(found) > 30
    return found


# The difference to the accepted ones is the gauge of open connections.
NOT_SHOWN = {"howdah_connections_closed_total"}


def test_each_metric_is_on_the_board_or_in_an_alert():
    """A new metric needs a panel, or a line in NOT_SHOWN with its reason."""
    used = re.findall(r"\bhowdah_\w+", "\n".join(expressions_of_the_board() + expressions_of_the_alerts()))
    shown = {re.sub("_(bucket|sum|count)$", "", name) for name in used}
    assert {re.sub("_(bucket|sum|count)$", "", name) for name in families()} - shown == NOT_SHOWN


def check(expression: str) -> None:
    known = families()
    text = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expression)
    used = re.findall(r"\bhowdah_\w+", text)
    assert used or "up{" in text, f"no metric of howdah: {expression}"
    unknown = set(used) - set(known)
    assert not unknown, f"{unknown} in {expression}"
    labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", text))
    for listed in re.findall(r"\bby \(([^)]*)\)", text):
        labels |= {label.strip() for label in listed.split(",")}
    allowed = set().union(*(known[name] for name in used)) | ADDED_BY_PROMETHEUS
    assert labels <= allowed, f"{labels - allowed} in {expression}"
    words = set(re.findall(r"\b[a-z_]+\b(?=\s*[({])", text)) - {name for name in used} - FUNCTIONS
    assert not words, f"{words} in {expression}"
    assert text.count("(") == text.count(")") and text.count("{") == text.count("}"), expression


def board() -> dict:
    return json.loads((CONTRIB / "grafana/howdah.json").read_text())


def expressions_of_the_board() -> list[str]:
    panels = [target["expr"] for panel in board()["panels"] for target in panel.get("targets", [])]
    variables = [v["query"] for v in board()["templating"]["list"] if v["type"] == "query"]
    return panels + variables + [a["expr"] for a in board()["annotations"]["list"]]


def expressions_of_the_alerts() -> list[str]:
    text = (CONTRIB / "prometheus/howdah.rules.yml").read_text()
    lines = re.findall(r"^ +expr: (?!\|)(.*)$", text, re.MULTILINE)
    blocks = re.findall(r"^ +expr: \|\n((?: {10}.*\n)+)", text, re.MULTILINE)
    assert len(lines) + len(blocks) == text.count("- alert: ")
    return lines + blocks


@pytest.mark.parametrize("expression", expressions_of_the_board())
def test_the_board_uses_metrics_that_exist(expression):
    check(expression)


@pytest.mark.parametrize("expression", expressions_of_the_alerts())
def test_an_alert_uses_metrics_that_exist(expression):
    check(expression)


@pytest.mark.parametrize(
    "wrong",
    [
        "howdah_nothing_total",
        "sum by (uri) (rate(howdah_requests_total[5m]))",
        'howdah_workers{colour="red"}',
        "total(howdah_workers)",
        "rate(howdah_request_php_seconds[5m])",
        "sum(howdah_workers",
    ],
)
def test_a_wrong_expression_is_found(wrong):
    with pytest.raises(AssertionError):
        check(wrong)


def test_the_board_is_what_its_script_makes():
    path = CONTRIB / "grafana/make_board.py"
    spec = importlib.util.spec_from_file_location("make_board", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.board() == board(), "run python3 contrib/grafana/make_board.py"
    ids = [panel["id"] for panel in board()["panels"]]
    assert len(ids) == len(set(ids))
