"""A study in detail as data frames, tables and figures."""

import json
import re
from pathlib import Path

import pytest
from optuna.trial import TrialState as OptunaState
from optuna.trial import create_trial
from typer.testing import CliRunner

from memtune.api import run_search
from memtune.cli.command_line import app
from memtune.reports.study_tables import explain_verdict, make_front_table, make_importance_table
from memtune.results.comparison import compare
from memtune.results.study.study_catalogue import study_cost
from memtune.results.study.study_detail import StudyDetail, show_study
from memtune.results.study.study_view import StudyView
from memtune.search import StoredStudy
from memtune.search.trial_store import CONFIGURATION_KEY, IDENTITY_KEY, REFUSAL_KEY
from memtune.settings import Settings
from memtune.studies.definition.study_terms import StoredTerms
from memtune.studies.executor import InProcessExecutor
from memtune.training.devices import has_bfloat16_instructions
from memtune.trial_state import TrialState
from tests.conftest import write_study
from tests.presence import require

pytestmark = pytest.mark.usefixtures("without_report")

RNN_TOML = """
[model]
family = "rnn"
width = { choice = [4, 6, 8] }

[training.optimiser]
kind = "sgd"
learning_rate = { float = [0.1, 1.0], log = true, prior = 0.5 }
"""
REPEATS = '\n[repeats]\nbest = 2\nseeds = 2\n\n[early_stopping]\nkind = "none"\n'
runner = CliRunner()


@pytest.fixture(scope="module")
def detail(module_settings: Settings) -> StudyDetail:
    """A study of two families with twelve trials and two repeats."""
    file = write_study(module_settings.home.parent)
    file.with_name("rnn.toml").write_text(RNN_TOML)
    text = file.read_text().replace('["space.toml"]', '["space.toml", "rnn.toml"]')
    file.write_text(text.replace("trials = 4", "trials = 12") + REPEATS)
    run_search(file, settings=module_settings, executor=InProcessExecutor())
    return show_study("layers", module_settings)


def test_an_alternative_whose_samples_were_all_refused_has_the_reason(
    settings: Settings, study_file: Path
) -> None:
    terms = {"compare": "model.width", "budget.trials": 2, "budget.max_parameters": 700}
    run_search(study_file, terms, settings=settings, executor=InProcessExecutor())
    verdict = require(show_study("layers", settings).verdict)
    assert re.search(
        r"Not tried: width 8 \(\d samples refused, for instance because (746|1,322) parameters are more than "
        r"max_parameters = 700\)\.",
        verdict.text,
    )


def test_samples_whose_fields_exclude_each_other_are_counted_among_the_refused(settings: Settings) -> None:
    """Of the first configuration the family is known, of the second nothing."""
    invalid = {"model": {"family": "lstm", "width": 4, "embedding_width": 8, "tie_output": True}}
    refused = [
        create_trial(
            state=OptunaState.PRUNED,
            user_attrs={REFUSAL_KEY: reason, CONFIGURATION_KEY: configuration, IDENTITY_KEY: ""},
        )
        for configuration, reason in [(invalid, "they differ"), ({}, "no size fits"), ({}, "no size fits")]
    ]
    view = StudyView(StoredStudy("layers-1", [], [], 1.0, None, refused), settings)
    view.terms = StoredTerms(alternatives=("lstm", "rnn"))
    assert view.refusals == {"lstm": ["they differ"], "": ["no size fits", "no size fits"]}


def test_a_study_is_two_data_frames_three_tables_and_the_charts_of_its_report(
    detail: StudyDetail, tmp_path: Path
) -> None:
    """One test for all, because the study takes seconds."""
    frame, curves = detail.to_frame(), detail.curves()
    assert len(frame) == 14
    assert frame.is_repeat.sum() == 2
    assert set(frame.loc[frame.family == "rnn", "model.width"]) <= {4, 6, 8}
    assert (frame.parameters > 0).all()
    assert set(frame.state) == {TrialState.COMPLETE}
    assert (frame.carried_state > 0).all()
    assert len(curves) == 14 * 3
    assert curves.groupby("name").cost.min().min() == pytest.approx(frame.cost.min())

    assert detail.best is not None
    assert detail.front is not None
    assert explain_verdict(detail).startswith(f"{detail.best.name} is best with a validation perplexity of ")
    assert {best.alternative for best in detail.alternatives} == {"lstm", "rnn"}
    front = make_front_table(detail)
    assert front.row_count == len(detail.front.front) > 0
    assert "single seeds" in str(front.caption)
    assert make_importance_table(detail).row_count > 0
    assert sum(found.importance for found in detail.importance) == pytest.approx(1.0)

    folder = tmp_path / "figures"
    shown = runner.invoke(app, ["study", "show", "layers", "--figures", str(folder)])
    assert shown.exit_code == 0
    for words in ("best of each alternative", "importance of parameters", "Pareto front", "best so far"):
        assert words in shown.output
    assert detail.led[:3] == (0, 2, 4)
    assert f"a prior led {len(detail.led)} of 12 trials (#0, #2, #4" in shown.output
    charts = {"leaderboard", "learning_curves", "importance", "validation_by_parameters"}
    assert charts <= {path.stem for path in folder.iterdir()}
    assert all((folder / f"{path.stem}.png").exists() for path in folder.iterdir())


def test_a_study_without_a_validation_has_no_best(detail: StudyDetail) -> None:
    empty = detail.model_copy(
        update={
            "summary": detail.summary.model_copy(update={"best": None}),
            "verdict": None,
            "alternatives": (),
            "progress": (),
            "importance": (),
            "front": None,
            "trials": (),
        }
    )
    assert explain_verdict(empty) == "no trial has a result yet"
    assert len(empty.curves()) == len(empty.to_frame()) == 0
    open_trial = detail.trials[0].model_copy(update={"state": TrialState.RUNNING})
    left = detail.model_copy(update={"trials": (open_trial,)})
    assert [*left.to_frame().state] == ["open"], "no process may train it"
    assert make_front_table(empty).row_count == 0


DIVERGING_TOML = """
[model]
family = "rnn"
width = { choice = [4, 6] }

[training]
clip_norm = 1e9

[training.optimiser]
kind = "sgd"
learning_rate = 1e6
"""


def test_a_study_whose_trials_all_diverge_has_no_best_and_lists_them(
    study_file: Path, settings: Settings
) -> None:
    study_file.with_name("space.toml").write_text(DIVERGING_TOML)
    study_file.write_text(study_file.read_text().replace("trials = 4", "trials = 2"))
    result = run_search(study_file, settings=settings, executor=InProcessExecutor())
    assert result.conclusion is None
    found = show_study("layers", settings)
    assert found.best is None
    assert [trial.figure for trial in found.ended_early] == [None, None]
    trained = study_cost("layers", settings).total.tokens
    recorded = sum(row.tokens for row in compare("tiny", settings=settings).rows)
    assert trained == sum(trial.tokens for trial in found.ended_early) == found.to_frame().tokens.sum() > 0
    assert trained == recorded
    shown = runner.invoke(app, ["study", "show", "layers"])
    lack = "no trial has a result: 2 of 2 diverged; lower the learning rate or set training.clip_norm"
    assert result.verdict is None
    assert result._repr_html_().startswith(f"<p>{lack}</p>")
    assert lack in repr(found)
    assert lack in " ".join(shown.output.split())
    page = study_file.with_name("report.html")
    assert runner.invoke(app, ["report", "layers", "--out", str(page)]).exit_code == 0
    assert f"There is no answer: {lack}." in page.read_text()
    printed = runner.invoke(app, ["report", "layers", "--json"]).output
    assert not {"Infinity", "NaN"} & set(re.findall(r"\w+", printed))
    assert [end["figure"] for end in json.loads(printed)["detail"]["ended_early"]] == [None, None]


@pytest.mark.skipif(not has_bfloat16_instructions(), reason="this processor has no bfloat16 instructions")
def test_a_study_that_searches_in_bfloat16_is_decided_by_its_repeats_in_float32(
    study_file: Path, settings: Settings
) -> None:
    text = study_file.read_text().replace("tokens = 900", 'tokens = 900\nprecision = "bfloat16"')
    study_file.write_text(text + REPEATS.replace("seeds = 2", 'seeds = 2\nprecision = "float32"'))
    run_search(study_file, settings=settings, executor=InProcessExecutor())
    found = show_study("layers", settings)
    repeats = [trial for trial in found.trials if trial.is_repeat]
    assert {trial.fields["training.precision"] for trial in repeats} == {"float32"}
    assert sorted(trial.seed for trial in repeats) == [0, 0, 1, 1]
    assert found.best is not None
    assert found.best.estimate.seeds == 2
    assert {trial.is_repeat for trial in found.trials if trial.place == 1} == {True}
