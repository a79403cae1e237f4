"""Table and figure of the influence of earlier words."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from memtune.reports.figure_files import make_figure
from memtune.reports.marks import assign_marks
from memtune.reports.text_console import make_table
from memtune.results.inspection.word_influence import WordInfluence

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN_DISTANCES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 99)
DEVIATIONS = 1.96
"""Standard errors on each side of a mean in its 95 % interval."""
MIN_INFLUENCE = 1e-5
"""Nats; less may be the rounding of single precision."""
TICKS = (1, 2, 5, 10, 20, 50, 100)


def make_influence_table(models: Sequence[WordInfluence]) -> Table:
    """A row for each distance and a column for each model: nats, with the 95 % interval."""
    columns = ("words before", *(f"{model.model} ({model.memory})" for model in models), "predictions")
    title = "influence of a word on a prediction, in nats"
    table = make_table(title, [f">{name}" for name in columns])
    by_distance = [{found.distance: found for found in model.distances} for model in models]
    for distance in SHOWN_DISTANCES:
        found = [own[distance] for own in by_distance if distance in own]
        if len(found) == len(models):
            means = (
                f"{own.mean:.5f}" + ("" if own.error is None else f" ± {DEVIATIONS * own.error:.5f}")
                for own in found
            )
            table.add_row(str(distance), *means, f"{found[0].predictions:,}")
    return table


def draw_influence(models: Sequence[WordInfluence]) -> "Figure":
    """A line for each model with its 95 % intervals; both axes are logarithmic."""
    figure = make_figure(7, 4.2)
    axes = figure.add_subplot()
    marks = assign_marks(model.model for model in models)
    for model in models:
        mark = marks[model.model]
        shown = [found for found in model.distances if found.mean > MIN_INFLUENCE]
        places, means = [found.distance for found in shown], [found.mean for found in shown]
        halves = [DEVIATIONS * (found.error or 0.0) for found in shown]
        axes.plot(
            places,
            means,
            marker=mark.marker,
            markersize=4,
            linestyle=mark.line,
            color=mark.colour,
            label=f"{model.model}: {model.memory}",
        )
        lows = [max(MIN_INFLUENCE, mean - half) for mean, half in zip(means, halves, strict=True)]
        highs = [mean + half for mean, half in zip(means, halves, strict=True)]
        axes.fill_between(places, lows, highs, color=mark.colour, alpha=0.15, lw=0)
    distances = [found.distance for model in models for found in model.distances]
    highest = max((found.mean for model in models for found in model.distances), default=0.0)
    axes.set(
        xlim=(0.9, 1.1 * max(distances, default=1)), xscale="log", xlabel="words before the predicted word"
    )
    axes.set(
        ylim=(MIN_INFLUENCE, max(2 * highest, 10 * MIN_INFLUENCE)), yscale="log", ylabel="influence (nats)"
    )
    axes.set_xticks(TICKS, map(str, TICKS))
    axes.set_xticks((), minor=True)
    axes.set_title("what a prediction changes when one earlier word is another", fontsize=9)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8)
    return figure
