"""What the states of a trial have in common."""

from memtune.trial_state import TrialState


def test_a_paused_trial_has_not_ended():
    assert not TrialState.PAUSED.has_ended
    assert TrialState.PAUSED.has_ended_or_paused
    assert TrialState.PAUSED.has_ended_early


def test_a_complete_trial_has_ended_but_not_early():
    assert TrialState.COMPLETE.has_ended
    assert not TrialState.COMPLETE.has_ended_early


def test_a_trial_that_never_started_or_waits_has_not_ended():
    others = (TrialState.REFUSED, TrialState.DUPLICATE, TrialState.INTERRUPTED, TrialState.RUNNING)
    assert not any(state.has_ended_or_paused for state in (*others, TrialState.WAITING))
