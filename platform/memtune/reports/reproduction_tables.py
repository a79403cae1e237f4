"""Tables of reproduced rows: ours next to the published values, on the terminal and in Markdown."""

from collections import defaultdict
from collections.abc import Sequence

from rich.table import Table

from memtune.experiments.published_tables import PublishedTable, ScaleName
from memtune.experiments.table_run import ReproducedRow, RowState
from memtune.reports.text_console import WITHOUT_FRAME, make_table
from memtune.toml_text import format_toml

COLUMNS = (
    *("row", "parameters", "published", "validation", "published"),
    *("test", "published", "difference", "reason"),
)
TRAINING_COLUMNS = ("row", "seed", "trained on", "best validation at", "per second", "core hours")
"""Of the tokens or examples of a row."""


def make_reproduction_table(table: PublishedTable, rows: Sequence[ReproducedRow], scale: ScaleName) -> Table:
    """One row per model: our figures next to the published ones.

    Lower perplexity and higher accuracy are better.
    """
    title = f"{table.title}, scale {_describe_scale(table, scale)}"
    columns = (name if name in ("row", "reason") else f">{name}" for name in COLUMNS)
    return make_table(title, columns, map(_list_cells, rows), **WITHOUT_FRAME)


def format_reproduction_page(
    table: PublishedTable, rows: Sequence[ReproducedRow], scale: ScaleName, command: str
) -> str:
    """The same table in Markdown, with command, seeds, settings, versions and machines."""
    found = [row for row in rows if row.state is RowState.TRAINED]
    trainings = [
        [
            row.name,
            str((row.configuration or {}).get("seed", "")),
            f"{row.tokens or 0:,}",
            f"{row.best_tokens or 0:,}",
            f"{row.tokens_per_second or 0.0:,.0f}",
            f"{row.cpu_hours or 0.0:.3g}",
        ]
        for row in found
    ]
    hours = sum(row.cpu_hours or 0.0 for row in found)
    parts = [
        [f"## {table.title}", "", f"Scale {_describe_scale(table, scale)}; {hours:.3g} core hours:"],
        ["", "```", command, "```", ""],
        _format_table(COLUMNS, [_list_cells(row) for row in rows]),
    ]
    if found:
        parts += [
            ["", "### Trainings", ""],
            _format_table(TRAINING_COLUMNS, trainings),
            ["", "### Settings", "", *_format_settings(found)],
            ["", "### Versions and machines", "", *_format_environments(found)],
        ]
    return "\n".join(line for part in parts for line in part) + "\n"


def _describe_scale(table: PublishedTable, scale: ScaleName) -> str:
    """The scale, and how its trainings depart from the paper."""
    note = table.scales[scale].note if scale in table.scales else ""
    return f"{scale} ({note})" if note else scale


def _format_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return lines + [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]


def _format_settings(rows: Sequence[ReproducedRow]) -> list[str]:
    """The settings that all rows have as TOML, and those of each row by dotted name."""
    # By dotted name, as TOML.
    lines_of = {row.name: format_toml(row.configuration or {}).splitlines() for row in rows}
    settings = {
        name: dict(line.split(" = ", maxsplit=1) for line in lines) for name, lines in lines_of.items()
    }
    first, *others = settings.values()
    shared = {name: value for name, value in first.items() if all(own.get(name) == value for own in others)}
    corpora = dict.fromkeys(f"`{row.corpus}`, digest {row.corpus_digest}" for row in rows)
    lines = [
        f"Corpus {'; '.join(corpora)}. Of every row:",
        "",
        "```toml",
        *(f"{name} = {value}" for name, value in shared.items()),
        "```",
        "",
    ]
    for name, own in settings.items():
        different = [f"{field} = {value}" for field, value in own.items() if field not in shared]
        lines.append(f"- {name}: `{', '.join(different)}`" if different else f"- {name}: nothing else")
    return lines


def _format_environments(rows: Sequence[ReproducedRow]) -> list[str]:
    """The versions and machines with the rows that were trained with them."""
    names = defaultdict[str, list[str]](list)
    for row in rows:
        names[", ".join(f"{name} {value}" for name, value in row.trained_with.items())].append(row.name)
    return [f"- {environment}: {'; '.join(trained)}" for environment, trained in names.items()]


def _list_cells(row: ReproducedRow) -> list[str]:
    unit = row.objective.unit
    printed = row.published_parameters or ""
    if row.has_published_size is not None:
        printed += " (same)" if row.has_published_size else " (ours differs)"
    state = "" if row.state is RowState.TRAINED else f"{row.state}: "
    interval = "" if row.test_interval is None else " [{:.1f}, {:.1f}]".format(*row.test_interval)
    return [
        row.name,
        "" if row.parameters is None else f"{row.parameters:,}",
        printed,
        _format(row.valid, 2, unit),
        _format(row.published_valid, 1, unit),
        _format(row.test, 2, unit) + interval,
        _format(row.published_test, 1, unit),
        "" if row.difference is None else f"{row.difference:+.1f} {row.objective.short_margin_unit}",
        f"{state}{row.reason}",
    ]


def _format(figure: float | None, digits: int, unit: str) -> str:
    return "" if figure is None else f"{figure:.{digits}f}{unit}"
