"""What a study has spent, by state and family, and what early stopping has saved."""

import pytest

from memtune.search import StoredTrial
from memtune.studies.budgets import CostRow, StudyCost, compute_study_cost
from memtune.studies.definition.study_terms import Price, Prices
from memtune.trial_state import StopReason, TrialEnd, TrialState
from memtune.usage import NodeSeconds, Usage

FULL_TOKENS = 900
PRICES = Prices(currency="USD", cpu_hour=2.0, node_types={"large": Price(gpu_hour=30.0)})


def make_outcome(
    number: int, family: str, state: TrialState, tokens: int, reason: StopReason = StopReason.BUDGET
) -> StoredTrial:
    """A trial that used two core hours and half a GPU hour."""
    nodes = {"": NodeSeconds(cpu=7200), "large": NodeSeconds(gpu=1800)}
    return StoredTrial(
        number,
        f"trial {number}",
        {"model": {"family": family}, "training": {"tokens": FULL_TOKENS}},
        state,
        curve={tokens // 2: 3.0, tokens: 2.0} if tokens else {},
        end=TrialEnd(reason=reason),
        usage=Usage(tokens=tokens, nodes=nodes),
    )


OUTCOMES = [
    make_outcome(0, "rnn", TrialState.COMPLETE, 900),
    make_outcome(1, "lstm", TrialState.STOPPED, 300, StopReason.EARLY_STOPPING),
    make_outcome(2, "lstm", TrialState.STOPPED, 0, StopReason.EARLY_STOPPING),
    make_outcome(3, "lstm", TrialState.FAILED, 100, StopReason.ERROR),
    make_outcome(4, "lstm", TrialState.STOPPED, 1000, StopReason.EARLY_STOPPING),
]


def compute(outcomes: list[StoredTrial], prices: Prices | None = PRICES) -> StudyCost:
    return compute_study_cost("s", {"all": outcomes}, 60.0, prices, lambda outcome: FULL_TOKENS)


def make_row(group: str, trials: int, tokens: int) -> CostRow:
    spent = {"cpu_hours": 2.0 * trials, "gpu_hours": 0.5 * trials, "money": 19.0 * trials}
    return CostRow(group=group, trials=trials, tokens=tokens, **spent)


def test_the_trials_are_added_up_in_all_by_state_and_by_family():
    by_state = {"complete": OUTCOMES[:1], "failed": OUTCOMES[3:4], "stopped": [*OUTCOMES[1:3], OUTCOMES[4]]}
    cost = compute_study_cost("s", {**by_state, "repeats": []}, 60.0, PRICES, lambda outcome: FULL_TOKENS)
    assert (cost.study, cost.seconds, cost.currency) == ("s", 60.0, "USD")
    assert cost.total == make_row("all", 5, 2300)
    assert cost.by_state == (
        make_row("complete", 1, 900),
        make_row("failed", 1, 100),
        make_row("stopped", 3, 1300),
    )
    assert cost.by_family == (make_row("lstm", 4, 1400), make_row("rnn", 1, 900))


def test_only_trials_ended_by_early_stopping_save_tokens_and_none_saves_less_than_nothing():
    cost = compute(OUTCOMES)
    assert cost.full_tokens == 5 * FULL_TOKENS
    assert cost.saved_tokens == (900 - 300) + 900 + 0
    assert cost.saved_share == pytest.approx(1500 / 4500)
    assert compute([]).saved_share == 0.0


def test_without_prices_there_is_no_money():
    cost = compute(OUTCOMES, prices=None)
    assert (cost.total.money, cost.currency) == (None, None)
    assert "spent_money" not in cost.list_figures()


def test_the_figures_for_a_tracking_store_are_the_totals():
    assert compute(OUTCOMES).list_figures() == {
        "spent_tokens": 2300.0,
        "spent_cpu_hours": 10.0,
        "spent_gpu_hours": 2.5,
        "spent_seconds": 60.0,
        "saved_tokens": 1500.0,
        "spent_money": 95.0,
    }
