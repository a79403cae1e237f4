"""The front of a scripted study whose answer is known."""

import math

import pytest

from memtune.objective import Objective
from memtune.results.insight.study_front import StudyFront, find_study_front
from memtune.results.insight.study_trials import StudyTrial
from memtune.results.ranking.selection import RankedTrial, rank_trials
from memtune.search import ObjectiveName
from memtune.training import TrialSizes
from memtune.trial_state import TrialState

# Perplexity and parameters: #0 and #2 and #3 are on the front, #1 is dominated by #2, #4 was stopped.
TABLE: dict[int, tuple[float, int]] = {0: (8.0, 1024), 1: (8.0, 4096), 2: (4.0, 2048), 3: (2.0, 8192)}
OBJECTIVES: tuple[ObjectiveName, ...] = ("value", "parameters")


def make_trial(number: int, perplexity: float, parameters: int, **fields: object) -> StudyTrial:
    cost = math.log(perplexity)
    defaults = {
        "number": number,
        "name": f"lstm #{number}",
        "family": "lstm",
        "seed": 0,
        "is_repeat": False,
        "identity": f"trial {number}",
        "state": TrialState.COMPLETE,
        "reason": "",
        "has_diverged": False,
        "place": None,
        "curve": {300: cost + 1, 900: cost},
        "cost": cost,
        "figure": perplexity,
        "tokens": 900,
        "cpu_hours": 1.0,
        "gpu_hours": 0.0,
        "tokens_per_second": 100.0 * (number + 1),
        "sizes": TrialSizes(parameters=parameters, multiply_adds=1, state=number + 1, memory=10),
        "fields": {},
    }
    return StudyTrial.model_validate({**defaults, **fields})


def make_trials() -> list[StudyTrial]:
    trials = [make_trial(number, *row) for number, row in TABLE.items()]
    stopped = make_trial(4, 1.5, 512, state=TrialState.STOPPED, curve={300: math.log(1.5)}, tokens=300)
    return [*trials, stopped]


def find(trials: list[StudyTrial], objectives: tuple[ObjectiveName, ...] = OBJECTIVES) -> StudyFront:
    ranked_trials = [
        RankedTrial(
            f"#{trial.number}",
            trial.identity,
            f"configuration {trial.number}",
            trial.family,
            "s",
            trial.seed,
            trial.state,
            trial.curve,
            900,
        )
        for trial in trials
    ]
    ranking = rank_trials(ranked_trials)
    assert ranking is not None
    return find_study_front(ranking, trials, objectives, Objective.PERPLEXITY)


def test_the_front_has_the_configurations_of_full_length_that_no_other_one_dominates() -> None:
    found = find(make_trials())
    assert [point.number for point in found.front] == [3, 2, 0]
    assert [point.number for point in found.points if not point.is_on_front] == [1]
    assert found.front[0].values == {"value": pytest.approx(2.0), "parameters": 8192}


def test_the_hypervolume_is_in_nats_times_doublings_from_the_worst_of_each_objective() -> None:
    """From the corner of perplexity 8 and 8192 parameters: only #2 is below it in both."""
    found = find(make_trials())
    assert found.reference == {"value": pytest.approx(8.0), "parameters": 8192}
    volumes = [(point.trial, point.tokens, point.volume) for point in found.hypervolume]
    area = math.log(8 / 4) * math.log2(8192 / 2048)
    assert volumes == [
        (0, 900, 0),
        (1, 1800, 0),
        (2, 2700, pytest.approx(area)),
        (3, 3600, pytest.approx(area)),
    ]


def test_a_diverged_trial_is_a_point_but_does_not_move_the_corner_of_the_hypervolume() -> None:
    diverged = make_trial(5, 1e6, 16384, has_diverged=True)
    found, without = find([*make_trials(), diverged]), find(make_trials())
    assert 5 in [point.number for point in found.points]
    assert (found.reference, found.hypervolume) == (without.reference, without.hypervolume)


def test_throughput_is_better_the_higher_it_is() -> None:
    found = find(make_trials(), ("tokens_per_second", "state"))
    assert [point.number for point in found.front] == [3, 2, 1, 0]
    assert found.reference == {"tokens_per_second": 100.0, "state": 4}


def test_models_that_count_and_trials_without_sizes_are_no_points() -> None:
    counting = make_trial(5, 1.1, 0)
    unknown = make_trial(6, 1.1, 10, sizes=None)
    found = find([*make_trials(), counting, unknown])
    assert [point.number for point in found.front] == [3, 2, 0]


def test_a_study_without_sizes_has_an_empty_front() -> None:
    found = find([make_trial(0, 2.0, 10, sizes=None)])
    assert (found.points, found.reference, found.hypervolume) == ((), {}, ())
