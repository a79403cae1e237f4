"""Tables of inspected models for the terminal; each has the numbers of one figure."""

from collections.abc import Sequence

from rich.table import Table

from memtune.reports.text_console import make_table
from memtune.results.inspection.attention_weights import AttentionExample, AttentionPositions, AttentionSample
from memtune.results.inspection.parameter_curves import ParameterCurves, TrialReports
from memtune.results.inspection.stack_use import SentenceStackUse, StackStatistics
from memtune.results.inspection.word_pairs import AttendedPairs, AttentionLinks, DependencyAttention

MAX_POSITIONS = 30


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


def make_samples_table(samples: Sequence[AttentionSample], title: str) -> Table:
    """One row for each sampled word, with the word it attended to most."""
    table = make_table(title, ("sentence", "predicted", "most attended", ">words before", ">weight"))
    for sample in samples:
        most = max(sample.attended, key=lambda word: word.weight, default=None)
        cells = ("", "", "") if most is None else (most.word, str(most.distance), f"{most.weight:.3f}")
        table.add_row(str(sample.sentence), sample.predicted, *cells)
    return table


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


def make_links_table(found: AttentionLinks, min_weight: float) -> Table:
    """One row for each link with at least this weight."""
    columns = ("sentence", "layer", "word", "attended", ">words before it", ">weight")
    table = make_table(f"{found.model}: links of weight {min_weight:g} and more", columns)
    for sentence in found.sentences:
        for link in sentence.links:
            if link.weight >= min_weight:
                words = sentence.words[link.word], sentence.words[link.attended]
                numbers = str(link.word - link.attended), f"{link.weight:.3f}"
                table.add_row(str(sentence.number), str(link.layer), *words, *numbers)
    return table


def make_stack_actions_table(found: StackStatistics) -> Table:
    """One row for each action."""
    means = f"mean peak {found.mean_peak:.3f}, mean contribution {found.mean_contribution:.3f}"
    return make_table(
        f"{found.model}: {found.words:,} words, {means}",
        ("action", ">pops", ">words", ">mean probability"),
        (
            (action.action, str(action.pops), f"{action.words:,}", f"{action.mean_probability:.4f}")
            for action in found.actions
        ),
    )


def make_stack_steps_table(uses: Sequence[SentenceStackUse]) -> Table:
    """One row for each word read."""
    numbers = (">pops", ">probability", ">contribution", ">entropy of the next word")
    table = make_table("likeliest action at each word", ("sentence", "word", "action", *numbers))
    for use in uses:
        for step in use.steps:
            best = step.likeliest
            entropy = "" if step.entropy is None else f"{step.entropy:.2f}"
            cells = f"{best.probability:.3f}", f"{step.contribution:.3f}", entropy
            table.add_row(str(use.number), step.word, best.action, str(best.pops), *cells)
    return table


def make_parameter_table(found: ParameterCurves) -> Table:
    """One row for each trial."""
    numbers = (">seed", ">tokens", f">best {found.objective}", ">last training perplexity")
    table = make_table(found.question or found.study, (found.parameter, "trial", "state", *numbers))
    for trial in found.trials:
        last = trial.reports[-1].train_perplexity if trial.reports else None
        figures = ("" if figure is None else f"{figure:.4g}" for figure in (trial.best, last))
        texts = str(trial.value), str(trial.number), trial.state.label
        table.add_row(*texts, str(trial.seed), f"{trial.tokens:,}", *figures)
    return table


def make_accuracies_table(models: Sequence[TrialReports]) -> Table:
    """One row for each report."""
    table = make_table("reports", ("model", "family", ">tokens", ">perplexity", ">accuracy"))
    for model in models:
        for point in model.points:
            perplexity = "" if point.valid_perplexity is None else f"{point.valid_perplexity:.2f}"
            accuracy = "" if point.valid_accuracy is None else f"{point.valid_accuracy:.2%}"
            table.add_row(model.model, model.family, f"{point.tokens:,}", perplexity, accuracy)
    return table
