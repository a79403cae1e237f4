"""Tokens of Ray: their files, the file modes, and the variables of the environment."""

import os
from pathlib import Path

import pytest

from memtune.ray_backend.ray_connection import protect_default_token, use_private_token


def test_a_private_token_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with use_private_token(tmp_path):
            token = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
            assert token.parent == tmp_path
            assert token.stat().st_mode & 0o777 == 0o600
            assert len(token.read_text()) == 64
    finally:
        os.umask(before)


def test_a_private_instance_takes_no_token_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster's token is not used, and variables cannot disable the instance's token."""
    monkeypatch.setenv("RAY_AUTH_TOKEN", "cluster")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with use_private_token(tmp_path):
        assert not {"RAY_AUTH_TOKEN", "RAY_AUTH_MODE"} & {*os.environ}
    assert os.environ["RAY_AUTH_TOKEN"] == "cluster"
    assert os.environ["RAY_AUTH_MODE"] == "disabled"
    assert "RAY_AUTH_TOKEN_PATH" not in os.environ


def test_a_default_token_that_others_can_read_is_protected_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = tmp_path / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("cluster")
    token.chmod(0o644)
    protect_default_token(tmp_path)
    assert token.stat().st_mode & 0o777 == 0o600
    assert f"{token} had mode 0644" in caplog.text
    assert "cluster" not in caplog.text


def test_a_home_without_a_token_needs_no_protection(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    protect_default_token(tmp_path)
    assert not caplog.records
