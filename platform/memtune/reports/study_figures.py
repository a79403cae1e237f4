"""Figures of the trials of a corpus: validation figure against number of parameters."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from memtune.objective import better_direction
from memtune.reports.family_marks import assign_marks
from memtune.tracking import LeaderboardRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_leaderboard", "render_leaderboard_png", "write_leaderboard_png"]


def write_leaderboard_png(
    rows: Sequence[LeaderboardRow], corpus: str, ideal: float | None, path: Path
) -> None:
    """Write the figure of `draw_leaderboard` as a PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(render_leaderboard_png(rows, corpus, ideal))


def render_leaderboard_png(rows: Sequence[LeaderboardRow], corpus: str, ideal: float | None) -> bytes:
    """The figure of `draw_leaderboard` as a PNG."""
    # Imported here: matplotlib takes about 1 s, and tables do not need it.
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure, content = draw_leaderboard(rows, corpus, ideal), BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(content, dpi=150)
    return content.getvalue()


def draw_leaderboard(rows: Sequence[LeaderboardRow], corpus: str, ideal: float | None) -> "Figure":
    """Validation perplexity or accuracy against the number of parameters, one mark per family.

    Configurations of full length are filled marks with the mean of their seeds. Hollow marks are single seeds
    of these and trials that ended early, which do not compare with the filled ones.
    Horizontal lines show the ideal and the best trial of a family without trained parameters.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, PercentFormatter

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    objective = rows[0].objective if rows else "perplexity"
    draw = axes.semilogx if objective == "accuracy" else axes.loglog
    for family, mark in assign_marks(row.family for row in rows).items():
        validated = [row for row in rows if row.family == family and row.ranked_figure]
        has_full_length = any(row.estimate for row in validated)
        for face, alpha, is_full in ((mark.colour, 0.8, True), ("none", 0.5, False)):
            group = [row for row in validated if (row.estimate is not None) == is_full]
            points = [(row.parameter_count, row.ranked_figure) for row in group if row.parameter_count]
            if points:
                label = family if is_full or not has_full_length else None
                style = {"color": mark.colour, "markerfacecolor": face, "alpha": alpha}
                draw(*zip(*points, strict=True), mark.marker, label=label, **style)
        if validated and not any(row.parameter_count for row in validated):
            # families such as kneser_ney count n-grams and have no parameters
            best = min(validated, key=lambda row: row.cost).ranked_figure or 0.0
            axes.axhline(best, linestyle=":", color="black", label=f"{family} {best:.2f}")
    if ideal:
        axes.axhline(ideal, linestyle="--", color="grey", label=f"ideal {ideal:.2f}")
    axes.set(
        title=corpus,
        xlabel="parameters",
        ylabel=f"validation {objective} ({better_direction(objective)} is better)",
    )
    for axis in (axes.xaxis, axes.yaxis):
        for set_formatter in (axis.set_major_formatter, axis.set_minor_formatter):
            share = objective == "accuracy" and axis is axes.yaxis
            set_formatter(PercentFormatter(1.0) if share else EngFormatter(sep=""))
    axes.tick_params(axis="x", which="minor", labelsize=6)
    axes.grid(visible=True, which="both", alpha=0.3)
    if axes.get_legend_handles_labels()[0]:  # without a validated trial there is nothing to label
        # Beside the axes, where it covers no point.
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), title="hollow: not ranked", fontsize=8)
    return figure
