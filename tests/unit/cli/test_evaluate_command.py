"""`memtune evaluate`: a model alone, with a cache and with rare words as <unk>, and wrong options."""

import json
import math
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memtune.cli import command_line as cli
from tests.unit.cli.invocation import read_output

MODEL = "models:/tiny@champion"


@pytest.mark.usefixtures("trained_home")
def test_a_cache_changes_the_perplexity_which_without_it_is_that_of_training() -> None:
    (champion,) = json.loads(read_output("best", "--corpus", "tiny", "--json"))
    alone = json.loads(read_output("evaluate", MODEL, "--json"))
    assert alone["perplexity"] == pytest.approx(champion["figure"], rel=1e-6)
    options = ("--cache-size", "20", "--cache-weight", "0.2", "--json")
    cached = json.loads(read_output("evaluate", MODEL, *options))
    assert cached["cache"] == {"size": 20, "flatness": 0.3, "weight": 0.2}
    assert cached["perplexity"] != alone["perplexity"]


def read_perplexities(max_count: int) -> tuple[float, float]:
    """The perplexities over the full vocabulary, and with rare words as <unk>."""
    printed = read_output("evaluate", MODEL, "--rare-words", str(max_count))
    full, merged = re.findall(r"([\d.]+) with", printed)
    return float(full), float(merged)


@pytest.mark.usefixtures("trained_home")
def test_without_rare_words_both_perplexities_agree() -> None:
    full, merged = read_perplexities(0)
    assert merged == full


@pytest.mark.usefixtures("trained_home")
def test_with_every_word_rare_the_merged_perplexity_is_one() -> None:
    full, merged = read_perplexities(1_000_000)
    assert full > 1
    assert merged == 1.0


@pytest.mark.usefixtures("trained_home")
def test_a_file_without_sentences_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    refused = CliRunner().invoke(cli.app, ["evaluate", MODEL, "--sentences", str(tmp_path / "empty.txt")])
    assert "has no sentences" in str(refused.exception)


@pytest.mark.usefixtures("trained_home")
def test_sentences_end_with_their_total_and_its_perplexity(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("the dog\na cat\n")
    *sentences, total = read_output("evaluate", MODEL, "--sentences", str(tmp_path / "own.txt")).splitlines()
    nats = sum(float(line.split("\t")[0]) for line in sentences)
    figure, _, text = total.split("\t")
    assert float(figure) == pytest.approx(nats, abs=2e-4)
    assert text == f"perplexity {math.exp(-float(figure) / 6):.3f} per word, <eos> included"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--split", "tset"], "'tset' is not one of"),
        (["--cache-size", "0"], "Invalid value for '--cache-size'"),
        (["--cache-flatness", "-1"], "Invalid value for '--cache-flatness'"),
        (["--cache-weight", "1"], "the cache: weight"),
        (["--tune-cache", "--cache-weight", "0.2"], "chooses flatness and weight; leave them out"),
        (["--rare-words", "5", "--corpus", "other"], "leave the others out"),
        (["--rare-words", "5", "--device", "cuda"], "leave the others out"),
    ],
)
def test_wrong_and_conflicting_options_are_wrong_usage(options: list[str], message: str) -> None:
    refused = CliRunner().invoke(cli.app, ["evaluate", MODEL, *options])
    assert refused.exit_code == 2
    assert message in " ".join(refused.output.replace("│", " ").split())
