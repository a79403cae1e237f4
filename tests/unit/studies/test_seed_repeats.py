"""The best configurations are repeated, under every further seed."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from memtune.search import StoredTrial
from memtune.seed_statistics import choose_compared
from memtune.settings import Settings
from memtune.spaces import RandomChooser
from memtune.studies.seed_repeats import (
    TrialNames,
    collect_seed_costs,
    list_repeatable,
    make_repeat_space,
    select_repeated,
)
from memtune.training import TrialConfig
from memtune.trial_state import StopReason, TrialEnd, TrialState
from tests.unit.studies.study_files import resolve


def make_valued_outcome(
    number: int, value: float | None, state: TrialState = TrialState.COMPLETE
) -> StoredTrial:
    config = make_config(number + 1, 0).model_dump(mode="json")
    return StoredTrial(number, f"trial {number}", config, state, value)


@pytest.mark.parametrize(("count", "expected"), [(1, [2]), (2, [2, 1]), (9, [2, 1, 3, 0])])
def test_the_outcomes_of_lowest_value_are_the_best(count: int, expected: list[int]) -> None:
    outcomes = [
        make_valued_outcome(0, 5.0),
        make_valued_outcome(1, 3.0),
        make_valued_outcome(2, 1.0),
        make_valued_outcome(3, 4.0),
    ]
    assert [best.number for best in select_repeated(outcomes, count, "model.family")] == expected


def test_the_best_of_each_alternative_is_repeated_first() -> None:
    """Three configurations of one layer are better than the best one of two."""
    outcomes = [make_valued_outcome(number, 1.0 + number) for number in range(3)]
    deep = make_config(8, 0).model_dump(mode="json")
    deep["model"]["layers"] = 2
    outcomes.append(StoredTrial(3, "deep", deep, TrialState.COMPLETE, 9.0))
    repeated = select_repeated(outcomes, 3, "model.layers")
    assert [outcome.number for outcome in repeated] == [0, 3, 1]


def test_a_model_that_counts_is_not_repeated() -> None:
    model = {"family": "kneser_ney", "order": 3}
    counting = StoredTrial(5, "n-grams", {"model": model}, TrialState.COMPLETE, 1.0)
    outcomes = [counting, make_valued_outcome(0, 5.0)]
    assert [outcome.number for outcome in select_repeated(outcomes, 2, "model.family")] == [0]


def test_of_equal_values_the_first_trial_is_the_best() -> None:
    outcomes = [make_valued_outcome(2, 1.0), make_valued_outcome(1, 1.0)]
    assert [best.number for best in select_repeated(outcomes, 2, "model.family")] == [1, 2]


def test_only_complete_trials_with_a_value_are_repeated() -> None:
    outcomes = [
        make_valued_outcome(0, 1.0, TrialState.STOPPED),
        make_valued_outcome(1, None, TrialState.FAILED),
        make_valued_outcome(2, None),
        make_valued_outcome(3, 2.0),
    ]
    assert [best.number for best in select_repeated(outcomes, 4, "model.family")] == [3]


def test_a_configuration_whose_repeats_diverge_is_replaced_by_the_next_best_while_there_is_one() -> None:
    outcomes = [make_valued_outcome(number, 1.0 + number) for number in range(3)]

    def select(numbers: Sequence[int]) -> list[int]:
        repeats = [
            replace(
                outcomes[number],
                configuration={**outcomes[number].configuration, "seed": seed},
                end=TrialEnd(reason=StopReason.DIVERGED if seed > 1 else StopReason.BUDGET),
            )
            for number in numbers
            for seed in (1, 2, 3)
        ]
        costs = collect_seed_costs(list_repeatable(outcomes, None), repeats, range(1, 4))
        return [int(number) for number in choose_compared(costs, dict.fromkeys(costs, "lstm"))]

    assert select([]) == [0, 1]
    assert select([0]) == [1, 2]
    assert select([0, 1]) == [0, 2]
    assert select([0, 1, 2]) == [0, 1]


def test_each_configuration_is_repeated_under_each_seed() -> None:
    space = make_repeat_space([make_valued_outcome(4, 1.0), make_valued_outcome(7, 2.0)], range(4))
    assert space.size() == 6
    assert len({tuple(sorted(choice.items())) for choice in space.points()}) == 6


def test_repeats_start_with_the_best_outcome_under_each_seed() -> None:
    space = make_repeat_space([make_valued_outcome(7, 1.0), make_valued_outcome(4, 2.0)], range(3))
    sampled = [space.sample(RandomChooser(0, point)) for point in space.points()]
    assert [(found["model"]["width"], found["seed"]) for found in sampled] == [(8, 1), (5, 1), (8, 2), (5, 2)]


def test_a_repeat_is_the_configuration_with_another_seed() -> None:
    space = make_repeat_space([make_valued_outcome(4, 1.0)], [0, 1, 2])
    sampled = [space.sample(RandomChooser(0, point)) for point in space.points()]
    assert [(found["model"]["width"], found["seed"]) for found in sampled] == [(5, 1), (5, 2)]


def make_config(width: int, seed: int, precision: str = "float32") -> TrialConfig:
    training = {"epochs": 1, "precision": precision}
    fields = {"model": {"family": "lstm", "width": width}, "training": training, "seed": seed}
    return TrialConfig.model_validate(fields)


def make_outcome(number: int, config: TrialConfig, value: float = 1.0) -> StoredTrial:
    return StoredTrial(number, "", config.model_dump(mode="json"), TrialState.COMPLETE, value)


def test_a_repeat_in_another_precision_has_the_seed_of_the_search_too() -> None:
    outcomes = [make_outcome(4, make_config(8, 0, "bfloat16")), make_outcome(7, make_config(16, 0))]
    space = make_repeat_space(outcomes, range(3), "float32")
    sampled = [space.sample(RandomChooser(0, point)) for point in space.points()]
    assert [(found["model"]["width"], found["seed"]) for found in sampled] == [
        (8, 0),
        (8, 1),
        (16, 1),
        (8, 2),
        (16, 2),
    ]
    assert {found["training"]["precision"] for found in sampled} == {"float32"}


def test_a_repeat_in_another_precision_is_named_after_its_trial() -> None:
    names = TrialNames([make_outcome(4, make_config(8, 0, "bfloat16"))])
    assert names.name(0, make_config(8, 0)) == "#4 seed 0"
    assert names.name(0, make_config(8, 1, "float16")) == "#4 seed 1"
    assert names.find_original(make_config(16, 1)) is None


def test_of_trials_that_differ_in_precision_alone_each_has_its_own_repeats() -> None:
    low, full = make_outcome(4, make_config(8, 0, "bfloat16")), make_outcome(7, make_config(8, 0))
    names = TrialNames([low, full])
    assert names.name(0, make_config(8, 1)) == "#7 seed 1"
    assert names.name(0, make_config(8, 1, "bfloat16")) == "#4 seed 1"


def test_a_repeat_is_named_after_the_trial_that_it_repeats() -> None:
    names = TrialNames([make_outcome(4, make_config(8, 0)), make_outcome(7, make_config(16, 0))])
    assert names.name(0, make_config(16, 1)) == "#7 seed 1"
    assert names.name(1, make_config(8, 2)) == "#4 seed 2"
    assert TrialNames().name(0, make_config(16, 1)) == "#0"


def test_a_repeat_in_another_precision_is_not_named_after_another_training() -> None:
    clipped = make_config(8, 0, "bfloat16").model_dump(mode="json")
    clipped["training"]["clip_norm"] = 1.0
    names = TrialNames([make_outcome(4, TrialConfig.model_validate(clipped))])
    assert names.find_original(make_config(8, 1)) is None


def test_a_cost_of_zero_is_the_best() -> None:
    outcomes = [make_valued_outcome(1, 0.5), make_valued_outcome(2, 0.0)]
    assert [best.number for best in select_repeated(outcomes, 1, "model.family")] == [2]


def test_a_configuration_in_a_third_precision_is_named_after_the_better_trial() -> None:
    """A trial without a value, which a driver that was killed may leave, is worse than one with a value."""
    trials = [make_outcome(4, make_config(8, 0)), make_outcome(7, make_config(8, 0, "bfloat16"))]
    for values, name in (((2.0, 1.0), "#7 seed 1"), ((1.0, 2.0), "#4 seed 1"), ((None, 1.0), "#7 seed 1")):
        outcomes = [replace(trial, value=value) for trial, value in zip(trials, values, strict=True)]
        assert TrialNames(outcomes).name(0, make_config(8, 1, "float16")) == name


def order_repeats(study_file: Path, settings: Settings, sign: int) -> list[int]:
    """The seeds of the repeats of a study in the order of their proposals; values grow with the seed."""
    resolved = resolve(study_file, settings, name=f"sign{sign}")
    configuration = resolved.sample(RandomChooser(0)).model_dump(mode="json")
    original = StoredTrial(0, "", configuration, TrialState.COMPLETE, 1.0)
    repeats = resolved.open_proposals(repeats=make_repeat_space([original], range(21)))
    seeds: list[int] = []
    while (proposal := repeats.ask()) is not None:
        seeds.append(proposal.configuration["seed"])
        repeats.report(proposal.number, 900, sign * seeds[-1])
        repeats.complete(proposal.number, sign * seeds[-1])
    return seeds


def test_the_order_of_repeats_does_not_follow_from_their_results(
    study_file: Path, settings: Settings
) -> None:
    """All of them are trained, so that a sampler that learns would only be slower."""
    seeds = order_repeats(study_file, settings, 1)
    assert sorted(seeds) == list(range(1, 21))
    assert order_repeats(study_file, settings, -1) == seeds
