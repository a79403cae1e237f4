"""`memtune reproduce`: the rows of papers' tables, trained under their protocols."""

import shlex
from collections.abc import Collection, Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from memtune.cli.shell_completion import complete_corpus, complete_paper
from memtune.cli.terminal import AsJson, Device, err, out, warn
from memtune.errors import CorpusError
from memtune.gc_pause import pause_gc

if TYPE_CHECKING:
    from memtune.experiments.published_tables import PublishedRow, PublishedTable
    from memtune.experiments.table_run import CoreHours, ReproducedRow
    from memtune.training import Progress, Report, TrialConfig


def reproduce(
    paper: Annotated[
        str,
        typer.Argument(help="tran2016, cheng2016, benes2017, ...", autocompletion=complete_paper),
    ],
    table: Annotated[
        str | None, typer.Option(help="One table, such as 2, or its part, such as 2-de; default: all.")
    ] = None,
    row: Annotated[
        list[str] | None, typer.Option(help="Train this row only; may be repeated. Default: all rows.")
    ] = None,
    scale: Annotated[
        Literal["paper", "cpu", "tiny"],
        typer.Option(help="The paper's trainings, those that a CPU can do, or a check that takes seconds."),
    ] = "cpu",
    corpus: Annotated[
        str | None,
        typer.Option(help="Train on this corpus instead of the tables' own.", autocompletion=complete_corpus),
    ] = None,
    max_core_hours: Annotated[
        float | None,
        typer.Option(
            min=0, help="Train only rows that are estimated to fit into this time, and name the others."
        ),
    ] = None,
    write_to: Annotated[Path | None, typer.Option("--out", help="Also write the tables as Markdown.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of torch; default: its own.")] = None,
    device: Device = "cpu",
    json: AsJson = False,
) -> None:
    """Train the rows of a paper's tables under its protocol, and print ours next to the published values.

    A second call continues: a row that is trained is not trained again. The exit code is 1 where a row has
    failed.

    Example: memtune reproduce tran2016 --table ptb --scale cpu --out tran2016.md
    """
    with pause_gc():
        # Imported here, as below: torch loads for seconds, which help and refused options need not wait for.
        from memtune.experiments.published_tables import load_paper, select_rows, select_tables
        from memtune.experiments.table_run import CoreHours, RowState
        from memtune.reports.reproduction_tables import format_reproduction_page, make_reproduction_table

    tables = select_tables(load_paper(paper), table)
    chosen = select_rows(tables, row or [])
    if threads:
        import torch

        torch.set_num_threads(threads)
    options = _format_options(row or [], scale, corpus, threads, device)
    core_hours = CoreHours(inf if max_core_hours is None else max_core_hours)
    rows: list[ReproducedRow] = []
    pages: list[str] = []
    missing: list[CorpusError] = []
    for one in tables:
        try:
            found = _reproduce_table(one, scale, paper, chosen, corpus, device, core_hours)
        except CorpusError as error:
            missing.append(error)
            continue
        rows += found
        command = f"memtune reproduce {shlex.join([paper, '--table', one.name])} {options}"
        pages.append(format_reproduction_page(one, found, scale, command))
        if not json:
            out.print(make_reproduction_table(one, found, scale))
    if json:
        out.print_json(data=rows)
    if write_to is not None and pages:
        write_to.write_text("\n".join(pages), encoding="utf-8")
    if not pages:
        raise missing[0]
    for problem in missing:
        warn(f"not run: {problem}")
    if any(row.state is RowState.FAILED for row in rows):
        raise typer.Exit(1)


def _format_options(
    rows: Sequence[str], scale: str, corpus: str | None, threads: int | None, device: str
) -> str:
    """The options that decide what a table's rows are trained with, as words of a command."""
    options = [("--row", name) for name in rows] + [("--scale", scale)]
    options += [(name, str(value)) for name, value in (("--corpus", corpus), ("--threads", threads)) if value]
    options += [("--device", device)] if device != "cpu" else []
    return shlex.join(word for option in options for word in option)


def _reproduce_table(
    table: "PublishedTable",
    scale: Literal["paper", "cpu", "tiny"],
    paper: str,
    rows: Collection[str] | None,
    corpus: str | None,
    device: str,
    core_hours: "CoreHours",
) -> "list[ReproducedRow]":
    from memtune.experiments.table_run import RowHooks, reproduce_table
    from memtune.reports.learning_curves import draw_trial_figures
    from memtune.reports.live.watched_calls import LineDisplay, format_progress, format_report
    from memtune.settings import Settings

    # The standard output is for the tables.
    with LineDisplay(err) as display:

        def show(row: "PublishedRow", trial: "TrialConfig", now: "Progress") -> None:
            display.replace(f"{row.name}: {format_progress(now, trial.task.prediction_unit)}")

        def tell(row: "PublishedRow", trial: "TrialConfig", report: "Report") -> None:
            display.add_line(f"{row.name}: {format_report(report, trial.task.prediction_unit)}")

        try:
            return list(
                reproduce_table(
                    table,
                    scale,
                    Settings.from_environment(),
                    rows=rows,
                    corpus=corpus,
                    device=device,
                    name=f"{paper}_{table.name}",
                    hooks=RowHooks(show, tell, draw_trial_figures),
                    core_hours=core_hours,
                )
            )
        except KeyboardInterrupt:
            warn("stopped; the same command continues from the last checkpoint")
            raise typer.Exit(1) from None
