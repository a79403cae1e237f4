"""A whole study in simulated time: four workers, analytic learning curves, no training."""

import heapq
import math
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest

from memtune.search import SAMPLERS, Proposals, Rule, StoredTrial
from memtune.search.early_stopping import Action, NoEarlyStopping, SuccessiveHalving, SuccessiveHalvingConfig
from memtune.search.proposals import Candidates
from memtune.spaces import read_space
from memtune.trial_state import StopReason, TrialEnd, TrialState
from tests.presence import require

WORKERS = 4
REPORTS = (10, 30, 90, 270)
SPACE = """
[model]
memory_size = { int = [1, 20] }
width = { int = [16, 256], step = 16 }
[optimiser]
one_of = "kind"
[optimiser.sgd]
learning_rate = { float = [1e-2, 1e1], log = true }
[optimiser.adam]
learning_rate = { float = [1e-5, 1e-1], log = true }
"""


def compute_loss(configuration: dict, tokens: int) -> float:
    """Nats above the ideal: 0 for adam at 1e-3 with 12 slots and all the width, higher for fewer tokens."""
    model, optimiser = configuration["model"], configuration["optimiser"]
    best_rate = {"sgd": 1.0, "adam": 1e-3}[optimiser["kind"]]
    quality = (
        0.3 * (optimiser["kind"] == "sgd")
        + 0.4 * math.log10(optimiser["learning_rate"] / best_rate) ** 2
        + 0.02 * abs(model["memory_size"] - 12)
        + 0.5 * (1 - model["width"] / 256)
    )
    return quality + 2.0 / math.sqrt(tokens)


def simulate(
    proposals: Proposals, rule: Rule, go_on: Callable[[int, int], bool]
) -> tuple[list[StoredTrial], int]:
    """Outcomes of a study that starts trials while `go_on(trials, tokens)`, and the tokens it read."""
    read = started = 0
    events: list[tuple[int, int, int]] = []
    running = {}

    def start(now: int) -> None:
        nonlocal started
        if go_on(started, read) and (proposal := proposals.ask()):
            running[proposal.number] = proposal
            heapq.heappush(events, (now + REPORTS[0], proposal.number, 0))
            started += 1

    for _ in range(WORKERS):
        start(0)
    while events:
        now, number, rung = heapq.heappop(events)
        tokens, value = REPORTS[rung], compute_loss(running[number].configuration, REPORTS[rung])
        read += tokens - (REPORTS[rung - 1] if rung else 0)
        if rule.decide(number, "", tokens, value).action is Action.STOP:
            proposals.stop(number, TrialEnd(reason=StopReason.EARLY_STOPPING), tokens, value)
            start(now)
        elif tokens == REPORTS[-1]:
            proposals.report(number, tokens, value)
            proposals.complete(number, value)
            start(now)
        else:
            proposals.report(number, tokens, value)
            heapq.heappush(events, (now + REPORTS[rung + 1] - tokens, number, rung + 1))
    return proposals.list_finished(), read


def open_study(folder: Path, kind: str, seed: int) -> Proposals:
    return Proposals(
        f"journal://{folder}/{kind}-{seed}",
        f"{kind} {seed}",
        Candidates(
            read_space(SPACE, "simulated"),
            SAMPLERS[kind](kind=kind, seed=seed),
            identify=repr,
            get_refusal_reason=lambda configuration: None,
        ),
    )


def find_best(outcomes: list[StoredTrial]) -> float:
    return min(require(outcome.value) for outcome in outcomes if outcome.state is TrialState.COMPLETE)


def limit_trials(count: int) -> Callable[[int, int], bool]:
    return lambda started, read: started < count


def limit_tokens(count: int) -> Callable[[int, int], bool]:
    return lambda started, read: read < count


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[list[StoredTrial], int]]:
    """TPE with halving under three seeds."""
    folder = tmp_path_factory.mktemp("searched")
    return [
        simulate(
            open_study(folder, "tpe", seed),
            SuccessiveHalving(SuccessiveHalvingConfig(grace=REPORTS[0], max_survivors=4), REPORTS[-1]),
            limit_trials(30),
        )
        for seed in range(3)
    ]


def test_every_trial_ends_and_most_are_stopped_early(searched):
    for outcomes, read in searched:
        states = [outcome.state for outcome in outcomes]
        assert set(states) == {TrialState.COMPLETE, TrialState.STOPPED}
        assert states.count(TrialState.STOPPED) > len(states) / 2
        assert read == sum(max(outcome.curve) for outcome in outcomes)
        assert read < len(outcomes) * REPORTS[-1] / 2


def test_tpe_with_halving_beats_random_search_of_as_many_tokens(searched, tmp_path):
    found, random_best = [], []
    for seed, (outcomes, tokens) in enumerate(searched):
        random, _ = simulate(open_study(tmp_path, "random", seed), NoEarlyStopping(), limit_tokens(tokens))
        found.append(find_best(outcomes))
        random_best.append(find_best(random))
    assert median(found) < median(random_best), (found, random_best)
