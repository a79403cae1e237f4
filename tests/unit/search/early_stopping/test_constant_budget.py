import math

import pytest

from memtune.search import Outcome
from memtune.search.early_stopping import Action, ConstantBudget, ConstantBudgetConfig
from memtune.trial_state import TrialState

VALUES = [3.0, 1.0, math.nan, 2.0]


def make_rule(values: list[float] = VALUES) -> ConstantBudget:
    """Trials that have used their 100 of 500 tokens; two of them are finalists."""
    rule = ConstantBudget(ConstantBudgetConfig(share=0.2, finalists=2), 500)
    for number, value in enumerate(values):
        assert rule.decide(number, "lstm", 99, 9.0).action is Action.CONTINUE
        assert rule.decide(number, "lstm", 100, value).action is Action.PAUSE
    return rule


def test_no_trial_continues_while_new_ones_start():
    assert make_rule().choose_resumed([], is_sampling_over=False) is None


def test_no_trial_continues_while_another_has_not_used_its_share():
    assert make_rule().choose_resumed([4], is_sampling_over=True) is None


def test_the_best_trials_continue_beside_each_other_to_the_end():
    rule = make_rule()
    assert rule.choose_resumed([], is_sampling_over=True) == 1
    rule.resume(1)
    assert rule.choose_resumed([1], is_sampling_over=True) == 3
    rule.resume(3)
    assert rule.choose_resumed([1, 3], is_sampling_over=True) is None
    assert rule.decide(1, "lstm", 500, 0.5).action is Action.CONTINUE


def test_further_trials_may_bring_further_finalists():
    rule = make_rule()
    for number in (1, 3):
        rule.resume(number)
    rule.decide(4, "lstm", 100, 0.5)
    assert rule.choose_resumed([1], is_sampling_over=True) == 4


def test_a_running_trial_past_its_share_is_a_finalist_after_a_replay():
    rule = make_rule([])
    rule.replay(
        Outcome(number, "", {}, state, curve={100: value})
        for number, (value, state) in enumerate([(1.0, TrialState.RUNNING), (2.0, TrialState.PAUSED)])
    )
    assert rule.choose_resumed([0], is_sampling_over=True) == 1


def test_the_reason_of_a_pause_names_the_share():
    assert make_rule().decide(0, "lstm", 100, 3.0).reason == (
        "constant budget: the best 2 continue when all trials have 100"
    )


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_share_is_a_part_of_the_budget(share: float):
    with pytest.raises(ValueError, match="share"):
        ConstantBudgetConfig(share=share)
