"""All commands: help with examples, exit codes 1 and 2, and messages without tracebacks."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from memtune.cli import command_line as cli
from memtune.settings import Settings
from tests.unit.cli.invocation import list_commands, run_process


def test_every_command_has_help_with_an_example_under_h_too(capsys: pytest.CaptureFixture[str]) -> None:
    root: Any = typer.main.get_command(cli.app)  # built once; CliRunner builds all commands for each call

    def read_help(command: list[str], option: str) -> str:
        assert root.main([*command, option], prog_name="memtune", standalone_mode=False) == 0
        return capsys.readouterr().out

    for command in ([], *list_commands()):
        page = read_help(command, "-h")
        assert page == read_help(command, "--help")
        assert not command or f"Example: memtune {' '.join(command)}" in " ".join(page.split())


def test_help_in_a_pipe_is_plain_text_as_wide_as_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = run_process("compare", "-h").stdout
    assert shown.isascii()
    assert max(len(line) for line in shown.splitlines()) > 80


@pytest.mark.parametrize("columns", ["60", "140"])
def test_a_list_of_commands_shows_whole_sentences(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    shown = " ".join(run_process("inspect", "-h").stdout.split())
    assert "Mean attention by position in the memory (Tran 2016, figure 3)." in shown
    root = run_process("-h").stdout
    assert "figures of the papers, with tables and JSON." in " ".join(root.split())
    assert "..." not in (shown + root).replace("COMMAND [ARGS]...", "")


def test_wrong_usage_ends_with_2(settings: Settings) -> None:
    assert CliRunner().invoke(cli.app, ["corpus", "show"]).exit_code == 2
    assert CliRunner().invoke(cli.app, ["serach"]).exit_code == 2


def test_an_error_ends_with_1_and_one_message(settings: Settings) -> None:
    done = run_process("corpus", "show", "tinny")
    assert done.returncode == 1
    assert 'did you mean "tiny"' in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["train", "trail.toml"], 'no file trail.toml; did you mean "trial.toml"?'),
        (["search", "nothing.toml"], "no file nothing.toml"),
        (["search", "trial.toml"], "trial.toml: question is missing"),
        (["compare", "--corpus", "nothing"], "no trials are recorded"),
    ],
    ids=" ".join,
)
def test_a_wrong_file_or_corpus_is_an_error_before_torch_is_imported(
    command: list[str], message: str, tmp_path: Path, settings: Settings
) -> None:
    (tmp_path / "trial.toml").write_text('corpus = "tiny"\n')
    program = (
        "import sys\n"
        "for name in ('torch', 'ray'): sys.modules[name] = None\n"
        f"sys.argv = ['memtune', *{command!r}]\n"
        "from memtune.cli import main\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_help_needs_neither_torch_nor_ray_nor_mlflow() -> None:
    program = (
        "import sys\n"
        "for name in ('torch', 'ray', 'optuna', 'mlflow'): sys.modules[name] = None\n"
        "sys.argv = ['memtune', '--help']\n"
        "from memtune.cli import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", [["search", "FILE"], ["train", "FILE"], ["model", "check", "FILE.py"]])
def test_a_file_that_the_system_refuses_is_named_without_a_traceback(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name too long stands for all refusals: root, who may run the tests, has every permission."""
    name = "x" * 300
    monkeypatch.setattr(sys, "argv", ["memtune", *(word.replace("FILE", name) for word in command)])
    with pytest.raises(SystemExit) as ended:
        cli.run_command()
    assert ended.value.code == 1
    assert name in (error := capsys.readouterr().err)
    assert "File name too long" in error
