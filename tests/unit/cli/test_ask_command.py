"""`memtune ask`: the mistakes of two models, and what it refuses before it looks for a model or a corpus."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memtune.cli import command_line as cli
from memtune.errors import ConfigurationError
from memtune.results.question_answers import ask
from memtune.settings import Settings
from memtune.tracking import count_test_accesses
from tests.unit.cli.invocation import TRIAL, read_error, read_output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--split", "tset"], "tset"),
        (["--unknown", "foo"], "foo"),
        (["--context", "page"], "page"),
        (["--task", "sentiment"], "sentiment"),
        (["--task", "agreement", "--unknown", "skip"], "only the task completion has this option"),
        (["--task", "completion", "--context", "text"], "only the task agreement has this option"),
        (["--unknown", "skip", "--context", "text"], "only the task completion has this option"),
    ],
    ids=str,
)
def test_unknown_and_conflicting_options_are_wrong_usage(options: list[str], message: str) -> None:
    refused = CliRunner().invoke(cli.app, ["ask", "models:/there-is-none/1", *options])
    assert refused.exit_code == 2
    assert message in " ".join(refused.output.replace("│", " ").split())


def test_a_model_that_is_named_twice_is_refused() -> None:
    """Tables and overlaps hold models by name, so that one of the two would be lost."""
    with pytest.raises(ConfigurationError, match=r"^models:/a/1 is named twice; name each model once$"):
        ask(["models:/a/1", "models:/b/1", "models:/a/1"])


def test_ask_compares_the_mistakes_of_two_models(settings: Settings, tmp_path: Path) -> None:
    questions = tmp_path / "asked"
    questions.with_suffix(".text").write_text(
        "the cat sleeps <eos>\nthe dog and a cat eat <eos>\na cat zigzags <eos>\n"
    )
    questions.with_suffix(".gold").write_text("2\tsleeps\teat\t0\n5\teat\tsleeps\t6\n2\tzigzags\tzigzag\t1\n")
    read_output("corpus", "import", "asked", "--format", "agreement", "--valid", f"{questions}.text")
    file = tmp_path / "trial.toml"
    file.write_text(TRIAL)
    for seed in ("0", "1"):
        read_output("train", str(file), "--seed", seed)
    rows = json.loads(read_output("compare", "--corpus", "tiny", "--json"))
    models = ["models:/tiny/1", next(row["run_id"] for row in rows if row["seed"] == 1)]
    records = json.loads(read_output("ask", *models, "--questions", "asked", "--json"))
    assert [(record["questions"], record["not_asked"]) for record in records] == [(2, 1), (2, 1)]
    assert records[0]["by_attractors"]["5+"]["questions"] == 1
    shown = read_output("ask", *models, "--questions", "asked", "--answers", str(tmp_path / "answers"))
    assert "5+" in shown
    assert "mistakes on 2 questions of asked, valid," in shown
    assert "mean ± standard deviation of 2 seeds" in shown
    assert len((tmp_path / "answers" / "tiny-1.tsv").read_text().splitlines()) == 4
    before = count_test_accesses(settings.tracking_uri, "tiny")
    refused = read_error("ask", "models:/tiny/1", "--questions", "asked", "--split", "test")
    assert "has no agreement questions for test" in refused
    assert count_test_accesses(settings.tracking_uri, "tiny") == before, "no question was read"
    assert 'corpus "tiny" has no annotations' in read_error("ask", models[0])
    (tmp_path / "labels.txt").write_text("(3 (2 a) (2 cat))\n")
    read_output("corpus", "import", "labels", "--format", "sst", "--valid", str(tmp_path / "labels.txt"))
    unlike = read_error("ask", *models, "--questions", "labels")
    assert unlike.startswith('models:/tiny/1: corpus "labels" has sentiment, ')
