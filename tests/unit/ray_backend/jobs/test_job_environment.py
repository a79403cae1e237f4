"""A job receives the listed settings and no secrets."""

import pytest

from memtune.errors import ConfigurationError
from memtune.ray_backend.jobs.job_submission import build_job_environment


def test_only_listed_settings_are_forwarded() -> None:
    environment = {
        "MEMTUNE_STORE": "s3://bucket/corpora",
        "MLFLOW_TRACKING_URI": "http://10.0.0.5:5000",
        "AWS_ENDPOINT_URL": "http://10.0.0.6:9000",
        "AWS_SECRET_ACCESS_KEY": "hidden",
        "MLFLOW_TRACKING_PASSWORD": "hidden",
        "RAY_AUTH_TOKEN": "hidden",
        "HOME": "/home/me",
    }
    forwarded = build_job_environment(environment)
    assert forwarded["MEMTUNE_STORE"] == "s3://bucket/corpora"
    assert forwarded["AWS_ENDPOINT_URL"] == "http://10.0.0.6:9000"
    assert "hidden" not in forwarded.values()
    assert "HOME" not in forwarded


def test_a_folder_below_the_home_of_the_head_stays_and_a_relative_one_becomes_absolute(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.chdir(str(tmp_path))
    forwarded = build_job_environment({"MEMTUNE_STORE": "~/corpora", "MEMTUNE_STUDIES": "studies"})
    assert forwarded["MEMTUNE_STORE"] == "~/corpora"
    assert forwarded["MEMTUNE_STUDIES"] == f"{tmp_path}/studies"


def test_the_default_home_of_a_job_is_outside_of_its_working_folder() -> None:
    assert build_job_environment({})["MEMTUNE_HOME"] == "~/.memtune"


@pytest.mark.parametrize(
    ("name", "uri", "alternative"),
    [
        ("MEMTUNE_PROPOSALS", "postgresql://memtune:hidden@10.0.0.5/optuna", "~/.pgpass"),
        ("MEMTUNE_PROPOSALS", "postgresql+psycopg://10.0.0.5/optuna?user=a&password=hidden", "~/.pgpass"),
        ("MLFLOW_TRACKING_URI", "http://user:hidden@10.0.0.5:5000", "~/.mlflow/credentials"),
        ("MEMTUNE_STORE", "s3://key:hidden@bucket/corpora", "~/.aws/credentials"),
        ("MEMTUNE_STUDIES", "s3://bucket/studies?secret_key=hidden", "~/.aws/credentials"),
    ],
)
def test_the_error_for_a_password_names_the_file_to_use_and_hides_the_password(
    name: str, uri: str, alternative: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        build_job_environment({name: uri})
    assert name in str(caught.value)
    assert alternative in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "uri",
    ["postgresql://memtune@10.0.0.5/optuna", "s3://bucket/a@b:c", "s3://b?endpoint_override=h:1"],
)
def test_a_location_without_a_password_is_accepted(uri: str) -> None:
    assert build_job_environment({"MLFLOW_TRACKING_URI": uri})["MLFLOW_TRACKING_URI"] == uri
