"""Figures: a corpus's trials by size and what they came to."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memtune.objective import better
from memtune.tracking import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["drawn", "leaderboard_figure"]


def leaderboard_figure(rows: Sequence[Row], corpus: str, ideal: float | None, path: Path) -> None:
    """Write the figure that `drawn` gives as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = drawn(rows, corpus, ideal)
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=150)


def drawn(rows: Sequence[Row], corpus: str, ideal: float | None) -> "Figure":
    """Validation perplexity or accuracy against parameters, one colour a family.

    The ideal is a line, and so is the best of a family without parameters.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, PercentFormatter

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    objective = rows[0].objective if rows else "perplexity"
    draw = axes.semilogx if objective == "accuracy" else axes.loglog
    for family in sorted({row.family for row in rows}):
        found = [row for row in rows if row.family == family and row.figure]
        points = [(row.parameter_count, row.figure) for row in found if row.parameter_count]
        if points:
            draw(*zip(*points, strict=True), "o", label=family, alpha=0.8)
        elif found:  # what counts trains no parameter
            best = min(found, key=lambda row: row.cost).figure or 0.0
            axes.axhline(best, linestyle=":", color="black", label=f"{family} {best:.2f}")
    if ideal:
        axes.axhline(ideal, linestyle="--", color="grey", label=f"ideal {ideal:.2f}")
    axes.set(
        title=corpus, xlabel="parameters", ylabel=f"validation {objective} ({better(objective)} is better)"
    )
    for axis in (axes.xaxis, axes.yaxis):
        for set_formatter in (axis.set_major_formatter, axis.set_minor_formatter):
            share = objective == "accuracy" and axis is axes.yaxis
            set_formatter(PercentFormatter(1.0) if share else EngFormatter(sep=""))
    axes.grid(visible=True, which="both", alpha=0.3)
    if axes.get_legend_handles_labels()[0]:  # no trial may have reached a validation
        axes.legend()
    return figure
