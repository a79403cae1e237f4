"""The answer of a study: its best configuration, by how much, and whether the difference is real."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Literal

import numpy as np
from pydantic import ValidationError

from memtune.errors import CorpusError, StorageError
from memtune.number_format import format_count
from memtune.objective import Objective
from memtune.results.ranking.paired_tests import (
    MIN_PAIRED_SEEDS,
    PairedTest,
    compare_configurations,
    compare_items,
    count_equal_seeds,
)
from memtune.results.ranking.selection import Configuration, Ranking
from memtune.results.study.study_trials import StudyTrial
from memtune.storage.folder import Folder
from memtune.tasks import ItemCosts
from memtune.values import Value

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
    """None below three equal seeds, and where both models count."""
    by_items: PairedTest | None
    """None where the costs of the items of both were not stored when the study ended."""
    certainty: Certainty
    """By the test over seeds; where both models count, by the test over items."""
    seeds: int
    """Equal seeds of both; a model that counts has those of the other."""
    counted: tuple[str, ...] = ()
    """Those of the two whose model counts: it has one result under every seed."""

    @property
    def are_both_counted(self) -> bool:
        """Whether no seed changes the difference."""
        return len(self.counted) == 2

    @property
    def deciding_test(self) -> PairedTest | None:
        """The test that says whether the difference is real; None where it could not be made."""
        return self.by_items if self.are_both_counted else self.by_seeds

    def describe_test(self, objective: Objective) -> str:
        """Whether the difference is real, in words."""
        if test := self.deciding_test:
            answer = "yes" if self.certainty == "significant" else "not shown"
            return f"{answer}: {test.describe(objective)}"
        if self.are_both_counted:
            return "not tested: the costs of the validation items are not stored"
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
    """Whether the winner is significantly better than the runner-up, by the test that decides."""
    advice: str
    """What would settle an open question; empty where it is settled."""
    comparisons: tuple[WinnerComparison, ...]
    """The runner-up first, then the best configuration of each other family."""


def judge_winner(ranking: Ranking[StudyTrial], objective: Objective, checkpoint_root: str) -> Verdict:
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
    ranking: Ranking[StudyTrial],
) -> Iterator[tuple[Literal["runner-up", "best of its family"], Configuration[StudyTrial]]]:
    shown = {ranking.winner.best.family}
    if ranking.runner_up:
        shown.add(ranking.runner_up.best.family)
        yield "runner-up", ranking.runner_up
    for found in ranking.configurations:
        if found.best.family not in shown:
            shown.add(found.best.family)
            yield "best of its family", found


def _compare(
    winner: Configuration[StudyTrial],
    other: Configuration[StudyTrial],
    role: Literal["runner-up", "best of its family"],
    objective: Objective,
    checkpoint_root: str,
) -> WinnerComparison:
    found = WinnerComparison(
        name=other.title,
        family=other.best.family,
        role=role,
        figure=objective.compute_figure(other.estimate.cost),
        margin=objective.compute_margin(winner.estimate.cost, other.estimate.cost),
        by_seeds=compare_configurations(winner, other),
        by_items=_compare_stored_items(winner.best, other.best, checkpoint_root),
        certainty="not tested",
        seeds=count_equal_seeds(winner, other),
        counted=tuple(compared.title for compared in (winner, other) if compared.best.is_counted),
    )
    if test := found.deciding_test:
        certainty: Certainty = "significant" if test.is_significant else "not significant"
        return found.model_copy(update={"certainty": certainty})
    return found


def _compare_stored_items(first: StudyTrial, second: StudyTrial, checkpoint_root: str) -> PairedTest | None:
    """The bootstrap over the stored costs of both; None where one has none: no model is evaluated here."""
    try:
        root = Folder.open(checkpoint_root)
        own, other = (
            read_stored_costs(root / trial.identity, min(trial.curve.values())) for trial in (first, second)
        )
        return None if own is None or other is None else compare_items(own, other)
    except (StorageError, CorpusError):
        return None


def _write_headline(
    ranking: Ranking[StudyTrial], runner_up: WinnerComparison | None, objective: Objective
) -> str:
    winner = ranking.winner
    figure = objective.format_cost(winner.estimate.cost, DIGITS)
    text = f"{winner.title} is best with a validation {objective} of {figure}"
    if bounds := winner.estimate.compute_interval(objective):
        low, high = (objective.format_figure(bound, DIGITS) for bound in bounds)
        text += f" (95 % interval {low} to {high} over {winner.estimate.seeds} seeds)"
    if runner_up is None and len(ranking.configurations) > 1:
        return f"{text}; the other configurations of full length have fewer seeds, so none ranks with it."
    if runner_up is None:
        return f"{text}; no other configuration has full length, so nothing compares with it."
    return f"{text}, {_describe_margin(runner_up, objective)}{_describe_certainty(runner_up)}."


def _describe_margin(comparison: WinnerComparison, objective: Objective) -> str:
    text = f"{comparison.margin:.3g} {objective.margin_unit} better than {comparison.name}"
    if comparison.are_both_counted and (test := comparison.by_items):
        text += f" ({test.describe_interval(objective)} over {test.pairs:,} {test.unit})"
    return text


_CERTAINTY = {
    "significant": ", and the difference is significant",
    "not significant": ", but the difference is not significant: seeds alone can explain it",
    "not tested": "; too few seeds tell whether the difference is real",
}
_CERTAINTY_OF_COUNTED = {
    "significant": ", and the difference is significant on such text; both learn by counting, so a seed "
    "changes nothing",
    "not significant": ", but the difference is not significant on such text; both learn by counting, so a "
    "seed changes nothing",
    "not tested": "; both learn by counting, so a seed changes nothing, and their validation items are not "
    "compared yet",
}


def _describe_certainty(comparison: WinnerComparison) -> str:
    wordings = _CERTAINTY_OF_COUNTED if comparison.are_both_counted else _CERTAINTY
    return wordings[comparison.certainty]


_ADVICE_FOR_COUNTED: dict[Certainty, str] = {
    "significant": "",
    "not significant": "To find out, compare them on more validation text.",
    "not tested": "To find out, run the study with --resume, which compares their validation items.",
}


def _advise(ranking: Ranking[StudyTrial], runner_up: WinnerComparison | None) -> str:
    if runner_up is not None and runner_up.are_both_counted:
        return _ADVICE_FOR_COUNTED[runner_up.certainty]
    advice = _advise_seeds(ranking, runner_up)
    if advice and runner_up is not None and runner_up.counted:
        advice += f" {runner_up.counted[0]} learns by counting: the seeds are those of the other."
    return advice


def _advise_seeds(ranking: Ranking[StudyTrial], runner_up: WinnerComparison | None) -> str:
    lacks_seeds = (
        len(ranking.configurations) > 1 if runner_up is None else runner_up.certainty == "not tested"
    )
    if lacks_seeds:
        return (
            f"To find out, add [repeats] with best = 2 and seeds = {MIN_PAIRED_SEEDS} or more to the study's "
            "file and run it with --resume."
        )
    if runner_up is None or runner_up.certainty == "significant":
        return ""
    return (
        f"To find out, raise seeds under [repeats] to {2 * runner_up.seeds} in the study's file and run it "
        "with --resume."
    )


ITEM_COSTS_FILE = "valid_costs.json"
"""In the folder of a trial."""


class _StoredCosts(Value):
    """The content of ITEM_COSTS_FILE."""

    unit: Literal["sentences", "questions", "examples"]
    trial_cost: float
    """The cost of the weights that the items were evaluated with."""
    costs: list[float]
    counts: list[int]


def read_stored_costs(folder: Folder, trial_cost: float) -> ItemCosts | None:
    """The stored costs of a trial with this cost; None where none are stored for these weights."""
    with suppress(ValidationError):
        stored = _StoredCosts.model_validate(folder.read_json(ITEM_COSTS_FILE))
        if stored.trial_cost == trial_cost:
            return ItemCosts(stored.unit, np.array(stored.costs), np.array(stored.counts))
    return None


def write_stored_costs(folder: Folder, trial_cost: float, costs: ItemCosts) -> None:
    """Store the costs of a trial's items."""
    content = _StoredCosts(
        unit=costs.unit,
        trial_cost=trial_cost,
        costs=costs.costs_I.tolist(),
        counts=costs.counts_I.tolist(),
    )
    folder.write_json(ITEM_COSTS_FILE, content.model_dump())
