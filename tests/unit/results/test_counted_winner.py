"""A study whose best models count n-grams has no sizes of networks in its texts and asks for no seeds."""

import pytest

from memtune.api import run_search
from memtune.reports.report_page.page import render_page
from memtune.results.comparison import find_champions
from memtune.results.loaded_models import load
from memtune.results.study.study_report import report_study
from memtune.settings import Settings
from memtune.studies.executor import InProcessExecutor
from memtune.studies.study_run import StudyResult
from memtune.tracking.mlflow_connection import connect
from tests.presence import require

pytestmark = pytest.mark.usefixtures("without_report")

STUDY_TOML = """question = "How many words are worth counting?"

corpus = "tiny"
spaces = ["kneser_ney"]

[budget]
trials = 2
"""


@pytest.fixture(scope="module")
def counted(module_settings: Settings) -> tuple[StudyResult, Settings]:
    study = module_settings.home / "orders.toml"
    study.write_text(STUDY_TOML)
    return run_search(study, settings=module_settings, executor=InProcessExecutor()), module_settings


def test_the_conclusion_recommends_no_repeats(counted: tuple[StudyResult, Settings]) -> None:
    conclusion = require(counted[0].conclusion)
    assert "both learn by counting, so a seed changes nothing" in conclusion.statements[0]
    assert "sign test of differences over 60 sentences" in conclusion.statements[1]
    assert not any("[repeats]" in statement for statement in conclusion.statements)


def test_descriptions_in_mlflow_name_no_size_that_does_not_exist(
    counted: tuple[StudyResult, Settings],
) -> None:
    _, settings = counted
    client = connect(settings.tracking_uri)
    experiment = require(client.get_experiment_by_name("tiny"))
    (champion,) = find_champions("tiny", settings)
    (study,) = client.search_runs([experiment.experiment_id], "tags.`memtune.role` = 'study'")
    texts = [
        experiment.tags["mlflow.note.content"],
        study.data.tags["mlflow.note.content"],
        require(client.get_registered_model("tiny").description),
        require(client.get_model_version("tiny", str(champion.version)).description),
    ]
    for text in texts:
        assert "no trained parameters" in text
        assert "0 parameters" not in text
    assert "learns by counting" in texts[-1]
    assert "weights of seed" not in texts[-1]


def test_the_answer_of_a_report_names_no_size_that_does_not_exist(
    counted: tuple[StudyResult, Settings],
) -> None:
    page = render_page(report_study("orders", counted[1]))
    assert "<dt>parameters</dt><dd>0<small>learns by counting" in page
    assert "0 multiply-adds" not in page
    assert "the same under every seed" in page
    assert "[repeats]" not in page.partition('id="seeds"')[0].partition('id="answer"')[2]


def test_a_loaded_model_that_counts_names_no_size_that_does_not_exist(
    counted: tuple[StudyResult, Settings],
) -> None:
    assert "no trained parameters" in repr(load("models:/tiny@champion", settings=counted[1]))
