"""The importance of parameters on functions whose answer is known."""

from collections.abc import Mapping

import numpy as np
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from memtune.search.importance import (
    MIN_IMPORTANCE_TRIALS,
    MIN_PARAMETER_TRIALS,
    ParameterImportance,
    rank_parameters,
)
from memtune.search.trial_store import IDENTITY_KEY, REFUSAL_KEY
from memtune.spaces import RandomChooser
from tests.presence import require

RATE = FloatDistribution(0.0, 1.0)
KIND = CategoricalDistribution(("adam", "sgd"))
FAMILY = CategoricalDistribution(("lstm", "rnn", "gru"))


def make_trial(
    number: int, parameters: Mapping[str, tuple[object, BaseDistribution]], value: float, **attributes: object
) -> FrozenTrial:
    trial = create_trial(
        params={name: value for name, (value, _) in parameters.items()},
        distributions={name: distribution for name, (_, distribution) in parameters.items()},
        value=value,
        user_attrs={IDENTITY_KEY: f"{number}", **attributes},
    )
    trial.number = trial._trial_id = number
    return trial


def make_flat_trials(count: int) -> list[FrozenTrial]:
    """The value is the distance of `rate` from 0.3; `noise` does not matter."""
    chooser, trials = RandomChooser(0), []
    for number in range(count):
        rate, noise = chooser.suggest_float("rate", 0, 1), chooser.suggest_float("noise", 0, 1)
        parameters = {"training.rate": (rate, RATE), "training.noise": (noise, RATE)}
        trials.append(make_trial(number, parameters, abs(rate - 0.3)))
    return trials


def make_branch_trials(count: int) -> list[FrozenTrial]:
    """Under adam the value is the distance of its rate from 0.3 plus 0; under sgd it is 0.2 to 1.2, whatever
    its rate is. A network other than the LSTM is worse than all.
    """
    chooser, trials = RandomChooser(0), []
    for number in range(count):
        rate, other = chooser.suggest_float("rate", 0, 1), chooser.suggest_float("other", 0, 1)
        if number % 4 == 3:
            trials.append(make_trial(number, {"family": ("rnn", FAMILY)}, 2.0 + other))
            continue
        kind = "adam" if number % 4 else "sgd"
        value = abs(rate - 0.3) if kind == "adam" else 0.2 + other
        parameters = {
            "family": ("lstm", FAMILY),
            "lstm.optimiser.kind": (kind, KIND),
            f"lstm.optimiser.{kind}.rate": (rate, RATE),
        }
        trials.append(make_trial(number, parameters, value))
    return trials


def find(found: list[ParameterImportance], name: str) -> ParameterImportance:
    return next(parameter for parameter in found if parameter.name == name)


def test_the_parameter_that_decides_comes_first_and_the_shares_add_up_to_one() -> None:
    found = rank_parameters(make_flat_trials(200))
    assert [parameter.field for parameter in found] == ["training.rate", "training.noise"]
    assert found[0].importance > 0.8
    assert sum(parameter.importance for parameter in found) == pytest.approx(1.0)


def test_the_parameter_that_decides_is_above_the_noise_and_the_other_one_within_it() -> None:
    assert [parameter.is_above_noise for parameter in rank_parameters(make_flat_trials(100))] == [True, False]


def test_equal_trials_have_equal_importances() -> None:
    trials = make_flat_trials(20)
    assert rank_parameters(trials) == rank_parameters(trials)


def test_without_an_effect_few_studies_have_an_importance_above_the_noise() -> None:
    """Of 25 studies at most 4: more of them have a chance of 1 % at the level of 5 %."""
    random = np.random.default_rng(1)
    claimed = 0
    for _ in range(25):
        values = random.normal(size=(12, 4)).tolist()
        trials = [
            make_trial(
                number, {f"training.{name}": (x % 1, RATE) for name, x in zip("abc", own, strict=True)}, y
            )
            for number, (*own, y) in enumerate(values)
        ]
        claimed += any(parameter.is_above_noise for parameter in rank_parameters(trials))
    assert claimed <= 4


def test_a_parameter_of_a_branch_is_ranked_with_its_conditions_and_the_trials_that_have_it() -> None:
    found = rank_parameters(make_branch_trials(400))
    rate = find(found, "lstm.optimiser.adam.rate")
    assert (rate.field, rate.trials) == ("optimiser.rate", 200)
    assert rate.conditions == {"family": "lstm", "optimiser.kind": "adam"}
    assert rate.label == "optimiser.rate (family lstm, optimiser adam)"
    assert find(found, "family").conditions == {}
    assert find(found, "lstm.optimiser.kind").conditions == {"family": "lstm"}


def test_a_branch_whose_parameter_decides_weighs_more_than_one_whose_parameter_does_not() -> None:
    found = rank_parameters(make_branch_trials(400))
    adam, sgd = (find(found, f"lstm.optimiser.{kind}.rate").importance for kind in ("adam", "sgd"))
    assert adam > 10 * sgd


def test_a_trial_that_was_stopped_counts_with_its_extrapolated_value() -> None:
    trials = make_flat_trials(60)
    for trial in trials[::2]:
        trial.intermediate_values = {100: require(trial.value) + 1.0}
        trial.state, trial.value = TrialState.PRUNED, None
    for trial in trials[1::2]:
        trial.intermediate_values = {100: require(trial.value) + 1.0, 300: require(trial.value)}
    found = rank_parameters(trials)
    assert (found[0].field, found[0].trials) == ("training.rate", 60)


def test_there_is_no_importance_below_ten_trials_and_refused_ones_do_not_count() -> None:
    trials = make_flat_trials(MIN_IMPORTANCE_TRIALS)
    assert rank_parameters(trials)
    assert rank_parameters(trials[1:]) == []
    trials[0].set_user_attr(REFUSAL_KEY, "too large")
    assert rank_parameters(trials) == []


def add_rare_branch(trials: list[FrozenTrial], count: int) -> list[FrozenTrial]:
    """The trials with one more branch, of a few trials; the value is best where its rate is 0.9."""
    for number in range(len(trials), len(trials) + count):
        is_good = number % 2 == 0
        parameters = {"family": ("gru", FAMILY), "gru.rate": (0.9 if is_good else 0.1, RATE)}
        trials.append(make_trial(number, parameters, -1.0 if is_good else 1.5))
    return trials


def test_a_parameter_that_few_trials_have_is_not_listed_and_the_others_share_everything() -> None:
    rare = rank_parameters(add_rare_branch(make_branch_trials(40), MIN_PARAMETER_TRIALS - 1))
    assert "gru.rate" not in {parameter.name for parameter in rare}
    assert sum(parameter.importance for parameter in rare) == pytest.approx(1.0)
    enough = rank_parameters(add_rare_branch(make_branch_trials(40), MIN_PARAMETER_TRIALS))
    assert find(enough, "gru.rate").trials == MIN_PARAMETER_TRIALS


def test_a_parameter_is_not_listed_alone_where_few_trials_have_each_of_the_others() -> None:
    trials = add_rare_branch([], MIN_PARAMETER_TRIALS - 1)
    for number in range(len(trials), 20):
        trials.append(make_trial(number, {"family": ("rnn", FAMILY)}, float(number)))
    assert rank_parameters(trials) == []
