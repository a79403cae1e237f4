"""A trial's curves as PNGs: perplexity or accuracy against tokens seen, or one against the other."""

from collections.abc import Sequence
from functools import cache
from io import BytesIO
from threading import Lock
from typing import TYPE_CHECKING

from memtune.objective import Objective, better_direction

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_accuracy_by_perplexity", "draw_learning_curve"]

MAX_PLOTTED_VALUE = 1e12
_DRAWING_LOCK = Lock()

Points = Sequence[tuple[int, float]]


def draw_learning_curve(title: str, objective: Objective, train: Points, valid: Points) -> bytes:
    """A PNG of (tokens seen, figure) of the training and validation sets; a perplexity's axis is logarithmic.

    Points that no axis can show are left out: MLflow stores the infinity of a diverged trial as 1.8e308.
    """
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
        if not any(drawn):  # a logarithmic axis has no bounds of its own
            axes.set(xlim=(1, 10), ylim=(1, 10))
        axes.set_title(title)
        return _render_png(figure)


@cache
def _prepare_figure(objective: Objective) -> "Figure":
    """The figure that all curves of an objective share: a new one takes three times as long."""
    # Imported here: matplotlib loads for a second, and only a drawn figure needs it.
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, LogFormatter, NullFormatter

    figure = Figure(figsize=(7, 4.5))
    figure.subplots_adjust(left=0.13, right=0.98, top=0.92, bottom=0.12)
    axes = figure.add_subplot()
    for label, marker in (("training", "."), ("validation", "o")):
        axes.plot((), (), marker=marker, label=label)
    axes.set(xscale="log", yscale="linear" if objective == "accuracy" else "log")
    # The default labels of a logarithmic axis are typeset formulas, which take half of the time.
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_minor_formatter(NullFormatter())
    if objective != "accuracy":
        axes.yaxis.set_major_formatter(LogFormatter())
        axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
    axes.set(xlabel="tokens seen", ylabel=f"{objective} ({better_direction(objective)} is better)")
    axes.legend(loc="upper right")
    axes.grid(visible=True, which="both", alpha=0.3)
    return figure


def draw_accuracy_by_perplexity(title: str, perplexities: Points, accuracies: Points) -> bytes:
    """A PNG of accuracy against perplexity, one point per report, joined in their order.

    Figure 2 of Mirowski and Vlachos (2015): a lower perplexity does not imply more right answers.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4.5), layout="constrained")
    axes = figure.add_subplot()
    accuracy = dict(accuracies)
    both = [(value, accuracy[tokens]) for tokens, value in perplexities if tokens in accuracy]
    drawn = [(perplexity, right) for perplexity, right in both if 0 < perplexity < MAX_PLOTTED_VALUE]
    if drawn:
        axes.plot(*zip(*drawn, strict=True), marker="o")
        axes.annotate("first", drawn[0])
        axes.annotate("last", drawn[-1])
    axes.set(title=title, xlabel="perplexity (lower is better)", ylabel="accuracy (higher is better)")
    axes.grid(visible=True, alpha=0.3)
    return _render_png(figure)


def _render_png(figure: "Figure") -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    written = BytesIO()
    figure.savefig(written, format="png")
    return written.getvalue()
