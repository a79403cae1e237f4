"""What holds for every rule in RULES. A new rule adds its example here and nothing else."""

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtune.search import Outcome
from memtune.search.early_stopping import RULES, Action, Rule
from memtune.trial_state import TrialState
from memtune.values import parse

TRIAL_TOKENS = 900
REPORT_TOKENS = range(100, TRIAL_TOKENS + 1, 100)
EXAMPLES: dict[str, dict[str, Any]] = {
    "none": {},
    "successive_halving": {"grace": 100, "factor": 3, "max_survivors": 2},
}
FAMILIES = ("lstm", "rnn")
VALUES = st.floats(1.0, 9.0) | st.just(math.nan) | st.just(math.inf)
CURVES = st.lists(VALUES, min_size=len(REPORT_TOKENS), max_size=len(REPORT_TOKENS))
TABLES = st.lists(CURVES, min_size=1, max_size=9)
ORDERS = st.lists(st.integers(0, 8), max_size=120)

each_rule = pytest.mark.parametrize("kind", RULES)


def make_rule(kind: str) -> Rule:
    return parse(RULES[kind], {"kind": kind, **EXAMPLES[kind]}, "study.toml").make_rule(TRIAL_TOKENS)


def get_family(number: int) -> str:
    return FAMILIES[number % 2]


@dataclass
class Simulation:
    """A study over a table of curves: one step reports the next point of a trial that runs."""

    table: list[list[float]]
    rule: Rule
    reports: dict[int, dict[int, float]] = field(default_factory=dict)
    stopped: set[int] = field(default_factory=set)

    def step(self, number: int) -> None:
        if number >= len(self.table) or number in self.stopped:
            return
        curve = self.reports.setdefault(number, {})
        if len(curve) == len(REPORT_TOKENS):
            return
        tokens = REPORT_TOKENS[len(curve)]
        curve[tokens] = self.table[number][len(curve)]
        if self.rule.decide(number, get_family(number), tokens, curve[tokens]).action is Action.STOP:
            self.stopped.add(number)

    def list_outcomes(self) -> list[Outcome]:
        return [
            Outcome(
                number,
                f"trial {number}",
                {"model": {"family": get_family(number)}},
                self._get_state(number),
                curve=dict(curve),
            )
            for number, curve in sorted(self.reports.items())
        ]

    def _get_state(self, number: int) -> TrialState:
        if number in self.stopped:
            return TrialState.STOPPED
        is_complete = len(self.reports[number]) == len(REPORT_TOKENS)
        return TrialState.COMPLETE if is_complete else TrialState.RUNNING


@each_rule
@given(table=TABLES, order=ORDERS, cut=st.integers(0, 120))
def test_a_study_resumed_at_any_step_decides_as_the_undisturbed_one(kind, table, order, cut):
    whole, resumed = Simulation(table, make_rule(kind)), Simulation(table, make_rule(kind))
    for number in order:
        whole.step(number)
    for number in order[:cut]:
        resumed.step(number)
    resumed.rule = make_rule(kind)
    resumed.rule.replay(resumed.list_outcomes())
    for number in order[cut:]:
        resumed.step(number)
    assert repr(resumed.list_outcomes()) == repr(whole.list_outcomes())


@each_rule
@given(table=TABLES, order=ORDERS)
def test_a_repeated_report_gets_the_same_decision_and_changes_nothing(kind, table, order):
    """A resumed trial reports its whole curve again."""
    once, twice = Simulation(table, make_rule(kind)), Simulation(table, make_rule(kind))
    for number in order:
        once.step(number)
        twice.step(number)
        for tokens, value in list(twice.reports.get(number, {}).items()):
            decision = twice.rule.decide(number, get_family(number), tokens, value)
            assert (decision.action is Action.STOP) == (number in twice.stopped)
    assert once.stopped == twice.stopped


@each_rule
@given(table=TABLES, order=ORDERS)
def test_the_state_does_not_depend_on_the_order_in_which_outcomes_are_replayed(kind, table, order):
    live = Simulation(table, make_rule(kind))
    for number in order:
        live.step(number)
    rules = [make_rule(kind), make_rule(kind)]
    rules[0].replay(live.list_outcomes())
    rules[1].replay(reversed(live.list_outcomes()))
    decisions = [
        [rule.decide(9 + number, "lstm", tokens, 5.0) for number, tokens in enumerate(REPORT_TOKENS)]
        for rule in rules
    ]
    assert decisions[0] == decisions[1]


@each_rule
@given(curve=CURVES)
def test_a_trial_alone_trains_on_its_whole_budget(kind, curve):
    alone = Simulation([curve], make_rule(kind))
    for _ in REPORT_TOKENS:
        alone.step(0)
    assert not alone.stopped


@each_rule
def test_every_stop_has_a_reason(kind):
    table = [[float(number)] * len(REPORT_TOKENS) for number in range(9)]
    rule = make_rule(kind)
    for step, tokens in enumerate(REPORT_TOKENS):
        for number, curve in enumerate(table):
            decision = rule.decide(number, get_family(number), tokens, curve[step])
            assert (decision.action is Action.CONTINUE) == (decision.reason == "")


@each_rule
def test_a_rule_describes_itself(kind):
    assert parse(RULES[kind], {"kind": kind, **EXAMPLES[kind]}, "study.toml").describe()
