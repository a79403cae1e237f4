"""Figures: a corpus's trials by size and perplexity."""

from collections.abc import Sequence
from pathlib import Path

from memtune.tracking import Row

__all__ = ["leaderboard_figure"]


def leaderboard_figure(rows: Sequence[Row], corpus: str, ideal: float | None, path: Path) -> None:
    """Write a PNG: validation perplexity against parameters, one colour a family.

    The ideal is a line, and so is the best of a family without parameters.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for family in sorted({row.family for row in rows}):
        found = [row for row in rows if row.family == family and row.valid_perplexity]
        points = [(row.parameter_count, row.valid_perplexity) for row in found if row.parameter_count]
        if points:
            axes.loglog(*zip(*points, strict=True), "o", label=family, alpha=0.8)
        elif found:  # what counts trains no parameter
            best = min(row.valid_perplexity or 0.0 for row in found)
            axes.axhline(best, linestyle=":", color="black", label=f"{family} {best:.2f}")
    if ideal:
        axes.axhline(ideal, linestyle="--", color="grey", label=f"ideal {ideal:.2f}")
    axes.set(title=corpus, xlabel="parameters", ylabel="validation perplexity (lower is better)")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(EngFormatter(sep=""))
        axis.set_minor_formatter(EngFormatter(sep=""))
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=150)
