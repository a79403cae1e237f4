"""`memtune ask`: trained models answer questions."""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from memtune.cli.terminal import (
    AsJson,
    Device,
    ModelNames,
    QuestionCorpus,
    QuestionTask,
    SplitName,
    TrustCode,
    out,
)

if TYPE_CHECKING:
    from memtune.results.question_answers import ModelAnswers
    from memtune.tasks import Answers


def ask(
    models: ModelNames,
    questions: QuestionCorpus = None,
    task: QuestionTask = None,
    split: SplitName = "valid",
    unknown: Annotated[
        Literal["count", "skip"] | None,
        typer.Option(help="Completion: words outside the vocabulary."),
    ] = None,
    context: Annotated[
        Literal["sentence", "text"] | None,
        typer.Option(help="Agreement: read each sentence alone, or the text as one sequence."),
    ] = None,
    answers: Annotated[
        Path | None, typer.Option(help="Folder for one TSV file per model, with one line per question.")
    ] = None,
    device: Device = "cpu",
    trust_code: TrustCode = False,
    json: AsJson = False,
) -> None:
    """Ask language models to complete sentences or to choose verbs, and compare the mistakes of several.

    Example: memtune ask models:/ptb/1 models:/ptb/2 --questions linzen --split valid
    """
    task_options = {"unknown": unknown, "context": context}
    options = {name: value for name, value in task_options.items() if value is not None}
    _check_options(task, options)
    # Imported here: importing PyTorch takes seconds, and help and wrong usage do not need it.
    from memtune.reports.answer_tables import make_answers_table
    from memtune.results.question_answers import ask as ask_models
    from memtune.settings import Settings

    model_answers = ask_models(models, questions, task, split, options, device=device, trust_code=trust_code)
    if answers is not None:
        answers.mkdir(parents=True, exist_ok=True)
        for model in model_answers:
            model.answers.write_tsv(
                answers / f"{model.model_uri.removeprefix('models:/').replace('/', '-')}.tsv"
            )
    if json:
        out.print_json(data=[_dump_answers(model) for model in model_answers])
        return
    kind = model_answers[0].answers.kind
    out.print(make_answers_table(model_answers, f"{kind}, {questions or 'own questions'}, {split}"))
    if len(model_answers) > 1:
        _print_overlap(
            model_answers, Settings.from_environment().home / "figures" / f"mistakes_{questions or 'own'}.png"
        )


def _check_options(task: str | None, options: Collection[str]) -> None:
    """Raise BadParameter for an option of a task that is not `task`, and for options of two tasks."""
    tasks = {"unknown": "completion", "context": "agreement"}
    for name in options:
        if task not in (None, tasks[name]) or len(options) > 1:
            raise typer.BadParameter(
                f"only the task {tasks[name]} has this option; leave it out", param_hint=f"--{name}"
            )


def _dump_answers(model_answers: "ModelAnswers") -> dict[str, Any]:
    from memtune.reports.answer_tables import group_answers

    groups = {name: _dump_accuracy(answers) for name, answers in group_answers(model_answers.answers)}
    record = {
        "model": model_answers.model_uri,
        "family": model_answers.family,
        "task": model_answers.answers.kind,
        **groups.pop("all"),
    }
    return {**record, "unknown_rate": model_answers.unknown_rate, "by_attractors": groups or None}


def _dump_accuracy(answers: "Answers") -> dict[str, Any]:
    count = answers.question_count
    counts = {"questions": count, "not_asked": len(answers.names) - count, "ties": answers.tie_count}
    low, high = answers.compute_confidence_interval() if count else (None, None)
    return {**counts, "accuracy": answers.accuracy if count else None, "low": low, "high": high}


def _print_overlap(model_answers: "list[ModelAnswers]", path: Path) -> None:
    from memtune.reports.inspection.figure_files import save_figure
    from memtune.reports.inspection.inspection_tables import make_mistakes_table
    from memtune.reports.inspection.stack_figures import draw_mistakes
    from memtune.results.inspection.shared_mistakes import find_shared_mistakes

    found = find_shared_mistakes(model_answers)
    out.print(make_mistakes_table(found))
    save_figure(draw_mistakes(found), path)
    out.print(f"figure: {path}", soft_wrap=True)
