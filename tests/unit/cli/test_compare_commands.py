"""`memtune compare` and `best`, after trials and without them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memtune.cli import command_line as cli
from memtune.settings import Settings
from tests.unit.cli.invocation import TRIAL, read_error, read_output, run_process


@pytest.mark.cluster
def test_a_trial_is_trained_recorded_registered_compared_and_evaluated(
    settings: Settings, tmp_path: Path
) -> None:
    file = tmp_path / "trial.toml"
    file.write_text(TRIAL)
    trained = run_process("train", str(file))
    assert trained.returncode == 0, trained.stderr
    assert "new champion models:/tiny@champion" in trained.stdout
    assert "evaluate it with: memtune evaluate models:/tiny@champion --split test" in trained.stdout
    assert "from memtune train" in read_output("best")
    (row,) = json.loads(read_output("compare", "--corpus", "tiny", "--json"))
    assert row["state"] == "complete"
    lines = run_process("compare", "--corpus", "tiny").stdout.splitlines()
    assert any(line.split() == ["parameters", "tokens"] for line in lines), "a pipe has short lines"
    assert max(map(len, lines[: next(n for n, line in enumerate(lines) if "figure:" in line)])) <= 120
    (champion,) = json.loads(read_output("best", "--corpus", "tiny", "--json"))
    evaluated = json.loads(read_output("evaluate", "models:/tiny@champion", "--json"))
    assert evaluated["perplexity"] == pytest.approx(champion["figure"], rel=1e-6)
    options = ("--cache-size", "20", "--cache-weight", "0.2", "--json")
    cached = json.loads(read_output("evaluate", "models:/tiny@champion", *options))
    assert cached["cache"] == {"size": 20, "flatness": 0.3, "weight": 0.2}
    assert cached["perplexity"] != evaluated["perplexity"]
    contrary = ["--tune-cache", "--cache-weight", "0.2"]
    wrong = CliRunner().invoke(cli.app, ["evaluate", "models:/tiny@champion", *contrary])
    assert wrong.exit_code == 2
    assert "leave them out" in wrong.output
    again = read_output("train", str(file))
    assert "the champion stays" in again
    assert "was already trained to its end, 680 tokens" in again


def test_the_error_for_a_missing_champion_names_the_search_command(settings: Settings) -> None:
    assert "memtune search" in read_error("best", "--corpus", "tiny")
