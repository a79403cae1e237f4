"""Tables of reproduced rows: ours next to the published values, on the terminal and in Markdown."""

from collections.abc import Sequence

from rich import box
from rich.table import Table

from memtune.results.reproduction.published_tables import PublishedTable
from memtune.results.reproduction.table_run import ReproducedRow, RowState

__all__ = ["format_reproduction_markdown", "reproduction_table"]

COLUMNS = (
    "row",
    "parameters",
    "published",
    "validation",
    "published",
    "test",
    "published",
    "difference",
    "reason",
)


def reproduction_table(table: PublishedTable, rows: Sequence[ReproducedRow], scale: str) -> Table:
    """One row per model: our figures next to the published ones.

    Lower perplexity and higher accuracy are better.
    """
    shown = Table(title=f"{table.title}, scale {scale}", title_justify="left", box=box.SIMPLE_HEAD)
    shown.show_edge, shown.pad_edge = False, False
    for name in COLUMNS:
        is_text = name in ("row", "reason")
        shown.add_column(name, justify="left" if is_text else "right", overflow="fold")
    for row in rows:
        shown.add_row(*_list_cells(row))
    return shown


def format_reproduction_markdown(
    table: PublishedTable, rows: Sequence[ReproducedRow], scale: str, command: str
) -> str:
    """The same table in Markdown, with the command that makes it and the hours it took."""
    lines = [f"## {table.title}", "", f"Scale {scale}: `{command}`"]
    if hours := sum(row.cpu_hours or 0.0 for row in rows):
        lines[-1] += f", {hours:.3g} core hours."
    lines += ["", f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in _list_cells(row))} |" for row in rows]
    return "\n".join([*lines, ""])


def _list_cells(row: ReproducedRow) -> list[str]:
    unit = row.objective.unit
    printed = row.published_parameters or ""
    if row.has_published_size is not None:
        printed += " (same)" if row.has_published_size else " (ours differs)"
    state = "" if row.state is RowState.TRAINED else f"{row.state}: "
    return [
        row.name,
        "" if row.parameters is None else f"{row.parameters:,}",
        printed,
        _format(row.valid, 2, unit),
        _format(row.published_valid, 1, unit),
        _format(row.test, 2, unit),
        _format(row.published_test, 1, unit),
        "" if row.difference is None else f"{row.difference:+.1f} {row.objective.short_margin_unit}",
        f"{state}{row.reason}",
    ]


def _format(figure: float | None, digits: int, unit: str) -> str:
    return "" if figure is None else f"{figure:.{digits}f}{unit}"
