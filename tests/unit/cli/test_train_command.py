"""`memtune train`: a classifier, and several seeds."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memtune.cli import command_line as cli
from memtune.settings import Settings
from memtune.tracking import count_test_accesses
from tests.unit.cli.invocation import read_output

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
