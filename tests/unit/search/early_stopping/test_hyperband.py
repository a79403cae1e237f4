from collections import Counter

from memtune.search.early_stopping import Action, Hyperband, HyperbandConfig
from memtune.search.early_stopping.hyperband import make_bracket_order


def test_brackets_have_the_sizes_of_the_paper():
    """Table 1 of Li et al. (2018): R = 81 and a factor of 3 start 81, 34, 15, 8 and 5 trials."""
    assert Counter(make_bracket_order(5, 3)) == {0: 81, 1: 34, 2: 15, 3: 8, 4: 5}


def test_brackets_take_turns():
    assert make_bracket_order(2, 2) == [0, 1, 0, 1]


def test_no_bracket_has_its_first_rung_before_the_first_report():
    config = HyperbandConfig(grace=1).fill_defaults(first_report=1_000, trial_tokens=9_000)
    assert config.grace == 1_000


def test_trials_compete_within_their_bracket_from_its_first_rung_on():
    """Rungs at 100 and 200 of 400 tokens: brackets from 100, from 200, and one that stops no trial."""
    rule = Hyperband(HyperbandConfig(grace=100, factor=2, max_survivors=1), 400)
    order = 2 * make_bracket_order(3, 2)

    def list_stops(bracket: int, tokens: int) -> list[bool]:
        numbers = [number for number, found in enumerate(order) if found == bracket]
        decisions = [rule.decide(number, "lstm", tokens, float(number)) for number in numbers[:3]]
        return [decision.action is Action.STOP for decision in decisions]

    assert list_stops(0, 100) == [False, True, True]
    assert list_stops(1, 100) == [False, False, False]
    assert list_stops(1, 200) == [False, True, True]
    assert list_stops(2, 400) == [False, False, False]
