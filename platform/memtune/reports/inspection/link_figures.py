"""Figures of attention within a sentence: Cheng, Dong and Lapata (2016), figures 1, 4 and 5."""

from typing import TYPE_CHECKING

import numpy as np

from memtune.reports.inspection.figure_files import make_figure
from memtune.results.inspection.attention.attention_links import Link, SentenceLinks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_link_arcs", "draw_link_matrix"]

CHARACTER_INCHES = 0.095
MAX_WIDTH_INCHES = 16.0


def draw_link_arcs(sentence: SentenceLinks, title: str, min_weight: float = 0.2) -> "Figure":
    """The sentence once for each layer, with an arc from each word to the words it attends to.

    A thicker and darker arc is a larger weight; weights below `min_weight` are left out. A dashed arc leads
    to a later word, and a dot is the attention of a word to itself.
    """
    places = _place_words(sentence)
    width = min(MAX_WIDTH_INCHES, 1.0 + CHARACTER_INCHES * places[-1])
    figure = make_figure(width, 0.6 + 2.2 * sentence.layers)
    figure.suptitle(f"{title}; weights of {min_weight:g} and more", fontsize=9)
    panels = figure.subplots(sentence.layers, 1, squeeze=False)[:, 0]
    for layer, axes in enumerate(panels, start=1):
        _draw_arcs(axes, sentence, places, sentence.select(layer, min_weight))
        if sentence.layers > 1:
            axes.set_title(f"layer {layer}", fontsize=8, loc="left")
    return figure


def _place_words(sentence: SentenceLinks) -> list[float]:
    """The centre of each word on a line, in characters, and at last the length of the line."""
    centres, end = [], 0.0
    for word in sentence.words:
        size = len(word) + 2.0
        centres.append(end + size / 2)
        end += size
    return [*centres, end]


def _draw_arcs(axes: "Axes", sentence: SentenceLinks, places: list[float], links: list[Link]) -> None:
    # Imported here: matplotlib takes about 1 s, and tables do not need it.
    from matplotlib.patches import Arc

    *centres, end = places
    highest = 1.0
    for link in links:
        first, second = centres[link.attended], centres[link.word]
        colour = str(max(0.0, 0.6 - 0.6 * link.weight))
        if link.word == link.attended:
            axes.plot(first, 0.4, "o", color=colour, markersize=2 + 6 * link.weight, zorder=3)
            continue
        span = abs(second - first)
        axes.add_patch(
            Arc(
                ((first + second) / 2, 0.0),
                span,
                span,
                theta2=180,
                linewidth=0.6 + 3.4 * link.weight,
                color=colour,
                linestyle="--" if link.attended > link.word else "-",
            )
        )
        highest = max(highest, span / 2)
    for centre, word in zip(centres, sentence.words, strict=True):
        axes.text(centre, -0.06 * highest, word, ha="center", va="top", fontsize=9, family="monospace")
    axes.set(xlim=(0, end), ylim=(-0.22 * highest, 1.05 * highest))
    axes.set_axis_off()


def draw_link_matrix(sentence: SentenceLinks, title: str) -> "Figure":
    """A row for each word read and a column for each word attended to, darker for a larger weight."""
    words = len(sentence.words)
    side = max(2.2, 0.28 * words)
    figure = make_figure(2.4 + side * sentence.layers, 1.7 + side)
    figure.suptitle(title, fontsize=9)
    panels = figure.subplots(1, sentence.layers, squeeze=False)[0]
    darkest = max((link.weight for link in sentence.links), default=1.0)
    for layer, axes in enumerate(panels, start=1):
        weights = np.full((words, words), np.nan)
        for link in sentence.select(layer):
            weights[link.word, link.attended] = link.weight
        axes.patch.set(facecolor="white", hatch="//////", edgecolor="#d0d0d0", linewidth=0)
        image = axes.imshow(weights, cmap="Greys", vmin=0, vmax=darkest, interpolation="none")
        axes.set_xticks(range(words), sentence.words, rotation=90)
        axes.set_yticks(range(words), sentence.words if layer == 1 else [""] * words)
        axes.tick_params(labelsize=8)
        axes.set(xlabel="attended word", ylabel="word read" if layer == 1 else "")
        if sentence.layers > 1:
            axes.set_title(f"layer {layer}", fontsize=8)
    figure.colorbar(image, ax=panels, label="attention", pad=0.02, shrink=0.8)
    return figure
