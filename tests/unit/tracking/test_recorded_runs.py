"""Recorded runs are found by name, deleted by study, and take conclusions, evaluations and test accesses."""

import pytest
from mlflow.tracking import MlflowClient

from memtune.errors import TrackingError
from memtune.tracking import (
    Recorder,
    TrialRun,
    count_test_accesses,
    delete_study_runs,
    find_trial_run,
    is_trial_name,
    link_corpus,
    read_code_version,
    record_conclusion,
    record_evaluation,
    record_test_access,
)
from memtune.tracking.runs.run_store import RecordedTrial
from memtune.trial_state import TrialState


@pytest.fixture
def recorded(tracking_uri):
    """Two studies of the name "layers": s1 with an ended trial and an open one, s2 with an ended trial."""
    with Recorder(tracking_uri, "ptb") as recorder:
        for study, trials in (("s1", ["a", "b"]), ("s2", ["c"])):
            recorder.start_study(study, "layers", {})
            for number, trial in enumerate(trials):
                tags = {"name": "layers", "number": str(number), "protocol": "stream"}
                recorder.start_trial(trial, f"lstm #{number}", {"model": {"width": 8}}, tags)
                recorder.log_reports(trial, [{"tokens": 100, "valid_loss": 2.0}])
                if trial != "b":
                    recorder.finish_trial(trial, TrialState.STOPPED, validated_tokens=100)
        assert recorder.flush(60)
    return tracking_uri


@pytest.fixture
def run_ids(recorded, client):
    """The id of each run, by the trial's identity or by the study's id."""
    experiment = client.get_experiment_by_name("ptb")
    tags = {run.info.run_id: run.data.tags for run in client.search_runs([experiment.experiment_id])}
    return {named.get("memtune.trial", named["memtune.study"]): run_id for run_id, named in tags.items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("layers-2024.1_a#7", True),
        ("s#7 seed 12", True),
        ("0123456789abcdef" * 2, True),
        ("0123456789abcdef", False),
        ("0123456789ABCDEF" * 2, False),
        ("#7", False),
        ("-s#7", False),
        ("s#", False),
        ("s#7 seed", False),
        ("models:/ptb/3", False),
    ],
)
def test_names_of_trials_and_ids_of_runs_are_recognised(text, expected):
    assert is_trial_name(text) is expected


def test_a_trial_is_found_by_the_id_of_its_study_and_by_its_run(recorded, run_ids):
    expected = TrialRun(run_id=run_ids["a"], study="s1", trial="a", max_tokens=100, code=read_code_version())
    assert find_trial_run(recorded, "s1#0") == expected
    assert find_trial_run(recorded, run_ids["a"]) == expected
    assert find_trial_run(recorded, "s2#0").trial == "c"


def test_an_open_trial_has_no_last_validation(recorded):
    assert find_trial_run(recorded, "s1#1").max_tokens is None


def test_a_trial_is_found_by_the_name_of_its_study_if_one_study_has_it(recorded):
    assert find_trial_run(recorded, "layers#1").trial == "b"
    with pytest.raises(TrackingError, match="no trial layers#0: several studies have it: s1, s2"):
        find_trial_run(recorded, "layers#0")


def test_an_unknown_trial_and_the_run_of_a_study_are_refused(recorded, run_ids):
    for text in ("s1#2", "s3#0", "f" * 32, run_ids["s1"]):
        with pytest.raises(TrackingError, match=f"no trial {text}: the tracking store has no such trial"):
            find_trial_run(recorded, text)


@pytest.mark.parametrize(
    ("text", "hint"), [("layers#7", "layers has trials 0 to 1;"), ("layer#0", 'did you mean "layers"?')]
)
def test_the_error_for_an_unknown_trial_has_the_numbers_of_its_study_or_the_nearest_study(
    recorded, text, hint
):
    with pytest.raises(TrackingError) as refused:
        find_trial_run(recorded, text)
    assert hint in str(refused.value)


def test_a_missing_store_is_named_and_not_created(tmp_path):
    with pytest.raises(TrackingError, match=r"no trial s1#0: .*nothing/mlflow.db does not exist"):
        find_trial_run(f"sqlite:///{tmp_path}/nothing/mlflow.db", "s1#0")
    assert not list(tmp_path.iterdir())


def test_the_runs_of_one_study_are_deleted_with_those_of_its_trials(recorded, client):
    assert delete_study_runs(recorded, "s1") == 3
    experiment = client.get_experiment_by_name("ptb")
    left = client.search_runs([experiment.experiment_id])
    assert {run.data.tags["memtune.study"] for run in left} == {"s2"}
    assert len(left) == 2
    assert delete_study_runs(recorded, "s1") == 0


def test_a_store_that_fails_while_runs_are_deleted_is_named(recorded, monkeypatch):
    def fail(*arguments):
        raise OSError("the disk is full")

    monkeypatch.setattr(MlflowClient, "delete_run", fail)
    with pytest.raises(TrackingError, match=f"the tracking store {recorded} failed: the disk is full"):
        delete_study_runs(recorded, "s1")


def test_each_access_to_a_test_split_counts_once_on_the_run_of_its_model(recorded, client, run_ids):
    assert count_test_accesses(recorded, "ptb") == count_test_accesses(recorded, "another") == 0
    for name in ("a", "a", "b"):
        record_test_access(recorded, run_ids[name])
    assert count_test_accesses(recorded, "ptb") == 3
    history = client.get_metric_history(run_ids["a"], "test_accesses")
    assert [(metric.step, metric.value) for metric in history] == [(1, 1), (2, 2)]


def test_a_conclusion_is_on_the_run_of_its_study_and_on_those_of_its_trials(recorded, client, run_ids):
    record_conclusion(recorded, "ptb", "s1", {"best": "lstm"}, {"a": {"rank": "1"}}, "**Answer.** An LSTM.")
    study, first, second, other = (client.get_run(run_ids[name]).data for name in ("s1", "a", "b", "s2"))
    assert study.tags["memtune.best"] == "lstm"
    assert study.tags["mlflow.note.content"] == "**Answer.** An LSTM."
    assert first.tags["memtune.rank"] == "1"
    assert first.tags["mlflow.note.content"].startswith("stopped at 100 tokens")
    for untouched in (second, other):
        assert not {"memtune.best", "memtune.rank"} & untouched.tags.keys()


def test_a_later_conclusion_replaces_an_earlier_one(recorded, client, run_ids):
    ranks = {"a": {"rank": "1", "best_of_family": "yes"}, "b": {"rank": "2"}}
    record_conclusion(recorded, "ptb", "s1", {"best": "lstm"}, ranks, "first")
    record_conclusion(recorded, "ptb", "s1", {"best": "rnn"}, {"b": {"rank": "1"}}, "second")
    study, first, second = (client.get_run(run_ids[name]).data.tags for name in ("s1", "a", "b"))
    assert (study["memtune.best"], study["mlflow.note.content"]) == ("rnn", "second")
    assert (first["memtune.rank"], first["memtune.best_of_family"]) == ("", "")
    assert second["memtune.rank"] == "1"


def test_a_conclusion_about_an_unknown_corpus_changes_nothing(recorded, client):
    record_conclusion(recorded, "another", "s1", {"best": "lstm"}, {}, "")
    assert client.get_experiment_by_name("another") is None


def test_an_evaluation_is_recorded_once(recorded, client, run_ids):
    for _ in range(2):
        record_evaluation(recorded, run_ids["a"], "test", {"perplexity": 9.0, "tokens": 50})
    found = client.get_run(run_ids["a"]).data.metrics
    assert (found["test_perplexity"], found["test_tokens"]) == (9.0, 50.0)
    assert len(client.get_metric_history(run_ids["a"], "test_perplexity")) == 1


def test_a_study_lists_the_trials_whose_end_is_stored(recorded, client, run_ids):
    with Recorder(recorded, "ptb") as recorder:
        recorder.start_study("s1", "layers", {})
        assert recorder.flush(60)
        recorder.start_trial("b", "lstm #1", {})
        recorder.finish_trial("b", TrialState.FAILED)  # as earlier versions did, without the tokens
        assert recorder.flush(60)
        assert recorder.list_recorded_trials() == {"a": RecordedTrial(TrialState.STOPPED, 100)}
        run = client.get_run(run_ids["a"])
        client.create_run(run.info.experiment_id, tags=run.data.tags)
        assert recorder.list_recorded_trials() == {}


def test_a_resumed_trial_loses_the_validations_that_the_study_database_lacks(recorded, client, run_ids):
    with Recorder(recorded, "ptb") as recorder:
        recorder.start_study("s1", "layers", {})
        recorder.start_trial("b", "lstm #1", {})
        recorder.log_reports("b", [{"tokens": 200, "valid_loss": 1.0}, {"tokens": 300, "train_loss": 1.0}])
        assert recorder.flush(60)
        recorder.start_trial("b", "lstm #1", {}, max_tokens=200)
        assert recorder.flush(60)
        assert find_trial_run(recorded, "s1#1").run_id == run_ids["b"]
        recorder.start_trial("b", "lstm #1", {}, max_tokens=100)
        assert recorder.flush(60)
    kept = find_trial_run(recorded, "s1#1").run_id
    assert kept != run_ids["b"]
    assert [metric.step for metric in client.get_metric_history(kept, "valid_loss")] == [100]
    assert client.get_run(run_ids["b"]).info.lifecycle_stage == "deleted"


def test_a_link_opens_the_table_of_a_studys_trials(recorded, client):
    experiment = client.get_experiment_by_name("ptb")
    link = link_corpus(recorded, "ptb", "stream", "s1").trials
    assert link.startswith(f"http://127.0.0.1:5000/#/experiments/{experiment.experiment_id}/runs?")
    assert link.endswith("viewStateShareKey=memtune-s1")


def test_a_link_without_a_study_shows_all_trials_of_the_corpus(recorded):
    link = link_corpus(recorded, "ptb", pages_url="http://pages:80/").trials
    assert link.startswith("http://pages:80/#/experiments/")
    assert link.endswith("viewStateShareKey=memtune")
