"""A study is checked as far as it can be seen, and a job's metadata are enough to submit it again."""

from pathlib import Path

import pytest

from memtune.errors import ClusterError, ConfigurationError, SpaceError
from memtune.execution.jobs.server import Job, JobServer, server_address
from memtune.execution.jobs.submission import Submission, prepare_submission, resumption
from memtune.execution.settings import Settings


def job_of(submission: Submission, **changes: object) -> Job:
    """The job that a server would tell of."""
    known: dict[str, object] = {
        "id": "layers-3f9a1c",
        "study": submission.study,
        "status": "STOPPED",
        "started": 1.0,
        "ended": 2.0,
        "entrypoint": submission.entrypoint,
        "message": "",
        "exit_code": None,
        "metadata": submission.metadata,
        "environment": submission.environment,
    }
    return Job.model_validate({**known, **changes})


def test_what_search_is_told_is_what_submit_was_told(study_file: Path, settings: Settings) -> None:
    overrides = {"budget.trials": 3, "budget.time": "2h"}
    ready = prepare_submission(study_file, overrides, replace_champion=True)
    assert ready.entrypoint == (
        "python -m memtune.cli search layers.toml --trials 3 --time-budget 2h --replace-champion"
    )


def test_a_corpus_on_this_machine_is_checked_here(study_file: Path, settings: Settings) -> None:
    seen = prepare_submission(study_file, environment={"MEMTUNE_STORE": settings.store})
    assert not any("corpus" in note for note in seen.notes)
    study_file.write_text(study_file.read_text() + "min_parameters = 900_000_000\n")
    with pytest.raises(Exception, match="fewer than min_parameters"):
        prepare_submission(study_file, environment={"MEMTUNE_STORE": settings.store})


def test_a_corpus_that_cannot_be_seen_is_said_to_be_looked_for_later(study_file: Path) -> None:
    notes = prepare_submission(study_file, environment={"MEMTUNE_STORE": "s3://bucket/corpora"}).notes
    assert any('corpus "tiny" is looked for on the cluster' in note for note in notes)


def test_a_space_is_checked_here_wherever_its_corpus_is(study_file: Path) -> None:
    space = study_file.parent / "space.toml"
    space.write_text(space.read_text().replace("int = [1, 2]", "int = [0, 2]"))
    with pytest.raises(SpaceError, match=r"\[model.layers\] = 0"):
        prepare_submission(study_file, environment={"MEMTUNE_STORE": "s3://bucket/corpora"})


def test_a_job_is_taken_up_again_from_its_metadata_alone(study_file: Path, settings: Settings) -> None:
    first = prepare_submission(
        study_file, {"budget.trials": 3}, environment={"MEMTUNE_STORE": settings.store}
    )
    study_file.unlink()
    again = resumption(job_of(first), {"budget.trials": 9})
    assert (again.study, again.files, again.environment) == (first.study, first.files, first.environment)
    assert again.entrypoint == "python -m memtune.cli search layers.toml --trials 9 --resume"


def test_a_job_that_runs_is_not_taken_up_again(study_file: Path) -> None:
    first = prepare_submission(study_file, environment={})
    with pytest.raises(ClusterError, match="is running; stop it first: memtune jobs stop layers-3f9a1c"):
        resumption(job_of(first, status="RUNNING"))


def test_metadata_that_name_another_option_are_refused(study_file: Path) -> None:
    first = prepare_submission(study_file, environment={})
    altered = {**first.metadata, "memtune_terms": '{"overrides": {"spaces": "x"}}'}
    with pytest.raises(ConfigurationError, match="spaces cannot be put over a study"):
        resumption(job_of(first, metadata=altered))


def test_an_address_with_a_password_is_refused_without_repeating_it() -> None:
    with pytest.raises(ConfigurationError) as caught:
        server_address("http://me:hidden@10.0.0.5:8265")
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("address", ["10.0.0.5:8265", "ray://10.0.0.5:10001", "http://"])
def test_an_address_of_no_job_server_is_told_with_the_right_form(address: str) -> None:
    with pytest.raises(ClusterError, match=r"write it as http://127\.0\.0\.1:8265"):
        server_address(address)


def test_a_given_address_comes_before_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://10.0.0.5:8265/")
    monkeypatch.setenv("RAY_ADDRESS", "http://10.0.0.6:8265")
    assert server_address("http://10.0.0.7:8265") == "http://10.0.0.7:8265"
    assert server_address(None) == "http://10.0.0.5:8265"


def test_a_server_that_is_not_there_is_told_with_the_way_to_it() -> None:
    with pytest.raises(ClusterError, match=r"`ray dashboard CLUSTER\.yaml`"):
        JobServer("http://127.0.0.1:1")
