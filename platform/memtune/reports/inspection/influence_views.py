"""Table and figure of the influence of earlier words."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from memtune.reports.figure_files import make_figure
from memtune.reports.marks import assign_marks
from memtune.reports.text_console import make_table
from memtune.results.inspection.word_influence import DistanceInfluence, WordInfluence

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN_DISTANCES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100)
MIN_INFLUENCE = 1e-5
"""Nats; less may be the rounding of single precision."""
TICKS = (1, 2, 5, 10, 20, 50, 100)


def make_influence_table(models: Sequence[WordInfluence]) -> Table:
    """A row for each distance and a column for each model: nats, with the 95 % interval over passages."""
    columns = ("words before", *(f"{model.model} ({model.memory})" for model in models), "predictions")
    title = "influence of a word on a prediction, in nats"
    table = make_table(title, [f">{name}" for name in columns])
    by_distance = [{found.distance: found for found in model.distances} for model in models]
    for distance in SHOWN_DISTANCES:
        found = [own[distance] for own in by_distance if distance in own]
        if len(found) == len(models):
            table.add_row(str(distance), *map(_describe, found), f"{found[0].predictions:,}")
    return table


def _describe(found: DistanceInfluence) -> str:
    bounds = found.interval
    return f"{found.mean:.5f}" + ("" if bounds is None else f" [{bounds[0]:.5f}, {bounds[1]:.5f}]")


def draw_influence(models: Sequence[WordInfluence]) -> "Figure":
    """A line for each model with its 95 % intervals; both axes are logarithmic."""
    figure = make_figure(7, 4.2)
    axes = figure.add_subplot()
    farthest, highest = 1, 10 * MIN_INFLUENCE
    marks = assign_marks(model.model for model in models)
    for model in models:
        mark = marks[model.model]
        shown = [found for found in model.distances if found.mean > MIN_INFLUENCE]
        axes.plot(
            [found.distance for found in shown],
            [found.mean for found in shown],
            marker=mark.marker,
            markersize=4,
            linestyle=mark.line,
            color=mark.colour,
            label=f"{model.model}: {model.memory}",
        )
        bounds = [(found.distance, *found.interval) for found in shown if found.interval is not None]
        places, lows, highs = zip(*bounds, strict=True) if bounds else ((), (), ())
        axes.fill_between(
            places, [max(MIN_INFLUENCE, low) for low in lows], highs, color=mark.colour, alpha=0.15, lw=0
        )
        farthest = max([farthest, *(found.distance for found in model.distances)])
        highest = max([highest, *(found.mean for found in shown)])
    axes.set(xlim=(0.9, 1.1 * farthest), xscale="log", xlabel="words before the predicted word")
    axes.set(ylim=(MIN_INFLUENCE, 2 * highest), yscale="log", ylabel="influence (nats)")
    axes.set_xticks(TICKS, map(str, TICKS))
    axes.set_xticks((), minor=True)
    axes.set_title("how much a prediction changes when one earlier word is replaced", fontsize=9)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8)
    return figure
