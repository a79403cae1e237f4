"""The remaining time of a study follows from the speed of the run and the length of its trials."""

import pytest

from memtune.reports.live.live_display import PaceMeter
from memtune.search import StoredTrial
from memtune.trial_state import TrialState
from tests.unit.reports.test_live_display import make_trial


class Clock:
    """A clock that a test sets."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_the_time_left_is_the_missing_tokens_at_the_speed_of_the_run() -> None:
    clock = Clock()
    meter = PaceMeter(clock=clock)
    meter.watch(make_trial(0, TrialState.RUNNING))
    clock.seconds = 90.0
    ended = make_trial(0, TrialState.COMPLETE, 50.0, 40.0, 30.0)  # 900 tokens, of which 300 in this run
    ended.restored_tokens = 600
    meter.watch(ended)
    running = make_trial(1, TrialState.RUNNING, 50.0)  # 300 more
    meter.watch(running)
    pace = meter.estimate(unstarted=2, running=[running])
    assert pace is not None
    assert pace.tokens_per_trial == 900
    assert pace.tokens_per_second == pytest.approx(600 / 90)
    assert pace.seconds_left == pytest.approx((2 * 900 + 600) / (600 / 90))
    clock.seconds = 100.0
    later = meter.estimate(unstarted=2, running=[running])
    assert later is not None
    assert later.seconds_left == pytest.approx(pace.seconds_left - 10)


def test_nothing_is_estimated_before_a_trial_has_ended_or_this_run_has_trained() -> None:
    clock = Clock()
    meter = PaceMeter([StoredTrial(9, "", {}, TrialState.FAILED, curve={300: 1.0})], clock)
    running = make_trial(0, TrialState.RUNNING, 50.0)
    meter.watch(make_trial(0, TrialState.RUNNING))
    clock.seconds = 10.0
    meter.watch(running)
    assert meter.estimate(1, [running]) is None
    resumed = PaceMeter([StoredTrial(9, "", {}, TrialState.COMPLETE, curve={900: 1.0})], clock)
    assert resumed.estimate(1, []) is None


def test_restored_tokens_are_not_trained_in_this_run() -> None:
    """The first news of a resumed trial is the curve of its checkpoint."""
    clock = Clock()
    meter = PaceMeter([StoredTrial(9, "", {}, TrialState.COMPLETE, curve={900: 1.0})], clock)
    running = make_trial(0, TrialState.RUNNING, 50.0)
    running.restored_tokens = running.tokens
    meter.watch(make_trial(0, TrialState.RUNNING))
    clock.seconds = 0.001
    meter.watch(running)
    assert meter.estimate(1, [running]) is None


def test_the_trials_of_earlier_runs_tell_how_long_a_trial_is() -> None:
    clock = Clock()
    meter = PaceMeter([StoredTrial(9, "", {}, TrialState.STOPPED, curve={500: 1.0})], clock)
    meter.watch(make_trial(0, TrialState.RUNNING))
    clock.seconds = 30.0
    running = make_trial(0, TrialState.RUNNING, 50.0)
    meter.watch(running)
    pace = meter.estimate(0, [running])
    assert pace is not None
    assert pace.seconds_left == pytest.approx((500 - 300) / (300 / 30))


def test_a_trial_that_resumes_after_its_last_report_counts_from_its_checkpoint() -> None:
    clock = Clock()
    meter = PaceMeter([StoredTrial(9, "", {}, TrialState.COMPLETE, curve={900: 1.0})], clock)
    resumed = make_trial(0, TrialState.RUNNING, 50.0)
    resumed.restored_tokens = 500
    meter.watch(resumed)
    clock.seconds = 10.0
    assert meter.estimate(1, [resumed]) is None
    meter.watch(make_trial(1, TrialState.RUNNING, 50.0))
    later = make_trial(0, TrialState.RUNNING, 50.0, 40.0)  # 600 tokens, of which 100 in this run
    later.restored_tokens = 500
    meter.watch(later)
    pace = meter.estimate(1, [later])
    assert pace is not None
    assert pace.tokens_per_second == pytest.approx((300 + 100) / 10)


def test_a_trial_that_has_come_further_than_the_stopped_ones_trains_to_its_own_end() -> None:
    clock = Clock()
    stopped = StoredTrial(9, "", {}, TrialState.STOPPED, curve={300: 1.0})
    complete = StoredTrial(8, "", {}, TrialState.COMPLETE, curve={900: 1.0})
    running = make_trial(0, TrialState.RUNNING, 50.0, 40.0)
    for earlier in ([stopped], [stopped, complete]):
        clock.seconds = 0.0
        meter = PaceMeter(earlier, clock, trial_tokens=900)
        meter.watch(make_trial(0, TrialState.RUNNING))
        clock.seconds = 60.0
        meter.watch(running)
        pace = meter.estimate(0, [running])
        assert pace is not None
        assert pace.seconds_left == pytest.approx((900 - 600) / (600 / 60))
