"""Figures as SVG, PNG or PDF files, and the lines and markers that all figures share."""

from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memtune.errors import ConfigurationError, StorageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["DARK", "LIGHT", "iterate_line_styles", "new_figure", "save_figure"]

SUFFIXES = (".svg", ".png", ".pdf")
DARK, LIGHT = "#1f4e79", "#c9d8e8"
"""Two blues that differ in lightness, so that they differ in print and for every eye."""
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_LINES = ("-", "--", ":", "-.")
_COLOURS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7f7f7f")
"""Black and the colours of Okabe and Ito, which the colour-blind distinguish."""


def iterate_line_styles() -> "cycle[dict[str, Any]]":
    """Styles of lines: the first 32 differ in marker or line, without their colour."""
    return cycle(
        {
            "marker": _MARKERS[place % 8],
            "linestyle": _LINES[place // 8],
            "color": _COLOURS[(place + place // 8) % 8],
        }
        for place in range(32)
    )


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure of a size in inches."""
    # Imported here: matplotlib takes about 1 s, and tables do not need it.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure in the format of the suffix; the content depends on the figure alone.

    Raises ConfigurationError for another suffix and StorageError where the file cannot be written.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ConfigurationError(f'no figure format "{path.suffix}" ({path}); use {", ".join(SUFFIXES)}')
    dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": None}
    FigureCanvasAgg(figure)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with mpl.rc_context({"svg.hashsalt": "memtune"}):
            figure.savefig(path, dpi=150, metadata=dates[suffix])
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from None
