"""The contract of every rule in RULES. A new rule only adds its example and its description here."""

import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtune.search import StoredTrial
from memtune.search.early_stopping import RULES, Action, Rule
from memtune.trial_state import TrialState
from memtune.values import parse

TRIAL_TOKENS = 900
REPORT_TOKENS = range(100, TRIAL_TOKENS + 1, 100)
EXAMPLES: dict[str, dict[str, Any]] = {
    "none": {},
    "successive_halving": {"grace": 100, "factor": 3, "max_survivors": 2},
    "promotion": {"grace": 100, "factor": 2, "max_survivors": 3},
    "hyperband": {"grace": 100, "factor": 2},
}
FAMILIES = ("lstm", "rnn")
VALUES = st.floats(1.0, 9.0) | st.just(math.nan) | st.just(math.inf)
CURVES = st.lists(VALUES, min_size=len(REPORT_TOKENS), max_size=len(REPORT_TOKENS))
TABLES = st.lists(CURVES, min_size=1, max_size=9)
STEPS = st.lists(st.integers(0, 2), max_size=120)
"""Which worker reports next."""

GUIDE = Path(__file__).parents[2] / "docs" / "early_stopping.md"

each_rule = pytest.mark.parametrize("kind", RULES)


def make_rule(kind: str) -> Rule:
    rule: Rule = parse(RULES[kind], {"kind": kind, **EXAMPLES[kind]}, "study.toml").make_rule(TRIAL_TOKENS)
    return rule


def get_family(number: int) -> str:
    return FAMILIES[number % 2]


@dataclass
class Simulation:
    """A study over a table of curves with three workers, which start trials as a director does."""

    table: list[list[float]]
    kind: str
    curves: dict[int, dict[int, float]] = field(default_factory=dict)
    states: dict[int, TrialState] = field(default_factory=dict)
    workers: dict[int, int] = field(default_factory=dict)
    resumptions: Counter[tuple[int, int]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.rule = make_rule(self.kind)

    def run(self, steps: list[int]) -> None:
        for worker in steps:
            self.step(worker)

    def finish(self) -> None:
        """Report in turn until no worker finds a trial to run."""
        while sum(self.step(worker) for worker in range(3)):
            pass

    def step(self, worker: int) -> bool:
        """A worker reports the next point of its trial, or takes a trial; returns whether it did either."""
        if worker not in self.workers:
            return self._take_trial(worker)
        number = self.workers[worker]
        curve = self.curves[number]
        tokens = REPORT_TOKENS[len(curve)]
        curve[tokens] = self.table[number][len(curve)]
        action = self.rule.decide(number, get_family(number), tokens, curve[tokens]).action
        if tokens == TRIAL_TOKENS:
            self.states[number] = TrialState.COMPLETE
        elif action is not Action.CONTINUE:
            self.states[number] = TrialState.PAUSED if action is Action.PAUSE else TrialState.STOPPED
        if self.states[number] is not TrialState.RUNNING:
            del self.workers[worker]
        if self.states[number] in (TrialState.COMPLETE, TrialState.STOPPED):
            self.rule.end(number)
        return True

    def _take_trial(self, worker: int) -> bool:
        is_sampling_over = len(self.curves) == len(self.table)
        number = self.rule.choose_resumed([*self.workers.values()], is_sampling_over)
        if number is not None:
            assert self.states[number] is TrialState.PAUSED
            self.resumptions[number, len(self.curves[number])] += 1
            self.rule.resume(number)
        elif is_sampling_over:
            return False
        else:
            number = len(self.curves)
            self.curves[number] = {}
        self.states[number] = TrialState.RUNNING
        self.workers[worker] = number
        return True

    def restart(self) -> None:
        """Replace the rule by one that replays the records, as a later driver does."""
        self.rule = make_rule(self.kind)
        self.rule.replay(self.list_outcomes())

    def list_outcomes(self) -> list[StoredTrial]:
        return [
            StoredTrial(
                number,
                f"trial {number}",
                {"model": {"family": get_family(number)}},
                self.states[number],
                curve=dict(curve),
                alternative=get_family(number),
            )
            for number, curve in sorted(self.curves.items())
        ]


@each_rule
@given(table=TABLES, steps=STEPS, cut=st.integers(0, 120))
def test_a_study_resumed_at_any_step_decides_like_an_undisturbed_one(kind, table, steps, cut):
    undisturbed, resumed = Simulation(table, kind), Simulation(table, kind)
    undisturbed.run(steps)
    undisturbed.finish()
    resumed.run(steps[:cut])
    resumed.restart()
    resumed.run(steps[cut:])
    resumed.finish()
    assert repr(resumed.list_outcomes()) == repr(undisturbed.list_outcomes())


@each_rule
@given(table=TABLES, steps=STEPS)
def test_repeated_reports_change_nothing(kind, table, steps):
    """A resumed trial reports its whole curve again, and it continues."""
    once, twice = Simulation(table, kind), Simulation(table, kind)
    once.run(steps)
    for worker in steps:
        twice.step(worker)
        for number in twice.workers.values():
            for tokens, value in twice.curves[number].items():
                decision = twice.rule.decide(number, get_family(number), tokens, value)
                assert decision.action is Action.CONTINUE
    assert repr(twice.list_outcomes()) == repr(once.list_outcomes())


@each_rule
@given(table=TABLES, steps=STEPS)
def test_the_order_in_which_records_are_replayed_does_not_matter(kind, table, steps):
    forwards, backwards = Simulation(table, kind), Simulation(table, kind)
    for simulation in (forwards, backwards):
        simulation.run(steps)
        simulation.rule = make_rule(kind)
    forwards.rule.replay(forwards.list_outcomes())
    backwards.rule.replay(reversed(backwards.list_outcomes()))
    forwards.finish()
    backwards.finish()
    assert repr(forwards.list_outcomes()) == repr(backwards.list_outcomes())


@each_rule
@given(table=TABLES, steps=STEPS)
def test_a_finished_study_has_a_complete_trial_and_no_running_one(kind, table, steps):
    study = Simulation(table, kind)
    study.run(steps)
    study.finish()
    states = Counter(study.states.values())
    assert states[TrialState.RUNNING] == 0
    assert states[TrialState.COMPLETE] >= 1
    assert len(study.states) == len(table)


@each_rule
@given(table=TABLES, steps=STEPS)
def test_a_trial_is_resumed_once_from_each_pause(kind, table, steps):
    study = Simulation(table, kind)
    study.run(steps)
    study.finish()
    assert all(times == 1 for times in study.resumptions.values())
    if kind != "promotion":
        assert TrialState.PAUSED not in study.states.values()


@each_rule
def test_stops_and_pauses_have_reasons(kind):
    rule = make_rule(kind)
    for tokens in REPORT_TOKENS:
        for number in range(9):
            decision = rule.decide(number, get_family(number), tokens, float(number))
            assert (decision.action is Action.CONTINUE) == (decision.reason == "")


@each_rule
@given(table=TABLES, steps=STEPS)
def test_a_stopped_trial_stays_stopped_after_a_restart(kind, table, steps):
    """A worker that outlives its driver may report once more."""
    study = Simulation(table, kind)
    study.run(steps)
    study.restart()
    for number, state in study.states.items():
        if state is TrialState.STOPPED:
            tokens, value = max(study.curves[number].items())
            decision = study.rule.decide(number, get_family(number), tokens, value)
            assert (decision.action, decision.reason) == (Action.STOP, "stopped before")


@each_rule
@given(table=TABLES, steps=STEPS)
def test_a_paused_trial_that_has_ended_is_not_resumed(kind, table, steps):
    study = Simulation(table, kind)
    study.run(steps)
    paused = [number for number, state in study.states.items() if state is TrialState.PAUSED]
    for number in paused:
        study.rule.end(number)
    while (resumed := study.rule.choose_resumed([], True)) is not None:
        assert resumed not in paused
        study.rule.resume(resumed)


DESCRIPTIONS = {
    "none": "no early stopping",
    "successive_halving": "successive halving after 100",
    "promotion": "pause and promotion after 100",
    "hyperband": "Hyperband after 100",
}


@each_rule
def test_a_rule_describes_itself(kind):
    assert parse(RULES[kind], {"kind": kind, **EXAMPLES[kind]}, "study.toml").describe() == DESCRIPTIONS[kind]


@each_rule
def test_the_guide_has_a_row_for_a_rule(kind):
    assert f"\n| `{kind}` |" in GUIDE.read_text()
