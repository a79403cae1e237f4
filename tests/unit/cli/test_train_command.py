"""`memtune train` under several seeds, `evaluate --rare-words` and `corpus questions` on small corpora."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memtune.cli import command_line as cli
from memtune.corpora import import_corpus
from memtune.errors import CorpusError
from memtune.settings import Settings
from memtune.tracking import count_test_accesses

TRIAL = """corpus = "tiny"

[model]
family = "lstm"
width = 4

[training]
tokens = 900
report_every = 300
"""


@pytest.fixture
def trial_file(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(TRIAL)
    return path


def test_training_under_several_seeds_prints_mean_and_deviation_of_both_splits(
    settings: Settings, trial_file: Path
) -> None:
    done = CliRunner().invoke(cli.app, ["train", str(trial_file), "--seed", "0", "--seed", "1"])
    assert done.exit_code == 0, done.output
    values = [float(found) for found in re.findall(r"best: validation perplexity ([\d.]+)", done.output)]
    assert len(set(values)) == 2
    spread = re.findall(r"(validation|test) perplexity of 2 seeds: ([\d.]+) ± ([\d.]+)", done.output)
    assert [split for split, _, _ in spread] == ["validation", "test"]
    assert float(spread[0][1]) == pytest.approx(sum(values) / 2, abs=0.01)
    assert float(spread[0][2]) == pytest.approx(abs(values[0] - values[1]) / 2**0.5, abs=0.01)


def test_the_test_split_is_read_once_for_each_seed(settings: Settings, trial_file: Path) -> None:
    for _ in range(2):
        CliRunner().invoke(cli.app, ["train", str(trial_file), "--seed", "0", "--seed", "1"])
    assert count_test_accesses(settings.tracking_uri, "tiny") == 2


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


def test_questions_about_a_text_are_imported_by_seed_and_limit(settings: Settings) -> None:
    text = [[f"w{(7 * row + column) % 300}" for column in range(12)] for row in range(400)]
    import_corpus("text", dict.fromkeys(("train", "valid", "test"), text), settings.corpus_store)
    command = ["corpus", "questions", "text", "asked", "--seed", "1", "--limit", "7"]
    done = CliRunner().invoke(cli.app, command)
    assert done.exit_code == 0, done.output
    assert "asked: 7 for valid, 7 for test" in done.output


def test_questions_about_a_missing_corpus_name_the_nearest_one(settings: Settings) -> None:
    done = CliRunner().invoke(cli.app, ["corpus", "questions", "tinny", "asked"])
    assert isinstance(done.exception, CorpusError)
    assert 'did you mean "tiny"' in str(done.exception)
