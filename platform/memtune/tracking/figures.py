"""A trial's curves as PNGs: perplexity or accuracy against tokens seen, or one against the other."""

from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from memtune.objective import Objective, better

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["learning_curve", "trade_off"]

HIGHEST = 1e12

Points = Sequence[tuple[int, float]]


def learning_curve(title: str, objective: Objective, train: Points, valid: Points) -> bytes:
    """A PNG of (tokens seen, figure) of the training and validation sets; a perplexity's axis is logarithmic.

    Points that no axis can show, of a trial that diverged, are left out: MLflow keeps infinity as 1.8e308.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for label, points, marker in (("training", train, "."), ("validation", valid, "o")):
        drawn = [(tokens, value) for tokens, value in points if tokens > 0 and 0 < value < HIGHEST]
        if drawn:
            draw = axes.semilogx if objective == "accuracy" else axes.loglog
            draw(*zip(*drawn, strict=True), marker=marker, label=label)
            axes.legend()
    axes.set(title=title, xlabel="tokens seen", ylabel=f"{objective} ({better(objective)} is better)")
    axes.grid(visible=True, which="both", alpha=0.3)
    return _written(figure)


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
