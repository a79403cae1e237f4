"""The best alternative of a study against each other one, and what each of them has had.

Welch's t-test takes the costs of trainings under equal seeds: it says whether two configurations differ. Over
items, the signs of the differences are drawn at random: it says whether two trained models differ on text of
this kind, keeps its level for any number of items, and knows nothing of other seeds.

A model that counts is a function of its text: it has one result under every seed, so the seeds of the other
configuration alone say how much a training varies. Two models that count differ by a fixed amount; a t-test
over their seeds would call any difference significant.

Effort: Dodge et al. (2019), "Show Your Work: Improved Reporting of Experimental Results", section 3.2: the
expected best of n of the configurations that were tried, here drawn without replacement.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from memtune.errors import CorpusError, StorageError
from memtune.number_format import format_count
from memtune.objective import Objective
from memtune.results.study.ranking import Configuration, Ranking, ShortTrial
from memtune.results.study.study_trials import StudyTrial
from memtune.seed_statistics import (
    CONFIDENCE_LEVEL,
    MIN_PAIRED_SEEDS,
    PairedTest,
    compare_pair,
    correct_for_choice,
    find_p,
)
from memtune.storage.folder import Folder
from memtune.tasks import ItemCosts
from memtune.values import Value

MIN_ITEMS = 6
"""The signs of five differences have 32 equally likely values, of which the two extreme ones are 6 %."""
DRAWS = 5000
CHUNK_DRAWS = 2**22
"""Signs drawn at once."""
Certainty = Literal["significant", "equal", "not significant", "not tested"]
Ranked = Configuration[StudyTrial]
_ANSWERS: dict[Certainty, str] = {
    "significant": "yes",
    "equal": "no, equal within the indifference",
    "not significant": "not shown",
    "not tested": "not tested",
}


class WinnerComparison(Value):
    """The best alternative against another one; of a single alternative, its two best configurations."""

    name: str
    alternative: str
    figure: float
    margin: float | None
    """By how much the winner is better: per cent of perplexity, or points of accuracy; None where the other
    one lacks seeds."""
    by_seeds: PairedTest | None
    """None below three equal seeds, and where both models count. Corrected for the choice of the best."""
    by_items: PairedTest | None
    """None where the costs of the items of both were not stored when the study ended, or are too few."""
    models: tuple[str, ...] = ()
    """The trained models that `by_items` compares: of each of the two the one under its best seed, with the
    number of seeds that it is the best of: the more there are, the better it is by luck."""
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
            text = f"{_ANSWERS[self.certainty]}: {test.describe(objective)}"
        elif self.are_both_counted:
            text = "not tested: the costs of the validation items are not stored, or too few"
        else:
            text = f"not tested: {format_count(self.seeds, 'equal seed')} of {MIN_PAIRED_SEEDS} needed"
        if self.by_items and not self.are_both_counted:
            models = " against ".join(self.models)
            text += f"; as trained models alone, {models}: {self.by_items.describe(objective)}"
        return text


def select_compared(ranking: Ranking[StudyTrial]) -> list[Ranked]:
    """The best configuration of each alternative; of a single alternative, its two best configurations."""
    bests = ranking.find_bests(lambda trial: trial.alternative)
    compared = [found for found in bests.values() if not isinstance(found, ShortTrial)]
    if len(bests) == 1:
        compared += ranking.ranked[1:2]
    return compared


def compare_all(
    compared: Sequence[Ranked], objective: Objective, checkpoint_root: str, equal: Sequence[str]
) -> tuple[WinnerComparison, ...]:
    """The first one with each other; the intervals hold for all pairs, for it was chosen by its costs."""
    winner, others = compared[0], compared[1:]
    results = {found.title: found.results for found in compared}
    tests = [
        compare_pair(results, winner.title, other.title, math.comb(len(compared), 2)) for other in others
    ]
    corrected = correct_for_choice(
        [find_p(test, winner.results, other.results) for test, other in zip(tests, others, strict=True)]
    )
    choice = f" and the choice of the best of {len(compared)}" if len(compared) > 2 else ""
    return tuple(
        _compare(
            winner,
            other,
            test and test.model_copy(update={"p": p, "correction": f"{test.correction}{choice}"}),
            objective,
            checkpoint_root,
            is_equal={winner.title, other.title} <= {*equal},
        )
        for other, test, p in zip(others, tests, corrected, strict=True)
    )


def _compare(
    winner: Ranked,
    other: Ranked,
    by_seeds: PairedTest | None,
    objective: Objective,
    checkpoint_root: str,
    *,
    is_equal: bool,
) -> WinnerComparison:
    margin = objective.compute_gain(winner.estimate.cost - other.estimate.cost)
    found = WinnerComparison(
        name=other.title,
        alternative=other.best.alternative,
        figure=objective.compute_figure(other.estimate.cost),
        margin=margin if other.place else None,
        by_seeds=by_seeds,
        by_items=_compare_stored_items(winner.best, other.best, checkpoint_root),
        models=tuple(_name_model(found) for found in (winner, other)),
        certainty="not tested",
        seeds=_count_equal_seeds(winner, other),
        counted=tuple(compared.title for compared in (winner, other) if compared.best.is_counted),
    )
    if (test := found.deciding_test) is None:
        return found
    uncertain = "equal" if is_equal else "not significant"
    return found.model_copy(update={"certainty": "significant" if test.is_significant else uncertain})


def _name_model(found: Ranked) -> str:
    """The trained model under the best seed, with the number of seeds where several were trained."""
    name, seeds = found.best.name, len(found.trials)
    return name if seeds == 1 or found.best.is_counted else f"{name} as the best of {seeds} seeds"


def _compare_stored_items(first: StudyTrial, second: StudyTrial, checkpoint_root: str) -> PairedTest | None:
    """The test over the stored costs of both; None where one has none: no model is evaluated here."""
    try:
        root = Folder.open(checkpoint_root)
        own, other = (
            ItemCosts.read(root / trial.identity, min(trial.curve.values())) for trial in (first, second)
        )
        return None if own is None or other is None else compare_items(own, other)
    except (StorageError, CorpusError):
        return None


def compare_items(first: ItemCosts, second: ItemCosts, draws: int = DRAWS) -> PairedTest | None:
    """The test of two models by their costs on the same items, the same for the same costs.

    Without a difference, each item's difference is as likely with the other sign. The interval is that of the
    wild bootstrap: the same signs on the deviations from the difference. None for fewer than MIN_ITEMS items.
    Raises CorpusError where the items differ.
    """
    if first.unit != second.unit or not np.array_equal(first.counts_I, second.counts_I):
        raise CorpusError(
            f"the models have costs of {len(first.counts_I):,} {first.unit} and {len(second.counts_I):,} "
            f"{second.unit}, which are not the same; evaluate both on one corpus under one protocol"
        )
    gaps_I, items, total = first.costs_I - second.costs_I, len(first.counts_I), int(first.counts_I.sum())
    if items < MIN_ITEMS:
        return None
    difference = float(gaps_I.sum() / total)
    deviations_I = (gaps_I - difference * first.counts_I) * math.sqrt(items / (items - 1))
    sums_R2 = _draw_signed_sums(np.stack([gaps_I, deviations_I], axis=1), draws)
    # The observed data count as one more draw, so that p is never 0; sums within rounding are equal.
    extreme = int((np.abs(sums_R2[:, 0]) >= abs(gaps_I.sum()) * (1 - 1e-9)).sum())
    half = float(np.quantile(np.abs(sums_R2[:, 1]), CONFIDENCE_LEVEL)) / total
    return PairedTest(
        method="sign test of differences",
        pairs=items,
        unit=first.unit,
        difference=difference,
        low=difference - half,
        high=difference + half,
        p=(extreme + 1) / (draws + 1),
    )


def _draw_signed_sums(values_I2: NDArray[np.float64], draws: int) -> NDArray[np.float64]:
    """The sums of both columns under random signs of the items, (R, 2)."""
    random, items = np.random.default_rng(0), len(values_I2)
    rows = max(1, CHUNK_DRAWS // items)
    return np.concatenate(
        [
            (2.0 * random.integers(0, 2, (min(rows, draws - start), items), dtype=np.int8) - 1.0) @ values_I2
            for start in range(0, draws, rows)
        ]
    )


def _count_equal_seeds(first: Ranked, second: Ranked) -> int:
    """The seeds that both have; a model that counts has those of the other."""
    own, other = first.cost_by_seed.keys(), second.cost_by_seed.keys()
    if first.best.is_counted:
        return len(own | other if second.best.is_counted else other)
    return len(own if second.best.is_counted else own & other)


class AlternativeEffort(Value):
    """The trials and repeats of one alternative."""

    name: str
    configurations: int
    """Different ones that the search started."""
    tokens: int
    """Of all its trainings in the study, repeats included."""
    cpu_hours: float
    gpu_hours: float
    best_of: tuple[float, ...]
    """The expected best figure of 1, 2, ... of those that have a validation, each by its lowest one."""


def measure_efforts(trials: Sequence[StudyTrial], objective: Objective) -> tuple[AlternativeEffort, ...]:
    """A row for each alternative, in the order of their first trials."""
    efforts = []
    for name in dict.fromkeys(trial.alternative for trial in trials):
        own = [trial for trial in trials if trial.alternative == name]
        searched = {trial.configuration: trial.cost for trial in own if not trial.is_repeat}
        costs = [cost for cost in searched.values() if cost is not None]
        effort = AlternativeEffort(
            name=name,
            configurations=len(searched),
            tokens=sum(trial.usage.tokens for trial in own),
            cpu_hours=sum(trial.cpu_hours for trial in own),
            gpu_hours=sum(trial.gpu_hours for trial in own),
            best_of=tuple(objective.compute_figure(cost) for cost in expect_best(costs)),
        )
        efforts.append(effort)
    return tuple(efforts)


def expect_best(costs: Sequence[float]) -> list[float]:
    """The expected lowest of 1, 2, ... of these costs, drawn without replacement.

    >>> expect_best([3.0, 1.0])
    [2.0, 1.0]
    """
    ordered, total = np.sort(np.asarray(costs, dtype=np.float64)), len(costs)
    after = total - np.arange(1.0, total)  # the costs after each place but the last

    def expect(drawn: int) -> float:
        # The probability that the cost at a place is the lowest of those drawn is drawn / total at the first
        # place, and (after - drawn + 1) / after of the place before at each further one. Both are in floats:
        # binomials of a long study are too large.
        ratios = np.maximum(after - drawn + 1, 0.0) / after
        return float(ordered @ np.cumprod(np.concatenate(([drawn / total], ratios))))

    return [expect(drawn) for drawn in range(1, total + 1)]
