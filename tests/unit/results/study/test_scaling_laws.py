"""Fits of loss against size and data, on curves of a known law."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from memtune.errors import StudyError
from memtune.results.study.scaling_laws import compare_scaling
from memtune.results.study.study_trials import StudyTrial
from memtune.training import TrialSizes
from tests.unit.results.made_trials import make_study_trial

SIZES = (100_000, 200_000, 500_000, 1_200_000, 3_000_000)
LENGTHS = tuple(range(1_000_000, 8_000_001, 1_000_000))
MULTIPLY_ADDS_PER_PARAMETER = 2


@dataclass(frozen=True)
class Law:
    """L = E + A N^-a + B D^-b."""

    irreducible: float
    size_coefficient: float
    size_exponent: float
    data_coefficient: float
    data_exponent: float

    def compute_loss(self, parameters: float, tokens: float) -> float:
        size = self.size_coefficient * parameters**-self.size_exponent
        return self.irreducible + size + self.data_coefficient * tokens**-self.data_exponent

    def compute_best_loss(self, compute: float) -> float:
        sizes = np.geomspace(SIZES[0], 100 * SIZES[-1], 5000)
        tokens = compute / (MULTIPLY_ADDS_PER_PARAMETER * sizes)
        return min(self.compute_loss(*pair) for pair in zip(sizes, tokens, strict=True))


SLOW = Law(2.0, 20.0, 0.25, 60.0, 0.28)
FAST = Law(1.14, 36.0, 0.25, 108.0, 0.28)
"""Worse than SLOW at the study's compute, and better at ten times of it."""


def make_trials(family: str, law: Law, noise: np.random.Generator | None = None) -> list[StudyTrial]:
    """A trial of each size; with `noise`, each has the deviation of a seed."""
    trials = []
    for number, size in enumerate(SIZES):
        factor = 1.0 if noise is None else math.exp(noise.normal(0, 0.006))
        curve = {tokens: factor * law.compute_loss(size, tokens) for tokens in LENGTHS}
        sizes = TrialSizes(
            parameters=size, multiply_adds=MULTIPLY_ADDS_PER_PARAMETER * size, state=0, memory=None
        )
        trials.append(make_study_trial(family, number, curve, sizes=sizes))
    return trials


def test_the_coefficients_of_a_law_without_noise_are_found() -> None:
    found = compare_scaling(make_trials("lstm", SLOW), resamples=10).families[0]
    assert found.irreducible == pytest.approx(SLOW.irreducible, rel=0.02)
    assert found.size_exponent == pytest.approx(SLOW.size_exponent, rel=0.05)
    assert found.data_exponent == pytest.approx(SLOW.data_exponent, rel=0.05)
    assert found.larger.cost == pytest.approx(SLOW.compute_best_loss(10 * 4.8e13), rel=0.005)
    assert found.backtest_error == pytest.approx(0, abs=0.005)


def test_the_family_that_wins_at_a_larger_budget_is_found() -> None:
    trials = [*make_trials("slow", SLOW), *make_trials("fast", FAST)]
    report = compare_scaling(trials, factor=10, resamples=12)
    now = min(report.families, key=lambda each: each.present.cost)
    assert (now.family, report.families[0].family) == ("slow", "fast")
    assert report.families[0].best_share > 0.9


@pytest.mark.parametrize(
    ("count", "least", "resamples"), [(6, 4, 16), pytest.param(20, 16, 40, marks=pytest.mark.long)]
)
def test_the_intervals_cover_the_loss_at_ten_times_the_budget(count: int, least: int, resamples: int) -> None:
    """At least 4 of 6, or 16 of 20, intervals of 95 %: fewer would be a chance of 3 in 1,000."""
    truth = SLOW.compute_best_loss(10 * MULTIPLY_ADDS_PER_PARAMETER * SIZES[-1] * LENGTHS[-1])
    covered = 0
    for seed in range(count):
        trials = make_trials("lstm", SLOW, np.random.default_rng(seed))
        larger = compare_scaling(trials, seed=seed, resamples=resamples).families[0].larger
        covered += larger.low <= truth <= larger.high
    assert covered >= least


def test_stopped_and_worse_trials_of_a_size_do_not_count() -> None:
    worse = [
        trial.model_copy(update={"curve": {tokens: cost + 1 for tokens, cost in trial.curve.items()}})
        for trial in make_trials("lstm", SLOW)
    ]
    alone = compare_scaling(make_trials("lstm", SLOW), resamples=5)
    assert compare_scaling([*worse, *make_trials("lstm", SLOW)], resamples=5) == alone


@pytest.mark.parametrize(("sizes", "lengths"), [(4, 7), (5, 3)])
def test_too_few_sizes_or_lengths_are_refused_with_their_numbers(sizes: int, lengths: int) -> None:
    trials = [
        trial.model_copy(update={"curve": dict(list(trial.curve.items())[-lengths:])})
        for trial in make_trials("lstm", SLOW)[:sizes]
    ]
    with pytest.raises(StudyError, match=f"lstm has {sizes} sizes, {lengths} training lengths"):
        compare_scaling(trials)


def test_as_many_reports_as_the_law_has_values_are_refused() -> None:
    """One report of each size, each of another length, shows no deviation of reports."""
    trials = [
        trial.model_copy(update={"curve": dict([[*trial.curve.items()][place - len(SIZES)]])})
        for place, trial in enumerate(make_trials("lstm", SLOW))
    ]
    with pytest.raises(StudyError, match="and 5 reports; a fit needs 5, 4 and 8"):
        compare_scaling(trials)


def test_without_a_validated_trial_the_error_says_what_a_fit_needs() -> None:
    with pytest.raises(StudyError, match="no trial has a validation yet"):
        compare_scaling([])
