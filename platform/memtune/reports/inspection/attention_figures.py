"""Figures of attention by position: Tran, Bisazza and Monz (2016), figures 3 to 5 and table 3."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from memtune.reports.inspection.figure_files import DARK, LIGHT, make_figure
from memtune.results.inspection.attention.attended_pairs import AttendedPairs
from memtune.results.inspection.attention.attention_examples import AttentionExample
from memtune.results.inspection.attention.attention_positions import AttentionPositions
from memtune.results.inspection.attention.attention_samples import AttentionSample

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_examples", "draw_pair_counts", "draw_positions", "draw_samples"]

MAX_DRAWN_POSITIONS = 30
POSITION_LABEL = "words before the predicted word"


def draw_positions(models: Sequence[AttentionPositions]) -> "Figure":
    """Mean attention by position, one panel for each model; the most recent word is on the right."""
    figure = make_figure(7, 0.6 + 2.1 * len(models))
    panels = figure.subplots(len(models), 1, squeeze=False)[:, 0]
    for axes, model in zip(panels, models, strict=True):
        positions = model.positions[-MAX_DRAWN_POSITIONS:]
        places = range(len(positions))
        axes.bar(places, [position.mean for position in positions], color=DARK)
        axes.set_title(f"{model.model}: {model.family}, {model.predictions:,} predictions", fontsize=9)
        axes.set(xlabel=POSITION_LABEL, ylabel="mean attention")
        axes.set_xticks(places, [str(position.distance) for position in positions])
        axes.tick_params(axis="x", labelsize=8 if len(positions) <= 20 else 6)
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, axis="y", alpha=0.3)
        axes.set_axisbelow(True)
    return figure


def draw_samples(samples: Sequence[AttentionSample], title: str) -> "Figure":
    """A column for each predicted word and a row for each position, the most recent at the bottom.

    A darker cell is a larger weight; a hatched cell has no word.
    """
    distances = sorted({word.distance for sample in samples for word in sample.attended}, reverse=True)
    distances = distances[-MAX_DRAWN_POSITIONS:]
    rows = {distance: row for row, distance in enumerate(distances)}
    weights = np.full((len(distances), len(samples)), np.nan)
    for column, sample in enumerate(samples):
        for word in sample.attended:
            if word.distance in rows:
                weights[rows[word.distance], column] = word.weight
    figure = make_figure(max(5.0, 1.8 + 0.13 * len(samples)), 1.8 + 0.16 * len(distances))
    axes = figure.add_subplot()
    _hatch_background(axes)
    image = axes.imshow(weights, cmap="Greys", vmin=0, vmax=1, aspect="auto", interpolation="none")
    axes.set_xticks(range(len(samples)), [_shorten(sample.predicted) for sample in samples], rotation=90)
    axes.set_yticks(range(len(distances)), [str(distance) for distance in distances])
    axes.tick_params(labelsize=6.5)
    axes.set(xlabel="predicted word", ylabel=POSITION_LABEL)
    figure.suptitle(f"{title}\n(hatched: no word)", fontsize=9)  # wider than the axes of a few words
    figure.colorbar(image, ax=axes, label="attention", pad=0.01)
    return figure


def _hatch_background(axes: "Axes") -> None:
    """Hatch everything that an image leaves open."""
    axes.patch.set(facecolor="white", hatch="//////", edgecolor="#b0b0b0", linewidth=0)


def _shorten(word: str, length: int = 14) -> str:
    return word if len(word) <= length else f"{word[: length - 1]}…"


def draw_examples(examples: Sequence[AttentionExample], title: str) -> "Figure":
    """A panel for each example: the weight of each word in memory, and the likeliest next words next to it.

    The most attended word has a dark bar; the correct next word has an arrow.
    """
    widest = max((len(example.attended) for example in examples), default=1)
    figure = make_figure(max(6.0, 3.4 + 0.42 * widest), 0.5 + 2.3 * max(1, len(examples)))
    figure.suptitle(title, fontsize=9)
    grid = figure.subplots(max(1, len(examples)), 2, squeeze=False, width_ratios=(0.42 * widest, 2.4))
    for (bars, words), example in zip(grid, examples, strict=False):
        places = range(len(example.attended))
        colours = [DARK if word == example.most_attended else LIGHT for word in example.attended]
        drawn = [word.weight for word in example.attended]
        bars.bar(places, drawn, color=colours, edgecolor=DARK, linewidth=0.6)
        labels = [_shorten(word.word) for word in example.attended]
        bars.set_xticks(places, labels, rotation=45, ha="right", rotation_mode="anchor", fontsize=8)
        bars.set(ylim=(0, 1), ylabel="attention")
        bars.set_title(
            f"sentence {example.sentence}: {example.most_attended.distance} words before "
            f'"{example.predicted.word}"',
            fontsize=8,
            loc="left",
        )
        _list_next_words(words, example)
    return figure


def _list_next_words(axes: "Axes", example: AttentionExample) -> None:
    axes.set_axis_off()
    axes.text(0, 0.95, "next word, log-probability", fontsize=8, style="italic", va="top")
    for row, word in enumerate(example.next_words):
        is_correct = word.word == example.predicted.word
        axes.text(
            0.08,
            0.78 - 0.16 * row,
            f"{'→ ' if is_correct else '   '}{_shorten(word.word)}  {word.log_probability:.2f}",
            fontsize=8,
            weight="bold" if is_correct else "normal",
            va="top",
        )


def draw_pair_counts(pairs: AttendedPairs) -> "Figure":
    """The mean training counts of the attended pairs by distance, and the number of pairs above each bar."""
    figure = make_figure(6.5, 3.4)
    axes = figure.add_subplot()
    places = np.arange(len(pairs.by_distance))
    near = [row.mean_training_count for row in pairs.by_distance]
    exact = [row.mean_training_count_at_distance for row in pairs.by_distance]
    drawn = axes.bar(
        places - 0.2, near, 0.4, color=LIGHT, edgecolor=DARK, label=f"within {pairs.window} words"
    )
    axes.bar(places + 0.2, exact, 0.4, color=DARK, edgecolor=DARK, label="at the same distance")
    axes.bar_label(drawn, [f"{row.pairs:,}" for row in pairs.by_distance], fontsize=7, padding=1)
    axes.set_xticks(places, [str(row.distance) for row in pairs.by_distance])
    axes.set(xlabel=POSITION_LABEL, ylabel="mean count in the training text")
    axes.set_title(
        f"{pairs.model}\npairs of most attended and predicted word; their number is above the bar", fontsize=9
    )
    axes.margins(y=0.12)
    axes.legend(fontsize=8)
    return figure
