"""Samplers with several objectives: they find the front, and a resumed study proposes the same."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState, create_trial

from memtune.results.study.study_front import compute_hypervolume, find_front
from memtune.search import QUANTITIES, SAMPLERS, MultiObjective, Proposals, StoredTrial, StudyReader
from memtune.search.proposals import Candidates
from memtune.search.samplers.observed_values import attach_objectives
from memtune.search.trial_store import CONFIGURATION_KEY, IDENTITY_KEY, REFUSAL_KEY
from memtune.spaces import Space, read_space
from memtune.values import digest

# The front is x from 0 to 1 with every z_i = 0: the value falls and the size grows with x.
FRONT_TOML = "[model]\n" + "".join(f"{name} = {{ float = [0.0, 1.0] }}\n" for name in ("x", "z1", "z2", "z3"))
BRANCH_TOML = (
    '[model]\none_of = "kind"\n[model.wide]\nx = { float = [0.0, 1.0] }\n'
    "[model.deep]\nx = { float = [0.0, 1.0] }\nz1 = { float = [0.0, 1.0] }\n"
)
REFERENCE = (2.0, 2.0)
TRIALS = 60
REOPENED = {"tpe": 12, "nsga2": 20, "random": 5, "qmc": 5}
"""Trials after which a sampler has learned something: TPE after 8, NSGA-II by generations."""


def compute_objectives(configuration: dict[str, Any]) -> tuple[float, float]:
    model = configuration["model"]
    distance = sum(amount for name, amount in model.items() if name.startswith("z"))
    return (1 - model["x"]) ** 2 + distance, model["x"] ** 2 + distance


def measure(outcome: StoredTrial) -> Sequence[float]:
    assert outcome.value == compute_objectives(outcome.configuration)[0]
    return compute_objectives(outcome.configuration)


def open_proposals(
    url: str,
    kind: Any,
    seed: int = 0,
    toml: str = FRONT_TOML,
    refuse: Callable[[dict[str, Any]], str | None] = lambda configuration: None,
) -> Proposals:
    space: Space = read_space(toml, "space.toml")
    return Proposals(
        url,
        "s",
        Candidates(
            space,
            SAMPLERS[kind](kind=kind, seed=seed, startup_trials=8),
            lambda configuration: digest(configuration)[:16],
            refuse,
            objectives=MultiObjective(2, measure),
        ),
    )


def drive(proposals: Proposals, trials: int) -> None:
    waiting = proposals.list_unfinished()
    while waiting or len(proposals.list_outcomes()) < trials:
        proposal = waiting.pop() if waiting else proposals.ask()
        assert proposal is not None
        value, _ = compute_objectives(proposal.configuration)
        proposals.report(proposal.number, 10, value)
        proposals.complete(proposal.number, value)


def measure_hypervolume(proposals: Proposals) -> float:
    points = [compute_objectives(outcome.configuration) for outcome in proposals.list_outcomes()]
    return compute_hypervolume([points[place] for place in find_front(points)], REFERENCE)


def search_volume(folder: Path, kind: str) -> float:
    proposals = open_proposals(f"journal://{folder}/{kind}", kind)
    drive(proposals, TRIALS)
    return measure_hypervolume(proposals)


@pytest.fixture(scope="module")
def random_volume(tmp_path_factory: pytest.TempPathFactory) -> float:
    return search_volume(tmp_path_factory.mktemp("random"), "random")


@pytest.mark.parametrize("kind", ["tpe", "nsga2"])
def test_a_sampler_finds_a_better_front_than_random_draws(
    tmp_path: Path, kind: str, random_volume: float
) -> None:
    assert search_volume(tmp_path, kind) > random_volume + 0.2


@pytest.mark.parametrize("toml", [FRONT_TOML, BRANCH_TOML], ids=["flat", "branches"])
@pytest.mark.parametrize("kind", REOPENED)
def test_a_study_reopened_before_each_trial_proposes_the_same(tmp_path: Path, kind: str, toml: str) -> None:
    whole, again = (f"journal://{tmp_path}/{name}" for name in ("whole", "again"))
    drive(open_proposals(whole, kind, toml=toml), REOPENED[kind])
    for trials in range(1, REOPENED[kind] + 1):
        drive(open_proposals(again, kind, toml=toml), trials)
    results = [
        [replace(found, number=0) for found in open_proposals(url, kind, toml=toml).list_outcomes()]
        for url in (whole, again)
    ]
    assert results[0] == results[1]


@pytest.mark.parametrize("kind", ["tpe", "nsga2"])
def test_refused_configurations_are_avoided_although_they_are_small(tmp_path: Path, kind: str) -> None:
    def refuse(configuration: dict[str, Any]) -> str | None:
        return "too small" if configuration["model"]["x"] < 0.5 else None

    url = f"journal://{tmp_path}/study"
    drive(open_proposals(url, kind, refuse=refuse), 40)
    assert len(StudyReader(url).read("s").refused) < 25  # random draws refuse as many as they start


def test_a_refused_trial_and_an_unknown_objective_count_as_the_worst() -> None:
    def trial(value: float, size: float, **attributes: object) -> Any:
        stored = {IDENTITY_KEY: "", CONFIGURATION_KEY: {"size": size}, **attributes}
        return create_trial(value=value, user_attrs=stored)

    trials = [
        trial(1.0, 4.0),
        trial(3.0, 2.0),
        trial(2.0, float("inf")),
        trial(0.5, 0.1, **{REFUSAL_KEY: "too small"}),
    ]
    running = create_trial(state=TrialState.RUNNING)
    for number, found in enumerate(trials):
        found.number = number
    objectives = MultiObjective(2, lambda outcome: (outcome.value or 0.0, outcome.configuration["size"]))
    *attached, last = attach_objectives([*trials, running], objectives)
    assert [found.values for found in attached] == [[1.0, 4.0], [3.0, 2.0], [2.0, 4.0], [3.0, 4.0]]
    assert last is running
    assert trials[0].values == [1.0]


def test_half_the_size_is_one_step_at_every_size() -> None:
    coordinates = [
        QUANTITIES["parameters"].compute_coordinate(size) for size in (1_000_000, 500_000, 1000, 500)
    ]
    assert coordinates[0] - coordinates[1] == pytest.approx(1.0)
    assert coordinates[2] - coordinates[3] == pytest.approx(1.0)
    speed = QUANTITIES["tokens_per_second"]
    assert speed.compute_coordinate(200) < speed.compute_coordinate(100)
    assert QUANTITIES["memory"].compute_coordinate(None) == float("inf")
    assert QUANTITIES["value"].compute_coordinate(4.5) == 4.5


@pytest.mark.parametrize(("quantity", "coordinate"), [(None, float("inf")), (0, 0.0), (1, 0.0), (1.5, 0.585)])
def test_a_size_below_one_counts_as_one(quantity: float | None, coordinate: float) -> None:
    """A model without state has no logarithm of its size."""
    assert QUANTITIES["state"].compute_coordinate(quantity) == pytest.approx(coordinate, abs=1e-3)
