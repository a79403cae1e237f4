"""Table and figure of perplexities on groups of words."""

from typing import TYPE_CHECKING

from rich.table import Table

from memtune.reports.figure_files import make_figure
from memtune.reports.marks import assign_marks
from memtune.reports.text_console import make_table
from memtune.results.inspection.word_groups import GroupFigure, WordGroups

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPREAD = 0.5
"""Of the height of a row, over which the models are spread."""


def make_groups_table(found: WordGroups) -> Table:
    """A row for each group and a column for each model; further models with their change from the first."""
    columns = ("predicted word", ">share", *(f">{own.model} ({own.memory})" for own in found.models))
    table = make_table(f"perplexity by predicted word, {found.split}", columns)
    for place, group in enumerate(found.groups):
        figures = (own.figures[place] for own in found.models)
        table.add_row(group.name, f"{group.share:.1%}", *map(_describe, figures))
    return table


def _describe(figure: GroupFigure) -> str:
    if figure.change is None:
        return f"{figure.perplexity:,.1f}"
    bounds = figure.change_interval
    interval = "" if bounds is None else f" [{bounds[0]:+.1f}, {bounds[1]:+.1f}]"
    return f"{figure.perplexity:,.1f}, {figure.change:+.1f} %{interval}"


def draw_groups(found: WordGroups) -> "Figure":
    """A row for each group: how far each further model is from the first; of a single one the perplexity."""
    is_single = len(found.models) == 1
    drawn = found.models[0 if is_single else 1 :]
    figure = make_figure(7.5, 1.5 + 0.4 * len(found.groups))
    axes = figure.add_subplot()
    marks = assign_marks(own.model for own in drawn)
    for number, own in enumerate(drawn):
        mark, shift = marks[own.model], SPREAD * ((number + 0.5) / len(drawn) - 0.5)
        for row, values in enumerate(own.figures):
            middle, bounds = values.change, values.change_interval
            if middle is None:
                middle, bounds = values.perplexity, values.interval
            if bounds is not None:
                axes.plot(bounds, [row + shift] * 2, color=mark.colour, linewidth=1.5)
            label = f"{own.model}: {own.memory}" if row == 0 else None
            axes.plot(
                middle, row + shift, color=mark.colour, marker=mark.marker, linestyle="none", label=label
            )
    labels = [f"{group.name} ({group.share:.1%})" for group in found.groups]
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    if is_single:
        axes.set(xscale="log", xlabel=f"perplexity, {found.split}")
    else:
        axes.axvline(0, color="black", linewidth=1)
        axes.set_xlabel(
            f"perplexity against {found.models[0].model}: {found.models[0].memory} (%), lower is better"
        )
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8)
    return figure
