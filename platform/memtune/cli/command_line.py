"""The command line: all commands and groups, and how an error or an interrupt ends a command."""

import inspect
import logging
import os
import sys
from contextlib import suppress
from typing import Annotated, NoReturn

import typer
from rich.text import Text

from memtune.cli import cluster_commands, corpus_commands, inspect_commands, model_commands, study_commands
from memtune.cli.compare_commands import best, compare, report, ui
from memtune.cli.evaluate_commands import ask, evaluate, generate
from memtune.cli.search_commands import demo, search
from memtune.cli.shell_completion import answer_bash
from memtune.cli.terminal import LogConsole, err, expand_option_groups, out
from memtune.cli.training_commands import judge, probe, reproduce, train
from memtune.errors import MemtuneError, explain_system_error, is_environment_fault
from memtune.reports.text_console import show_control_characters
from memtune.stop_signals import interrupt_on_stop_signals

INTERRUPTED = 130
"""The exit code with which typer ends at a KeyboardInterrupt."""
COMPLETION_VARIABLE = "_MEMTUNE_COMPLETE"
"""With it, a shell asks for completions; typer derives it from the command's name."""
CONTEXT_SETTINGS = {
    "help_option_names": ["-h", "--help"],
    # Plain help is as wide as the terminal or COLUMNS; click would limit it to 80.
    "max_content_width": 10_000,
}

app = typer.Typer(
    name="memtune",
    context_settings=CONTEXT_SETTINGS,
    help="Search for the best language model with memory for a corpus, on one machine or a cluster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Boxes and colours are for terminals; a pipe gets plain help.
    rich_markup_mode="markdown" if sys.stdout.isatty() else None,
)
app.add_typer(corpus_commands.app, name="corpus")
app.add_typer(cluster_commands.cluster_app, name="cluster")
app.add_typer(inspect_commands.app, name="inspect")
app.add_typer(cluster_commands.jobs_app, name="jobs")
app.add_typer(model_commands.app, name="model")
app.add_typer(study_commands.app, name="study")
for command in (
    *(demo, train, judge, search, cluster_commands.submit, compare, report, best),
    *(evaluate, generate, ask, probe, reproduce, study_commands.schema, ui),
):
    app.command()(command)


def complete_commands(group: typer.Typer) -> None:
    """Expand the groups of options, and set the lines of the list of commands.

    A line is the first paragraph of a docstring, or a group's help. Plain help wraps them; without them, it
    cuts the help to the width of the terminal.
    """
    for command in group.registered_commands:
        assert command.callback is not None
        paragraph, _, _ = inspect.cleandoc(command.callback.__doc__ or "").partition("\n\n")  # none under -OO
        command.short_help = " ".join(paragraph.split())
        command.callback = expand_option_groups(command.callback)
    for part in group.registered_groups:
        if part.typer_instance is not None:
            part.short_help = part.typer_instance.info.help
            complete_commands(part.typer_instance)


complete_commands(app)


def run_command() -> None:
    """Run the command line; a MemtuneError ends it with its message and exit code 1.

    So does an error of the operating system about a file: a folder without permission, a full disk.
    """
    logging.getLogger("memtune").addHandler(LogConsole())
    if sys.flags.optimize > 1:
        _exit_with_error(
            "Ray and Altair do not load without docstrings, which -OO and PYTHONOPTIMIZE=2 remove; run "
            "memtune without them, or with -O"
        )
    try:
        with interrupt_on_stop_signals():
            if os.environ.get(COMPLETION_VARIABLE) == "complete_bash":
                answer_bash(app)
            else:
                app()
    except MemtuneError as error:
        _exit_with_error(str(error))
    except OSError as error:
        if error.filename is not None:
            _exit_with_error(f"cannot use {os.fsdecode(error.filename)}: {error.strerror}")
        if not is_environment_fault(error):
            raise
        _exit_with_error(
            f"a file in MEMTUNE_HOME, in the working folder or in TMPDIR: {explain_system_error(error)}"
        )
    except (KeyboardInterrupt, SystemExit) as end:
        if isinstance(end, SystemExit) and end.code != INTERRUPTED:
            raise
        if not out.quiet:  # an output that nobody reads any more needs no message
            err.print("interrupted")
        # After an interrupt within exec, as dataclasses use it, Python would end with the signal instead.
        with suppress(OSError):
            out.file.flush()
        os._exit(1)


def _exit_with_error(message: str) -> NoReturn:
    shown = show_control_characters(message)
    err.print_line(Text.assemble(("error:", "bold red"), " ", shown))
    sys.exit(1)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Search for the best language model with memory for a corpus."""
    if version:
        # Imported here: only --version needs it, and every command would wait about 0.1 s.
        from importlib.metadata import version as version_of

        out.print(version_of("memtune"))
        raise typer.Exit
