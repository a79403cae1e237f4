"""URIs of settings: those with credentials are refused, and no message repeats them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from memtune.corpora import CorpusStore
from memtune.errors import ConfigurationError, StorageError
from memtune.settings import URI_VARIABLES, Settings
from memtune.storage.folder import Folder
from memtune.storage.uris import redact_uri, refuse_credentials

SECRET = "hunter2"
WITH_CREDENTIALS = [
    f"s3://AKIA:{SECRET}@bucket/corpora",
    f"s3://AKIA:{SECRET}/with/slashes@bucket/corpora",
    f"s3://AKIA:{SECRET}",
    f"s3://{SECRET}@bucket",
    f"s3://bucket/corpora?secret_key={SECRET}",
    f"s3://bucket/corpora?endpoint_override=https://user:{SECRET}@host",
    f"s3://bucket/corpora?endpoint_override=https%3A%2F%2Fuser%3A{SECRET}%40host",
    f"s3://bucket/key?X-Amz-Signature={SECRET}",
    f"s3+https://user:{SECRET}@host/bucket",
    f"https://{SECRET}@host/path",
    f"https://user%3A{SECRET}@host/path",
    f"https://host/path?access_token={SECRET}",
    f"https://host/path?sas_token={SECRET}",
    f"https://host/path?SAS-Token={SECRET}",
    f"https://host/path?sig={SECRET}",
    f"https://host/path#token={SECRET}",
    f"https://host/path;password={SECRET}",
    f"abfss://container@account.dfs.core.windows.net/x?account_key={SECRET}",
    f"postgresql://user:{SECRET}@host/name",
    f"postgresql+psycopg://host/name?user=me&password={SECRET}",
    f"postgresql://host/name?sslpassword={SECRET}",
    f"mssql+pyodbc:///?odbc_connect=DRIVER%3Dx%3BPWD%3D{SECRET}",
    f"gs://{SECRET}@bucket",
    f"user:{SECRET}@host/path",
    f"host=x;password={SECRET}",
    f"s3:/AKIA:{SECRET}@bucket",
    f"//user:{SECRET}@host/path",
    f"https://host/path;jsessionid={SECRET}",
    f"https://host/path?bearer={SECRET}",
    f"https://host/path?jwt={SECRET}",
    f"https://host/path?code={SECRET}",
    f"s3://bucket?pat={SECRET}",
    f"https://host/path?session={SECRET}",
    f"https://host/path#token:{SECRET}",
]
WITHOUT_CREDENTIALS = [
    "/data/corpora",
    "/data/key=3/me@work",
    ".memtune/corpora",
    "file:///data/me@work/corpora",
    "s3://bucket/corpora?region=eu-west-1&endpoint_override=https://minio:9000",
    "s3://bucket/token=3/x@y",
    "gs://anonymous@bucket/corpora",
    "abfss://container@account.dfs.core.windows.net/corpora",
    "hdfs://me@namenode:8020/corpora",
    "http://host:5000/path",
    "http://[::1]:5000",
    "sqlite:////home/me/mlflow.db",
    "journal:///home/me/proposals.log",
    "postgresql://me@host:5432/name?sslmode=require&passfile=/home/me/.pgpass&sslkey=/home/me/key.pem",
]


@pytest.mark.parametrize("uri", WITH_CREDENTIALS)
def test_a_uri_with_credentials_is_refused_without_repeating_it(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="MEMTUNE_STORE holds a password, key or token") as refused:
        refuse_credentials("MEMTUNE_STORE", uri)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("uri", WITHOUT_CREDENTIALS)
def test_a_uri_without_credentials_is_accepted(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert Settings.from_environment(tmp_path).tracking_uri == uri


@pytest.mark.parametrize("name", URI_VARIABLES)
def test_every_setting_with_a_url_refuses_credentials(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for uri in WITH_CREDENTIALS:
        monkeypatch.setenv(name, uri)
        with pytest.raises(ConfigurationError, match=name) as refused:
            Settings.from_environment(tmp_path)
        assert SECRET not in str(refused.value)


@pytest.mark.parametrize("open_location", [Folder.open, CorpusStore.open])
def test_a_location_with_credentials_is_not_contacted(open_location: Callable[[str], object]) -> None:
    for uri in WITH_CREDENTIALS:
        with pytest.raises(ConfigurationError) as refused:
            open_location(uri)
        assert SECRET not in str(refused.value)


def test_a_redacted_uri_has_no_credentials() -> None:
    redacted = [redact_uri(uri) for uri in WITH_CREDENTIALS if "://" in uri]
    assert [uri for uri in redacted if SECRET in uri] == []


def test_a_redacted_uri_keeps_host_and_path() -> None:
    assert redact_uri("https://user:pw@host:1/path?x=1") == "https://host:1/path"
    assert redact_uri("s3://bucket/a@b") == "s3://bucket/a@b"


def test_an_unknown_kind_of_storage_is_reported_without_its_parameters() -> None:
    with pytest.raises(StorageError, match="cannot open storage nowhere://x: ") as refused:
        Folder.open(f"nowhere://x?y={SECRET}")
    assert SECRET not in str(refused.value)
