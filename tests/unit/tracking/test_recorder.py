"""The recorder: everything is stored once, also when a study is resumed."""

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

from memtune.errors import TrackingError
from memtune.settings import USER_VARIABLE
from memtune.tracking import CorpusInput, Recorder
from memtune.tracking.runs.run_store import PendingEntries, describe_state, read_description
from memtune.trial_state import StopReason, TrialEnd, TrialState
from memtune.values import Value

DATASET = CorpusInput(
    name="ptb",
    digest="0123456789" * 6,
    store="s3://bucket/corpora",
    vocabulary_size=10000,
    splits={"train": {"tokens": 929589}},
)


class Report(Value):
    tokens: int
    train_perplexity: float
    valid_perplexity: float | None = None
    finished: bool = False
    reason: str | None = None
    kernels: str | None = None


def make_reports(*tokens):
    return [Report(tokens=t, train_perplexity=1e6 / t, valid_perplexity=2e6 / t) for t in tokens]


BUDGET = TrialEnd(reason=StopReason.BUDGET)


@pytest.fixture
def record(tracking_uri, caplog):
    """A function that records one trial of one study with a recorder of its own."""

    def run(*tokens, identity="t1", state=TrialState.COMPLETE, end=BUDGET):
        with Recorder(tracking_uri, "ptb") as recorder:
            recorder.start_study("s1", "study one", {"sampler": "tpe"}, {"space": "lstm"})
            parameters = {"model": {"family": "lstm", "width": 128}, "clip": None}
            recorder.start_trial(identity, "lstm #0", parameters, {"family": "lstm"}, DATASET)
            recorder.log_reports(identity, make_reports(*tokens))
            if state:
                recorder.finish_trial(identity, state, end)
                recorder.finish_trial(None, TrialState.COMPLETE)
            assert recorder.flush(60)
            assert "was not recorded" not in caplog.text

    return run


@pytest.fixture
def find(client):
    """A function that returns the runs of the corpus's experiment with some role."""

    def runs(role="trial"):
        experiment = client.get_experiment_by_name("ptb")
        return client.search_runs([experiment.experiment_id], f"tags.`memtune.role` = '{role}'")

    return runs


def read_steps(client, run, metric="valid_perplexity"):
    return [m.step for m in client.get_metric_history(run.info.run_id, metric)]


def test_a_trial_is_nested_in_its_study(record, find):
    record(100)
    (study,), (trial,) = find("study"), find("trial")
    assert trial.data.tags["mlflow.parentRunId"] == study.info.run_id


def test_studies_that_first_record_a_dataset_at_once_all_record_it(tracking_uri, client, find, caplog):
    studies = [f"s{number}" for number in range(8)]
    ready = Barrier(len(studies), timeout=60)

    def drive(study):
        with Recorder(tracking_uri, "ptb") as recorder:
            recorder.start_study(study, study, {}, {})
            assert recorder.flush(60)
            ready.wait()
            recorder.start_trial(f"t of {study}", "lstm #0", {}, {}, DATASET)
            recorder.log_reports(f"t of {study}", make_reports(100))
            assert recorder.flush(60)

    with ThreadPoolExecutor(len(studies)) as drivers:
        list(drivers.map(drive, studies))
    assert "was not recorded" not in caplog.text
    assert [len(run.inputs.dataset_inputs) for run in find()] == [1] * len(studies)
    assert [read_steps(client, run) for run in find()] == [[100]] * len(studies)


def test_a_run_without_the_tags_of_a_trial_is_none_of_the_study(record, client, tracking_uri, find):
    """Whoever may write to the store may have made it, or deleted the tag."""
    record(100)
    (trial,) = find()
    made = client.create_run(trial.info.experiment_id, tags={"memtune.study": "s1", "memtune.role": "trial"})
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_study("s1", "s1", {})
        assert made.info.run_id not in recorder.list_recorded_trials()
        recorder.reconcile({})
        assert recorder.flush(60)
    assert client.get_run(made.info.run_id).info.status == "RUNNING"


def test_a_trial_has_its_tags(record, find):
    record(100)
    tags = find()[0].data.tags
    expected = {
        "memtune.study": "s1",
        "memtune.trial": "t1",
        "memtune.family": "lstm",
        "mlflow.runName": "lstm #0",
    }
    assert expected.items() <= tags.items()
    assert tags["memtune.code"]


def test_a_run_names_the_user_who_submitted_its_job(record, find, monkeypatch):
    monkeypatch.setenv(USER_VARIABLE, "alice")
    record(1)
    assert {run.info.user_id for run in find()} == {"alice"}


def test_parameters_are_flat_and_typed_and_exist(record, find):
    """A field that is None, here `clip`, is not one of the run."""
    record(100)
    assert find()[0].data.params == {"model.family": "lstm", "model.width": "128"}


def test_reports_are_metrics_whose_step_is_the_number_of_tokens(record, find, client):
    record(100, 200, 300)
    history = client.get_metric_history(find()[0].info.run_id, "train_perplexity")
    assert [(m.step, m.value) for m in history] == [(100, 1e4), (200, 5e3), (300, 1e6 / 300)]


def read_history(client, run, metric):
    return [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, metric)]


def test_the_table_of_trials_has_tokens_hours_and_the_distance_to_the_ideal(tracking_uri, find, client):
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_trial("t1", "lstm #0", {}, {"ideal_perplexity": "20.0"})
        recorder.log_reports("t1", [{"tokens": 100, "seconds": 900.0, "valid_perplexity": 30.0}])
        recorder.log_reports("t1", [{"tokens": 200, "seconds": 1800.0, "valid_perplexity": 25.0}])
        assert recorder.flush(60)
    (trial,) = find()
    assert read_history(client, trial, "tokens") == [(100, 100), (200, 200)]
    assert read_history(client, trial, "hours") == [(100, 0.25), (200, 0.5)]
    assert read_history(client, trial, "above_ideal_percent") == [(100, 50.0), (200, 25.0)]


def test_the_best_validation_has_the_steps_of_validations_alone(tracking_uri, find, client):
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_trial("t1", "lstm #0", {})
        reports = [{"tokens": tokens, "train_loss": 2.0} for tokens in (100, 200, 300)]
        reports[1]["valid_perplexity"] = 30.0
        recorder.log_reports("t1", reports)
        assert recorder.flush(60)
    assert read_history(client, find()[0], "best_validation") == [(200, 30.0)]


def test_a_refused_batch_is_an_error_although_mlflow_is_set_to_log_in_the_background(client, monkeypatch):
    monkeypatch.setenv("MLFLOW_ENABLE_ASYNC_LOGGING", "true")
    with pytest.raises(MlflowException, match="not found"):
        PendingEntries(tags={"memtune.state": "running"}).send(client, "f" * 32)


def test_a_description_of_several_paragraphs_is_kept_below_the_status():
    description = "An LSTM.\n\nWith 8 units."
    assert read_description(describe_state(TrialState.RUNNING, None, 0, description)) == description
    assert read_description(describe_state(TrialState.RUNNING, None, 0, "")) == ""


def test_missing_values_and_flags_are_no_metrics(tracking_uri, find):
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_trial("t1", "alone", {})
        recorder.log_reports("t1", [Report(tokens=1, train_perplexity=2.0)])
    assert find()[0].data.metrics == {"train_perplexity": 2.0, "tokens": 1}


def test_the_corpus_is_the_input_of_the_trial(record, find):
    record(100)
    (given,) = find()[0].inputs.dataset_inputs
    assert given.dataset.name == "ptb"
    assert DATASET.digest.startswith(given.dataset.digest)
    assert json.loads(given.dataset.source)["digest"] == DATASET.digest
    assert {tag.key: tag.value for tag in given.tags} == {MLFLOW_DATASET_CONTEXT: "train"}


def test_a_finished_trial_has_its_reason(record, find):
    end = TrialEnd(reason=StopReason.ERROR, detail="the disk is full")
    record(100, state=TrialState.FAILED, end=end)
    (trial,) = find()
    assert (trial.info.status, trial.data.tags["memtune.reason"]) == ("FAILED", "the disk is full")
    assert (trial.data.tags["memtune.state"], trial.data.tags["memtune.stop_reason"]) == ("failed", "error")


def test_the_best_validation_of_a_finished_trial_counts_reports_that_came_late(tracking_uri, find):
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_trial("t1", "lstm #0", {})
        recorder.log_reports("t1", [{"tokens": 200, "valid_perplexity": 30.0}])
        recorder.log_reports("t1", [{"tokens": 100, "valid_perplexity": 25.0}])
        assert recorder.flush(60)
        assert find()[0].data.metrics["best_validation"] == 30.0
        recorder.finish_trial("t1", TrialState.COMPLETE)
    assert find()[0].data.metrics["best_validation"] == 25.0


def test_a_trial_that_reports_after_its_end_keeps_its_run(record, tracking_uri, find, client):
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_trial("t1", "lstm #0", {})
        recorder.log_reports("t1", make_reports(100))
        recorder.finish_trial("t1", TrialState.COMPLETE)
        assert recorder.flush(60)
        recorder.log_reports("t1", make_reports(100, 200))
    assert read_steps(client, find()[0]) == [100, 200]


def test_files_are_artifacts(tracking_uri, find, client, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("from a file")
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_trial("t1", "alone", {})
        recorder.log_files("t1", {"configuration.json": "{}", "deeper/notes.txt": path})
    run_id = find()[0].info.run_id
    with open(client.download_artifacts(run_id, "deeper/notes.txt", str(tmp_path))) as file:
        assert file.read() == "from a file"


def test_a_long_parameter_is_cut_with_a_mark(tracking_uri, find):
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_trial("t1", "alone", {"long": "x" * 7000})
    assert find()[0].data.params["long"].endswith("x... (truncated)")


def test_many_parameters_and_reports_go_in_several_requests(tracking_uri, find, client):
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_trial("t1", "alone", {f"p{i}": i for i in range(250)})
        recorder.log_reports("t1", make_reports(*range(1, 1202)))
        assert recorder.flush(60)
    (trial,) = find()
    assert len(trial.data.params) == 250
    assert read_steps(client, trial) == list(range(1, 1202))


def test_a_resumed_trial_keeps_its_run(record, find, client):
    record(100, 200, state=None)
    record(200, 300)
    (trial,) = find()
    assert read_steps(client, trial) == [100, 200, 300]
    assert trial.info.status == "FINISHED"


def test_a_repeated_step_is_recorded_once(tracking_uri, find, client):
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_trial("t1", "alone", {})
        recorder.log_reports("t1", make_reports(100, 200))
        recorder.log_reports("t1", make_reports(200))
    assert read_steps(client, find()[0]) == [100, 200]


@pytest.mark.parametrize("request_name", ["create_run", "log_batch", "log_inputs", "set_terminated"])
def test_a_request_whose_response_is_lost_is_not_carried_out_twice(
    record, find, client, monkeypatch, request_name
):
    """The store carries out the request, and its first response is lost."""
    from mlflow.tracking import MlflowClient

    carry_out = getattr(MlflowClient, request_name)
    lost: list[str] = []

    def lose_first_response(*arguments, **named):
        answer = carry_out(*arguments, **named)
        if not lost:
            lost.append(request_name)
            raise ConnectionError("the response was lost")
        return answer

    monkeypatch.setattr(MlflowClient, request_name, lose_first_response)
    record(100, 200)
    assert lost
    assert len(find("study")) == 1
    (trial,) = find()
    assert read_steps(client, trial) == [100, 200]
    assert trial.info.status == "FINISHED"


def test_a_resumed_study_keeps_its_run(record, find):
    record(100, identity="t1")
    record(100, identity="t2")
    assert len(find("study")) == 1
    assert len(find("trial")) == 2


def test_a_diverged_trial_keeps_its_curve(tracking_uri, find, client, caplog):
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_trial("t1", "alone", {})
        bad = Report(tokens=200, train_perplexity=float("nan"), valid_perplexity=float("inf"))
        recorder.log_reports("t1", [*make_reports(100), bad])
        recorder.finish_trial("t1", TrialState.FAILED, TrialEnd(reason=StopReason.DIVERGED))
        assert recorder.flush(60)
    assert "was not recorded" not in caplog.text
    assert read_steps(client, find()[0], "train_perplexity") == [100, 200]


def test_a_corpus_with_a_slash_is_refused(tracking_uri):
    with pytest.raises(TrackingError, match='"wiki/2"'):
        Recorder(tracking_uri, "wiki/2")


def test_reports_of_a_trial_that_was_not_started_are_refused(tracking_uri):
    with Recorder(tracking_uri, "ptb") as recorder, pytest.raises(TrackingError, match="not started"):
        recorder.log_reports("t1", make_reports(1))


def test_a_refused_entry_is_an_error_in_the_log_and_the_others_are_stored(tracking_uri, find, client, caplog):
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_trial("t1", "alone", {})
        assert recorder.flush(60)
        client.delete_run(find()[0].info.run_id)
        with caplog.at_level(logging.ERROR, "memtune.tracking"):
            recorder.log_reports("t1", make_reports(1))
            recorder.start_trial("t2", "alone too", {})
            assert recorder.flush(60)
    assert caplog.text.count("was not recorded") == 1
    assert [run.data.tags["memtune.trial"] for run in find()] == ["t2"]


def test_an_unknown_kind_of_store_is_refused():
    with pytest.raises(TrackingError, match="ftp://host/store"):
        Recorder("ftp://host/store", "ptb")


def test_reconciling_ends_runs_without_a_running_trial(record, tracking_uri, find):
    record(100, identity="ended", state=None)
    record(100, identity="lost", state=None)
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_study("s1", "study one", {})
        recorder.reconcile({"ended": TrialState.COMPLETE})
    states = {run.data.tags["memtune.trial"]: run.info.status for run in find()}
    assert states == {"ended": "FINISHED", "lost": "KILLED"}


def test_reconciling_merges_duplicate_runs(record, tracking_uri, find, client):
    record(100, 200, state=None)
    (first,) = find()
    double = client.create_run(first.info.experiment_id, tags=first.data.tags)
    for step in (200, 300):
        client.log_metric(double.info.run_id, "valid_perplexity", 5.0, step=step)
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_study("s1", "study one", {})
        recorder.reconcile({"t1": TrialState.COMPLETE})
    (kept,) = find()
    assert kept.info.run_id == first.info.run_id
    assert read_steps(client, kept) == [100, 200, 300]


def test_reconciling_does_not_change_other_studies(record, tracking_uri, find):
    record(100, state=None)
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_study("s2", "another", {})
        recorder.reconcile({})
    assert [run.info.status for run in find()] == ["RUNNING"]


def test_text_fields_of_reports_are_tags(tracking_uri, find):
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_trial("t1", "lstm #0", {})
        for tokens, kernels in ((100, "default"), (200, None), (300, "onednn")):
            reason = "budget" if tokens == 300 else None
            one = Report(tokens=tokens, train_perplexity=2.0, reason=reason, kernels=kernels)
            recorder.log_reports("t1", [one])
        assert recorder.flush(60)
    tags = find()[0].data.tags
    assert tags["memtune.kernels"] == "onednn"
    assert "memtune.reason" not in tags  # set at the end of a trial, and this one is running


def test_a_run_has_no_empty_tags(record, find):
    record(100)
    runs = find("study") + find("trial")
    assert [tag for run in runs for tag, value in run.data.tags.items() if value == ""] == []


def test_a_trial_that_runs_again_has_no_end(record, find):
    ends = {"memtune.stop_reason", "memtune.reason", "memtune.validated_tokens"}
    record(100)
    (ended,) = find()
    record(100, 200, state=None)
    (running,) = find()
    assert ended.data.tags.keys() & ends == {"memtune.stop_reason", "memtune.reason"}
    assert running.data.tags.keys() & ends == set()


def test_of_a_studys_figures_only_the_last_value_is_kept(tracking_uri, find, client):
    """A long study has figures at the start and at the end of each of its trials."""
    with Recorder(tracking_uri, "corpus") as recorder:
        recorder.start_study("study", "study", {})
        for tokens in range(100):
            recorder.log_reports(None, [{"tokens": tokens, "trials_complete": tokens + 0.5}])
        recorder.log_reports(None, [{"tokens": 99, "trials_complete": 7.5}])
        assert recorder.flush(60)
        (run,) = recorder._runs._open_runs.values()
        assert run.values["trials_complete"] == {99: 7.5}
        stored = client.get_metric_history(run.run_id, "trials_complete")
    assert sorted(metric.value for metric in stored) == sorted(
        [*(tokens + 0.5 for tokens in range(100)), 7.5]
    )
