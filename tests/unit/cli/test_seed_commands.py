"""`memtune seeds`, `memtune rare-words` and `memtune corpus questions` on small corpora."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memtune import cli
from memtune.corpora import import_corpus
from memtune.errors import CorpusError
from memtune.settings import Settings

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


def test_seeds_train_prints_one_value_per_seed_and_their_mean(settings: Settings, trial_file: Path) -> None:
    done = CliRunner().invoke(cli.app, ["seeds", "train", str(trial_file), "--seeds", "0,1"])
    assert done.exit_code == 0, done.output
    name, _, _, valid, mean, _, _ = (cell.strip() for cell in done.stdout.splitlines()[-1].split("|")[1:-1])
    values = [float(value) for value in valid.split()]
    assert name == "small"
    assert len(set(values)) == 2
    assert float(mean.split(" ± ")[0]) == pytest.approx(sum(values) / 2, abs=0.01)


@pytest.mark.parametrize("seeds", ["one", "0," + "9" * 5_000])
def test_seeds_that_are_not_numbers_are_wrong_usage(trial_file: Path, seeds: str) -> None:
    done = CliRunner().invoke(cli.app, ["seeds", "train", str(trial_file), "--seeds", seeds])
    assert done.exit_code == 2
    assert "0,1,2" in done.output


@pytest.fixture
def registered(settings: Settings, trial_file: Path) -> str:
    """A model in the registry."""
    done = CliRunner().invoke(cli.app, ["train", str(trial_file)])
    assert done.exit_code == 0, done.output
    return "models:/tiny@champion"


def run_rare_words(model: str, max_count: int) -> tuple[float, float]:
    """The perplexities over the full vocabulary, and with rare words as <unk>."""
    done = CliRunner().invoke(cli.app, ["rare-words", model, "--max-count", str(max_count)])
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
