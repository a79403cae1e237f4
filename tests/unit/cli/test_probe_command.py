"""`memtune probe`: options that are refused before the first training."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from memtune.cli import command_line as cli
from memtune.settings import Settings
from tests.unit.cli.invocation import read_error


def test_the_format_of_the_figure_is_checked_before_the_first_training(
    settings: Settings, tmp_path: Path
) -> None:
    asked = ("probe", "lstm", "--set", "parity", "--setting", "length=1", "--figure", str(tmp_path / "a.bmp"))
    assert 'no figure format ".bmp"' in read_error(*asked)


@pytest.mark.parametrize("text", ["rows", "rows=", "rows=many"])
def test_a_setting_without_a_number_is_refused_with_an_example(settings: Settings, text: str) -> None:
    done = CliRunner().invoke(cli.app, ["probe", "lstm", "--setting", text])
    assert done.exit_code == 2
    assert f'"{text}" sets nothing; write NAME=NUMBER, such as rows=4096' in " ".join(done.output.split())
