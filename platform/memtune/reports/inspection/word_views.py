"""Tables and figures of words: perplexity by group, and the influence of earlier words."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from memtune.reports.figure_files import draw_legend, make_figure, set_logarithmic
from memtune.reports.marks import assign_marks
from memtune.reports.text_console import make_table
from memtune.results.inspection.word_groups import GroupFigure, WordGroups
from memtune.results.inspection.word_influence import DistanceInfluence, WordInfluence

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPREAD = 0.5
"""Of the height of a row, over which the models are spread."""
SHOWN_DISTANCES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100)
MIN_INFLUENCE = 1e-5
"""Nats; less may be the rounding of single precision."""


def make_groups_table(found: WordGroups) -> Table:
    """A row for each group and a column for each model; further models with their change from the first."""
    columns = ("predicted word", ">share", *(f">{own.model} ({own.memory})" for own in found.models))
    table = make_table(f"perplexity by predicted word, {found.split}", columns)
    for place, group in enumerate(found.groups):
        figures = (own.figures[place] for own in found.models)
        table.add_row(group.name, f"{group.share:.1%}", *map(_format_change, figures))
    return table


def _format_change(figure: GroupFigure) -> str:
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
    title = f"{found.split}, 95 % intervals over sentences, none below 20"
    if is_single:
        set_logarithmic(axes, x="perplexity (lower is better)")
    else:
        axes.axvline(0, color="black", linewidth=1)
        axes.set_xlabel("change of the perplexity (%), lower is better")
        title = f"against {found.models[0].model}: {found.models[0].memory}\n{title}"
    # Of the figure, because names of models may be wider than the axes.
    figure.suptitle(title, fontsize=9)
    axes.grid(visible=True, alpha=0.3)
    draw_legend(figure)
    return figure


def make_influence_table(models: Sequence[WordInfluence]) -> Table:
    """A row for each distance and a column for each model: nats, with the 95 % interval over passages."""
    columns = ("words before", *(f"{model.model} ({model.memory})" for model in models), "predictions")
    title = "influence of a word on a prediction, in nats"
    table = make_table(title, [f">{name}" for name in columns])
    by_distance = [{found.distance: found for found in model.distances} for model in models]
    for distance in SHOWN_DISTANCES:
        found = [own[distance] for own in by_distance if distance in own]
        if len(found) == len(models):
            table.add_row(str(distance), *map(_format_influence, found), f"{found[0].predictions:,}")
    return table


def _format_influence(found: DistanceInfluence) -> str:
    bounds = found.interval
    if abs(found.mean) < MIN_INFLUENCE:
        return f"< {MIN_INFLUENCE:.5f}" if found.mean else "0"
    return f"{found.mean:z.5f}" + ("" if bounds is None else f" [{bounds[0]:z.5f}, {bounds[1]:z.5f}]")


def draw_influence(models: Sequence[WordInfluence]) -> "Figure":
    """A line for each model with its 95 % intervals.

    Distances that too few passages have for an interval are left out, unless none has one. Means that may be
    rounding are at the lower edge.
    """
    figure = make_figure(7, 4.2)
    axes = figure.add_subplot()
    marks = assign_marks(model.model for model in models)
    drawn = list[DistanceInfluence]()
    for model in models:
        mark = marks[model.model]
        shown = [found for found in model.distances if found.interval is not None] or model.distances
        places = [found.distance for found in shown]
        axes.plot(
            places,
            [max(MIN_INFLUENCE, found.mean) for found in shown],
            marker=mark.marker,
            markersize=4,
            linestyle=mark.line,
            color=mark.colour,
            label=f"{model.model}: {model.memory}",
        )
        bounds = [found.interval or (found.mean, found.mean) for found in shown]
        lows, highs = ([max(MIN_INFLUENCE, pair[side]) for pair in bounds] for side in (0, 1))
        axes.fill_between(places, lows, highs, color=mark.colour, alpha=0.15, lw=0)
        drawn += shown
    means = [max(MIN_INFLUENCE, found.mean) for found in drawn] or [MIN_INFLUENCE]
    axes.set_xlim(0.9, 1.1 * max((found.distance for found in drawn), default=1))
    axes.set_ylim(max(MIN_INFLUENCE, min(means) / 5), max(2 * max(means), 10 * MIN_INFLUENCE))
    set_logarithmic(axes, x="words before the predicted word", y="influence (nats)")
    floor = f"; lower edge: {MIN_INFLUENCE:.5f} and less" if min(means) == MIN_INFLUENCE else ""
    title = f"how much a prediction changes when one earlier word is replaced\n95 % intervals{floor}"
    axes.set_title(title, fontsize=9)
    axes.grid(visible=True, alpha=0.3)
    draw_legend(figure)
    return figure
