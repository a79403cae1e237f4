"""Tables and figures of attention: over positions, words, pairs of words and paths between them.

Tran, Bisazza and Monz (2016), figures 3 to 6 and table 3; Cheng, Dong and Lapata (2016), figures 1, 4 and 5.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from memtune.reports.figure_files import DARK, LIGHT, make_figure
from memtune.reports.text_console import make_table
from memtune.results.inspection.attention_weights import AttentionExample, AttentionPositions, AttentionSample
from memtune.results.inspection.word_pairs import (
    AttendedPairs,
    DependencyAttention,
    Link,
    SentenceLinks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_POSITIONS = 30
POSITION_LABEL = "words before the predicted word"
CHARACTER_INCHES = 0.095
MAX_WIDTH_INCHES = 16.0
DARK_CELL = 0.55
"""Cells above this share of the darkest have white numbers."""


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
        title = f"{model.model}: {model.family}, layer {model.layer}, {model.predictions:,} predictions"
        axes.set_title(title, fontsize=9)
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
    axes.text(0, 0.95, "next word, log-probability in nats", fontsize=8, style="italic", va="top")
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


def make_links_table(sentence: SentenceLinks, min_weight: float) -> Table:
    """One row for each link with at least this weight."""
    columns = ("layer", "word", "attended", ">words before it", ">weight")
    title = f"{sentence.model}: links of weight {min_weight:g} and more in sentence {sentence.number}"
    table = make_table(title, columns)
    for link in sentence.links:
        if link.weight >= min_weight:
            words = sentence.words[link.word], sentence.words[link.attended]
            table.add_row(str(link.layer), *words, str(link.word - link.attended), f"{link.weight:.3f}")
    return table


def _name_sentence(sentence: SentenceLinks) -> str:
    return f"{sentence.model}: {sentence.family}, sentence {sentence.number}"


def draw_link_arcs(sentence: SentenceLinks, min_weight: float = 0.2) -> "Figure":
    """The sentence once for each layer, with an arc from each word to the words it attends to.

    A thicker and darker arc is a larger weight; weights below `min_weight` are left out. A dashed arc leads
    to a later word, and a dot is the attention of a word to itself.
    """
    # On a line of characters: the centre of each word, and at last the end of the line.
    sizes = [len(word) + 2.0 for word in sentence.words]
    places = [*(end - size / 2 for end, size in zip(accumulate(sizes), sizes, strict=True)), sum(sizes)]
    width = min(MAX_WIDTH_INCHES, 1.0 + CHARACTER_INCHES * places[-1])
    figure = make_figure(width, 0.6 + 2.2 * sentence.layers)
    title = _name_sentence(sentence)
    figure.suptitle(f"{title}; weights of {min_weight:g} and more, larger ones thicker", fontsize=9)
    panels = figure.subplots(sentence.layers, 1, squeeze=False)[:, 0]
    for layer, axes in enumerate(panels, start=1):
        _draw_arcs(axes, sentence, places, sentence.select(layer, min_weight))
        if sentence.layers > 1:
            axes.set_title(f"layer {layer}", fontsize=8, loc="left")
    return figure


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


def draw_link_matrix(sentence: SentenceLinks) -> "Figure":
    """A row for each word read and a column for each word attended to, darker for a larger weight."""
    words = len(sentence.words)
    side = max(2.2, 0.28 * words)
    figure = make_figure(2.4 + side * sentence.layers, 1.7 + side)
    figure.suptitle(_name_sentence(sentence), fontsize=9)
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


def make_dependencies_table(found: DependencyAttention, rows: int) -> Table:
    """One row for each path, one column for each bin of distance."""
    bins = (
        f">{bin.first}" if bin.first == bin.last else f">{bin.first}-{bin.last}"
        for bin in found.everything.by_distance
    )
    table = make_table(
        f"{found.model}: mean attention by path from the attended word and words before the predicted one",
        ("path", ">pairs", ">mean", *bins),
    )
    for path in (found.everything, *found.paths[:rows]):
        means = ("" if bin.mean is None else f"{bin.mean:.3f}" for bin in path.by_distance)
        table.add_row(path.path, f"{path.pairs:,}", f"{path.mean:.3f}", *means)
    return table


def draw_dependencies(found: DependencyAttention, rows: int = 10) -> "Figure":
    """A row for each path and one for all pairs, a column for each bin of distance; near words on the right.

    Every cell has its mean weight; a hatched cell has no pair in the text.
    """
    drawn = [found.everything, *found.paths[:rows]]
    bins = tuple(reversed(found.everything.by_distance))
    means = np.array(
        [[np.nan if bin.mean is None else bin.mean for bin in reversed(path.by_distance)] for path in drawn]
    )
    widest = max(len(path.path) for path in drawn)
    figure = make_figure(2.6 + 0.07 * widest + 0.62 * len(bins), 1.6 + 0.34 * len(drawn))
    axes = figure.add_subplot()
    axes.patch.set(facecolor="white", hatch="//////", edgecolor="#b0b0b0", linewidth=0)
    image = axes.imshow(means, cmap="Greys", vmin=0, aspect="auto", interpolation="none")
    darkest = float(np.nanmax(means)) if np.isfinite(means).any() else 1.0
    for (row, column), mean in np.ndenumerate(means):
        if np.isfinite(mean):
            colour = "white" if mean > DARK_CELL * darkest else "black"
            axes.text(column, row, f"{mean:.2f}", ha="center", va="center", fontsize=7, color=colour)
    labels = [str(bin.first) if bin.first == bin.last else f"{bin.first} to {bin.last}" for bin in bins]
    axes.set_xticks(range(len(bins)), labels)
    axes.set_yticks(range(len(drawn)), [f"{path.path}  ({path.pairs:,})" for path in drawn])
    axes.axhline(0.5, color="black", linewidth=1)
    axes.tick_params(labelsize=8)
    axes.set(xlabel="words before the predicted word", ylabel="path from the attended word (pairs)")
    axes.set_title(f"{found.model}: mean attention, {found.sentences:,} sentences", fontsize=9)
    figure.colorbar(image, ax=axes, label="mean attention", pad=0.02)
    return figure


def make_pair_tables(found: AttendedPairs, rows: int) -> list[Table]:
    """One row for each distance, and the pairs that are most frequent in the training text."""
    counts = (f">count within {found.window} words", ">count at this distance")
    by_distance = make_table(
        f"{found.model}: pairs of most attended and predicted word, and their mean training count",
        (">words before", ">pairs", ">predictions", *counts),
    )
    for row in found.by_distance:
        means = f"{row.mean_training_count:,.1f}", f"{row.mean_training_count_at_distance:,.1f}"
        by_distance.add_row(str(row.distance), f"{row.pairs:,}", f"{row.predictions:,}", *means)
    columns = ("attended", "predicted", ">words before", ">predictions", *counts)
    frequent = make_table("the most frequent of these pairs", columns)
    for pair in found.pairs[:rows]:
        numbers = pair.distance, pair.predictions, pair.training_count, pair.training_count_at_distance
        frequent.add_row(pair.attended, pair.predicted, *(f"{number:,}" for number in numbers))
    return [by_distance, frequent]


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
