"""`memtune evaluate`: its options, and rare words as <unk>."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memtune.cli import command_line as cli
from memtune.settings import Settings
from tests.unit.cli.invocation import TRIAL


@pytest.mark.parametrize(
    ("option", "value"), [("--cache-size", "0"), ("--cache-flatness", "-1"), ("--cache-weight", "1")]
)
def test_an_option_value_out_of_range_is_wrong_usage(option: str, value: str) -> None:
    refused = CliRunner().invoke(cli.app, ["evaluate", "models:/tiny@champion", option, value])
    assert refused.exit_code == 2
    assert option in refused.output or "the cache: weight" in refused.output


def test_an_unknown_split_is_wrong_usage() -> None:
    refused = CliRunner().invoke(cli.app, ["evaluate", "models:/tiny@champion", "--split", "tset"])
    assert refused.exit_code == 2
    assert "'tset' is not one of" in refused.output


@pytest.fixture
def trial_file(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(TRIAL)
    return path


@pytest.fixture
def registered(settings: Settings, trial_file: Path) -> str:
    """A model in the registry."""
    done = CliRunner().invoke(cli.app, ["train", str(trial_file)])
    assert done.exit_code == 0, done.output
    return "models:/tiny@champion"


def run_rare_words(model: str, max_count: int) -> tuple[float, float]:
    """The perplexities over the full vocabulary, and with rare words as <unk>."""
    done = CliRunner().invoke(cli.app, ["evaluate", model, "--rare-words", str(max_count)])
    assert done.exit_code == 0, done.output
    full, merged = re.findall(r"([\d.]+) (?:over|with)", done.output)
    return float(full), float(merged)


def test_without_rare_words_both_perplexities_agree(registered: str) -> None:
    full, merged = run_rare_words(registered, 0)
    assert merged == full


def test_with_every_word_rare_the_merged_perplexity_is_one(registered: str) -> None:
    full, merged = run_rare_words(registered, 1_000_000)
    assert full > 1
    assert merged == 1.0


def test_rare_words_do_not_go_with_another_text(registered: str) -> None:
    command = ["evaluate", registered, "--rare-words", "5", "--corpus", "other"]
    assert CliRunner().invoke(cli.app, command).exit_code == 2
