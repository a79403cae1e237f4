"""`memtune train`: one configuration, trained here."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memtune.cli.shell_completion import complete_corpus, complete_trial_file
from memtune.cli.terminal import Device, out, print_promotion, warn
from memtune.errors import MemtuneError
from memtune.gc_pause import pause_gc

if TYPE_CHECKING:
    from memtune.experiments.single_trial import TrainResult


def train(
    trial: Annotated[
        Path,
        typer.Argument(
            help="A trial: corpus, model, protocol, training as TOML; or the name of a packaged one.",
            autocompletion=complete_trial_file,
        ),
    ],
    corpus: Annotated[
        str | None,
        typer.Option(help="Train on this corpus instead of the file's.", autocompletion=complete_corpus),
    ] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(help="Use this seed instead of the file's. Several give their mean and deviation."),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of torch; default: its own.")] = None,
    device: Device = "cpu",
) -> None:
    """Train one configuration here, recorded like a trial; a second call resumes it.

    With several seeds, the mean and the standard deviation of validation and test follow.

    Example: memtune train jobs/trials/tran2016_ptb_rm.toml --seed 0 --seed 1
    """
    # Imported here: torch loads for seconds, which --help and refused options need not wait for.
    from memtune.library import FileKind, find_file
    from memtune.studies.definition.toml_files import check_document

    file = find_file(FileKind.TRIAL, trial)
    check_document(file, () if corpus else ("corpus",))
    with pause_gc():
        import torch

        from memtune.reports.live.watched_calls import train as train_trial

    if threads:
        torch.set_num_threads(threads)
    fixed: dict[str, object] = {} if corpus is None else {"corpus": corpus}
    trained = []
    for overrides in [{**fixed, "seed": number} for number in seed or ()] or [fixed]:
        try:
            trained.append(train_trial(file, overrides, device=device, console=out))
        except KeyboardInterrupt:
            warn("stopped; the same command resumes from the last checkpoint")
            raise typer.Exit(1) from None
        _print_trained(file, trained[-1])
    if len(trained) > 1:
        _print_spread(trained, device)


def _print_trained(file: Path, trained: "TrainResult") -> None:
    """Print the best validation and what the registry did. Raises MemtuneError without a validation."""
    if trained.best is None:
        raise MemtuneError(f"{file} reached no validation: {trained.curve[-1].end}")
    best = trained.best
    if trained.initial_tokens == trained.curve[-1].tokens:
        out.print(f"{file} was already trained to its end, {trained.initial_tokens:,} {trained.unit}")
    figure = f"{best.objective} {best.objective.format_cost(best.cost or 0.0, 3)}"
    out.print(f"best: validation {figure} at {best.tokens:,} {trained.unit}")
    print_promotion(trained.promotion, trained.has_test_split)


def _print_spread(trained: "Sequence[TrainResult]", device: str) -> None:
    """Print mean and sample standard deviation over seeds; the test split is read once for each model."""
    from memtune.experiments.single_trial import read_test_figure
    from memtune.settings import Settings

    bests = [each.best for each in trained if each.best is not None and each.best.cost is not None]
    objective = bests[0].objective
    figures = {"validation": [objective.compute_figure(best.cost or 0.0) for best in bests]}
    if trained[0].has_test_split:
        settings = Settings.from_environment()
        read = [read_test_figure(each, settings, device)[1] for each in trained]
        figures["test"] = [figure for figure in read if figure is not None]
    for split, values in figures.items():
        mean, deviation = statistics.mean(values), statistics.stdev(values)
        shown = (f"{objective.scale * value:.2f}" for value in (mean, deviation))
        out.print(f"{split} {objective} of {len(values)} seeds: {' ± '.join(shown)}{objective.unit}")
