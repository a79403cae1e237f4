"""The figures that the run of a study shows while it is open."""

import math

import pytest

from memtune.objective import Objective
from memtune.search import StoredTrial
from memtune.studies.budgets import StudyProgress
from memtune.studies.definition.study_terms import Prices
from memtune.studies.director import DirectedTrial
from memtune.training import TrialConfig
from memtune.trial_state import TrialState
from memtune.usage import NodeSeconds, Usage
from memtune.values import parse
from tests.unit.studies.test_director import make_report


def test_the_margin_of_a_perplexity_is_the_share_by_which_it_is_lower():
    assert Objective.PERPLEXITY.compute_gain(math.log(100) - math.log(125)) == pytest.approx(20)


def test_the_margin_of_an_accuracy_is_in_percentage_points():
    assert Objective.ACCURACY.compute_gain(0.1 - 0.25) == pytest.approx(15)


def make_config(width: int, seed: int = 0) -> TrialConfig:
    return parse(
        TrialConfig,
        {"model": {"family": "lstm", "width": width}, "training": {"tokens": 100}, "seed": seed},
        "trial",
    )


def make_outcome(config: TrialConfig, cost: float, state: TrialState = TrialState.COMPLETE) -> StoredTrial:
    """A trial that used a core for an hour and a GPU for two."""
    usage = Usage(tokens=100, nodes={"": NodeSeconds(cpu=3600, gpu=7200)})
    configuration = config.model_dump(mode="json")
    return StoredTrial(0, config.identity("corpus"), configuration, state, cost, {100: cost}, usage=usage)


def test_the_figures_are_those_of_configurations_over_their_seeds() -> None:
    """The margin is to the next configuration, not to another seed of the best one."""
    progress = StudyProgress(Objective.PERPLEXITY, Prices(cpu_hour=1.0, gpu_hour=3.0))
    progress.add_outcomes(
        [
            make_outcome(make_config(8), math.log(100)),
            make_outcome(make_config(8, seed=1), math.log(101)),
            make_outcome(make_config(16), math.log(125), TrialState.STOPPED),
        ]
    )
    assert progress.list_figures() == pytest.approx(
        {
            "trials_running": 0,
            "trials_complete": 2,
            "trials_stopped": 1,
            "trials_paused": 0,
            "trials_failed": 0,
            "spent_tokens": 300,
            "spent_cpu_hours": 3,
            "spent_gpu_hours": 6,
            "spent_money": 21,
            "best_validation": 100,
            "margin_percent": 20,
        }
    )


def test_a_trial_of_this_driver_takes_the_place_of_its_earlier_record() -> None:
    progress, config = StudyProgress(Objective.PERPLEXITY, None), make_config(8)
    progress.add_outcomes([make_outcome(config, 5.0, TrialState.RUNNING)])
    trial = DirectedTrial(StoredTrial(0, config.identity("corpus"), {}, TrialState.RUNNING), config)
    assert not progress.is_improved_by(trial)
    trial.reports.append(make_report(100, 4.0))
    assert progress.is_improved_by(trial)
    progress.add_trial(trial, TrialState.COMPLETE)
    progress.add_outcomes([make_outcome(make_config(8, seed=1), 4.5)])
    figures = progress.list_figures()
    assert (figures["trials_running"], figures["trials_complete"]) == (0, 2)
    assert figures["best_validation"] == pytest.approx(math.exp(4.0))
    assert "margin_percent" not in figures
