"""Every budget ends a study, adds up over drivers, and is exceeded by at most one report."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from memtune.errors import ConfigurationError
from memtune.objective import Objective
from memtune.search import Proposals, Rule, StoredTrial
from memtune.search.early_stopping import Action, Decision, NoEarlyStopping, PromotionConfig
from memtune.settings import Settings
from memtune.spaces import FAMILY_FIELD
from memtune.studies import budgets
from memtune.studies.budgets import BudgetMonitor, Reserve
from memtune.studies.definition.study_loader import load_study
from memtune.studies.definition.study_terms import Budget, Price, Prices
from memtune.studies.director import DirectedTrial, Director
from memtune.training import TrialConfig
from memtune.trial_state import TrialState
from memtune.usage import NodeSeconds, Usage
from tests.directors import report_curve
from tests.unit.studies.study_files import resolve
from tests.unit.studies.test_director import MemoryRecords, make_report
from tests.unit.studies.test_study_progress import make_config

REPORT_TOKENS = 300
REPORT_SECONDS = 600.0
NOTHING = Usage()
PRICES = Prices(cpu_hour=1.0, gpu_hour=10.0, node_types={"fast": Price(cpu_hour=5.0, gpu_hour=50.0)})
EACH_BUDGET = {
    "tokens": (1000, Usage(tokens=REPORT_TOKENS, nodes={"": NodeSeconds()})),
    "cpu_hours": (0.5, Usage(nodes={"": NodeSeconds(cpu=REPORT_SECONDS)})),
    "gpu_hours": (0.5, Usage(nodes={"": NodeSeconds(gpu=REPORT_SECONDS)})),
    "money": (5.0, Usage(nodes={"fast": NodeSeconds(cpu=REPORT_SECONDS / 10, gpu=REPORT_SECONDS / 10)})),
}
UNITS = {"tokens": "tokens", "cpu_hours": "core hours", "gpu_hours": "GPU hours", "money": PRICES.currency}


def open_monitor(proposals: Proposals, budget: Budget) -> BudgetMonitor:
    monitor = BudgetMonitor(budget, PRICES, Objective.PERPLEXITY, proposals)
    monitor.add_outcomes(proposals.list_outcomes())
    return monitor


def multiply(usage: Usage, factor: int) -> Usage:
    nodes = {
        name: NodeSeconds(cpu=seconds.cpu * factor, gpu=seconds.gpu * factor)
        for name, seconds in usage.nodes.items()
    }
    return Usage(tokens=usage.tokens * factor, nodes=nodes)


def run_driver(
    proposals: Proposals,
    budget: Budget,
    losses: Callable[[int], float] = lambda number: 3.0,
    usage_per_report: Usage = NOTHING,
) -> tuple[BudgetMonitor, int]:
    """Run trials of three reports each one after the other, as an executor does; return the reports made.

    `losses` has the loss of each trial by number.
    """
    monitor = open_monitor(proposals, budget)
    director = Director(
        proposals,
        MemoryRecords(),
        budget.trials,
        watchers=[monitor.watch],
        may_sample=monitor.has_room,
    )
    before, reports_made = {o.number: len(o.curve) for o in proposals.list_outcomes()}, 0
    while not monitor.is_spent() and (trial := director.take_next_trial()):
        number = trial.proposal.number
        director.on_started(number)
        curve = [make_report(REPORT_TOKENS * (i + 1), losses(number)) for i in range(before.get(number, 0))]
        while not monitor.is_spent() and trial.state is TrialState.RUNNING:
            reason = "budget" if len(curve) == 2 else None
            curve.append(make_report(REPORT_TOKENS * (len(curve) + 1), losses(number), reason))
            reports_made += 1
            report_curve(director, number, curve, usage=multiply(usage_per_report, len(curve)))
            if reason:
                director.on_ended(number)
    director.interrupt()
    return monitor, reports_made


@pytest.mark.parametrize("name", EACH_BUDGET)
def test_an_amount_ends_the_study_after_the_report_that_reaches_it(
    open_proposals: Callable[[], Proposals], name: str
) -> None:
    limit, usage = EACH_BUDGET[name]
    budget = Budget.model_validate({"trials": 4, name: limit})
    monitor, reports = run_driver(open_proposals(), budget, usage_per_report=usage)
    spent = monitor.find_spent()
    assert spent is not None
    assert spent.startswith(f"budget.{name} is reached: ")
    assert spent.endswith(f" {UNITS[name]}")
    fewest = {"tokens": 4, "cpu_hours": 3, "gpu_hours": 3, "money": 6}[name]
    assert reports == fewest, "one report fewer is below the limit"


@pytest.mark.parametrize("name", EACH_BUDGET)
def test_an_amount_counts_earlier_drivers_and_a_larger_one_continues(
    open_proposals: Callable[[], Proposals], name: str
) -> None:
    limit, usage = EACH_BUDGET[name]
    budget = Budget.model_validate({"trials": 4, name: limit})
    _, first = run_driver(open_proposals(), budget, usage_per_report=usage)
    _, again = run_driver(open_proposals(), budget, usage_per_report=usage)
    assert again == 0
    larger = budget.model_copy(update={name: limit * 2})
    monitor, second = run_driver(open_proposals(), larger, usage_per_report=usage)
    assert monitor.is_spent()
    exact = multiply(usage, first + second)
    assert monitor.usage.tokens == exact.tokens
    assert monitor.usage.cpu_seconds == pytest.approx(exact.cpu_seconds)
    assert monitor.usage.gpu_seconds == pytest.approx(exact.gpu_seconds)


def test_a_target_in_the_users_unit_ends_the_study(open_proposals: Callable[[], Proposals]) -> None:
    budget = Budget(trials=4, target=8.0)  # a loss of 2.079
    monitor, reports = run_driver(open_proposals(), budget, lambda number: 2.0 if number == 1 else 2.1)
    reached = "budget.target is reached: the best perplexity is 7.3891, the target 8"
    assert monitor.find_spent() == reached
    assert reports == 4, "three of the first trial, and the first of the second one"
    assert run_driver(open_proposals(), budget)[1] == 0, "a resumed study has reached it too"


@pytest.mark.parametrize(("target", "is_reached"), [(60.0, True), (60.1, False)])
def test_a_target_accuracy_is_in_per_cent(
    open_proposals: Callable[[], Proposals], target: float, is_reached: bool
) -> None:
    opened = open_proposals()
    monitor = BudgetMonitor(Budget(target=target), None, Objective.ACCURACY, opened)
    director = Director(opened, MemoryRecords(), 1, watchers=[monitor.watch])
    trial = director.take_next_trial()
    assert trial is not None
    director.on_started(trial.proposal.number)
    half = make_report(300, 9.0).model_copy(update={"objective": Objective.ACCURACY, "valid_accuracy": 0.6})
    report_curve(director, trial.proposal.number, [half])
    assert monitor.is_spent() is is_reached


def test_trials_without_improvement_end_the_search(open_proposals: Callable[[], Proposals]) -> None:
    budget = Budget(trials=8, no_improvement=2)
    losses = {0: 3.0, 1: 2.5}
    monitor, reports = run_driver(open_proposals(), budget, lambda number: losses.get(number, 2.6))
    ended = "2 trials ended after trial 1 without a better one"
    assert monitor.find_search_end() == f"budget.no_improvement is reached: {ended}"
    assert reports == 4 * 3
    assert run_driver(open_proposals(), budget)[1] == 0


def test_a_paused_trial_counts_as_ended_until_it_is_resumed(open_proposals: Callable[[], Proposals]) -> None:
    monitor = open_monitor(opened := open_proposals(), Budget(trials=8, no_improvement=2))
    director = Director(opened, MemoryRecords(), 8, PromotionConfig(grace=300).make_rule(900))

    def pause(cost: float) -> DirectedTrial:
        trial = director.take_next_trial()
        assert trial is not None
        director.on_started(trial.proposal.number)
        report_curve(director, trial.proposal.number, [make_report(300, cost)])
        monitor.watch(trial)
        return trial

    resumed = [pause(1.0), pause(2.0)][1]
    resumed.state = TrialState.RUNNING
    monitor.watch(resumed)
    pause(3.0)
    assert monitor.find_search_end() is None
    resumed.state = TrialState.PAUSED
    monitor.watch(resumed)
    ended = "2 trials ended after trial 0 without a better one"
    assert monitor.find_search_end() == f"budget.no_improvement is reached: {ended}"


class PausingRule(NoEarlyStopping):
    """Pauses every trial at its first report."""

    def decide(self, number: int, alternative: str, tokens: int, value: float) -> Decision:
        return Decision(Action.PAUSE)


@pytest.mark.parametrize(
    ("rule", "repeats", "started"),
    [
        pytest.param(
            PausingRule(), 0, 24, id="the best two and that of the alternative lack 600 tokens each"
        ),
        pytest.param(NoEarlyStopping(), 0, 10, id="each running trial lacks 600 tokens"),
        pytest.param(PausingRule(), 9, 9, id="at least half is for trials"),
    ],
)
def test_no_trial_starts_where_complete_trials_and_repeats_need_the_rest_of_an_amount(
    open_proposals: Callable[[], Proposals], rule: Rule, repeats: int, started: int
) -> None:
    opened, budget = open_proposals(), Budget(tokens=9_000)
    reserve = Reserve(trial_tokens=900, repeats=repeats, cores=1, compared=FAMILY_FIELD)
    monitor = BudgetMonitor(budget, None, Objective.PERPLEXITY, opened, reserve)

    director = Director(opened, MemoryRecords(), 40, rule, [monitor.watch], may_sample=monitor.has_room)
    while trial := director.take_next_trial():
        director.on_started(trial.proposal.number)
        usage = Usage(tokens=300, nodes={"": NodeSeconds()})
        report_curve(director, trial.proposal.number, [make_report(300, 3.0)], usage=usage)
        if trial.state is TrialState.PAUSED:
            director.on_ended(trial.proposal.number)
    assert len(director.trials) == started


@pytest.mark.parametrize(("seconds", "has_room"), [(180, False), (200, True)])
def test_the_last_trial_and_a_repeat_have_the_time_of_a_single_worker(
    open_proposals: Callable[[], Proposals], monkeypatch: pytest.MonkeyPatch, seconds: int, has_room: bool
) -> None:
    """After 30 s, eight workers have trained on 300 of 900 tokens each: 60 s and 90 s are left, plus 5 %.

    By the tokens of all workers together they would be 60 s and 11 s.
    """
    now = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr(budgets, "time", now)
    opened, reserve = open_proposals(), Reserve(trial_tokens=900, repeats=1, cores=1, compared=FAMILY_FIELD)
    monitor = BudgetMonitor(Budget(time=seconds), None, Objective.PERPLEXITY, opened, reserve)
    now.monotonic = lambda: 30.0
    for number in range(8):
        usage = Usage(tokens=300, nodes={"": NodeSeconds(cpu=30.0)})
        trial = StoredTrial(number, str(number), {}, TrialState.RUNNING)
        monitor.watch(
            DirectedTrial(
                trial, make_config(8), TrialState.RUNNING, reports=[make_report(300, 3.0)], usage=usage
            )
        )
    assert monitor.has_room() is has_room


def test_a_model_that_counts_makes_no_token_cheaper(open_proposals: Callable[[], Proposals]) -> None:
    opened, reserve = open_proposals(), Reserve(trial_tokens=900, repeats=2, cores=1, compared=FAMILY_FIELD)
    monitor = BudgetMonitor(Budget(cpu_hours=1.0), None, Objective.PERPLEXITY, opened, reserve)
    counting = TrialConfig.model_validate({"model": {"family": "kneser_ney"}})
    for number, (config, tokens, hours) in enumerate([(make_config(8), 900, 0.5), (counting, 10**6, 0.0)]):
        usage = Usage(tokens=tokens, nodes={"": NodeSeconds(cpu=3600 * hours)})
        trial = StoredTrial(number, str(number), {}, TrialState.RUNNING)
        monitor.watch(DirectedTrial(trial, config, TrialState.COMPLETE, usage=usage))
    assert monitor.find_search_end() is not None, "two repeats need the other half"


@pytest.mark.parametrize(
    ("costs", "ended", "since"),
    [
        pytest.param({}, [0, 1], None, id="no-value"),
        pytest.param({0: 2.0, 1: 2.0, 2: 3.0}, [2, 0, 1], 2, id="the-first-of-equals"),
        pytest.param({0: 3.0, 4: 2.0}, [6, 0, 1, 5], 2, id="a-running-best"),
    ],
)
def test_the_count_since_the_best_trial_follows_from_the_trials_alone(
    open_proposals: Callable[[], Proposals], costs: dict[int, float], ended: list[int], since: int | None
) -> None:
    outcomes = [
        StoredTrial(
            number,
            str(number),
            {},
            TrialState.COMPLETE if number in ended else TrialState.RUNNING,
            curve={300: costs[number]} if number in costs else {},
        )
        for number in [*ended, *(running for running in costs if running not in ended)]
    ]
    for limit in (2, 3):
        monitor = open_monitor(open_proposals(), Budget(trials=8, no_improvement=limit))
        monitor.add_outcomes(outcomes)
        assert (monitor.find_search_end() is not None) is (since is not None and limit <= since)


def test_what_a_trial_has_used_counts_once_however_often_its_end_is_seen(
    open_proposals: Callable[[], Proposals],
) -> None:
    monitor = open_monitor(open_proposals(), Budget(trials=8))
    trial = DirectedTrial(StoredTrial(0, "a", {}, TrialState.RUNNING), make_config(8), TrialState.RUNNING)
    for tokens, state in ((300, "running"), (600, "running"), (600, "complete"), (600, "complete")):
        trial.usage = Usage(tokens=tokens, nodes={"": NodeSeconds(cpu=tokens / 10)})
        trial.state = TrialState(state)
        monitor.watch(trial)
    assert monitor.usage == Usage(tokens=600, nodes={"": NodeSeconds(cpu=60.0)})


def test_money_without_prices_is_refused(study_file: Path) -> None:
    study_file.write_text(study_file.read_text() + "money = 5\n")
    with pytest.raises(ConfigurationError, match=r"budget.money needs \[prices\]"):
        load_study(study_file)


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (
            "money = 5\n[prices]\ngpu_hour = 2.0",
            "budget.money = 5 is never reached, because trials reserve no GPU and prices.cpu_hour is 0",
        ),
        (
            "money = 5\n[prices]\n[resources]\ngpus_per_trial = 1",
            "budget.money = 5 is never reached, because prices.cpu_hour is 0",
        ),
        ("gpu_hours = 5", "budget.gpu_hours = 5 is never reached, because resources.gpus_per_trial = 0"),
    ],
)
def test_a_budget_that_is_never_reached_is_refused(study_file: Path, budget: str, message: str) -> None:
    study_file.write_text(f"{study_file.read_text()}{budget}\n")
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        load_study(study_file)


@pytest.mark.parametrize(
    "budget",
    [
        "money = 5\n[prices]\ngpu_hour = 2.0\n[resources]\ngpus_per_trial = 1",
        "money = 5\n[prices]\n[prices.node_types.large]\ncpu_hour = 0.1",
        "gpu_hours = 5\n[resources]\ngpus_per_trial = 1",
    ],
)
def test_a_budget_that_some_node_spends_is_accepted(study_file: Path, budget: str) -> None:
    study_file.write_text(f"{study_file.read_text()}{budget}\n")
    accepted = load_study(study_file).budget
    assert 5 in (accepted.money, accepted.gpu_hours)


def test_prices_do_not_change_a_study(study_file: Path, settings: Settings) -> None:
    before = resolve(study_file, settings).id
    study_file.write_text(study_file.read_text() + "money = 5\n[prices]\ncpu_hour = 0.04\n")
    assert resolve(study_file, settings).id == before
