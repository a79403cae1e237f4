from memtune.search import StoredTrial
from memtune.search.early_stopping import Action, Promotion, PromotionConfig
from memtune.trial_state import TrialState
from tests.presence import require


def make_rule(**settings: int) -> Promotion:
    """Rungs at 100, 300 and 900 tokens."""
    return Promotion(PromotionConfig(**{"grace": 100, "factor": 3, **settings}), 2700)


def report(rule: Promotion, number: int, tokens: int, value: float) -> bool:
    """Whether the trial pauses."""
    return rule.decide(number, "lstm", tokens, value).action is Action.PAUSE


def choose(rule: Promotion) -> int | None:
    """The trial that a free worker continues while others run."""
    return rule.choose_resumed(running=[99], is_sampling_over=False)


def test_trials_pause_until_one_of_three_is_the_best():
    """Algorithm 2 of the paper with a reduction factor of 3."""
    rule = make_rule()
    assert report(rule, 0, 100, 2.0)
    assert report(rule, 1, 100, 1.0)
    assert choose(rule) is None
    assert report(rule, 2, 100, 3.0)
    assert choose(rule) == 1
    rule.resume(1)
    assert choose(rule) is None


def test_a_trial_that_would_be_resumed_at_once_is_not_paused():
    rule = make_rule()
    report(rule, 0, 100, 2.0)
    report(rule, 1, 100, 3.0)
    assert not report(rule, 2, 100, 1.0)
    assert choose(rule) is None


def test_the_highest_rung_promotes_first():
    rule = make_rule()
    for number in range(9):
        report(rule, number, 100, 9.0 + number)
    for number in (0, 1, 2):
        rule.resume(number)
    report(rule, 0, 300, 3.0)
    report(rule, 1, 300, 2.0)
    for number in (9, 10, 11):
        report(rule, number, 100, 50.0)
    assert choose(rule) == 3
    assert report(rule, 2, 300, 4.0)
    assert choose(rule) == 1


def test_a_trial_that_was_average_is_promoted_when_worse_ones_have_come():
    rule = make_rule()
    for number, value in enumerate([1.0, 2.0, 3.0]):
        report(rule, number, 100, value)
    rule.resume(require(choose(rule)))
    for number in (3, 4, 5):
        assert choose(rule) is None
        report(rule, number, 100, 5.0)
    assert choose(rule) == 1


def test_a_rung_promotes_no_more_than_its_cap():
    rule = make_rule(max_survivors=1)
    for number in range(9):
        report(rule, number, 100, float(number))
    rule.resume(require(choose(rule)))
    assert choose(rule) is None


def test_the_best_trial_of_a_short_study_continues_once_nothing_else_can():
    rule = make_rule()
    report(rule, 0, 100, 2.0)
    report(rule, 1, 100, 1.0)
    assert rule.choose_resumed(running=[7], is_sampling_over=True) is None
    assert rule.choose_resumed(running=[], is_sampling_over=False) is None
    assert rule.choose_resumed(running=[], is_sampling_over=True) == 1


def test_a_study_ends_with_two_complete_trials_to_compare():
    rule = make_rule()
    for number in (0, 1, 2):
        rule.decide(number, "lstm", 900, 1.0 + number)
    assert [choose_last(rule), choose_last(rule), choose_last(rule)] == [0, 1, None]


def choose_last(rule: Promotion) -> int | None:
    """The trial that continues when no trial runs and none will start."""
    chosen = rule.choose_resumed(running=[], is_sampling_over=True)
    if chosen is not None:
        rule.resume(chosen)
    return chosen


def test_the_best_of_each_alternative_ends_a_study_at_the_same_time():
    rule = make_rule()
    rule.decide(0, "lstm", 100, 1.0)
    rule.decide(1, "rnn", 100, 2.0)
    assert rule.choose_resumed(running=[], is_sampling_over=True) == 0
    rule.resume(0)
    assert rule.choose_resumed(running=[0], is_sampling_over=True) == 1


def test_a_trial_that_has_ended_is_not_promoted():
    rule = make_rule()
    report(rule, 0, 100, 1.0)
    report(rule, 1, 100, 2.0)
    rule.end(0)
    report(rule, 2, 100, 3.0)
    assert choose(rule) is None


def test_a_report_past_several_rungs_pauses_the_trial_at_the_highest():
    rule = make_rule()
    for number in (0, 1):
        report(rule, number, 300, 2.0 + number)
    report(rule, 2, 100, 1.0)
    assert choose(rule) is None
    assert not report(rule, 2, 300, 1.0)


def test_a_paused_trial_has_its_rank_in_the_reason():
    rule = make_rule()
    report(rule, 0, 100, 1.0)
    decision = rule.decide(1, "lstm", 120, 2.0)
    assert decision.reason == "promotion: rank 2 of 2 at the rung of 100; none continues yet"


def test_a_replay_tells_paused_trials_from_promoted_ones():
    """The curves of both end at the same rung."""
    rule = make_rule()
    states = [TrialState.PAUSED, TrialState.RUNNING, TrialState.PAUSED]
    curves = [{100: 2.0}, {100: 1.0}, {100: 3.0}]
    rule.replay(
        StoredTrial(number, "", {"model": {"family": "lstm"}}, state, curve=curve)
        for number, (state, curve) in enumerate(zip(states, curves, strict=True))
    )
    assert not report(rule, 1, 100, 1.0)
    assert report(rule, 0, 100, 2.0)
    assert choose(rule) is None
    for number in (3, 4, 5):
        report(rule, number, 100, 4.0)
    assert choose(rule) == 0
