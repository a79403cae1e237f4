"""`memtune ask` refuses wrong options and repeated models before it looks for a model or a corpus."""

import pytest
from typer.testing import CliRunner

from memtune.cli import command_line as cli
from memtune.errors import ConfigurationError
from memtune.results.question_answers import ask


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
