"""What all commands share: the terminal they print to, and the options that mean the same everywhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = [
    "AsJson",
    "ClusterPath",
    "Device",
    "ReplaceChampion",
    "SplitName",
    "Store",
    "Yes",
    "err",
    "escaped",
    "out",
    "progress_bar",
    "store_of",
    "tell_decision",
    "warn",
]

PIPED_WIDTH = 160
out = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)
err = Console(stderr=True)

Store = Annotated[str | None, typer.Option(help="Folder or URI of the corpora; default: MEMTUNE_STORE.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a script.")]
ReplaceChampion = Annotated[
    bool, typer.Option("--replace-champion", help="Register the model whatever the champion is.")
]
ClusterPath = Annotated[Path, typer.Argument(help="A cluster file, such as cluster.yaml.")]
SplitName = Annotated[Literal["train", "valid", "test"], typer.Option(help="Of the corpus.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Device = Annotated[str, typer.Option(help='Where to compute: "cpu", "cuda", "cuda:1".')]


def escaped(text: str) -> str:
    """The text as it is, for a console that reads brackets as markup."""
    return text.replace("[", r"\[")


def warn(message: str) -> None:
    """Print a warning to the standard error."""
    err.print(f"[yellow]warning:[/] {escaped(message)}", soft_wrap=True, highlight=False)


def store_of(given: str | None) -> str:
    """The store a command is given, else the one of the settings."""
    from memtune.execution.settings import Settings

    return given or Settings.read().store


@contextmanager
def progress_bar(*columns: TextColumn) -> Iterator[Progress]:
    """A progress bar on a terminal, silence elsewhere."""
    shown = [TextColumn("{task.description}"), BarColumn(), *columns, TimeRemainingColumn()]
    with Progress(*shown, console=out, transient=True, disable=not out.is_terminal) as bar:
        yield bar


def tell_decision(decision: Any, test: bool) -> None:
    """Say what the registry did with a search's best model, and how to go on (`test`: there is a split)."""
    if decision is None:
        out.print("no model to register: no trial reached a validation")
    elif decision.champion is None:
        out.print(f"the champion stays: {decision.reason}", soft_wrap=True)
    else:
        corpus = decision.champion.corpus
        out.print(f"new champion models:/{corpus}@champion: {decision.reason}", soft_wrap=True)
        split = " --split test" if test else ""
        out.print(f"evaluate it with: memtune evaluate models:/{corpus}@champion{split}", soft_wrap=True)
