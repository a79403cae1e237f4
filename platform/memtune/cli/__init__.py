"""`memtune ...`: one module per command group, one thin function per command.

Each command calls a function of the package. Exit codes: 0 success, 1 an error that the message explains,
2 wrong usage.
"""

import logging
import sys
from typing import Annotated

import typer
from rich.text import Text

from memtune.cli import (
    cluster_commands,
    corpus_commands,
    inspect_commands,
    job_commands,
    seed_commands,
    study_commands,
)
from memtune.cli.ask_command import ask
from memtune.cli.generate_command import generate
from memtune.cli.result_commands import best, compare, evaluate, ui
from memtune.cli.search_command import search
from memtune.cli.terminal import LogConsole, err, out
from memtune.cli.train_command import train
from memtune.errors import MemtuneError
from memtune.reports.text_console import show_control_characters

__all__ = ["app", "main"]

app = typer.Typer(
    name="memtune",
    help="Search for the best language model with memory for a corpus, on one machine or a cluster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.add_typer(corpus_commands.app, name="corpus")
app.add_typer(cluster_commands.app, name="cluster")
app.add_typer(inspect_commands.app, name="inspect")
app.add_typer(job_commands.app, name="jobs")
app.add_typer(seed_commands.app, name="seeds")
app.add_typer(study_commands.app, name="study")
for command in (train, search, job_commands.submit, compare, best, evaluate, generate, ask, ui):
    app.command()(command)
app.command("rare-words")(seed_commands.rare_words)


def main() -> None:
    """Run the command line; a MemtuneError ends it with its message and exit code 1."""
    logging.getLogger("memtune").addHandler(LogConsole())
    try:
        app()
    except MemtuneError as error:
        message = show_control_characters(str(error))
        err.print(Text.assemble(("error:", "bold red"), " ", message), soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        err.print("interrupted")
        sys.exit(1)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Search for the best language model with memory for a corpus."""
    if version:
        # Imported here: only --version needs it, and every command would wait about 0.1 s.
        from importlib.metadata import version as version_of

        out.print(version_of("memtune"))
        raise typer.Exit
