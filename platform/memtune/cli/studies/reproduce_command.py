"""`memtune reproduce`: the rows of papers' tables, trained under their protocols."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.progress import TextColumn

from memtune.cli.shell_completion import complete_corpus, complete_paper
from memtune.cli.terminal import AsJson, Device, out, progress_bar, warn
from memtune.errors import CorpusError
from memtune.gc_pause import pause_gc

if TYPE_CHECKING:
    from memtune.results.reproduction.published_tables import PublishedRow, PublishedTable
    from memtune.results.reproduction.table_run import ReproducedRow
    from memtune.training import Progress

__all__ = ["reproduce"]


def reproduce(
    paper: Annotated[
        str,
        typer.Argument(help="tran2016, cheng2016, benes2017, ...", autocompletion=complete_paper),
    ],
    table: Annotated[
        str | None, typer.Option(help="One table, such as 2, or its part, such as 2-de; default: all.")
    ] = None,
    scale: Annotated[
        Literal["paper", "cpu", "tiny"],
        typer.Option(help="The paper's trainings, those that a CPU can do, or a check that takes seconds."),
    ] = "cpu",
    corpus: Annotated[
        str | None,
        typer.Option(help="Train on this corpus instead of the tables' own.", autocompletion=complete_corpus),
    ] = None,
    write_to: Annotated[Path | None, typer.Option("--out", help="Also write the tables as Markdown.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of torch; default: its own.")] = None,
    device: Device = "cpu",
    json: AsJson = False,
) -> None:
    """Train the rows of a paper's tables under its protocol, and print ours next to the published values.

    A second call continues: a row that is trained is not trained again.

    Example: memtune reproduce tran2016 --table ptb --scale cpu --out tran2016.md
    """
    with pause_gc():
        # Imported here, as below: torch loads for seconds, which help and refused options need not wait for.
        from memtune.reports.reproduction_tables import format_reproduction_markdown, reproduction_table
        from memtune.results.reproduction.published_tables import load_paper, select_tables

    tables = select_tables(load_paper(paper), table)
    if threads:
        import torch

        torch.set_num_threads(threads)
    command = f"memtune reproduce {paper} --scale {scale}"
    rows: list[ReproducedRow] = []
    pages: list[str] = []
    missing: list[CorpusError] = []
    for one in tables:
        try:
            found = _reproduce_table(one, scale, paper, corpus, device)
        except CorpusError as error:
            missing.append(error)
            continue
        rows += found
        pages.append(format_reproduction_markdown(one, found, scale, f"{command} --table {one.name}"))
        if not json:
            out.print(reproduction_table(one, found, scale))
    if json:
        out.print_json(data=[row.model_dump(mode="json") for row in rows])
    if write_to is not None and pages:
        write_to.write_text("\n".join(pages), encoding="utf-8")
    if not pages:
        raise missing[0]
    for problem in missing:
        warn(f"not run: {problem}")


def _reproduce_table(
    table: "PublishedTable",
    scale: Literal["paper", "cpu", "tiny"],
    paper: str,
    corpus: str | None,
    device: str,
) -> "list[ReproducedRow]":
    from memtune.reports.learning_curves import draw_trial_figures
    from memtune.results.reproduction.table_run import reproduce_table
    from memtune.settings import Settings

    with progress_bar(TextColumn("{task.fields[figures]}")) as bar:
        task = bar.add_task(table.name, total=None, figures="")

        def show(row: "PublishedRow", now: "Progress") -> None:
            total = now.tokens + now.seconds_left * now.tokens_per_second
            figures = f"{now.tokens_per_second:,.0f}/s, loss {now.loss:.3f}"
            bar.update(task, description=row.name, completed=now.tokens, total=total, figures=figures)

        try:
            return list(
                reproduce_table(
                    table,
                    scale,
                    Settings.from_environment(),
                    corpus=corpus,
                    device=device,
                    name=f"{paper}_{table.name}",
                    on_progress=show,
                    draw_figures=draw_trial_figures,
                )
            )
        except KeyboardInterrupt:
            warn("stopped; the same command continues from the last checkpoint")
            raise typer.Exit(1) from None
