"""Tables of inspected models for the terminal; each has the numbers of one figure."""

from collections.abc import Iterable, Sequence

from rich.table import Table

from memtune.results.inspection.attention_weights import AttentionExample, AttentionPositions, AttentionSample
from memtune.results.inspection.parameter_curves import ParameterCurves, TrialReports
from memtune.results.inspection.shared_mistakes import SharedMistakes
from memtune.results.inspection.stack_use import SentenceStackUse, StackStatistics
from memtune.results.inspection.word_pairs import AttendedPairs, AttentionLinks, DependencyAttention

MAX_POSITIONS = 30


def make_positions_table(models: Sequence[AttentionPositions]) -> Table:
    """One row for each model and position, the most recent word last; no more than the nearest 30."""
    table = _make_table(
        "mean attention by position", ("model", "family"), ("words before", "mean", "share", "n")
    )
    for model in models:
        for position in model.positions[-MAX_POSITIONS:]:
            numbers = f"{position.mean:.4f}", f"{position.share:.4f}", f"{position.predictions:,}"
            table.add_row(model.model, model.family, str(position.distance), *numbers)
        table.add_row(model.model, model.family, "no word", "", f"{model.share_without_word:.4f}", "")
    return table


def make_samples_table(samples: Sequence[AttentionSample], title: str) -> Table:
    """One row for each sampled word, with the word it attended to most."""
    table = _make_table(title, ("sentence", "predicted", "most attended"), ("words before", "weight"))
    for sample in samples:
        most = max(sample.attended, key=lambda word: word.weight, default=None)
        cells = ("", "", "") if most is None else (most.word, str(most.distance), f"{most.weight:.3f}")
        table.add_row(str(sample.sentence), sample.predicted, *cells)
    return table


def make_examples_table(examples: Sequence[AttentionExample], title: str) -> Table:
    """One row for each example, with the likeliest next words and their log-probabilities.

    The words are quoted, because a comma may be one of them.
    """
    table = _make_table(
        title,
        ("sentence", "attended", "predicted", "likeliest next words with log-probabilities in nats"),
        ("words before", "weight", "rank"),
    )
    for example in examples:
        words = ", ".join(f'"{word.word}" {word.log_probability:.2f}' for word in example.next_words)
        most = example.most_attended
        numbers = str(most.distance), f"{most.weight:.3f}", str(example.rank)
        table.add_row(str(example.sentence), most.word, example.predicted.word, words, *numbers)
    return table


def make_distances_table(pairs: AttendedPairs) -> Table:
    """One row for each distance."""
    table = _make_table(
        f"{pairs.model}: pairs of most attended and predicted word, and their mean training count",
        (),
        (
            "words before",
            "pairs",
            "predictions",
            f"count within {pairs.window} words",
            "count at this distance",
        ),
    )
    for row in pairs.by_distance:
        means = f"{row.mean_training_count:,.1f}", f"{row.mean_training_count_at_distance:,.1f}"
        table.add_row(str(row.distance), f"{row.pairs:,}", f"{row.predictions:,}", *means)
    return table


def make_pairs_table(pairs: AttendedPairs, rows: int) -> Table:
    """The pairs that are most frequent in the training text."""
    table = _make_table(
        "the most frequent of these pairs",
        ("attended", "predicted"),
        ("words before", "predictions", f"count within {pairs.window} words", "count at this distance"),
    )
    for pair in pairs.pairs[:rows]:
        counts = pair.distance, pair.predictions, pair.training_count, pair.training_count_at_distance
        table.add_row(pair.attended, pair.predicted, *(f"{count:,}" for count in counts))
    return table


def make_dependencies_table(found: DependencyAttention, rows: int) -> Table:
    """One row for each path, one column for each bin of distance."""
    bins = [
        str(bin.first) if bin.first == bin.last else f"{bin.first}-{bin.last}"
        for bin in found.everything.by_distance
    ]
    table = _make_table(
        f"{found.model}: mean attention by path from the attended word and words before the predicted one",
        ("path",),
        ("pairs", "mean", *bins),
    )
    for path in (found.everything, *found.paths[:rows]):
        means = ("" if bin.mean is None else f"{bin.mean:.3f}" for bin in path.by_distance)
        table.add_row(path.path, f"{path.pairs:,}", f"{path.mean:.3f}", *means)
    return table


def make_links_table(found: AttentionLinks, min_weight: float) -> Table:
    """One row for each link with at least this weight."""
    table = _make_table(
        f"{found.model}: links of weight {min_weight:g} and more",
        ("sentence", "layer", "word", "attended"),
        ("words before it", "weight"),
    )
    for sentence in found.sentences:
        for link in sentence.links:
            if link.weight >= min_weight:
                words = sentence.words[link.word], sentence.words[link.attended]
                numbers = str(link.word - link.attended), f"{link.weight:.3f}"
                table.add_row(str(sentence.number), str(link.layer), *words, *numbers)
    return table


def make_stack_actions_table(found: StackStatistics) -> Table:
    """One row for each action."""
    table = _make_table(
        f"{found.model}: {found.words:,} words, mean peak {found.mean_peak:.3f}, mean contribution "
        f"{found.mean_contribution:.3f}",
        ("action",),
        ("pops", "words", "mean probability"),
    )
    for action in found.actions:
        table.add_row(action.action, str(action.pops), f"{action.words:,}", f"{action.mean_probability:.4f}")
    return table


def make_stack_steps_table(uses: Sequence[SentenceStackUse]) -> Table:
    """One row for each word read."""
    table = _make_table(
        "likeliest action at each word",
        ("sentence", "word", "action"),
        ("pops", "probability", "contribution", "entropy of the next word"),
    )
    for use in uses:
        for step in use.steps:
            likeliest = step.likeliest
            entropy = "" if step.entropy is None else f"{step.entropy:.2f}"
            numbers = f"{likeliest.probability:.3f}", f"{step.contribution:.3f}", entropy
            table.add_row(str(use.number), step.word, likeliest.action, str(likeliest.pops), *numbers)
    return table


def make_mistakes_table(found: SharedMistakes) -> Table:
    """One row for each set of models that make the same mistakes, then the total of each model."""
    title = f"mistakes on {found.questions:,} questions, by the models that make them and no others"
    table = _make_table(title, ("models",), ("mistakes",))
    for region in found.regions:
        table.add_row(" and ".join(region.models), _format_mistakes(region.mistakes))
    table.add_section()
    for model in found.models:
        table.add_row(f"all of {model.name}", _format_mistakes(model.mistakes))
    return table


def make_mcnemar_table(found: SharedMistakes) -> Table:
    """One row for each pair of models."""
    table = _make_table(
        "McNemar's exact test, corrected for all pairs (Holm)",
        ("first", "second"),
        ("only first correct", "only second correct", "ties", "p"),
    )
    for test in found.tests:
        p = "< 0.001" if test.p < 0.001 else f"{test.p:.3f}"
        counts = f"{test.first_only:,}", f"{test.second_only:,}", f"{test.ties:,}"
        table.add_row(test.first, test.second, *counts, p)
    return table


def make_parameter_table(found: ParameterCurves) -> Table:
    """One row for each trial."""
    table = _make_table(
        found.question or found.study,
        (found.parameter, "trial", "state"),
        ("seed", "tokens", f"best {found.objective}", "last training perplexity"),
    )
    for trial in found.trials:
        last = trial.reports[-1].train_perplexity if trial.reports else None
        numbers = (
            str(trial.seed),
            f"{trial.tokens:,}",
            "" if trial.best is None else f"{trial.best:.4g}",
            "" if last is None else f"{last:.4g}",
        )
        table.add_row(str(trial.value), str(trial.number), trial.state.label, *numbers)
    return table


def make_accuracies_table(models: Sequence[TrialReports]) -> Table:
    """One row for each report."""
    table = _make_table("reports", ("model", "family"), ("tokens", "perplexity", "accuracy"))
    for model in models:
        for point in model.points:
            perplexity = "" if point.valid_perplexity is None else f"{point.valid_perplexity:.2f}"
            accuracy = "" if point.valid_accuracy is None else f"{point.valid_accuracy:.2%}"
            table.add_row(model.model, model.family, f"{point.tokens:,}", perplexity, accuracy)
    return table


def _make_table(title: str, texts: Iterable[str], numbers: Iterable[str]) -> Table:
    """A table with columns of texts and then of numbers."""
    table = Table(title=title, title_justify="left")
    for name in texts:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def _format_mistakes(count: float) -> str:
    """Ties make fractions, which have one decimal place."""
    return f"{count:,.1f}".removesuffix(".0")
