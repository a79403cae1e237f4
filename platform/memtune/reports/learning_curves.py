"""A trial's curve as a PNG file: perplexity or accuracy against tokens seen."""

from collections.abc import Mapping, Sequence
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING

from memtune.objective import Objective
from memtune.reports.figure_files import render_figure
from memtune.reports.text_console import show_control_characters

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MIN_DRAWN_POINTS = 5
"""Reports that a figure needs. Drawing takes 0.1 to 0.6 s, more than everything else that is recorded of a
trial, and MLflow itself draws the metrics of shorter trials."""
MAX_PLOTTED_VALUE = 1e12
DPI = 100
_DRAWING_LOCK = Lock()

Points = Sequence[tuple[int, float]]


def draw_trial_figures(title: str, objective: Objective, metrics: Mapping[str, Points]) -> dict[str, bytes]:
    """The figures of a trial by file name; none for a trial with fewer than MIN_DRAWN_POINTS reports.

    `metrics` has the values of each recorded metric as (tokens seen, value), in order. The figure is a PNG of
    the objective on the training and validation sets against tokens seen. The axis of perplexity is
    logarithmic. Values that no axis can show are left out: MLflow stores the infinity of a diverged trial as
    1.8e308.
    """
    train, valid = (metrics.get(f"{split}_{objective}", ()) for split in ("train", "valid"))
    if max(len(train), len(valid)) < MIN_DRAWN_POINTS:
        return {}
    drawn = [
        [(tokens, value) for tokens, value in points if tokens > 0 and 0 < value < MAX_PLOTTED_VALUE]
        for points in (train, valid)
    ]
    with _DRAWING_LOCK:
        figure = _prepare_figure(objective)
        (axes,) = figure.axes
        for line, points in zip(axes.lines, drawn, strict=True):
            line.set_data(*(zip(*points, strict=True) if points else ((), ())))
        axes.relim()
        axes.autoscale_view()
        if not any(drawn):  # a logarithmic axis without points has no limits
            axes.set(xlim=(1, 10), ylim=(1, 10))
        axes.set_title(show_control_characters(title), parse_math=False)
        return {"learning_curve.png": render_figure(figure, ".png", DPI)}


@cache
def _prepare_figure(objective: Objective) -> "Figure":
    """The figure in which all curves of an objective are drawn: a new one takes three times as long."""
    # Imported here: matplotlib loads for a second, and only a drawn figure needs it.
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, LogFormatter, NullFormatter

    figure = Figure(figsize=(7, 4.5))
    figure.subplots_adjust(left=0.13, right=0.98, top=0.92, bottom=0.12)
    axes = figure.add_subplot()
    for label, marker in (("training", "."), ("validation", "o")):
        axes.plot((), (), marker=marker, label=label)
    axes.set(xscale="log", yscale="log" if objective.is_ratio else "linear")
    # The default labels of a logarithmic axis are typeset formulas, which take half of the time.
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_minor_formatter(NullFormatter())
    if objective.is_ratio:
        axes.yaxis.set_major_formatter(LogFormatter())
        axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
    axes.set(xlabel="tokens seen", ylabel=objective.axis_title)
    axes.legend(loc="upper right")
    axes.grid(visible=True, which="both", alpha=0.3)
    return figure
