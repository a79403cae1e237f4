"""Figures as SVG, PNG or PDF files, and the colours that all figures share."""

import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from memtune.errors import ConfigurationError
from memtune.number_format import format_short_count
from memtune.storage.local_files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)

SUFFIXES = (".svg", ".png", ".pdf")
DARK, LIGHT = "#1f4e79", "#c9d8e8"
"""Two blues that differ in lightness, so that they differ in print and for every eye."""
LOG_SCALE = ", log scale"
"""What the title of a logarithmic axis ends with."""
TICKS_PER_DECADE = ((1.0,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), tuple(n / 2 for n in range(2, 20)))
MIN_TICKS, MAX_TICKS = 3, 7
STEPS, MAX_PARTS = (0.1, 0.2, 0.5, 1, 2, 5), 7
"""Of a linear axis: factors of a power of ten, and the parts into which they divide it at most."""
LEGEND_ROW_INCHES = 0.17
WIDE_LABEL = 36
"""Characters of a label from which on a legend has one column."""


def make_figure(width: float, height: float) -> "Figure":
    """An empty figure of a size in inches."""
    # Imported here: matplotlib takes about 1 s, and tables do not need it.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def choose_ticks(low: float, high: float) -> list[float]:
    """Round numbers on a logarithmic axis, few enough that their labels do not overlap."""
    found: list[float] = []
    for steps in TICKS_PER_DECADE:
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [step * 10.0**decade for decade in decades for step in steps]
        inside = [tick for tick in ticks if low <= tick <= high]
        if found and len(inside) > MAX_TICKS:
            return found
        found = inside[:: max(1, -(-len(inside) // MAX_TICKS))]
        if len(found) >= MIN_TICKS:
            return found
    return found


def divide(low: float, high: float) -> list[float]:
    """Three to six round numbers between two others."""
    decade = 10.0 ** math.floor(math.log10(high - low))
    step = next(step for factor in STEPS if (high - low) / (step := factor * decade) < MAX_PARTS)
    return [step * place for place in range(math.ceil(low / step), math.floor(high / step) + 1)]


def set_logarithmic(axes: "Axes", **titles: str) -> None:
    """Make the axes `x` and `y` that have a title logarithmic over what is drawn, with labelled ticks."""
    # Imported here: matplotlib takes about 1 s, and tables do not need it.
    from matplotlib.ticker import NullFormatter

    for name, title in titles.items():
        axes.set(**{f"{name}scale": "log", f"{name}label": f"{title}{LOG_SCALE}"})
        low, high = sorted({"x": axes.get_xlim, "y": axes.get_ylim}[name]())
        ticks = choose_ticks(low, high)
        if len(ticks) < MIN_TICKS:  # over a small ratio, equal distances are almost equal ratios
            ticks = divide(low, high)
        axis = {"x": axes.xaxis, "y": axes.yaxis}[name]
        labels = [format_short_count(tick) if tick >= 1e5 else f"{tick:,g}" for tick in ticks]
        if len({*labels}) < len(labels):  # three digits do not tell them apart
            labels = [f"{tick:,.10g}" for tick in ticks]
        axis.set_ticks(ticks, labels)
        axis.set_minor_formatter(NullFormatter())


def draw_legend(figure: "Figure", title: str | None = None) -> None:
    """A legend below the axes, where it hides no point; the figure grows by it, so that no title is cut."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    if handles:
        columns = 2 if max(map(len, labels)) < WIDE_LABEL else 1
        figure.set_figheight(figure.get_figheight() + LEGEND_ROW_INCHES * math.ceil(len(labels) / columns))
        figure.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=columns,
            title=title,
            fontsize=8,
            title_fontsize=8,
            handlelength=4,
        )


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure in the format of the suffix; the content depends on the figure alone.

    Raises ConfigurationError for another suffix and StorageError where the file cannot be written.
    """
    write_whole(path, render_figure(figure, check_suffix(path)))


def check_suffix(path: Path) -> str:
    """The suffix of a figure in small letters. Raises ConfigurationError where it names no format."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ConfigurationError(f'no figure format "{path.suffix}" ({path}); use {", ".join(SUFFIXES)}')
    return suffix


def render_figure(figure: "Figure", suffix: str) -> bytes:
    """A figure in the format of a suffix; the content depends on it and on the fonts of its characters."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": None}
    written = BytesIO()
    FigureCanvasAgg(figure)
    _add_fonts(figure)
    with mpl.rc_context({"svg.hashsalt": "memtune"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(written, format=suffix[1:], dpi=150, metadata=dates[suffix])
    return written.getvalue()


def _add_fonts(figure: "Figure") -> None:
    """Let the machine's fonts draw what matplotlib's own lacks, such as words of Chinese.

    One warning tells of characters that no font has, which are drawn as boxes.
    """
    from matplotlib.font_manager import get_font
    from matplotlib.text import Text

    texts = [text for text in figure.findobj(Text) if isinstance(text, Text)]
    lacking = {character for text in texts for character in text.get_text() if character.isprintable()}
    families = list[str]()
    for name, path in _iterate_fonts():
        if not lacking:
            break
        try:
            known = get_font(path).get_charmap().keys()
        except (OSError, RuntimeError):  # it was uninstalled since matplotlib listed it
            continue
        if any(ord(character) in known for character in lacking):
            lacking, families = {each for each in lacking if ord(each) not in known}, [*families, name]
    for text in texts if families not in ([], ["DejaVu Sans"]) else ():
        text.set_fontfamily([*text.get_fontfamily(), *families])
    if lacking:
        log.warning(
            "no font of this machine has %s, drawn as boxes; install one that has them (Noto Sans CJK)",
            ", ".join(f'"{character}"' for character in sorted(lacking)[:3]),
        )


def _iterate_fonts() -> Iterator[tuple[str, str]]:
    """The name and the file of each font, those installed since matplotlib listed them last."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    listed = {entry.fname: entry.name for entry in fontManager.ttflist}
    for path, name in sorted(listed.items(), key=lambda font: (font[1] != "DejaVu Sans", font[1], font[0])):
        if not name.startswith("Last Resort"):  # it has a box for every character
            yield name, path
    for path in sorted({*findSystemFonts()} - listed.keys()):
        with suppress(OSError, RuntimeError, NotImplementedError):  # matplotlib cannot draw it
            fontManager.addfont(path)
            yield fontManager.ttflist[-1].name, path
