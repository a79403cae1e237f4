"""Fixtures of the tests of studies: proposals of a study, opened like by a new driver."""

from collections.abc import Callable
from pathlib import Path

import pytest

from memtune import api
from memtune.search import Proposals
from memtune.settings import Settings
from memtune.studies.definition.study_loader import load_study, resolve_study


@pytest.fixture(autouse=True)
def without_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Studies end without their report, half of their time; tests of results and reports check it."""
    monkeypatch.setattr(api, "_record_report", lambda study, view, recorder: None)


@pytest.fixture
def open_proposals(study_file: Path, settings: Settings) -> Callable[[], Proposals]:
    """Opens the study's proposals, as each new driver does."""
    resolved = resolve_study(study_file, load_study(study_file), settings)
    return lambda: resolved.open_proposals()
