"""Calls of the command line, in this process and in one of their own."""

import subprocess
import sys
from typing import Any

import typer.main
from typer.testing import CliRunner

from memtune.cli import command_line as cli
from memtune.errors import MemtuneError

TRIAL = """question = "Does it train?"

corpus = "tiny"

[model]
family = "lstm"
width = 6

[training]
tokens = 600
report_every = 300
"""


def run_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `memtune ...` in a new process."""
    command = [sys.executable, "-m", "memtune.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def read_output(*arguments: str) -> str:
    """The output of `memtune ...` in this process; the command must succeed."""
    done = CliRunner().invoke(cli.app, list(arguments))
    assert done.exit_code == 0, done.output
    return done.stdout


def read_error(*arguments: str) -> str:
    """The message of the error with which `memtune ...` ends, in this process."""
    done = CliRunner().invoke(cli.app, list(arguments))
    assert isinstance(done.exception, MemtuneError), done.output
    return str(done.exception)


def list_commands(group: Any = None, path: tuple[str, ...] = ()) -> list[list[str]]:
    """The words of every command."""
    paths: list[list[str]] = []
    group = group or typer.main.get_command(cli.app)
    for name, command in group.commands.items():
        is_group = hasattr(command, "commands")
        paths += list_commands(command, (*path, name)) if is_group else [[*path, name]]
    return paths
