"""The best of a study is the best within the limits of [champion], where a configuration is within them."""

from pathlib import Path

import pytest

from memtune.api import run_search
from memtune.corpora import open_corpus
from memtune.results.comparison import find_champions
from memtune.results.study.ranking import rank_trials
from memtune.results.study.study_detail import show_study
from memtune.results.study.study_trials import StudyTrial
from memtune.results.study.study_view import StudyView
from memtune.search import StoredStudy
from memtune.settings import Settings
from memtune.studies.definition.study_terms import ChampionLimits, StoredTerms
from memtune.studies.executor import InProcessExecutor
from memtune.training import TrialSizes
from tests.unit.results.made_trials import make_study_trial

pytestmark = pytest.mark.usefixtures("without_report")


LIMITED = """
[sampler]
kind = "nsga2"
startup_trials = 2

[repeats]
best = 1
seeds = 3

[champion]
max_state = 12
"""


def test_the_best_value_within_the_limits_of_a_study_is_its_best(
    study_file: Path, settings: Settings
) -> None:
    """Widths of 4 and 8 with one or two layers have states of 8 to 32."""
    text = study_file.read_text().replace("[training]", 'objectives = ["value", "state"]\n[training]', 1)
    study_file.write_text(text.replace("trials = 4", "trials = 8") + LIMITED)
    result = run_search(study_file, settings=settings, executor=InProcessExecutor())
    detail = show_study("layers", settings)
    assert detail.best is not None
    assert detail.front is not None
    states = {trial.number: trial.sizes.state for trial in detail.trials if trial.sizes}
    assert states[detail.best.number] == 8
    assert max(states.values()) > 12
    assert detail.best.estimate.seeds == 2
    assert detail.front.objectives == ("value", "state")
    assert detail.summary.champion_rule == "the best value within [champion] max_state = 12"
    assert result.conclusion is not None
    assert result.conclusion.statements[0].endswith(
        "study's best: the best value within [champion] max_state = 12"
    )
    (champion,) = find_champions("tiny", settings)
    assert champion.trial in {trial.identity for trial in detail.trials if trial.number == detail.best.number}


def test_a_study_whose_limits_no_configuration_meets_takes_the_best_value_and_says_so(
    study_file: Path, settings: Settings
) -> None:
    study_file.write_text(study_file.read_text() + "[champion]\nmax_state = 2\n")
    result = run_search(study_file, {"budget.trials": 2}, settings=settings, executor=InProcessExecutor())
    assert result.conclusion is not None
    assert "because no configuration is within [champion] max_state = 2" in result.conclusion.statements[0]
    assert len(find_champions("tiny", settings)) == 1


def test_the_best_of_an_alternative_is_within_the_limits_where_one_of_its_configurations_is(
    settings: Settings,
) -> None:
    def make_trial(family: str, number: int, cost: float, parameters: int) -> StudyTrial:
        sizes = TrialSizes(parameters=parameters, multiply_adds=1, state=1, memory=1)
        return make_study_trial(family, number, {900: cost}, sizes=sizes)

    large, small, other = (
        make_trial("lstm", 0, 3, 50),
        make_trial("lstm", 1, 5, 9),
        make_trial("rnn", 2, 4, 8),
    )
    outside = make_trial("elman", 3, 2, 60)
    corpus = open_corpus("tiny", settings.corpus_store)
    view = StudyView(StoredStudy("s", [], [], 1.0, None), settings, corpus)
    view.terms = StoredTerms(champion=ChampionLimits(max_parameters=10))
    view.ranking = rank_trials([large, small, other, outside])
    for bests in (view.find_bests(lambda trial: trial.family), view.find_bests()):
        assert [found.best for found in bests] == [other, small, outside]
