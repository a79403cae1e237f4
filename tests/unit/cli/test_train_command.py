"""`memtune train`: several seeds, a second call, and a classifier."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import memtune
from memtune.cli import command_line as cli
from memtune.settings import Settings
from memtune.tracking import count_test_accesses
from tests.unit.cli.invocation import TRIAL, read_error, read_output

CLASSIFIER = """question = "Does it read?"

corpus = "sentiment"

[model]
family = "lstm"
width = 6
output = { kind = "none" }

[task]
kind = "sentiment"

[training]
tokens = 40
report_every = 20
"""


@pytest.fixture(scope="module")
def command(module_settings: Settings) -> tuple[str, ...]:
    file = module_settings.home / "trial.toml"
    file.write_text(TRIAL)
    return "train", str(file), "--seed", "0", "--seed", "1"


@pytest.fixture(scope="module")
def first(command: tuple[str, ...]) -> str:
    """The output of the first call."""
    return read_output(*command)


def test_training_under_several_seeds_prints_the_geometric_means_of_both_splits(first: str) -> None:
    values = [float(found) for found in re.findall(r"best: validation perplexity ([\d.]+)", first)]
    assert len(set(values)) == 2
    means = re.findall(r"^(validation|test) perplexity ([\d.]+) \(mean of 2 seeds\)", first, re.MULTILINE)
    assert [split for split, _ in means] == ["validation", "test"]
    assert float(means[0][1]) == pytest.approx((values[0] * values[1]) ** 0.5, abs=0.001)


def test_a_seed_that_diverges_stops_no_other_seed(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "diverging.toml"
    file.write_text(
        TRIAL.replace("[training]", "[training]\noptimiser = { kind = 'sgd', learning_rate = 1e30 }")
    )
    done = CliRunner().invoke(cli.app, ["train", str(file), "--seed", "0", "--seed", "1"])
    assert done.output.count("reached no validation: diverged") == 2
    assert "all 2 seeds diverged" in str(done.exception)


def test_a_repeated_seed_is_refused(command: tuple[str, ...]) -> None:
    done = CliRunner().invoke(cli.app, [*command, "--seed", "0"])
    assert done.exit_code == 2
    assert "a seed is named twice" in done.output


def test_each_seed_that_is_trained_joins_the_mean_of_the_champion(first: str) -> None:
    single, both = re.findall("new champion models:/tiny@champion: (.*)", first)
    assert "decided by a single seed" in single
    assert re.match(r".*perplexity [\d.]+ \(mean of 2 seeds\), before", both)
    assert "evaluate it with: memtune evaluate models:/tiny@champion --split test" in first


def test_a_seed_that_is_trained_later_joins_the_mean_of_the_champion(
    settings: Settings, tmp_path: Path
) -> None:
    """However lucky the first one was."""
    file = tmp_path / "trial.toml"
    file.write_text(TRIAL)
    read_output("train", str(file), "--seed", "0")
    read_output("train", str(file), "--seed", "1")
    memtune.train(file, {"seed": 2}, settings=settings)
    (champion,) = memtune.find_champions("tiny", settings)
    own = memtune.compare("tiny", settings=settings).best
    assert own is not None
    assert own.estimate is not None
    assert (champion.seeds, champion.cost) == (3, pytest.approx(own.estimate.cost))
    assert champion.trial == own.trial


def test_a_second_call_trains_no_further_and_reads_the_test_split_no_second_time(
    first: str, command: tuple[str, ...], module_settings: Settings
) -> None:
    again = read_output(*command)
    assert again.count("was already trained to its end, 680 tokens") == 2
    assert "the champion stays" in again
    assert count_test_accesses(module_settings.tracking_uri, "tiny") == 2


def test_reports_of_a_classifier_have_examples_and_accuracy(settings: Settings, tmp_path: Path) -> None:
    trees = tmp_path / "trees.txt"
    trees.write_text("(4 (2 it) (4 (2 is) (4 good)))\n(0 (2 it) (0 (2 is) (0 bad)))\n" * 10)
    files = [part for split in ("train", "valid") for part in (f"--{split}", str(trees))]
    read_output("corpus", "import", "sentiment", "--format", "sst", *files)
    file = tmp_path / "trial.toml"
    file.write_text(CLASSIFIER)
    trained = read_output("train", str(file))
    assert "evaluate it with: memtune evaluate models:/sentiment@champion\n" in trained, "no test split"
    for text in (trained, read_output("evaluate", "models:/sentiment@champion")):
        assert "examples" in text
        assert "tokens" not in text
        assert "perplexity" not in text
    assert "tokens" not in read_output("compare", "--corpus", "sentiment").partition("figure:")[0]
    assert 'no labels for "test"' in read_error("evaluate", "models:/sentiment@champion", "--split", "test")
    assert count_test_accesses(settings.tracking_uri, "sentiment") == 0, "there is no test split to read"
