"""The figure of attention by dependency path: Tran, Bisazza and Monz (2016), figure 6."""

from typing import TYPE_CHECKING

import numpy as np

from memtune.reports.inspection.figure_files import make_figure
from memtune.results.inspection.attention.dependency_attention import DependencyAttention

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_dependencies"]

DARK_CELL = 0.55
"""Cells above this share of the darkest have white numbers."""


def draw_dependencies(found: DependencyAttention, rows: int = 10) -> "Figure":
    """A row for each path and one for all pairs, a column for each bin of distance; near words on the right.

    Every cell has its mean weight; a hatched cell has no pair in the text.
    """
    drawn = [found.everything, *found.paths[:rows]]
    bins = tuple(reversed(found.everything.by_distance))
    means = np.array(
        [[np.nan if bin.mean is None else bin.mean for bin in reversed(path.by_distance)] for path in drawn]
    )
    widest = max(len(path.path) for path in drawn)
    figure = make_figure(2.6 + 0.07 * widest + 0.62 * len(bins), 1.6 + 0.34 * len(drawn))
    axes = figure.add_subplot()
    axes.patch.set(facecolor="white", hatch="//////", edgecolor="#b0b0b0", linewidth=0)
    image = axes.imshow(means, cmap="Greys", vmin=0, aspect="auto", interpolation="none")
    darkest = float(np.nanmax(means)) if np.isfinite(means).any() else 1.0
    for (row, column), mean in np.ndenumerate(means):
        if np.isfinite(mean):
            colour = "white" if mean > DARK_CELL * darkest else "black"
            axes.text(column, row, f"{mean:.2f}", ha="center", va="center", fontsize=7, color=colour)
    labels = [str(bin.first) if bin.first == bin.last else f"{bin.first} to {bin.last}" for bin in bins]
    axes.set_xticks(range(len(bins)), labels)
    axes.set_yticks(range(len(drawn)), [f"{path.path}  ({path.pairs:,})" for path in drawn])
    axes.axhline(0.5, color="black", linewidth=1)
    axes.tick_params(labelsize=8)
    axes.set(xlabel="words before the predicted word", ylabel="path from the attended word (pairs)")
    axes.set_title(f"{found.model}: mean attention, {found.sentences:,} sentences", fontsize=9)
    figure.colorbar(image, ax=axes, label="mean attention", pad=0.02)
    return figure
