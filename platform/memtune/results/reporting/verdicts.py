"""The answer of a study: its best configuration, by how much, and whether the difference is real."""

from collections.abc import Iterator
from typing import Literal

from memtune.errors import CorpusError, StorageError
from memtune.number_format import format_count
from memtune.objective import Objective
from memtune.results.ranking.paired_tests import MIN_PAIRED_SEEDS, PairedTest, compare_items, compare_seeds
from memtune.results.ranking.selection import RankedConfiguration, RankedTrial, Ranking
from memtune.results.reporting.stored_costs import read_stored_costs
from memtune.storage.folder import Folder
from memtune.values import Value

__all__ = ["Verdict", "WinnerComparison", "judge_winner"]

DIGITS = 2
Certainty = Literal["significant", "not significant", "not tested"]


class WinnerComparison(Value):
    """The winner against another configuration."""

    name: str
    family: str
    role: Literal["runner-up", "best of its family"]
    figure: float
    margin: float
    """By how much the winner is better: per cent of perplexity, or points of accuracy."""
    by_seeds: PairedTest | None
    """None below three equal seeds."""
    by_items: PairedTest | None
    """None where the costs of the items of both were not stored when the study ended."""
    certainty: Certainty
    """By the test over seeds."""
    seeds: int
    """Equal seeds of both."""

    def describe_test(self, objective: Objective) -> str:
        """Whether the difference is real, in words."""
        if self.by_seeds:
            answer = "yes" if self.certainty == "significant" else "not shown"
            return f"{answer}: {self.by_seeds.describe(objective)}"
        text = f"not tested: {format_count(self.seeds, 'equal seed')} of {MIN_PAIRED_SEEDS} needed"
        if self.by_items:
            text += f"; of the two trained models: {self.by_items.describe(objective)}"
        return text


class Verdict(Value):
    """The answer to a study's question."""

    winner: str
    headline: str
    """The best configuration, by how much, and whether the difference is real, in one sentence."""
    is_settled: bool
    """Whether the winner is significantly better than the runner-up over seeds."""
    advice: str
    """What would settle an open question; empty where it is settled."""
    comparisons: tuple[WinnerComparison, ...]
    """The runner-up first, then the best configuration of each other family."""


def judge_winner(ranking: Ranking, objective: Objective, checkpoint_root: str) -> Verdict:
    """The verdict on a ranking within the limits of the study's rule."""
    comparisons = tuple(
        _compare(ranking.winner, other, role, objective, checkpoint_root)
        for role, other in _find_compared(ranking)
    )
    runner_up = comparisons[0] if comparisons and comparisons[0].role == "runner-up" else None
    is_settled = runner_up is not None and runner_up.certainty == "significant"
    return Verdict(
        winner=ranking.winner.title,
        headline=_write_headline(ranking, runner_up, objective),
        is_settled=is_settled,
        advice=_advise(ranking, runner_up),
        comparisons=comparisons,
    )


def _find_compared(
    ranking: Ranking,
) -> Iterator[tuple[Literal["runner-up", "best of its family"], RankedConfiguration]]:
    shown = {ranking.winner.best.family}
    if ranking.runner_up:
        shown.add(ranking.runner_up.best.family)
        yield "runner-up", ranking.runner_up
    for found in ranking.configurations:
        if found.best.family not in shown:
            shown.add(found.best.family)
            yield "best of its family", found


def _compare(
    winner: RankedConfiguration,
    other: RankedConfiguration,
    role: Literal["runner-up", "best of its family"],
    objective: Objective,
    checkpoint_root: str,
) -> WinnerComparison:
    by_seeds = compare_seeds(winner.cost_by_seed, other.cost_by_seed)
    certainty: Certainty = "not tested"
    if by_seeds:
        certainty = "significant" if by_seeds.is_significant else "not significant"
    return WinnerComparison(
        name=other.title,
        family=other.best.family,
        role=role,
        figure=objective.compute_figure(other.estimate.cost),
        margin=objective.compute_margin(winner.estimate.cost, other.estimate.cost),
        by_seeds=by_seeds,
        by_items=_compare_stored_items(winner.best, other.best, checkpoint_root),
        certainty=certainty,
        seeds=len(winner.cost_by_seed.keys() & other.cost_by_seed.keys()),
    )


def _compare_stored_items(first: RankedTrial, second: RankedTrial, checkpoint_root: str) -> PairedTest | None:
    """The bootstrap over the stored costs of both; None where one has none: no model is evaluated here."""
    try:
        root = Folder.open(checkpoint_root)
        own, other = (
            read_stored_costs(root / trial.identity, min(trial.curve.values())) for trial in (first, second)
        )
        return None if own is None or other is None else compare_items(own, other)
    except (StorageError, CorpusError):
        return None


def _write_headline(ranking: Ranking, runner_up: WinnerComparison | None, objective: Objective) -> str:
    winner = ranking.winner
    figure = objective.format_cost(winner.estimate.cost, DIGITS)
    text = f"{winner.title} is best with a validation {objective} of {figure}"
    if bounds := winner.estimate.compute_interval(objective):
        low, high = (objective.format_figure(bound, DIGITS) for bound in bounds)
        text += f" (95 % interval {low} to {high} over {winner.estimate.seeds} seeds)"
    if runner_up is None and ranking.fewer_seeds:
        return f"{text}; the other configurations of full length have fewer seeds, so none ranks with it."
    if runner_up is None:
        return f"{text}; no other configuration has full length, so nothing compares with it."
    return f"{text}, {_MARGIN[runner_up.certainty].format(margin=_describe_margin(runner_up, objective))}."


_MARGIN = {
    "significant": "{margin}, and the difference is significant",
    "not significant": "{margin}, but the difference is not significant: seeds alone can explain it",
    "not tested": "{margin}; too few seeds tell whether the difference is real",
}


def _describe_margin(comparison: WinnerComparison, objective: Objective) -> str:
    return f"{comparison.margin:.3g} {objective.margin_unit} better than {comparison.name}"


def _advise(ranking: Ranking, runner_up: WinnerComparison | None) -> str:
    lacks_seeds = ranking.fewer_seeds if runner_up is None else runner_up.certainty == "not tested"
    if lacks_seeds:
        return (
            f"To find out, add [repeats] with best = 2 and seeds = {MIN_PAIRED_SEEDS} or more to the study's "
            "file and run it with --resume."
        )
    if runner_up is None or runner_up.certainty == "significant":
        return ""
    seeds = 2 * ranking.winner.estimate.seeds
    return (
        f"To find out, raise seeds under [repeats] to {seeds} in the study's file and run it with --resume."
    )
