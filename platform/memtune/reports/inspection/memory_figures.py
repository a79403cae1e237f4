"""Figures of memories: attention of Tran, Bisazza and Monz (2016), and stacks of Yogatama et al. (2018).

Attention is that of figures 3 to 5 and of table 3, stacks are those of figures 3 to 5.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from memtune.reports.figure_files import DARK, LIGHT, make_figure
from memtune.results.inspection.attention_weights import AttentionExample, AttentionPositions, AttentionSample
from memtune.results.inspection.stack_use import SentenceStackUse, StackStatistics, StackStep
from memtune.results.inspection.word_pairs import AttendedPairs, DependencyAttention, Link, SentenceLinks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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


DARK_CELL = 0.55
"""Cells above this share of the darkest have white numbers."""


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
    axes.patch.set(facecolor="white", hatch="//////", edgecolor="#b0b0b0", linewidth=0)
    image = axes.imshow(weights, cmap="Greys", vmin=0, vmax=1, aspect="auto", interpolation="none")
    axes.set_xticks(range(len(samples)), [_shorten(sample.predicted) for sample in samples], rotation=90)
    axes.set_yticks(range(len(distances)), [str(distance) for distance in distances])
    axes.tick_params(labelsize=6.5)
    axes.set(xlabel="predicted word", ylabel=POSITION_LABEL)
    figure.suptitle(f"{title}\n(hatched: no word)", fontsize=9)  # wider than the axes of a few words
    figure.colorbar(image, ax=axes, label="attention", pad=0.01)
    return figure


def _shorten(word: str) -> str:
    return word if len(word) <= 14 else f"{word[:13]}…"


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


ENDS = (("then stay", LIGHT, False), ("then push", DARK, True))
"""Label and colour of an action without and with a push after its pops."""
COLUMNS = 7
LARGEST_DOT_POINTS = 13


def draw_stack_statistics(found: StackStatistics) -> "Figure":
    """Words by their most probable action, on a logarithmic axis, and a histogram of its probability."""
    figure = make_figure(9.5, 3.4)
    figure.suptitle(f"{found.model}: {found.words:,} words, mean peak {found.mean_peak:.2f}", fontsize=9)
    left, right = figure.subplots(1, 2)
    for place, (label, colour, is_push) in enumerate(ENDS):
        actions = [action for action in found.actions if action.is_push == is_push]
        drawn = left.bar(
            [action.pops + 0.4 * (place - 0.5) for action in actions],
            [action.words for action in actions],
            0.4,
            color=colour,
            edgecolor=DARK,
            label=label,
        )
        counts = [str(action.words) if action.words else "" for action in actions]
        left.bar_label(drawn, counts, fontsize=6, rotation=90, padding=2)
    left.set_yscale("symlog", linthresh=1)
    left.margins(y=0.25)
    left.set_xticks(sorted({action.pops for action in found.actions}))
    left.set(xlabel="number of pops", ylabel="words with this likeliest action")
    left.legend(fontsize=8)
    right.bar(
        [peak.low for peak in found.peaks],
        [peak.words for peak in found.peaks],
        [peak.high - peak.low for peak in found.peaks],
        align="edge",
        color=LIGHT,
        edgecolor=DARK,
    )
    right.set(xlabel="largest action probability", ylabel="words", xlim=(0, 1))
    return figure


def draw_sentence_stack(use: SentenceStackUse) -> "Figure":
    """A panel for each word read: the probability of each action, and a dot for the stack's contribution.

    The area of a dot is proportional to the norm of the stack's term in the prediction of the next word,
    which is written next to it; H is the entropy of that prediction in nats.
    """
    rows = -(-len(use.steps) // COLUMNS)
    columns = min(COLUMNS, len(use.steps))
    figure = make_figure(1.0 + 1.65 * columns, 0.9 + 1.75 * rows)
    figure.suptitle(
        f"{use.model}, sentence {use.number}\ndot: norm of the stack term; H: entropy of the next word",
        fontsize=9,
    )
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flatten()
    largest = max(step.contribution for step in use.steps) or 1.0
    for place, axes in enumerate(panels):
        if place < len(use.steps):
            _draw_step(axes, use.steps[place], largest)
        else:
            axes.set_axis_off()
        # Axes are shared, so matplotlib labels the last row only, which may be empty here.
        if place < len(use.steps) <= place + columns:
            axes.tick_params(labelbottom=True)
            axes.set_xlabel("pops", fontsize=8)
    for row in range(rows):
        panels[row * columns].set_ylabel("probability", fontsize=8)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    return figure


def _draw_step(axes: "Axes", step: StackStep, largest: float) -> None:
    for place, (label, colour, is_push) in enumerate(ENDS):
        actions = [action for action in step.actions if action.is_push == is_push]
        axes.bar(
            [action.pops + 0.4 * (place - 0.5) for action in actions],
            [action.probability for action in actions],
            0.4,
            color=colour,
            edgecolor=DARK,
            linewidth=0.6,
            label=label,
        )
    pops = sorted({action.pops for action in step.actions})
    size = LARGEST_DOT_POINTS * (step.contribution / largest) ** 0.5
    axes.plot(pops[0], 1.22, "o", color="#2e7d32", markersize=max(0.5, size), clip_on=False)
    entropy = "" if step.entropy is None else f"   H {step.entropy:.1f}"
    axes.annotate(
        f"{step.contribution:.2f}{entropy}",
        (pops[0], 1.22),
        (9, 0),
        textcoords="offset points",
        va="center",
        fontsize=7,
    )
    axes.set_title(step.word, fontsize=9)
    axes.set_ylim(0, 1.42)
    axes.set_yticks([0, 0.5, 1])
    axes.set_xticks(pops[:: max(1, len(pops) // 6)])
    axes.tick_params(labelsize=7)
