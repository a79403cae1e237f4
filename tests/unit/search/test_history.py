"""A study's past as its decisions need it: whole while it is short, bounded when it is long."""

import random

import pytest
from optuna import create_study
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.samplers._tpe.sampler import _split_trials, default_gamma
from optuna.trial import FrozenTrial, TrialState, create_trial

from memtune.search.history import BEST, NEWEST, RUNNING, Excerpt, History

LONG = 3 * (BEST + NEWEST)


def turn(number: int, state: TrialState = TrialState.COMPLETE, **attributes) -> FrozenTrial:
    """A turn of the sampler that took the value number / 1000."""
    rate = (number * 7919 % LONG) / LONG
    trial = create_trial(
        state=state,
        value=rate if state is TrialState.COMPLETE else None,
        params={"rate": rate, "family": "lstm" if number % 2 else "scrn"},
        distributions={
            "rate": FloatDistribution(0.0, 1.0),
            "family": CategoricalDistribution(["lstm", "scrn"]),
        },
        intermediate_values={10: rate} if state is TrialState.PRUNED else {},
        user_attrs={"identity": str(number), **attributes},
    )
    trial.number = number
    return trial


def excerpt(trials) -> list[int]:
    kept = Excerpt()
    for trial in trials:
        kept.add(trial)
    return [trial.number for trial in kept.trials()]


def test_a_short_study_is_seen_whole():
    states = [TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING]
    trials = [turn(number, states[number % 3]) for number in range(200)]
    assert excerpt(trials) == list(range(200))


def test_of_a_long_study_the_best_and_the_newest_are_seen():
    trials = [turn(number) for number in range(LONG)]
    best = sorted(range(LONG), key=lambda number: trials[number].value)[:BEST]
    assert excerpt(trials) == sorted({*best, *range(LONG - NEWEST, LONG)})


def test_of_thousands_that_run_the_newest_are_seen():
    running = [turn(number, TrialState.RUNNING) for number in range(1000)]
    assert excerpt(running) == list(range(1000 - RUNNING, 1000))
    assert excerpt([*running, *(turn(number) for number in range(995))]) == excerpt(
        [turn(number, TrialState.COMPLETE if number < 995 else TrialState.RUNNING) for number in range(1000)]
    )


def test_the_order_in_which_trials_ended_does_not_matter():
    trials = [
        turn(number, TrialState.COMPLETE if number % 3 else TrialState.PRUNED) for number in range(LONG)
    ]
    shuffled = random.Random(1).sample(trials, LONG)
    assert excerpt(shuffled) == excerpt(trials)


def test_what_tpe_models_as_good_is_the_same_as_in_the_whole_study():
    study = create_study()
    trials = [
        turn(number, TrialState.COMPLETE if number % 3 else TrialState.PRUNED) for number in range(LONG)
    ]
    seen = set(excerpt(trials))
    good, _ = _split_trials(study, trials, default_gamma(LONG))
    again, _ = _split_trials(
        study, [trial for trial in trials if trial.number in seen], default_gamma(len(seen))
    )
    assert [trial.number for trial in again] == [trial.number for trial in good]


def test_a_failed_trial_teaches_nothing():
    assert excerpt([turn(0, TrialState.RUNNING), turn(0, TrialState.FAIL)]) == []


def test_turns_without_a_trial_are_counted_until_one_starts():
    history = History([turn(0), turn(1, refused="too large"), turn(2, duplicate_of=0)])
    assert (history.turns, history.fruitless, history.numbers) == (3, 2, {"0": 0})
    history.add(turn(3, TrialState.RUNNING))
    assert (history.turns, history.fruitless, history.numbers) == (4, 0, {"0": 0, "3": 3})


@pytest.mark.parametrize(("family", "turns", "started"), [("scrn", 2, 1), ("lstm", 1, 1), ("rnn", 0, 0)])
def test_it_says_how_often_a_family_was_tried(family, turns, started):
    history = History([turn(0), turn(1), turn(2, refused="too large")])
    assert history.tried("family", family) == (turns, started)
