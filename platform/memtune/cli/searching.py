"""`memtune search`: a study run from here."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from memtune.cli.terminal import ReplaceChampion, out, tell_decision, warn
from memtune.imports import in_one_go

__all__ = ["GpusPerTrial", "TimeBudget", "Trials", "search", "study_overrides"]

Trials = Annotated[int | None, typer.Option(min=1, help="Configurations in all.")]


def _gpu_share(text: str) -> float | Literal["fit"]:
    """A number of GPUs, or "fit". Raises BadParameter, which is wrong usage."""
    try:
        return "fit" if text == "fit" else float(text)
    except ValueError:
        raise typer.BadParameter(f'"{text}" is no number of GPUs and not "fit"') from None


GpusPerTrial = Annotated[
    Any,
    typer.Option(parser=_gpu_share, metavar="NUMBER|fit", help="GPUs of a trial; 0.5 shares one, fit packs."),
]
TimeBudget = Annotated[str | None, typer.Option(help="Such as 90s, 15m, 2h.")]


def search(
    study: Annotated[Path, typer.Argument(help="A study as TOML.")],
    trials: Trials = None,
    gpus_per_trial: GpusPerTrial = None,
    time_budget: TimeBudget = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, show five samples.")] = False,
    json: Annotated[bool, typer.Option("--json", help="With --dry-run: print JSON for a script.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a study that has begun.")] = False,
    address: Annotated[str | None, typer.Option(help="A Ray cluster; default: this machine.")] = None,
    replace_champion: ReplaceChampion = False,
) -> None:
    """Run a study: sample, train, stop early what lags, register the best model.

    Example: memtune search jobs/studies/demo.toml --trials 8
    """
    from memtune.execution.documents import check_document

    overrides = study_overrides(trials, time_budget, gpus_per_trial)
    if json and not dry_run:
        raise typer.BadParameter("goes with --dry-run; a search's results are in: memtune compare --json")
    check_document(study, ("question", "corpus"))
    if dry_run:
        _dry_run(study, overrides, json)
        return
    with in_one_go():
        from memtune.execution.search import search as run_search
        from memtune.execution.wording import counted
        from memtune.reports.trials import family_table, spread_table

    result = run_search(
        study, overrides, resume=resume, replace_champion=replace_champion, address=address, console=out
    )
    if result.interrupted:
        left = len(result.interrupted)
        warn(f"stopped with {counted(left, 'trial')} open; go on with: memtune search {study} --resume")
        raise typer.Exit(1)
    ready = result.ready
    question, searched = ready.study.question, ready.searched
    out.print(family_table(result.outcomes, ready.vocabulary_size, question, searched))
    if result.repeats:
        out.print(spread_table(result.outcomes, result.repeats, searched))
    tell_decision(result.crowning, result.test)
    if not result.recorded:
        warn(f"the tracking store lacks some records; send them with: memtune search {study} --resume")


def study_overrides(
    trials: int | None, time_budget: str | None, gpus_per_trial: float | str | None
) -> dict[str, Any]:
    """What the options put over a study's file, by dotted name."""
    given = {
        "budget.trials": trials,
        "budget.time": time_budget,
        "resources.gpus_per_trial": gpus_per_trial,
    }
    return {name: value for name, value in given.items() if value is not None}


def _dry_run(study: Path, overrides: dict[str, Any], json: bool) -> None:
    with in_one_go():
        from memtune.execution.search import dry_run
        from memtune.execution.wording import counted, unit
        from memtune.reports.trials import sample_table

    ready, samples = dry_run(study, overrides)
    if json:
        sampled = [sample.model_dump(mode="json") for sample in samples]
        told = {"id": ready.id, "study": ready.study.model_dump(mode="json"), "samples": sampled}
        out.print_json(data=told)
        return
    asked, sample = ready.study, samples[0]
    size = ready.space.size()
    points = "a continuum of configurations" if size is None else counted(size, "configuration")
    halved = "no halving" if asked.halving is None else f"halving after {asked.halving.grace:,}"
    out.print(f"study {ready.id}: {asked.question}", highlight=False)
    out.print(f"corpus {asked.corpus}, {sample.label}, spaces {', '.join(asked.spaces)}", highlight=False)
    trials = f"{counted(asked.budget.trials, 'trial')} of {points}"
    length = f"{ready.trial_tokens:,} {unit(sample.task)} each"
    out.print(f"{trials}, {length}, sampler {asked.sampler.kind}, {halved}", highlight=False)
    out.print(sample_table(samples, ready.vocabulary_size, ready.searched))
    out.print("nothing was started")
