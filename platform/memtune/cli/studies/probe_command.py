"""`memtune probe`: what a model answers of probes with known answers."""

from pathlib import Path
from typing import Annotated

import typer

from memtune.cli.terminal import AsJson, Device, err, out, warn
from memtune.gc_pause import pause_gc


def probe(
    model: Annotated[
        str, typer.Argument(help="A family, a published mixer such as gla, or a TOML file with [model].")
    ],
    probes: Annotated[
        str, typer.Option("--set", help="mad, recall, state, language, all, or one probe.")
    ] = "recall",
    parameters: Annotated[
        int, typer.Option(min=1_000, help="Size of a model without a width, and of the references.")
    ] = 100_000,
    epochs: Annotated[float, typer.Option(help="Passes over the rows of each probe.")] = 10.0,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows of a batch.")] = 64,
    rates: Annotated[
        str, typer.Option(help="Learning rates, of which validation chooses one.")
    ] = "0.001,0.003,0.01",
    seeds: Annotated[int, typer.Option(min=1, help="Trainings at the chosen rate.")] = 3,
    setting: Annotated[
        list[str] | None, typer.Option(help="Of the rows, such as rows=4096; may be repeated.")
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="Also draw it: .svg, .png or .pdf.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of torch; default: its own.")] = None,
    device: Device = "cpu",
    json: AsJson = False,
) -> None:
    """Train a model on probes, rows with known answers, and print its fingerprint.

    Validation chooses the rate, and the test rows are read once. A probe that a reference does not solve
    under the same terms is not learnable at this budget. A second call trains nothing again.

    Example: memtune probe gated_deltanet --set state --seeds 3 --figure fingerprint.svg
    """
    with pause_gc():
        # Imported here: torch loads for seconds, which help and refused options need not wait for.
        from memtune.reports.fingerprint_views import draw_fingerprint, make_fingerprint_table
        from memtune.reports.inspection.figure_files import save_figure
        from memtune.reports.live.watched_calls import probe as take_fingerprint
    if threads:
        import torch

        torch.set_num_threads(threads)
    terms = {
        "parameters": parameters,
        "epochs": epochs,
        "batch_size": batch_size,
        "rates": _parse_numbers(rates.split(","), "--rates"),
        "seeds": seeds,
        "settings": _parse_settings(setting or []),
    }
    try:
        found = take_fingerprint(model, probes, terms, device=device, console=err)
    except KeyboardInterrupt:
        warn("stopped; the same command continues from the last checkpoint")
        raise typer.Exit(1) from None
    if figure is not None:
        save_figure(draw_fingerprint(found), figure)
    if json:
        out.print_json(found.model_dump_json())
    else:
        out.print(make_fingerprint_table(found))


def _parse_numbers(texts: list[str], option: str) -> list[float]:
    try:
        return [float(text) for text in texts]
    except ValueError:
        raise typer.BadParameter(
            f"{','.join(texts)} is not a number, such as 0.003", param_hint=option
        ) from None


def _parse_settings(texts: list[str]) -> dict[str, float]:
    names = [text.partition("=")[0] for text in texts]
    values = _parse_numbers([text.partition("=")[2] for text in texts], "--setting")
    return dict(zip(names, values, strict=True))
