"""`memtune ask`: questions put to registered models."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from memtune.cli.terminal import AsJson, Device, SplitName, out

__all__ = ["ask"]


def ask(
    models: Annotated[list[str], typer.Argument(help="models:/NAME@champion or models:/NAME/VERSION.")],
    questions: Annotated[
        str | None, typer.Option(help="A corpus of questions; default: those of each model's own corpus.")
    ] = None,
    task: Annotated[
        Literal["completion", "agreement"] | None, typer.Option(help="Default: what the questions are.")
    ] = None,
    split: SplitName = "valid",
    unknown: Annotated[
        Literal["count", "skip"] | None,
        typer.Option(help="Completion: words outside the vocabulary."),
    ] = None,
    context: Annotated[
        Literal["sentence", "text"] | None,
        typer.Option(help="Agreement: read each sentence alone, or the text through."),
    ] = None,
    answers: Annotated[
        Path | None, typer.Option(help="A folder for every model's answers, a line a question.")
    ] = None,
    device: Device = "cpu",
    json: AsJson = False,
) -> None:
    """Ask language models to complete sentences or to choose verbs; of several, compare the mistakes.

    Example: memtune ask models:/ptb/1 models:/ptb/2 --questions linzen --split valid
    """
    given = {"unknown": unknown, "context": context}
    options = {name: value for name, value in given.items() if value is not None}
    _check_options(task, options)
    from memtune.execution.asking import ask as ask_models
    from memtune.execution.settings import Settings
    from memtune.reports.questions import answers_table

    asked = ask_models(models, questions, task, split, options, device=device)
    if answers is not None:
        answers.mkdir(parents=True, exist_ok=True)
        for one in asked:
            one.answers.write(answers / f"{one.model.removeprefix('models:/').replace('/', '-')}.tsv")
    if json:
        out.print_json(data=[_told(one) for one in asked])
        return
    out.print(answers_table(asked, f"{asked[0].answers.kind}, {questions or 'own questions'}, {split}"))
    if len(asked) > 1:
        _tell_overlap(asked, Settings.read().home / "figures" / f"mistakes_{questions or 'own'}.png")


def _check_options(task: str | None, options: Collection[str]) -> None:
    """A BadParameter for options of another task than the one asked for."""
    tasks = {"unknown": "completion", "context": "agreement"}
    for name in options:
        if task not in (None, tasks[name]) or len(options) > 1:
            raise typer.BadParameter(f"only {tasks[name]} has it; leave it out", param_hint=f"--{name}")


def _told(one: Any) -> dict[str, Any]:
    from memtune.reports.questions import answer_groups

    groups = {name: _figures(found) for name, found in answer_groups(one.answers)}
    told = {"model": one.model, "family": one.family, "task": one.answers.kind, **groups.pop("all")}
    return {**told, "unknown_rate": one.unknown_rate, "by_attractors": groups or None}


def _figures(answers: Any) -> dict[str, Any]:
    figures = {"questions": answers.questions, "not_asked": len(answers.names) - answers.questions}
    low, high = answers.interval() if answers.questions else (None, None)
    accuracy = answers.accuracy if answers.questions else None
    return {**figures, "accuracy": accuracy, "low": low, "high": high}


def _tell_overlap(asked: list[Any], path: Path) -> None:
    from memtune.analysis import overlap
    from memtune.reports.questions import overlap_figure, overlap_table

    regions = overlap({one.model: one.answers for one in asked})
    out.print(overlap_table(regions))
    overlap_figure(regions, [one.model for one in asked], path)
    out.print(f"figure: {path}", soft_wrap=True)
