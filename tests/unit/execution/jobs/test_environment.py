"""A job is given settings by name, and no secret."""

import pytest

from memtune.errors import ConfigurationError
from memtune.execution.jobs.environment import job_environment, secrets_left_here, unset_places


def test_settings_are_handed_on_and_nothing_else() -> None:
    given = {
        "MEMTUNE_STORE": "s3://bucket/corpora",
        "MLFLOW_TRACKING_URI": "http://10.0.0.5:5000",
        "AWS_ENDPOINT_URL": "http://10.0.0.6:9000",
        "AWS_SECRET_ACCESS_KEY": "hidden",
        "MLFLOW_TRACKING_PASSWORD": "hidden",
        "RAY_AUTH_TOKEN": "hidden",
        "HOME": "/home/me",
    }
    handed = job_environment(given)
    assert handed["MEMTUNE_STORE"] == "s3://bucket/corpora"
    assert handed["AWS_ENDPOINT_URL"] == "http://10.0.0.6:9000"
    assert "hidden" not in handed.values()
    assert "HOME" not in handed


def test_a_folder_of_the_heads_home_stays_one_and_a_relative_one_is_made_absolute(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.chdir(str(tmp_path))
    handed = job_environment({"MEMTUNE_STORE": "~/corpora", "MEMTUNE_STUDIES": "studies"})
    assert handed["MEMTUNE_STORE"] == "~/corpora"
    assert handed["MEMTUNE_STUDIES"] == f"{tmp_path}/studies"


def test_a_job_has_a_home_that_outlives_its_own_folder() -> None:
    assert job_environment({})["MEMTUNE_HOME"] == "~/.memtune"


@pytest.mark.parametrize(
    ("name", "uri", "way_out"),
    [
        ("MEMTUNE_PROPOSALS", "postgresql://memtune:hidden@10.0.0.5/optuna", "~/.pgpass"),
        ("MEMTUNE_PROPOSALS", "postgresql+psycopg://10.0.0.5/optuna?user=a&password=hidden", "~/.pgpass"),
        ("MLFLOW_TRACKING_URI", "http://user:hidden@10.0.0.5:5000", "~/.mlflow/credentials"),
        ("MEMTUNE_STORE", "s3://key:hidden@bucket/corpora", "~/.aws/credentials"),
        ("MEMTUNE_STUDIES", "s3://bucket/studies?secret_key=hidden", "~/.aws/credentials"),
    ],
)
def test_a_password_in_a_setting_is_refused_with_the_way_out_and_not_repeated(
    name: str, uri: str, way_out: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        job_environment({name: uri})
    assert name in str(caught.value)
    assert way_out in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "uri",
    ["postgresql://memtune@10.0.0.5/optuna", "s3://bucket/a@b:c", "s3://b?endpoint_override=h:1", "a:b@c"],
)
def test_a_place_without_a_password_is_taken(uri: str) -> None:
    assert job_environment({"MLFLOW_TRACKING_URI": uri})["MLFLOW_TRACKING_URI"] == uri


def test_secrets_that_stay_here_and_places_that_nothing_names_are_told() -> None:
    assert secrets_left_here({"PGPASSWORD": "hidden", "PGUSER": "me"}) == {"PGPASSWORD": "~/.pgpass"}
    assert unset_places({"MEMTUNE_STORE": "s3://b"}) == [
        "MEMTUNE_STUDIES",
        "MEMTUNE_PROPOSALS",
        "MLFLOW_TRACKING_URI",
    ]
