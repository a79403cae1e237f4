"""Tables and figures of attention over words: Tran, Bisazza and Monz (2016), figure 3 and table 3."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from memtune.reports.figure_files import DARK, LIGHT, make_figure
from memtune.reports.text_console import make_table
from memtune.results.inspection.attention_weights import AttentionExample, AttentionPositions, AttentionSample

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_POSITIONS = 30
POSITION_LABEL = "words before the predicted word"


def make_positions_table(models: Sequence[AttentionPositions]) -> Table:
    """One row for each model and position, the most recent word last; no more than the nearest 30."""
    columns = ("model", "family", ">words before", ">mean", ">share", ">n")
    table = make_table("mean attention by position", columns)
    for model in models:
        for position in model.positions[-MAX_POSITIONS:]:
            numbers = f"{position.mean:.4f}", f"{position.share:.4f}", f"{position.predictions:,}"
            table.add_row(model.model, model.family, str(position.distance), *numbers)
        table.add_row(model.model, model.family, "no word", "", f"{model.share_without_word:.4f}", "")
    return table


def draw_positions(models: Sequence[AttentionPositions]) -> "Figure":
    """Mean attention by position, one panel for each model; the most recent word is on the right."""
    figure = make_figure(7, 0.6 + 2.1 * len(models))
    panels = figure.subplots(len(models), 1, squeeze=False)[:, 0]
    for axes, model in zip(panels, models, strict=True):
        positions = model.positions[-MAX_POSITIONS:]
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


def make_samples_table(samples: Sequence[AttentionSample], title: str) -> Table:
    """One row for each sampled word, with the word it attended to most."""
    table = make_table(title, ("sentence", "predicted", "most attended", ">words before", ">weight"))
    for sample in samples:
        most = max(sample.attended, key=lambda word: word.weight, default=None)
        cells = ("", "", "") if most is None else (most.word, str(most.distance), f"{most.weight:.3f}")
        table.add_row(str(sample.sentence), sample.predicted, *cells)
    return table


def draw_samples(samples: Sequence[AttentionSample], title: str) -> "Figure":
    """A column for each predicted word and a row for each position, the most recent at the bottom.

    A darker cell is a larger weight; a hatched cell has no word.
    """
    distances = sorted({word.distance for sample in samples for word in sample.attended}, reverse=True)
    distances = distances[-MAX_POSITIONS:]
    rows = {distance: row for row, distance in enumerate(distances)}
    weights = np.full((len(distances), len(samples)), np.nan)
    for column, sample in enumerate(samples):
        for word in sample.attended:
            if word.distance in rows:
                weights[rows[word.distance], column] = word.weight
    figure = make_figure(max(5.0, 1.8 + 0.13 * len(samples)), 1.8 + 0.16 * len(distances))
    axes = figure.add_subplot()
    axes.patch.set(facecolor="white", hatch="//////", edgecolor="#b0b0b0", linewidth=0)
    image = axes.imshow(weights, cmap="Greys", vmin=0, vmax=1, aspect="auto", interpolation="none")
    axes.set_xticks(range(len(samples)), [_shorten(sample.predicted) for sample in samples], rotation=90)
    axes.set_yticks(range(len(distances)), [str(distance) for distance in distances])
    axes.tick_params(labelsize=6.5)
    axes.set(xlabel="predicted word", ylabel=POSITION_LABEL)
    figure.suptitle(f"{title}\n(hatched: no word)", fontsize=9)  # wider than the axes of a few words
    figure.colorbar(image, ax=axes, label="attention", pad=0.01)
    return figure


def make_examples_table(examples: Sequence[AttentionExample], title: str) -> Table:
    """One row for each example, with the likeliest next words and their log-probabilities.

    The words are quoted, because a comma may be one of them.
    """
    texts = ("sentence", "attended", "predicted", "likeliest next words with log-probabilities in nats")
    table = make_table(title, (*texts, ">words before", ">weight", ">rank"))
    for example in examples:
        words = ", ".join(f'"{word.word}" {word.log_probability:.2f}' for word in example.next_words)
        most = example.most_attended
        numbers = str(most.distance), f"{most.weight:.3f}", str(example.rank)
        table.add_row(str(example.sentence), most.word, example.predicted.word, words, *numbers)
    return table


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


def _shorten(word: str) -> str:
    return word if len(word) <= 14 else f"{word[:13]}…"
