"""`memtune ask` refuses wrong options before it looks for a model or a corpus."""

import pytest
from typer.testing import CliRunner

from memtune import cli


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
