"""Fixtures of the tests of studies: proposals of a study, opened like by a new driver."""

from collections.abc import Callable
from pathlib import Path

import pytest

from memtune.search import Proposals
from memtune.settings import Settings
from tests.unit.studies.study_files import resolve


@pytest.fixture(autouse=True)
def run_without_report(without_report: None) -> None:
    """No test here reads the report of a study."""


@pytest.fixture
def open_proposals(study_file: Path, settings: Settings) -> Callable[[], Proposals]:
    """Opens the study's proposals, as each new driver does."""
    return resolve(study_file, settings).open_proposals
