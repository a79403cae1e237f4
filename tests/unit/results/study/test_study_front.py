"""The front of a scripted study whose answer is known."""

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from memtune.objective import Objective
from memtune.results.study.ranking import rank_trials
from memtune.results.study.study_front import StudyFront, describe_seeds, find_study_front
from memtune.results.study.study_trials import StudyTrial
from memtune.results.study.study_view import StudyView
from memtune.search import ObjectiveName
from memtune.training import TrialSizes
from memtune.trial_state import TrialState
from memtune.usage import NodeSeconds, Usage
from tests.presence import require
from tests.unit.results.made_trials import make_study_trial

# Perplexity and parameters: #0 and #2 and #3 are on the front, #1 is dominated by #2, #4 was stopped.
TABLE: dict[int, tuple[float, int]] = {0: (8.0, 1024), 1: (8.0, 4096), 2: (4.0, 2048), 3: (2.0, 8192)}
OBJECTIVES: tuple[ObjectiveName, ...] = ("value", "parameters")


def make_trial(number: int, perplexity: float, parameters: int, **fields: Any) -> StudyTrial:
    cost, tokens = math.log(perplexity), 300 if fields.get("state") else 900
    sizes = TrialSizes(parameters=parameters, multiply_adds=1, state=number + 1, memory=10)
    known = {
        "curve": {300: cost + 1, 900: cost},
        "usage": Usage(tokens=tokens, nodes={"": NodeSeconds(cpu=tokens / (100 * (number + 1)))}),
        "sizes": sizes,
        **fields,
    }
    return make_study_trial("lstm", number, known.pop("curve"), **known)


def make_trials() -> list[StudyTrial]:
    trials = [make_trial(number, *row) for number, row in TABLE.items()]
    stopped = make_trial(4, 1.5, 512, state=TrialState.STOPPED, curve={300: math.log(1.5)})
    return [*trials, stopped]


def find(trials: list[StudyTrial], objectives: tuple[ObjectiveName, ...] = OBJECTIVES) -> StudyFront:
    return require(find_front(trials, objectives))


def find_front(trials: list[StudyTrial], objectives: tuple[ObjectiveName, ...]) -> StudyFront | None:
    ranking = rank_trials(trials)
    terms = SimpleNamespace(objectives=objectives)
    view = SimpleNamespace(ranking=ranking, trials=trials, objective=Objective.PERPLEXITY, terms=terms)
    return find_study_front(cast(StudyView, view))


@pytest.mark.parametrize(("parameters", "has_front"), [((1000, 1090), False), ((1000, 1200), True)])
def test_a_study_of_one_objective_at_equal_parameters_has_no_front(
    parameters: tuple[int, int], has_front: bool
) -> None:
    trials = [make_trial(number, 8.0 - number, size) for number, size in enumerate(parameters)]
    assert (find_front(trials, ("value",)) is not None) is has_front
    assert find_front(trials, OBJECTIVES) is not None


def test_the_front_has_the_configurations_of_full_length_that_no_other_one_dominates() -> None:
    found = find(make_trials())
    assert [point.number for point in found.front] == [3, 2, 0]
    assert [point.number for point in found.points if not point.is_on_front] == [1]
    assert found.front[0].values == {"value": pytest.approx(2.0), "parameters": 8192}


def test_a_configuration_without_sizes_is_no_point_and_is_named() -> None:
    assert find(make_trials()).unmeasured == ()
    unknown = make_trial(5, 1.5, 512, sizes=None)
    found = find([*make_trials(), unknown, make_study_trial("kneser_ney", 6, {900: 1.0})])
    assert found.unmeasured == ("lstm #5",)


def test_a_repeated_configuration_is_a_point_by_its_mean_and_the_single_seeds_are_counted() -> None:
    repeats = [
        make_trial(2, perplexity, 2048, seed=seed, is_repeat=True)
        for seed, perplexity in enumerate((5.0, 6.0), start=1)
    ]
    found = find([*make_trials(), *repeats])
    assert [(point.number, point.seeds) for point in found.front] == [(3, 1), (2, 2), (0, 1)]
    assert found.front[1].values["value"] == pytest.approx(math.sqrt(5.0 * 6.0))
    said = describe_seeds([point.seeds for point in found.front])
    assert said == "2 of 3 are single seeds, which luck favours over means"
    assert (describe_seeds([1, 1]), describe_seeds([2, 3])) == ("all are single seeds", "")


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


def test_a_study_of_one_objective_has_no_hypervolume() -> None:
    found = find(make_trials(), ("value",))
    assert (len(found.front), found.hypervolume) == (3, ())


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
    counting = make_study_trial("kneser_ney", 5, {900: math.log(1.1)})
    unknown = make_trial(6, 1.1, 10, sizes=None)
    found = find([*make_trials(), counting, unknown])
    assert [point.number for point in found.front] == [3, 2, 0]


def test_a_study_without_sizes_has_an_empty_front() -> None:
    found = find([make_trial(0, 2.0, 10, sizes=None)])
    assert (found.points, found.reference, found.hypervolume) == ((), {}, ())
