"""`memtune compare` and `best`, after a trial and without one."""

import json

import pytest
from typer.testing import CliRunner

from memtune.cli.command_line import app
from memtune.settings import Settings
from tests.unit.cli.invocation import read_error, read_output


@pytest.mark.usefixtures("trained_home")
def test_best_has_the_origin_of_the_champion() -> None:
    assert "from memtune train" in read_output("best")


def test_corpora_of_one_text_are_compared_without_the_options_of_trials() -> None:
    refused = CliRunner().invoke(app, ["compare", "--corpus", "tiny,tiny", "--csv"])
    assert refused.exit_code == 2
    assert "several corpora go without" in refused.output


@pytest.mark.usefixtures("trained_home")
def test_compare_prints_short_lines_into_a_pipe_and_every_row_as_json() -> None:
    (row,) = json.loads(read_output("compare", "--corpus", "tiny", "--json"))
    assert row["state"] == "complete"
    lines = read_output("compare", "--corpus", "tiny").splitlines()
    assert any(line.split() == ["parameters", "tokens"] for line in lines)
    assert max(map(len, lines[: next(n for n, line in enumerate(lines) if "figure:" in line)])) <= 120


def test_the_error_for_a_missing_champion_names_the_search_command(settings: Settings) -> None:
    assert "memtune search" in read_error("best", "--corpus", "tiny")
