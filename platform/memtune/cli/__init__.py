"""`memtune ...`: one module a group of commands, one thin function a command.

What a command does is a function of the package below. Exit codes: 0 success, 1 a mistake or fault that the
message names, 2 wrong usage.
"""

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from memtune.cli import cluster, corpus, jobs
from memtune.cli.asking import ask
from memtune.cli.results import best, compare, evaluate, ui
from memtune.cli.searching import search
from memtune.cli.terminal import err, escaped, out
from memtune.cli.training import train
from memtune.errors import MemtuneError

__all__ = ["app", "main", "run_script"]

app = typer.Typer(
    name="memtune",
    help="Search for the best language model with memory for a corpus, on one machine or a cluster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.add_typer(corpus.app, name="corpus")
app.add_typer(cluster.app, name="cluster")
app.add_typer(jobs.app, name="jobs")
for command in (train, search, jobs.submit, compare, best, evaluate, ask, ui):
    app.command()(command)


def main() -> None:
    """Run the command line; a MemtuneError ends it with its message and exit code 1."""
    _run(app)


def run_script(command: Callable[..., None]) -> None:
    """Run a script of one command, whose arguments are the function's, as `main` runs those of `memtune`."""
    script = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    script.command()(command)
    _run(script)


def _run(commands: typer.Typer) -> None:
    try:
        commands()
    except MemtuneError as error:
        err.print(f"[bold red]error:[/] {escaped(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        err.print("interrupted")
        sys.exit(1)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Search for the best language model with memory for a corpus."""
    if version:
        from importlib.metadata import version as version_of

        out.print(version_of("memtune"))
        raise typer.Exit
