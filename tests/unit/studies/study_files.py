"""A study of a file, resolved as by a new driver."""

from pathlib import Path

from memtune.settings import Settings
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.studies.definition.study_loader import load_study, resolve_study


def resolve(path: Path, settings: Settings, **overrides: object) -> ResolvedStudy:
    """The study of a file, with other values by dotted name."""
    return resolve_study(path, load_study(path, overrides), settings)
