"""A trial's curves as PNGs: perplexity or accuracy against tokens seen, or one against the other."""

from collections.abc import Sequence
from functools import cache
from io import BytesIO
from threading import Lock
from typing import TYPE_CHECKING

from memtune.objective import Objective, better

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["learning_curve", "trade_off"]

HIGHEST = 1e12
_DRAWING = Lock()

Points = Sequence[tuple[int, float]]


def learning_curve(title: str, objective: Objective, train: Points, valid: Points) -> bytes:
    """A PNG of (tokens seen, figure) of the training and validation sets; a perplexity's axis is logarithmic.

    Points that no axis can show, of a trial that diverged, are left out: MLflow keeps infinity as 1.8e308.
    """
    drawn = [
        [(tokens, value) for tokens, value in points if tokens > 0 and 0 < value < HIGHEST]
        for points in (train, valid)
    ]
    with _DRAWING:
        figure = _page(objective)
        (axes,) = figure.axes
        for line, points in zip(axes.lines, drawn, strict=True):
            line.set_data(*(zip(*points, strict=True) if points else ((), ())))
        axes.relim()
        axes.autoscale_view()
        if not any(drawn):  # a logarithmic axis has no bounds of its own
            axes.set(xlim=(1, 10), ylim=(1, 10))
        axes.set_title(title)
        return _written(figure)


@cache
def _page(objective: Objective) -> "Figure":
    """What all curves are drawn on, one after the other: a new page takes three times as long."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5))
    figure.subplots_adjust(left=0.13, right=0.98, top=0.92, bottom=0.12)
    axes = figure.add_subplot()
    for label, marker in (("training", "."), ("validation", "o")):
        axes.plot((), (), marker=marker, label=label)
    axes.set(xscale="log", yscale="linear" if objective == "accuracy" else "log")
    axes.set(xlabel="tokens seen", ylabel=f"{objective} ({better(objective)} is better)")
    axes.legend(loc="upper right")
    axes.grid(visible=True, which="both", alpha=0.3)
    return figure


def trade_off(title: str, perplexities: Points, accuracies: Points) -> bytes:
    """A PNG of accuracy against perplexity, a point a report, in their order.

    It is figure 2 of Mirowski and Vlachos (2015): a lower perplexity is no promise of more right answers.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4.5), layout="constrained")
    axes = figure.add_subplot()
    accuracy = dict(accuracies)
    both = [(value, accuracy[tokens]) for tokens, value in perplexities if tokens in accuracy]
    drawn = [(perplexity, right) for perplexity, right in both if 0 < perplexity < HIGHEST]
    if drawn:
        axes.plot(*zip(*drawn, strict=True), marker="o")
        axes.annotate("first", drawn[0])
        axes.annotate("last", drawn[-1])
    axes.set(title=title, xlabel="perplexity (lower is better)", ylabel="accuracy (higher is better)")
    axes.grid(visible=True, alpha=0.3)
    return _written(figure)


def _written(figure: "Figure") -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    written = BytesIO()
    figure.savefig(written, format="png")
    return written.getvalue()
