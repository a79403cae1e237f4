"""Figures of the trials of a corpus: validation figure against number of parameters."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from memtune.objective import Objective, better_direction
from memtune.reports.family_marks import FamilyMark, assign_marks
from memtune.tracking import LeaderboardRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = ["draw_leaderboard", "render_leaderboard_png", "write_leaderboard_png"]

EQUAL_RATIO = 1.1
"""Sizes whose largest is at most this multiple of the smallest are equal."""


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

    Where all models have the same size within 10 %, each family is a strip instead. Configurations of full
    length are filled marks with the mean of their seeds. Hollow marks are single seeds of these and trials
    that ended early, which do not compare with the filled ones. A ring marks the best configuration.
    Lines show the ideal and the best trial of a family without trained parameters.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    objective = rows[0].objective if rows else "perplexity"
    validated = [row for row in rows if row.ranked_figure]
    trained = [row for row in validated if row.parameter_count]
    marks = assign_marks(row.family for row in rows)
    if has_equal_sizes(trained):
        _draw_strips(axes, trained, marks, objective)
    else:
        _draw_sizes(axes, trained, marks, objective)
    draw_line = axes.axvline if has_equal_sizes(trained) else axes.axhline
    for family in marks:
        own = [row for row in validated if row.family == family]
        if own and not any(row.parameter_count for row in own):
            # families such as kneser_ney count n-grams and have no parameters
            best = min(own, key=lambda row: row.cost).ranked_figure or 0.0
            draw_line(best, linestyle=":", color=marks[family].colour, label=f"{family} {best:.2f}")
    if ideal:
        draw_line(ideal, linestyle="--", color="grey", label=f"ideal {ideal:.2f}")
    axes.set_title(corpus)
    axes.grid(visible=True, which="both", alpha=0.3)
    if axes.get_legend_handles_labels()[0]:  # without a validated trial there is nothing to label
        # Beside the axes, where it covers no point.
        axes.legend(
            loc="upper left", bbox_to_anchor=(1.01, 1.0), title="hollow: not ranked\nring: best", fontsize=8
        )
    return figure


def has_equal_sizes(rows: Sequence[LeaderboardRow]) -> bool:
    """Whether all models have the same number of parameters, within 10 %, and some are of other families."""
    sizes = [row.parameter_count or 0 for row in rows]
    return len({row.family for row in rows}) > 1 and max(sizes) <= EQUAL_RATIO * min(sizes)


def _draw_sizes(
    axes: "Axes", rows: Sequence[LeaderboardRow], marks: Mapping[str, FamilyMark], objective: Objective
) -> None:
    axes.set(
        xscale="log",
        yscale="linear" if objective == "accuracy" else "log",
        xlabel="parameters",
        ylabel=f"validation {objective} ({better_direction(objective)} is better)",
    )
    _draw_marks(axes, [(row, row.parameter_count or 0, row.ranked_figure or 0.0) for row in rows], marks)
    _format_axis(axes.xaxis, is_share=False)
    _format_axis(axes.yaxis, is_share=objective == "accuracy")
    axes.tick_params(axis="x", which="minor", labelsize=6)


def _draw_strips(
    axes: "Axes", rows: Sequence[LeaderboardRow], marks: Mapping[str, FamilyMark], objective: Objective
) -> None:
    """A strip for each family, the best one on top."""
    order = list(dict.fromkeys(row.family for row in sorted(rows, key=lambda row: row.cost)))
    _draw_marks(axes, [(row, row.ranked_figure or 0.0, order.index(row.family)) for row in rows], marks)
    axes.set(
        xscale="linear" if objective == "accuracy" else "log",
        xlabel=f"validation {objective} ({better_direction(objective)} is better)",
        yticks=range(len(order)),
        yticklabels=order,
    )
    axes.invert_yaxis()
    _format_axis(axes.xaxis, is_share=objective == "accuracy")
    axes.tick_params(axis="x", which="minor", labelsize=6)


def _draw_marks(
    axes: "Axes", places: Sequence[tuple[LeaderboardRow, float, float]], marks: Mapping[str, FamilyMark]
) -> None:
    """A mark for each row at its place, hollow without a rank; the best in a ring."""
    labelled = set[str]()
    for row, x, y in sorted(places, key=lambda place: place[0].estimate is None):
        mark, is_ranked = marks[row.family], row.estimate is not None
        axes.plot(
            x,
            y,
            marker=mark.marker,
            linestyle="",
            color=mark.colour,
            markerfacecolor=mark.colour if is_ranked else "none",
            alpha=0.8 if is_ranked else 0.5,
            label=None if row.family in labelled else row.family,
        )
        labelled.add(row.family)
        if row.place == 1 and is_ranked:
            axes.plot(x, y, "o", markersize=14, markerfacecolor="none", markeredgecolor="black")


def _format_axis(axis: "Axis", *, is_share: bool) -> None:
    from matplotlib.ticker import EngFormatter, PercentFormatter

    for set_formatter in (axis.set_major_formatter, axis.set_minor_formatter):
        set_formatter(PercentFormatter(1.0) if is_share else EngFormatter(sep=""))
