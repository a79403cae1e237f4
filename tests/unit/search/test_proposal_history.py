"""The trials that a sampler learns from: all of a short study, a bounded window of a long one."""

import math
import random

from optuna import create_study
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.samplers._tpe.sampler import _split_trials, default_gamma
from optuna.trial import FrozenTrial, TrialState, create_trial

from memtune.search.trial_history import (
    MAX_BEST_TRIALS,
    MAX_NEWEST_TRIALS,
    MAX_RUNNING_TRIALS,
    History,
    TrialWindow,
    _rank,
)
from tests.presence import require

LONG = 3 * (MAX_BEST_TRIALS + MAX_NEWEST_TRIALS)


def make_trial(number: int, state: TrialState = TrialState.COMPLETE, **attributes) -> FrozenTrial:
    """A trial with a value that differs between numbers."""
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


def select_numbers(trials) -> list[int]:
    kept = TrialWindow()
    for trial in trials:
        kept.add(trial)
    return [trial.number for trial in kept.list_trials()]


def test_all_trials_of_a_short_study_are_kept():
    states = [TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING]
    trials = [make_trial(number, states[number % 3]) for number in range(200)]
    assert select_numbers(trials) == list(range(200))


def test_the_best_and_newest_trials_of_a_long_study_are_kept():
    trials = [make_trial(number) for number in range(LONG)]
    best = sorted(range(LONG), key=lambda number: require(trials[number].value))[:MAX_BEST_TRIALS]
    assert select_numbers(trials) == sorted({*best, *range(LONG - MAX_NEWEST_TRIALS, LONG)})


def test_the_newest_of_many_running_trials_are_kept():
    running = [make_trial(number, TrialState.RUNNING) for number in range(1000)]
    assert select_numbers(running) == list(range(1000 - MAX_RUNNING_TRIALS, 1000))
    assert select_numbers([*running, *(make_trial(number) for number in range(995))]) == select_numbers(
        [
            make_trial(number, TrialState.COMPLETE if number < 995 else TrialState.RUNNING)
            for number in range(1000)
        ]
    )


def test_the_order_in_which_trials_ended_does_not_matter():
    trials = [
        make_trial(number, TrialState.COMPLETE if number % 3 else TrialState.PRUNED) for number in range(LONG)
    ]
    shuffled = random.Random(1).sample(trials, LONG)
    assert select_numbers(shuffled) == select_numbers(trials)


def test_tpe_models_the_same_good_trials_as_from_the_whole_study():
    study = create_study()
    trials = [
        make_trial(number, TrialState.COMPLETE if number % 3 else TrialState.PRUNED) for number in range(LONG)
    ]
    seen = set(select_numbers(trials))
    good, _ = _split_trials(study, trials, default_gamma(LONG))
    again, _ = _split_trials(
        study, [trial for trial in trials if trial.number in seen], default_gamma(len(seen))
    )
    assert [trial.number for trial in again] == [trial.number for trial in good]


def test_a_failed_trial_is_not_kept():
    assert select_numbers([make_trial(0, TrialState.RUNNING), make_trial(0, TrialState.FAIL)]) == []


def test_rejections_are_counted_until_a_trial_starts():
    history = History([make_trial(0), make_trial(1, refused="too large"), make_trial(2, duplicate_of=0)])
    assert (history.asks, history.consecutive_rejections, history.number_by_identity) == (3, 2, {"0": 0})
    history.add(make_trial(3, TrialState.RUNNING))
    assert (history.asks, history.consecutive_rejections, history.number_by_identity) == (
        4,
        0,
        {"0": 0, "3": 3},
    )


def test_starts_and_rejections_are_counted_by_alternative():
    alternatives = [{"family": "scrn"}, {"family": "lstm"}, {"family": "rnn"}]
    history = History([make_trial(0), make_trial(1), make_trial(2, refused="too large")], alternatives)
    assert (history.count_starts(), history.rejections) == ([1, 1, 0], [1, 0, 0])


def test_what_a_prior_leads_and_the_others_are_turns_of_their_own():
    trials = [make_trial(0), make_trial(1), make_trial(2)]
    history = History(trials, [{"family": "scrn"}, {"family": "lstm"}])
    assert history.count_starts(led=[0, 2]) == [0, 1]
    assert history.count_starts(led=[0, 2], is_led=True) == [2, 0]


def test_trials_that_failed_leave_the_asks_of_the_others_as_they_are():
    history = History([make_trial(0, TrialState.FAIL), make_trial(1), make_trial(2)])
    assert [*history.list_learnt()] == [1, 2]


def test_trials_are_ranked_as_tpe_ranks_them():
    """Complete by value, then stopped by tokens and value, then refused; the numbers descend."""
    study = create_study()
    asked = [study.ask() for _ in range(8)][::-1]
    for trial, value in zip(asked[:2], (0.8, 0.9), strict=True):
        study.tell(trial, value)
    reports = [(20, 0.5), (10, 0.3), (10, 0.4), (10, math.nan)]
    for trial, (tokens, value) in zip(asked[2:6], reports, strict=True):
        trial.report(value, tokens)
    asked[7].set_constraint("refused", 0.5)
    for trial in asked[2:]:
        study.tell(trial, state=TrialState.PRUNED)
    ranked = [trial.number for trial in sorted(study.trials, key=_rank)]
    assert ranked == [trial.number for trial in asked]


def test_a_failed_trial_is_the_worst_for_the_sampler():
    window = TrialWindow()
    failed = make_trial(0, TrialState.FAIL, ending={"state": "FAIL", "end": {"reason": "diverged"}})
    failed.intermediate_values = {10: 0.1}
    window.add(failed)
    (shown,) = window.list_trials()
    assert (shown.state, shown.intermediate_values) == (TrialState.PRUNED, {})


def test_a_window_keeps_no_more_than_its_limits():
    window = TrialWindow()
    for trial in [make_trial(number) for number in range(LONG)]:
        window.add(trial)
    assert len(window._newest) == MAX_NEWEST_TRIALS
    assert len(window._trials) == len(window.list_trials())


def test_a_paused_trial_is_pruned_for_the_sampler_until_it_ends():
    window = TrialWindow()
    pause = {"end": {}, "tokens": 10, "value": 3.0, "is_resumed": False}
    paused = make_trial(0, TrialState.RUNNING, pause=pause)
    paused.intermediate_values = {10: 3.0}
    resumed = make_trial(0, TrialState.RUNNING, pause={**pause, "is_resumed": True})
    resumed.intermediate_values = {10: 3.0, 20: 2.0}
    for trial in (paused, resumed):
        window.add(trial)
        (shown,) = window.list_trials()
        assert (shown.state, shown.intermediate_values) == (TrialState.PRUNED, {10: 3.0})
        assert trial.state is TrialState.RUNNING
    window.add(make_trial(0))
    assert [trial.state for trial in window.list_trials()] == [TrialState.COMPLETE]


def test_rejections_are_counted_from_zero():
    assert History([]).consecutive_rejections == 0
    assert History([make_trial(0, refused="too large")]).consecutive_rejections == 1
