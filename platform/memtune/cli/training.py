"""`memtune train`: one configuration, trained here."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import TextColumn

from memtune.cli.terminal import Device, ReplaceChampion, out, progress_bar, tell_decision, warn
from memtune.errors import MemtuneError
from memtune.imports import in_one_go
from memtune.objective import shown

__all__ = ["train"]


def train(
    file: Annotated[Path, typer.Argument(help="A trial: corpus, model, protocol, training as TOML.")],
    corpus: Annotated[str | None, typer.Option(help="Another corpus than the file's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Another seed than the file's.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of torch; default: its own.")] = None,
    device: Device = "cpu",
    replace_champion: ReplaceChampion = False,
) -> None:
    """Train one configuration here, recorded like a trial; a second call goes on where it stopped.

    Example: memtune train jobs/trials/tran2016_ptb_rm.toml --seed 1
    """
    from memtune.execution.documents import check_document

    check_document(file, () if corpus else ("corpus",))
    with in_one_go():
        import torch

        from memtune.execution.single import load_trial
        from memtune.execution.single import train as train_one
        from memtune.execution.wording import unit

    if threads:
        torch.set_num_threads(threads)
    overrides = {name: value for name, value in (("corpus", corpus), ("seed", seed)) if value is not None}
    counted_in = unit(load_trial(file, overrides).trial.task)
    with progress_bar(TextColumn("{task.fields[figures]}")) as bar:
        task = bar.add_task(file.stem, total=None, figures="")

        def show(now: Any) -> None:
            total = now.tokens + now.seconds_left * now.tokens_per_second
            figures = f"{now.tokens_per_second:,.0f} {counted_in}/s, loss {now.loss:.3f}"
            bar.update(task, completed=now.tokens, total=total, figures=figures)

        try:
            trained = train_one(
                file,
                overrides,
                device=device,
                replace_champion=replace_champion,
                progress=show,
                report=lambda report: bar.console.print(_line(report, counted_in)),
            )
        except KeyboardInterrupt:
            warn("stopped; the same command goes on from the last checkpoint")
            raise typer.Exit(1) from None
    if trained.best is None:
        raise MemtuneError(f"{file} reached no validation: {trained.curve[-1].reason}")
    best = trained.best
    if trained.begun_at == trained.curve[-1].tokens:
        out.print(
            f"{file} had been trained to its end before, to {trained.begun_at:,} {counted_in}; "
            "nothing was left"
        )
    figure = f"{best.objective} {shown(best.objective, best.cost or 0.0, 3)}"
    out.print(f"best: validation {figure} at {best.tokens:,} {counted_in}")
    tell_decision(trained.crowning, trained.test)


def _line(report: Any, counted_in: str) -> str:
    """A report; a classifier's figures are its loss and accuracy, for it predicts no words."""
    words = counted_in == "tokens"
    figures = [("train", report.train_perplexity if words else report.train_loss)]
    figures += [("validation", report.valid_perplexity if words else report.valid_loss)]
    name = "perplexity" if words else "loss"
    parts = [f"{split} {name} {value:.3f}" for split, value in figures if value is not None]
    parts += ["diverged"] if report.valid_loss is None else []
    parts += [] if report.valid_accuracy is None else [f"accuracy {100 * report.valid_accuracy:.2f} %"]
    parts.append(f"{report.tokens_per_second:,.0f} {counted_in}/s")
    return f"epoch {report.epoch:.2f}, {report.tokens:,} {counted_in}: {', '.join(parts)}"
