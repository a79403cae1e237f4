"""The best configurations are repeated, under every further seed."""

import pytest

from memtune.search import Outcome
from memtune.spaces import PinnedChooser, RandomChooser
from memtune.studies.seed_repeats import TrialNames, make_repeat_space, select_best_outcomes
from memtune.training import TrialConfig
from memtune.trial_state import TrialState


def outcome(number: int, value: float | None, state: TrialState = TrialState.COMPLETE) -> Outcome:
    return Outcome(number, f"trial {number}", {"model": {"width": number}}, state, value)


@pytest.mark.parametrize(("count", "expected"), [(1, [2]), (2, [2, 1]), (9, [2, 1, 3, 0])])
def test_the_outcomes_of_lowest_value_are_the_best(count: int, expected: list[int]) -> None:
    outcomes = [outcome(0, 5.0), outcome(1, 3.0), outcome(2, 1.0), outcome(3, 4.0)]
    assert [best.number for best in select_best_outcomes(outcomes, count)] == expected


def test_of_equal_values_the_first_trial_is_the_best() -> None:
    outcomes = [outcome(2, 1.0), outcome(1, 1.0)]
    assert [best.number for best in select_best_outcomes(outcomes, 2)] == [1, 2]


def test_only_complete_trials_with_a_value_are_repeated() -> None:
    outcomes = [
        outcome(0, 1.0, TrialState.STOPPED),
        outcome(1, None, TrialState.FAILED),
        outcome(2, None),
        outcome(3, 2.0),
    ]
    assert [best.number for best in select_best_outcomes(outcomes, 4)] == [3]


def test_each_configuration_is_repeated_under_each_seed() -> None:
    space = make_repeat_space([outcome(4, 1.0), outcome(7, 2.0)], range(1, 4))
    assert space.size() == 6
    assert len({tuple(sorted(choice.items())) for choice in space.points()}) == 6


def test_a_repeat_is_the_configuration_with_another_seed() -> None:
    space = make_repeat_space([outcome(4, 1.0)], [1, 2])
    sampled = [space.sample(PinnedChooser(point, RandomChooser(0))) for point in space.points()]
    assert sampled == [{"model": {"width": 4}, "seed": 1}, {"model": {"width": 4}, "seed": 2}]


def test_a_repeat_is_named_after_the_trial_that_it_repeats() -> None:
    def config(width: int, seed: int) -> TrialConfig:
        fields = {"model": {"family": "lstm", "width": width}, "training": {"epochs": 1}, "seed": seed}
        return TrialConfig.model_validate(fields)

    repeated = [
        Outcome(number, "", config(width, 0).model_dump(mode="json"), TrialState.COMPLETE, 1.0)
        for number, width in ((4, 8), (7, 16))
    ]
    names = TrialNames(repeated)
    assert names.name(0, config(16, 1)) == "#7 seed 1"
    assert names.name(1, config(8, 2)) == "#4 seed 2"
    assert TrialNames().name(0, config(16, 1)) == "#0"
