"""`memtune ask` as it is typed: what makes no sense is told before any model or corpus is looked for."""

import pytest
from typer.testing import CliRunner

from memtune import cli


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--split", "tset"], "tset"),
        (["--unknown", "foo"], "foo"),
        (["--context", "page"], "page"),
        (["--task", "sentiment"], "sentiment"),
        (["--task", "agreement", "--unknown", "skip"], "only completion has it"),
        (["--task", "completion", "--context", "text"], "only agreement has it"),
        (["--unknown", "skip", "--context", "text"], "only completion has it"),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_wrong_usage(options: list[str], said: str) -> None:
    refused = CliRunner().invoke(cli.app, ["ask", "models:/there-is-none/1", *options])
    assert refused.exit_code == 2
    assert said in refused.output
