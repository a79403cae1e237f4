"""The leaderboard: the trials of an experiment as rows."""

import math

import pytest

from memtune.errors import TrackingError
from memtune.tracking import Recorder, find_trial_run, link_corpora, list_champions, read_leaderboard
from memtune.tracking.mlflow_connection import connect
from memtune.trial_state import StopReason, TrialEnd, TrialState

STALLED = TrialEnd(reason=StopReason.NO_IMPROVEMENT, detail="no improvement in 2 reports")
OUT_OF_MEMORY = TrialEnd(reason=StopReason.ERROR, detail="out of memory")


def make_report(tokens, perplexity):
    epoch = {"epoch": tokens / 100}
    return {"tokens": tokens, "valid_perplexity": perplexity, "valid_loss": math.log(perplexity), **epoch}


def make_configuration(width, **model):
    return {
        "model": {"family": "lstm", "width": width, **model},
        "parameters": 10 * width,
        "training": {"clip_norm": None},
    }


def test_a_read_creates_no_store(tmp_path):
    uri = f"sqlite:///{tmp_path}/home/mlflow.db"
    assert read_leaderboard(uri, "ptb") == []
    assert link_corpora(uri) == []
    assert list_champions(uri) == []
    assert [*tmp_path.iterdir()] == []


@pytest.fixture
def recorded(tracking_uri):
    """Three trials: one that got worse at the end, one still running, one that failed at once."""
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_study("s1", "study", {})
        recorder.start_trial(
            "a", "lstm #0", make_configuration(128), {"family": "lstm", "protocol": "stream"}
        )
        recorder.log_reports("a", [make_report(100, 300.0), make_report(200, 200.0), make_report(300, 250.0)])
        recorder.finish_trial("a", TrialState.COMPLETE, STALLED)
        recorder.start_trial(
            "b", "lstm #1", make_configuration(256), {"family": "lstm", "protocol": "stream"}
        )
        recorder.log_reports("b", [make_report(100, 190.0)])
        recorder.start_trial(
            "c", "lstm #2", make_configuration(512), {"family": "lstm", "protocol": "sentence"}
        )
        recorder.finish_trial("c", TrialState.FAILED, OUT_OF_MEMORY)
        assert recorder.flush(60)
    return tracking_uri


def test_the_best_trial_is_first_and_trials_without_a_figure_are_last(recorded):
    assert [row.trial for row in read_leaderboard(recorded, "ptb")] == ["b", "a", "c"]


def test_a_trial_is_ranked_by_its_best_validation(recorded):
    row = next(row for row in read_leaderboard(recorded, "ptb") if row.trial == "a")
    assert (row.figure, row.tokens) == (pytest.approx(200.0), 300)


def test_a_row_has_the_state_and_end_of_its_trial(recorded):
    states = {row.trial: (row.state, row.end) for row in read_leaderboard(recorded, "ptb")}
    assert states == {
        "a": (TrialState.COMPLETE, STALLED),
        "b": (TrialState.RUNNING, None),
        "c": (TrialState.FAILED, OUT_OF_MEMORY),
    }


def test_parameters_keep_their_types(recorded):
    row = read_leaderboard(recorded, "ptb")[0]
    assert row.parameters["model.width"] == 256
    assert "training.clip_norm" not in row.parameters  # recorded as None
    assert row.parameter_count == 2560


def test_the_alternative_of_a_run_of_an_earlier_version_is_its_family(recorded):
    assert {row.alternative for row in read_leaderboard(recorded, "ptb")} == {"lstm"}


def test_an_unknown_corpus_has_no_rows(tracking_uri):
    assert read_leaderboard(tracking_uri, "nothing") == []


def test_the_best_validation_so_far_is_a_metric_of_which_the_pages_show_the_last_value(recorded, client):
    row = next(row for row in read_leaderboard(recorded, "ptb") if row.trial == "a")
    history = client.get_metric_history(row.run_id, "best_validation")
    assert [(m.step, m.value) for m in history] == [(100, 300.0), (200, 200.0), (300, 200.0)]
    assert client.get_run(row.run_id).data.metrics["best_validation"] == 200.0


def test_reports_that_are_sent_again_leave_the_best_validation_of_each_step(recorded, client):
    with Recorder(recorded, "ptb") as recorder:
        recorder.start_study("s1", "study", {})
        recorder.start_trial("a", "lstm #0", make_configuration(128), {"family": "lstm"})
        recorder.log_reports("a", [make_report(100, 300.0), make_report(200, 200.0), make_report(300, 250.0)])
        recorder.finish_trial("a", TrialState.COMPLETE, STALLED)
        assert recorder.flush(60)
    row = next(row for row in read_leaderboard(recorded, "ptb") if row.trial == "a")
    history = client.get_metric_history(row.run_id, "best_validation")
    assert [(m.step, m.value) for m in history] == [(100, 300.0), (200, 200.0), (300, 200.0)]


def test_a_second_run_of_a_trial_without_reports_has_no_row(recorded, client):
    """A driver that was stopped while it created a run, and lost its study, creates it when it continues."""
    rows = read_leaderboard(recorded, "ptb")
    kept = client.get_run(rows[0].run_id)
    client.create_run(kept.info.experiment_id, tags=kept.data.tags)
    assert read_leaderboard(recorded, "ptb") == rows


def test_trials_by_accuracy_are_ranked_highest_first(tracking_uri):
    tags = {"family": "lstm", "protocol": "sentence, sentiment", "objective": "accuracy"}
    with Recorder(tracking_uri, "sst") as recorder:
        for trial, accuracies in (("a", [0.4, 0.3]), ("b", [0.2, 0.5])):
            recorder.start_trial(trial, trial, make_configuration(8), tags)
            reports = [{"tokens": 9 * n, "valid_accuracy": a} for n, a in enumerate(accuracies, start=1)]
            recorder.log_reports(trial, reports)
        assert recorder.flush(60)
    rows = read_leaderboard(tracking_uri, "sst")
    assert [(row.trial, row.figure) for row in rows] == [("b", 0.5), ("a", 0.4)]


def test_a_row_has_what_its_rank_depends_on(tracking_uri):
    """A budget of epochs is one of tokens by the epochs of the reports; configurations are tagged."""
    parameters = {"seed": 2, "training": {"epochs": 5}}
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_trial("a", "lstm #0 seed 2", parameters, {"configuration": "c"})
        recorder.log_reports("a", [make_report(100, 300.0), make_report(200, 200.0)])
        recorder.start_trial("b", "lstm #1", {"training": {"tokens": 700}})
        assert recorder.flush(60)
    first, second = sorted(read_leaderboard(tracking_uri, "ptb"), key=lambda row: row.trial)
    assert (first.seed, first.configuration, first.planned_tokens) == (2, "c", pytest.approx(500))
    assert first.curve == pytest.approx({100: math.log(300), 200: math.log(200)})
    assert (second.seed, second.configuration, second.planned_tokens) == (0, "b", 700)


def test_the_tokens_of_a_trial_that_diverged_are_those_of_its_last_report(tracking_uri):
    """Its budget too: the last report, not the last validation, says how many tokens an epoch has."""
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_trial("a", "lstm seed 0", {"training": {"epochs": 5}})
        recorder.log_reports("a", [make_report(100, 300.0), {"tokens": 150, "epoch": 1.5}])
        assert recorder.flush(60)
    (row,) = read_leaderboard(tracking_uri, "ptb")
    assert (row.tokens, [*row.curve], row.planned_tokens) == (150, [100], pytest.approx(500))


@pytest.mark.parametrize(
    ("tag", "value", "reason"),
    [
        ("memtune.state", "x", "'x' is not a valid TrialState"),
        ("memtune.stop_reason", "x", "'x' is not a valid StopReason"),
        ("memtune.study", None, "'memtune.study'"),
    ],
)
def test_a_run_with_tags_of_another_program_is_skipped_with_the_reason(recorded, tag, value, reason, caplog):
    client = connect(recorded)
    foreign = next(row.run_id for row in read_leaderboard(recorded, "ptb") if row.trial == "a")
    if value is None:
        client.delete_tag(foreign, tag)
    else:
        client.set_tag(foreign, tag, value)
    assert [row.trial for row in read_leaderboard(recorded, "ptb")] == ["b", "c"]
    assert f"run {foreign} is skipped: memtune does not write such records: {reason}" in caplog.text


def test_a_run_without_the_detail_of_its_end_has_the_reason_alone(recorded):
    run_id = next(row.run_id for row in read_leaderboard(recorded, "ptb") if row.trial == "a")
    connect(recorded).delete_tag(run_id, "memtune.reason")
    row = next(row for row in read_leaderboard(recorded, "ptb") if row.trial == "a")
    assert row.end == TrialEnd(reason=StopReason.NO_IMPROVEMENT)


@pytest.mark.parametrize("tag", ["memtune.study", "memtune.trial"])
def test_a_trial_outside_of_the_studies_folder_is_refused(recorded, tag):
    run_id = next(row.run_id for row in read_leaderboard(recorded, "ptb") if row.trial == "a")
    assert find_trial_run(recorded, run_id).trial == "a"
    connect(recorded).set_tag(run_id, tag, "../../x")
    with pytest.raises(TrackingError, match=f"has no {tag.removeprefix('memtune.')} that memtune writes"):
        find_trial_run(recorded, run_id)
