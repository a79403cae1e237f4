"""The terminal that all commands print to, the options that several commands share, and groups of options."""

import logging
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text

from memtune.cli.shell_completion import complete_corpus, complete_model, complete_study
from memtune.reports.figure_files import check_suffix
from memtune.reports.text_console import TextConsole, show_control_characters

if TYPE_CHECKING:
    from memtune.tracking import CorpusPages, Registration


out = TextConsole()
err = TextConsole(stderr=True)

CorpusStoreOption = Annotated[
    str | None, typer.Option(help="Folder or URI of the corpora; default: MEMTUNE_STORE.")
]


def corpus_option(help: str) -> Any:
    """An option that takes the name of a corpus, which a shell completes."""
    return typer.Option(help=help, autocompletion=complete_corpus)


def figure_option(name: str, help: str) -> Any:
    """An option that takes the file of a figure; another format is refused before anything is computed."""

    def check(file: Path | None) -> Path | None:
        if file is not None:
            check_suffix(file)
        return file

    return typer.Option(name, help=help, callback=check)


def reserve_output(context: typer.Context, is_json: bool) -> bool:
    """With --json, only the JSON is printed: what a user's model prints goes to the standard error."""
    if is_json:
        context.with_resource(out.keep_file())
        context.with_resource(redirect_stdout(sys.stderr))
    return is_json


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a script.", callback=reserve_output)]
ClusterPath = Annotated[Path, typer.Argument(help="A cluster file, such as cluster.yaml.")]
SplitName = Annotated[Literal["train", "valid", "test"], typer.Option(help="Split of the corpus.")]
MODEL_HELP = "models:/NAME@champion, models:/NAME/VERSION, STUDY#7 or a run's id."
ModelName = Annotated[str, typer.Argument(help=MODEL_HELP, autocompletion=complete_model)]
ModelNames = Annotated[list[str], typer.Argument(help=MODEL_HELP, autocompletion=complete_model)]
STUDY_HELP = "A study's id, or its name where that names one study only."
StudyName = Annotated[str, typer.Argument(help=STUDY_HELP, autocompletion=complete_study)]
CorpusName = Annotated[str, typer.Argument(help="Name of the corpus.", autocompletion=complete_corpus)]
QuestionCorpus = Annotated[
    str | None, corpus_option("Corpus of questions; default: the questions of each model's own corpus.")
]
QuestionTask = Annotated[
    Literal["completion", "agreement"] | None, typer.Option(help="Default: the kind of the questions.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
TrustCode = Annotated[
    bool,
    typer.Option("--trust-code", help="Execute the source of a user's family that is stored with the model."),
]
Device = Annotated[str, typer.Option(help='Device: "cpu", "cuda", "cuda:1".')]


def warn(message: str) -> None:
    """Print a warning to the standard error."""
    err.print_line(Text.assemble(("warning:", "yellow"), " ", show_control_characters(message)))


class LogConsole(logging.Handler):
    """Prints what the package logs like `warn`: the messages hold texts of users and stores."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message."""
        warn(record.getMessage())


def print_pages(pages: "CorpusPages") -> None:
    """Print the addresses of a corpus's trials in MLflow's pages, and what they need."""
    # Imported here: pydantic and pyarrow take about 1 s, and help needs neither.
    from memtune.tracking import LOCAL_PAGES_URL

    for title, link in pages.list_titled_links():
        out.print_line(f"{title}: {link}")
    if pages.is_served:
        out.print_line(
            "`memtune ui` serves these pages now, in a browser that has opened the address it has printed"
        )
    elif pages.trials.startswith(LOCAL_PAGES_URL):
        out.print_line(
            "these links work while `memtune ui` runs, in a browser that has opened the address it prints; "
            "with --port, put that port's number into the link"
        )


def print_registration(registration: "Registration | None", has_test_split: bool) -> None:
    """Print what the registry did with the best model, and the command that evaluates it."""
    if registration is None:
        out.print("no model to register: no trial with a validation has a checkpoint")
    elif registration.champion is None:
        out.print_line(f"the champion stays: {registration.reason}")
    else:
        uri = f"models:/{registration.champion.corpus}@{registration.champion.alias}"
        out.print_line(f"new champion {uri}: {registration.reason}")
        split = " --split test" if has_test_split else ""
        out.print_line(f"evaluate it with: memtune evaluate {uri}{split}")


def expand_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with each dataclass parameter replaced by one parameter for each field of the dataclass.

    Typer makes one option of each parameter of a function and has no groups. A field has the annotation of a
    Typer parameter and a default.
    """
    groups: dict[str, Any] = {
        name: kind for name, kind in command.__annotations__.items() if is_dataclass(kind)
    }
    if not groups:
        return command
    parameters: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        if group := groups.get(name):
            parameters += [
                Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
                for field in fields(group)
            ]
        else:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def run_expanded(**values: Any) -> None:
        grouped = {
            name: kind(**{field.name: values.pop(field.name) for field in fields(kind)})
            for name, kind in groups.items()
        }
        command(**values, **grouped)

    # Typer reads the signature for defaults and the annotations for types.
    run_expanded.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
    run_expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run_expanded
