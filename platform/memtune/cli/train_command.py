"""`memtune train`: one configuration, trained here."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import TextColumn

from memtune.cli.terminal import Device, out, print_promotion, progress_bar, warn
from memtune.errors import MemtuneError
from memtune.gc_pause import gc_paused
from memtune.objective import format_figure

if TYPE_CHECKING:
    from memtune.training import Progress, Report


__all__ = ["train"]


def train(
    file: Annotated[Path, typer.Argument(help="A trial: corpus, model, protocol, training as TOML.")],
    corpus: Annotated[str | None, typer.Option(help="Train on this corpus instead of the file's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Use this seed instead of the file's.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of torch; default: its own.")] = None,
    device: Device = "cpu",
) -> None:
    """Train one configuration here, recorded like a trial; a second call resumes it.

    Example: memtune train jobs/trials/tran2016_ptb_rm.toml --seed 1
    """
    # Imported here: torch loads for seconds, which --help and refused options need not wait for.
    from memtune.studies.toml_files import check_document

    check_document(file, () if corpus else ("corpus",))
    with gc_paused():
        import torch

        from memtune.reports.learning_curves import draw_trial_figures
        from memtune.results.single_trial import load_trial
        from memtune.results.single_trial import train as train_one

    if threads:
        torch.set_num_threads(threads)
    overrides = {name: value for name, value in (("corpus", corpus), ("seed", seed)) if value is not None}
    counted_in = load_trial(file, overrides).trial.task.prediction_unit
    with progress_bar(TextColumn("{task.fields[figures]}")) as bar:
        task = bar.add_task(file.stem, total=None, figures="")

        def show(now: "Progress") -> None:
            total = now.tokens + now.seconds_left * now.tokens_per_second
            figures = f"{now.tokens_per_second:,.0f} {counted_in}/s, loss {now.loss:.3f}"
            bar.update(task, completed=now.tokens, total=total, figures=figures)

        try:
            trained = train_one(
                file,
                overrides,
                device=device,
                on_progress=show,
                on_report=lambda report: bar.console.print(_format_report(report, counted_in)),
                draw_figures=draw_trial_figures,
            )
        except KeyboardInterrupt:
            warn("stopped; the same command resumes from the last checkpoint")
            raise typer.Exit(1) from None
    if trained.best is None:
        raise MemtuneError(f"{file} reached no validation: {trained.curve[-1].end}")
    best = trained.best
    if trained.initial_tokens == trained.curve[-1].tokens:
        out.print(f"{file} was already trained to its end, {trained.initial_tokens:,} {counted_in}")
    figure = f"{best.objective} {format_figure(best.objective, best.cost or 0.0, 3)}"
    out.print(f"best: validation {figure} at {best.tokens:,} {counted_in}")
    print_promotion(trained.promotion, trained.has_test_split)


def _format_report(report: "Report", unit: str) -> str:
    """One line for a report: perplexities, or losses and accuracy for a classifier."""
    words = unit == "tokens"
    figures = [("train", report.train_perplexity if words else report.train_loss)]
    figures += [("validation", report.valid_perplexity if words else report.valid_loss)]
    name = "perplexity" if words else "loss"
    parts = [f"{split} {name} {value:.3f}" for split, value in figures if value is not None]
    parts += ["diverged"] if report.valid_loss is None else []
    parts += [] if report.valid_accuracy is None else [f"accuracy {100 * report.valid_accuracy:.2f} %"]
    parts.append(f"{report.tokens_per_second:,.0f} {unit}/s")
    return f"epoch {report.epoch:.2f}, {report.tokens:,} {unit}: {', '.join(parts)}"
