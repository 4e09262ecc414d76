"""`howdah lab report` and `howdah lab compare`: files that are not results, files that cannot be written."""

import json

import pytest

from support.command_line import error_of, howdah
from support.server import REPOSITORY

SAMPLE = REPOSITORY / "crates/lab/testdata/results-sample.json"


def test_the_report_is_beside_the_result(tmp_path):
    (tmp_path / "results.json").write_text(SAMPLE.read_text())
    for argument in (tmp_path, tmp_path / "results.json"):
        result = howdah("lab", "report", argument)
        assert result.returncode == 0, result.stderr
        assert result.stdout.startswith("Run howdah: ") and "Confidence: low." in result.stdout
        assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
        (tmp_path / "report.html").unlink()


def test_control_characters_of_a_result_do_not_reach_the_terminal(tmp_path):
    results = json.loads(SAMPLE.read_text())
    results["stacks"][0]["label"] = "how\x1b[2Jdah"
    (tmp_path / "results.json").write_text(json.dumps(results))
    for arguments in (["report", tmp_path], ["compare", tmp_path, tmp_path]):
        result = howdah("lab", *arguments)
        assert "how\\u{1b}[2Jdah" in result.stdout and "\x1b" not in result.stdout


@pytest.mark.parametrize(
    "content, reason",
    [
        (None, "No such file or directory"),
        ("{", "not JSON"),
        ("{}", "no results of a lab"),
        ('{"format": 99}', "use the howdah that wrote them"),
        ('{"format": 1, "title": 7}', "not the results of a lab"),
    ],
)
def test_other_files_are_rejected_with_their_name(tmp_path, content, reason):
    file = tmp_path / "other.json"
    if content is not None:
        file.write_text(content)
    for arguments in (["report", file], ["compare", file, SAMPLE], ["compare", SAMPLE, file]):
        error = error_of(howdah("lab", *arguments))
        assert str(file) in error and reason in error, error


def test_a_page_that_cannot_be_written_is_an_error(tmp_path):
    page = tmp_path / "missing/page.html"
    for arguments in (["report", SAMPLE], ["compare", SAMPLE, SAMPLE]):
        error = error_of(howdah("lab", *arguments, "--html", page))
        assert str(page) in error and "No such file or directory" in error, error
