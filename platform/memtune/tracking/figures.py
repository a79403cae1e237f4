"""The learning curve of a trial as a PNG: perplexity or accuracy against tokens seen."""

from collections.abc import Sequence
from io import BytesIO

from memtune.objective import Objective, better

__all__ = ["learning_curve"]

HIGHEST = 1e12

Points = Sequence[tuple[int, float]]


def learning_curve(title: str, objective: Objective, train: Points, valid: Points) -> bytes:
    """A PNG of (tokens seen, figure) of the training and validation sets; a perplexity's axis is logarithmic.

    Points that no axis can show, of a trial that diverged, are left out: MLflow keeps infinity as 1.8e308.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
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
    FigureCanvasAgg(figure)
    written = BytesIO()
    figure.savefig(written, format="png")
    return written.getvalue()
