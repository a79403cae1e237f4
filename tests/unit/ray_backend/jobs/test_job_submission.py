"""A study is checked on the client, and a job's metadata suffice to submit it again."""

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from ray.job_submission import JobSubmissionClient

from memtune.errors import ClusterError, ConfigurationError, SpaceError
from memtune.library import JOB_VARIABLE, RESUMED_VARIABLE
from memtune.ray_backend.jobs import job_server
from memtune.ray_backend.jobs.job_server import USER_KEY, Job, JobServer, resolve_server_address
from memtune.ray_backend.jobs.job_submission import (
    Submission,
    prepare_resumption,
    prepare_submission,
    submit,
    write_package,
)
from memtune.settings import USER_VARIABLE, Settings

START = "cd study && exec env PYTHONPATH=../platform python -P -m memtune.cli"


def make_job(submission: Submission, **changes: object) -> Job:
    """The job that a server would list for a submission."""
    fields: dict[str, object] = {
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
    return Job.model_validate({**fields, **changes})


def test_overrides_of_a_submission_become_options_of_search(study_file: Path, settings: Settings) -> None:
    overrides = {"budget.trials": 3, "budget.time": "2h"}
    submission = prepare_submission(study_file, overrides)
    assert submission.entrypoint == (f"{START} search layers.toml --trials 3 --time-budget 2h")


class RecordingServer(JobServer):
    """Keeps the environment and the metadata of the job that it is given, and starts none."""

    def __init__(self) -> None:
        self.environment: Mapping[str, str] = {}
        self.metadata: Mapping[str, str] = {}
        self.address = job_server.DEFAULT_ADDRESS
        self.jobs: list[Job] = []

    def list_jobs(self) -> list[Job]:
        return self.jobs

    def submit(
        self,
        job_id: str,
        entrypoint: str,
        folder: Path,
        environment: Mapping[str, str],
        metadata: Mapping[str, str],
    ) -> None:
        self.environment, self.metadata = environment, metadata


def test_a_job_knows_its_id_and_its_user(
    study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(USER_VARIABLE, "alice")
    submission, server = prepare_submission(study_file), RecordingServer()
    job = submit(server, submission)
    known = {JOB_VARIABLE: job, USER_VARIABLE: "alice"}
    assert server.environment == {**submission.environment, **known}
    assert server.metadata == {**submission.metadata, USER_KEY: "alice"}


@pytest.mark.parametrize(
    ("changes", "is_edited", "resume", "is_refused"),
    [
        ({"status": "PENDING"}, False, False, True),
        ({"status": "STOPPED"}, False, False, False),
        ({"status": "RUNNING", "environment": {"MEMTUNE_HOME": "/other"}}, False, False, False),
        ({"status": "RUNNING"}, True, True, True),
        ({"status": "RUNNING"}, True, False, False),
    ],
)
def test_a_study_that_another_job_has_is_not_submitted(
    changes: dict[str, object],
    is_edited: bool,
    resume: bool,
    is_refused: bool,
    study_file: Path,
    settings: Settings,
) -> None:
    """An edited file is of the same study where it is resumed; it may be of a new one where it is not."""
    server, earlier = RecordingServer(), prepare_submission(study_file)
    if is_edited:
        study_file.write_text(f"{study_file.read_text()}\n")
    server.jobs = [make_job(earlier, **changes)]
    submission = prepare_submission(study_file, resume=resume)
    if is_refused:
        with pytest.raises(ClusterError, match=r"job layers-3f9a1c has study layers and is .*jobs stop"):
            submit(server, submission)
    else:
        submit(server, submission)
        assert server.metadata


def test_a_model_file_replaces_no_module_of_python(
    study_file: Path, settings: Settings, tmp_path: Path
) -> None:
    """Ray starts the job in the package, with the package's folder first on Python's path."""
    submission = prepare_submission(study_file)
    package = tmp_path / "package"
    texts = {**submission.files.texts, "random.py": "raise SystemExit('planted')"}
    write_package(submission.files.model_copy(update={"texts": texts}), package)
    shown = submission.entrypoint.replace(
        "-m memtune.cli", "-c 'import random, memtune; print(memtune.__file__)'"
    )
    ray = {"PYTHONPATH": f"{package}:platform", "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    found = subprocess.run(
        shown, shell=True, cwd=package, env=ray, capture_output=True, text=True, check=True
    )
    assert Path(found.stdout.strip()).resolve() == package / "platform/memtune/__init__.py"
    assert (package / "study/random.py").is_file()


def test_a_corpus_on_this_machine_is_checked_before_submission(study_file: Path, settings: Settings) -> None:
    submission = prepare_submission(study_file, environment={"MEMTUNE_STORE": settings.corpus_store})
    assert not any("corpus" in note for note in submission.notes)
    study_file.write_text(study_file.read_text() + "min_parameters = 900_000_000\n")
    with pytest.raises(Exception, match="fewer than min_parameters"):
        prepare_submission(study_file, environment={"MEMTUNE_STORE": settings.corpus_store})


def test_a_note_says_that_the_cluster_checks_a_remote_corpus(study_file: Path) -> None:
    notes = prepare_submission(study_file, environment={"MEMTUNE_STORE": "s3://bucket/corpora"}).notes
    assert any('corpus "tiny" is checked on the cluster' in note for note in notes)


def test_notes_name_the_locations_without_a_value_and_the_secrets_that_stay_here(study_file: Path) -> None:
    environment = {"MEMTUNE_STORE": "s3://bucket/corpora", "PGPASSWORD": "hidden", "PGUSER": "me"}
    _, _, unset, secret = prepare_submission(study_file, environment=environment).notes
    assert unset.startswith("MEMTUNE_STUDIES, MEMTUNE_PROPOSALS, MLFLOW_TRACKING_URI not set: ")
    assert secret == "PGPASSWORD is not sent; the nodes read ~/.pgpass"


def test_spaces_are_checked_before_submission_for_a_remote_corpus(study_file: Path) -> None:
    space = study_file.parent / "space.toml"
    space.write_text(space.read_text().replace("int = [1, 2]", "int = [0, 2]"))
    with pytest.raises(SpaceError, match=r"\[model.layers\] = 0"):
        prepare_submission(study_file, environment={"MEMTUNE_STORE": "s3://bucket/corpora"})


def test_a_study_is_resumed_from_the_metadata_of_its_job(study_file: Path, settings: Settings) -> None:
    first = prepare_submission(
        study_file, {"budget.trials": 3}, environment={"MEMTUNE_STORE": settings.corpus_store}
    )
    study_file.unlink()
    again = prepare_resumption(make_job(first), {"budget.trials": 9})
    resumed = {**first.environment, RESUMED_VARIABLE: "layers-3f9a1c"}
    assert (again.study, again.files, again.environment) == (first.study, first.files, resumed)
    assert again.entrypoint == f"{START} search layers.toml --trials 9 --resume"


def test_notes_of_a_resumption_name_the_file_that_it_uses_and_the_locations_that_it_keeps(
    study_file: Path,
) -> None:
    first = prepare_submission(study_file, environment={"MEMTUNE_STORE": "s3://one", "MEMTUNE_HOME": "/home"})
    local = {"MEMTUNE_STORE": "s3://two", "MEMTUNE_STUDIES": "s3://three", "MEMTUNE_HOME": "/home/"}
    file, *kept = prepare_resumption(make_job(first), environment=local).notes
    assert "file is that of layers-3f9a1c; to use an edited one: memtune submit" in file
    again = "to change it: memtune submit STUDY --resume"
    assert kept == [
        f"the job keeps MEMTUNE_STORE=s3://one; {again}",
        f"the job keeps MEMTUNE_STUDIES unset; {again}",
    ]


def test_a_note_names_the_home_that_the_job_uses(study_file: Path) -> None:
    environment = {"MEMTUNE_STORE": "s3://bucket/corpora", "MEMTUNE_HOME": "home"}
    assert f"the job uses {os.path.abspath('home')} on the head" in str(
        prepare_submission(study_file, environment=environment).notes
    )


def test_a_job_without_the_result_cache_is_resumed_without_it(study_file: Path, settings: Settings) -> None:
    environment = {"MEMTUNE_STORE": settings.corpus_store}
    first = prepare_submission(study_file, reuse=False, environment=environment)
    assert first.entrypoint == f"{START} search layers.toml --no-cache"
    assert prepare_resumption(make_job(first)).entrypoint == f"{START} search layers.toml --no-cache --resume"


def test_a_running_job_cannot_be_resumed(study_file: Path) -> None:
    first = prepare_submission(study_file, environment={})
    with pytest.raises(ClusterError, match="is running; stop it first: memtune jobs stop layers-3f9a1c"):
        prepare_resumption(make_job(first, status="RUNNING"))


def test_metadata_with_an_unknown_override_are_refused(study_file: Path) -> None:
    first = prepare_submission(study_file, environment={})
    altered = {**first.metadata, "memtune_terms": '{"overrides": {"spaces": "x"}}'}
    with pytest.raises(ConfigurationError, match="spaces cannot be overridden for a submitted study"):
        prepare_resumption(make_job(first, metadata=altered))


@pytest.mark.parametrize("address", ["http://me:hidden@10.0.0.5:8265", "ray://me:hidden@10.0.0.5:10001"])
def test_an_address_with_a_password_is_refused_without_repeating_it(address: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve_server_address(address)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "written"),
    [
        ("10.0.0.5:8265", "http://10.0.0.5:8265"),
        ("localhost:21265", "http://localhost:21265"),
        ("ray://10.0.0.5:10001", "http://127.0.0.1:8265"),
        ("http://", "http://127.0.0.1:8265"),
        ("http://[/b]", "http://127.0.0.1:8265"),
    ],
)
def test_the_error_for_a_wrong_address_shows_the_right_form(address: str, written: str) -> None:
    with pytest.raises(ClusterError, match=f"write it as {re.escape(written)}$"):
        resolve_server_address(address)


def test_the_address_option_takes_precedence_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://10.0.0.5:8265/")
    monkeypatch.setenv("RAY_ADDRESS", "http://10.0.0.6:8265")
    assert resolve_server_address("http://10.0.0.7:8265") == "http://10.0.0.7:8265"
    assert resolve_server_address(None) == "http://10.0.0.5:8265"


def test_the_error_for_an_unreachable_server_names_the_forwarding_command() -> None:
    with pytest.raises(ClusterError, match=r"`memtune cluster dashboard CLUSTER\.yaml`"):
        JobServer("http://127.0.0.1:1")


def test_a_head_without_an_agent_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        def list_jobs(self) -> None:
            raise RuntimeError("Request failed with status code 500: No available agent to submit job")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setattr(job_server, "_create_client", lambda address: Client())
        server = JobServer(f"http://127.0.0.1:{listening.getsockname()[1]}")
        with pytest.raises(
            ClusterError, match=r"No available agent.*try again in a minute.*dashboard_agent\.log"
        ):
            server.list_jobs()


@pytest.mark.parametrize("closes", [True, False])
def test_a_head_that_dies_during_a_request_is_explained(
    closes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It closes the connection, or keeps it open and does not answer."""
    monkeypatch.setattr(job_server, "ANSWER_TIMEOUT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setattr(JobSubmissionClient, "_check_connection_and_version", lambda self, **_: None)
        server = JobServer(f"http://127.0.0.1:{listening.getsockname()[1]}")
        with listening.accept()[0]:  # the first connection asks whether there is a server
            pass
        closing = threading.Thread(target=lambda: listening.accept()[0].close())
        if closes:
            closing.start()
        with pytest.raises(ClusterError, match=r"may have died: .*memtune jobs resume JOB when the head is"):
            server.list_jobs()
        if closes:
            closing.join()


def test_the_error_for_a_job_that_a_new_head_does_not_know_says_how_to_continue() -> None:
    server = RecordingServer()
    with pytest.raises(ClusterError, match=r"there are none; .* memtune submit STUDY --resume"):
        server.get_job("layers-3f9a1c")


def test_a_job_waits_for_the_agent_of_a_new_head(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    submitted: list[str] = []

    class Client:
        def submit_job(self, submission_id: str, **_: object) -> None:
            submitted.append(submission_id)
            if len(submitted) < 3:
                raise RuntimeError("Request failed with status code 500: No available agent to submit job")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setattr(job_server, "_create_client", lambda address: Client())
        monkeypatch.setattr(job_server, "POLL_SECONDS", 0.001)
        server = JobServer(f"http://127.0.0.1:{listening.getsockname()[1]}")
        server.submit("job", "true", tmp_path, {}, {})
        assert submitted == ["job"] * 3
        submitted.clear()
        monkeypatch.setattr(job_server, "AGENT_TIMEOUT_SECONDS", 0.0)
        with pytest.raises(ClusterError, match="No available agent"):
            server.submit("job", "true", tmp_path, {}, {})
        assert submitted == ["job"]
