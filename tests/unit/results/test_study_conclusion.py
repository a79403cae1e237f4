"""A study ends with a ranking over seeds, tests of its winner, and the same number in every record of it."""

import math
import re
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from memtune import api
from memtune.api import run_search
from memtune.errors import CheckpointError, StudyError, TrackingError
from memtune.objective import Objective
from memtune.results.comparison import compare, find_champions
from memtune.results.model_evaluation import evaluate
from memtune.results.study.study_catalogue import list_studies
from memtune.results.study.study_detail import show_study
from memtune.results.study.study_view import open_view
from memtune.settings import Settings
from memtune.studies.definition.study_loader import load_study, resolve_study
from memtune.studies.executor import InProcessExecutor
from memtune.studies.study_run import StudyResult
from memtune.tracking.mlflow_connection import connect
from memtune.training import TrialConfig
from memtune.values import flatten
from tests.conftest import write_study
from tests.presence import require

RNN_TOML = """
[model]
family = "rnn"
width = 4

[training.optimiser]
kind = "sgd"
learning_rate = 0.5
"""


REPEATS = """
[repeats]
best = 2
seeds = 4

[early_stopping]
kind = "none"
"""


@pytest.fixture(scope="module")
def home(module_settings: Settings) -> Settings:
    return module_settings


@pytest.fixture(scope="module")
def repeated(home: Settings) -> StudyResult:
    """A study of two families whose best two configurations were trained under three more seeds."""
    file = write_study(home.home.parent)
    file.with_name("rnn.toml").write_text(RNN_TOML)
    text = file.read_text().replace('["space.toml"]', '["space.toml", "rnn.toml"]')
    file.write_text(text + REPEATS)
    return run_search(file, settings=home, executor=InProcessExecutor())


@pytest.fixture
def without_its_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """A study ends without its report, half of its time; that of `repeated` has one."""
    monkeypatch.setattr(api, "_record_report", lambda study, view, recorder: None)


@pytest.fixture
def client(home: Settings) -> MlflowClient:
    return connect(home.tracking_uri)


def find_runs(client: MlflowClient, **tags: str) -> dict[str, dict[str, str]]:
    """Tags by run name."""
    experiment = client.get_experiment_by_name("tiny")
    condition = " AND ".join(f"tags.`memtune.{name}` = '{value}'" for name, value in tags.items())
    runs = client.search_runs([require(experiment).experiment_id], condition)
    return {run.info.run_name: run.data.tags for run in runs}


def test_the_mean_over_seeds_is_the_same_number_everywhere(
    repeated: StudyResult, home: Settings, client: MlflowClient
) -> None:
    ranking = require(open_view("layers", home).ranking)
    winner = ranking.winner
    mean = math.exp(sum(winner.cost_by_seed.values()) / 3)
    (champion,) = find_champions("tiny", home)
    assert champion.figure == pytest.approx(mean)
    assert champion.trial == winner.best.identity
    figure = winner.estimate.describe(Objective.PERPLEXITY, 3)
    assert "mean of 3 seeds, 95 % interval" in figure
    assert champion.summary == f"validation perplexity {figure}"
    detail = show_study("layers", home)
    for shown in (list_studies(home)[0].best, detail.best, detail.alternatives[0]):
        assert shown is not None
        assert shown.estimate == winner.estimate
        assert shown.interval == winner.estimate.compute_interval(Objective.PERPLEXITY)
    row = compare("tiny", settings=home).rows[0]
    assert (row.place, row.trial) == (1, winner.best.identity)
    assert row.ranked_figure == pytest.approx(mean)
    (tags,) = find_runs(client, role="study").values()
    assert tags["memtune.winner_figure"] == figure
    best = find_runs(client, role="trial", rank="1")
    assert len(best) == 4
    assert {tags["memtune.figure"] for tags in best.values()} == {figure}
    weights = evaluate("models:/tiny@champion", settings=home)
    assert champion.trial_cost == pytest.approx(weights.metrics.loss, rel=1e-6)
    assert weights.metrics.loss == pytest.approx(min(winner.costs), rel=1e-6)


def test_the_winner_is_tested_against_the_runner_up_over_seeds_and_sentences(repeated: StudyResult) -> None:
    assert repeated.conclusion is not None
    verdict, by_seeds, by_sentences = repeated.conclusion.statements[:3]
    assert verdict.startswith(f"{by_seeds.partition(' against')[0]} is best with a validation perplexity of")
    assert "the difference is" in verdict
    assert by_seeds.endswith("Welch's t-test over 3 seeds, corrected for repeated looks")
    assert by_sentences.endswith("sign test of differences over 60 sentences")


def test_a_repeat_has_the_name_of_the_trial_that_it_repeats(
    repeated: StudyResult, client: MlflowClient
) -> None:
    runs = find_runs(client, role="trial")
    names = [name for name in runs if " seed " in name]
    assert len(names) == 6
    for name in names:
        original = runs[name.partition(" seed ")[0]]
        assert runs[name]["memtune.configuration"] == original["memtune.configuration"]
        assert runs[name]["memtune.trial"] != original["memtune.trial"]


def test_every_trial_can_be_evaluated_and_each_access_to_the_test_split_is_counted(
    repeated: StudyResult, home: Settings
) -> None:
    repeat = repeated.repeats[0]
    row = next(row for row in compare("tiny", settings=home).rows if row.trial == repeat.identity)
    number = row.name.partition("#")[2]
    for name in (f"{row.study}#{number}", f"layers#{number}", row.run_id):
        valid = evaluate(name, settings=home)
        assert valid.metrics.loss == pytest.approx(min(repeat.curve.values()), rel=1e-6)
    assert compare("tiny", settings=home).test_accesses == 0
    evaluate(row.run_id, "test", settings=home)
    evaluate(f"layers#{number}", "test", settings=home)
    evaluate("models:/tiny@champion", "test", settings=home)
    found = compare("tiny", settings=home)
    assert found.test_accesses == 3
    (again,) = [other for other in found.rows if other.run_id == row.run_id]
    assert again.test_accesses >= 2
    with pytest.raises(TrackingError, match="no such trial"):
        evaluate("layers#99", settings=home)


def test_the_best_of_each_family_is_registered(repeated: StudyResult, home: Settings) -> None:
    for family in ("lstm", "rnn"):
        found = evaluate(f"models:/tiny@best-{family}", settings=home)
        assert found.metrics.tokens


def test_a_trial_without_a_checkpoint_is_named_and_so_is_the_removal_of_its_study(
    repeated: StudyResult, home: Settings
) -> None:
    """The checkpoints are elsewhere during this test alone: the other tests read the same study."""
    checkpoints = Path(repeated.resolved.checkpoint_root.removeprefix("file://"))
    for folder, reason in (
        (checkpoints, "no undamaged"),
        (checkpoints.parent, "study layers-.* was removed"),
    ):
        elsewhere = folder.rename(folder.with_name("elsewhere"))
        try:
            with pytest.raises(CheckpointError, match=f"layers#0 cannot be used: {reason}"):
                evaluate("layers#0", settings=home)
        finally:
            elsewhere.rename(folder)


@pytest.mark.usefixtures("without_its_report")
def test_the_conclusion_of_a_study_without_repeats_names_the_single_seed(
    study_file: Path, settings: Settings
) -> None:
    result = run_search(study_file, settings=settings, executor=InProcessExecutor())
    assert result.conclusion is not None
    verdict = result.conclusion.statements[0]
    assert "so few seeds nothing tells whether the difference is real. To find out, add [repeats]" in verdict
    assert "decided by a single seed" in require(result.conclusion.registration).reason


@pytest.mark.usefixtures("without_its_report")
def test_the_runs_of_a_study_name_the_alternative_of_their_trial_by_the_field_that_it_compares_last(
    study_file: Path, settings: Settings
) -> None:
    """MLflow refuses to change a parameter."""
    text, client = study_file.read_text(), connect(settings.tracking_uri)
    for field in ("layers", "width"):
        study_file.write_text(f'compare = "model.{field}"\n{text}')
        run_search(study_file, settings=settings, executor=InProcessExecutor())
        rows = compare("tiny", settings=settings).rows
        names = {f"{field} {row.parameters[f'model.{field}']}" for row in rows}
        assert len(names) == 2
        for row in rows:
            data = client.get_run(row.run_id).data
            assert row.alternative == data.tags["memtune.alternative"]
            assert row.alternative == f"{field} {row.parameters[f'model.{field}']}"
            assert data.params["alternative"] == f"layers {row.parameters['model.layers']}"
        best = find_runs(client, role="trial", best_of_family="yes").values()
        assert sorted(tags["memtune.alternative"] for tags in best) == sorted(names)


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ("model.layer", 'is not a.*mean "model.layers"'),
        ("training.optimiser.learning_rate", "is a range of more than 10 values; name those to compare with"),
    ],
)
def test_the_compared_field_has_values_that_the_study_searches(
    field: str, problem: str, study_file: Path, settings: Settings
) -> None:
    study_file.write_text(f'compare = "{field}"\n' + study_file.read_text())
    with pytest.raises(StudyError, match=f'compare = "{field}" {problem}'):
        resolve_study(study_file, load_study(study_file), settings)


def test_the_run_of_a_study_answers_its_question(
    repeated: StudyResult, home: Settings, client: MlflowClient
) -> None:
    (tags,) = find_runs(client, role="study").values()
    note = tags["mlflow.note.content"]
    for part in ("Does a second layer help?", " is best with ", "parameters", "core h", "95 % interval"):
        assert part in note
    rows = [line for line in note.splitlines() if line.startswith(("| lstm #", "| rnn #"))]
    assert len(rows) == 2
    assert "(#/models/tiny/versions/1?workflowType=machine_learning)" in note
    experiment = client.get_experiment_by_name("tiny")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id], "tags.`memtune.role` = 'study'")
    metrics = run.data.metrics
    assert metrics["trials_complete"] == 10
    (margin,) = re.findall(r"margin ([\d.]+) %", note)
    assert f"{metrics['margin_percent']:.1f}" == margin
    assert metrics["spent_tokens"] == sum(o.usage.tokens for o in [*repeated.outcomes, *repeated.repeats])
    curve = client.get_metric_history(run.info.run_id, "best_validation")
    values = [metric.value for metric in sorted(curve, key=lambda metric: (metric.step, metric.timestamp))]
    assert values == sorted(values, reverse=True)
    assert run.inputs is not None
    assert [given.dataset.name for given in run.inputs.dataset_inputs] == ["tiny"]
    assert "report.html" in [file.path for file in client.list_artifacts(run.info.run_id)]
    figures = {file.path for file in client.list_artifacts(run.info.run_id, "figures")}
    assert {"figures/leaderboard.svg", "figures/learning_curves.svg"} <= figures


def test_the_first_line_of_an_answer_in_a_narrow_window_ends_after_the_cost(
    repeated: StudyResult, client: MlflowClient
) -> None:
    """A long family's name and a large model, before MLflow's page breaks the line."""
    experiment = client.get_experiment_by_name("tiny")
    assert experiment is not None
    first, _, rest = experiment.tags["mlflow.note.content"].partition(" core h. ")
    longest = first.replace("rnn #", "recurrent_memory #").replace("lstm #", "recurrent_memory #")
    longest = re.sub(r"\d+ parameters", "5.97M parameters", longest)
    assert len(f"{longest} core h.") <= 96  # the first line in a window of 1,000 pixels
    assert " is best with a validation perplexity of " in rest


def test_a_trial_has_the_parameters_of_its_model_alone(repeated: StudyResult, client: MlflowClient) -> None:
    trials = [*repeated.outcomes, *repeated.repeats]
    configs = {trial.identity: TrialConfig.model_validate(trial.configuration) for trial in trials}
    experiment = client.get_experiment_by_name("tiny")
    assert experiment is not None
    for run in client.search_runs([experiment.experiment_id], "tags.`memtune.role` = 'trial'"):
        config = configs[run.data.tags["memtune.trial"]]
        fields = {name for name, value in flatten(config.model_dump(mode="json")) if value is not None}
        fields -= {"protocol.min_length", "protocol.max_length"}  # only variant "tran2016" has them
        sizes = {"parameters", "multiply_adds", "carried_state"}
        assert set(run.data.params) == fields | sizes | {"alternative"}
        assert "null" not in run.data.params.values()
        assert run.data.tags["memtune.status"] == "complete"
        assert "memtune evaluate" in run.data.tags["mlflow.note.content"]
