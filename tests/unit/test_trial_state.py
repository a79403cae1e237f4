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


def test_tables_name_a_trial_that_has_not_ended_the_same_in_every_store():
    """The study database holds it as running, the tracking store as interrupted."""
    unended = (TrialState.WAITING, TrialState.RUNNING, TrialState.INTERRUPTED)
    assert {state.label for state in unended} == {"open"}
    others = set(TrialState) - set(unended)
    assert {state.label for state in others} == {state.value for state in others}
