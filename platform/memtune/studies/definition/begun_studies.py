"""Whether a study has begun: the stored studies of its name, and how their terms differ from its own."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from memtune.errors import ConfigurationError, StudyError
from memtune.search import FORMAT_KEY, StoredTrial
from memtune.storage.folder import Folder
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.studies.definition.study import Study
from memtune.studies.definition.study_terms import CONSTANT_TABLES, TERMS_FILE
from memtune.toml_text import locate_field
from memtune.training import TrialConfig
from memtune.values import flatten, parse


def find_begun(study: ResolvedStudy) -> ResolvedStudy:
    """The stored study of this name that differs only in terms that the file leaves to their defaults.

    Those may have had other defaults when it was started. This study where it is stored or none is found.
    """
    folder, written = Folder.open(study.settings.studies_folder), study.study.model_dump(exclude_unset=True)
    names = folder.list_names()
    if study.id in names:
        return study
    for name in names:
        if name.rpartition("-")[0] != study.study.name:
            continue
        stored = _read_terms(folder / name)
        defaults = {term: stored[term] for term in study.terms if term in stored}
        with suppress(ConfigurationError):  # terms that are not known any more
            found = replace(study, study=parse(Study, _fill_in(written, defaults), name))
            if found.id == name:
                return found
    return study


def _read_terms(folder: Folder) -> dict[str, Any]:
    """The terms in a study's folder; none where the file is missing, or was not written by a driver."""
    stored = folder.read_json(TERMS_FILE)
    return stored if isinstance(stored, dict) else {}


def _fill_in(written: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Tables with values of others in place of those that they do not have."""
    filled = {
        name: _fill_in(value, defaults[name])
        if isinstance(value, Mapping) and isinstance(defaults.get(name), Mapping)
        else value
        for name, value in written.items()
    }
    return {**defaults, **filled}


def check_trials(study: ResolvedStudy, outcomes: Sequence[StoredTrial]) -> None:
    """Raise a MemtuneError for a trial of a version of memtune that named trials in another way.

    The sampler would not know it again, and its checkpoints and its run would not be found.
    """
    for outcome in outcomes:
        config = parse(TrialConfig, outcome.configuration, f"study {study.id}, trial {outcome.number}")
        if config.identity(study.corpus.digest) != outcome.identity:
            raise StudyError(
                f"study {study.id} is of an earlier version of memtune, whose trials had fewer fields, "
                f"and can only be read (memtune study show {study.id}): start it again under another "
                f'name; warm_start = "{study.id}" tries its best configurations first'
            )


def is_untrained(study: ResolvedStudy) -> bool:
    """Whether nothing of it is trained, and it is no changed form of another study of this name."""
    if Folder.open(study.checkpoint_root).list_names():
        return False
    is_known = study.id in Folder.open(study.settings.studies_folder).list_names()
    return is_known or not describe_changes(study)


def explain_missing(study: ResolvedStudy, start: str) -> str:
    """Why this study has not begun, as far as stored studies tell; `start` says how to start it."""
    settings, file = study.settings, "" if study.file is None else f" of {study.file}"
    if Folder.open(study.checkpoint_root).list_names():
        return f"no trial of study {study.id}{file} is in {settings.study_database}; restore it, or {start}"
    changes = describe_changes(study)
    reason = f": {changes}, or {start}" if changes else f"; {start}"
    return f"no study {study.id}{file} has begun{reason}"


def describe_changes(study: ResolvedStudy) -> str:
    """How the terms differ from those of the most similar other study of this name; "" without one."""
    return describe_changed_terms(study.settings.studies_folder, study.id, study.terms, study.file)


def describe_changed_terms(
    studies_folder: str, study_id: str, terms: Mapping[str, Any], file: Path | None = None
) -> str:
    """How a study's terms differ from those of the most similar other one of its name; "" without one.

    With the study's file, each change has its line.
    """
    folder, name = Folder.open(studies_folder), study_id.rpartition("-")[0]
    others = [each for each in folder.list_names() if each != study_id and each.rpartition("-")[0] == name]
    stored = {other: _read_terms(folder / other) for other in others}
    if not stored:
        return ""
    compared = [(_list_changes(before, terms, file), other) for other, before in stored.items()]
    changes, study = min(compared, key=lambda each: (len(each[0]), each[1]))
    if not changes and FORMAT_KEY not in stored[study]:
        return (
            f"study {study} is of an earlier version of memtune, which identified studies by other terms, or "
            f"its spaces, model files or corpus have changed; read it with memtune study show {study}; "
            f'warm_start = "{study}" in the file of a new study tries its best configurations first'
        )
    listed = ", ".join(changes) or "the content of its search spaces, its model files or its corpus"
    return f"changed since study {study}: {listed}; undo the change to resume that study"


def _list_changes(before: Mapping[str, Any], now: Mapping[str, Any], file: Path | None) -> list[str]:
    old, new = (dict(flatten(terms)) for terms in (before, now))
    if FORMAT_KEY not in before:  # of a version that did not know all terms; they have their defaults
        new = {
            name: value
            for name, value in new.items()
            if name in old or name.partition(".")[0] in CONSTANT_TABLES
        }
    changes = []
    for name in sorted({*new, *(name for name in old if name.partition(".")[0] in now)}):
        if old.get(name) != new.get(name):
            place = (
                "" if file is None else locate_field(file, name).removeprefix(str(file)).removeprefix(", ")
            )
            named = f"{name} ({place})" if place else name
            pair = (old.get(name), new.get(name))
            values = ("no entry" if each is None else json.dumps(each) for each in pair)
            changes.append(f"{named} from {' to '.join(values)}")
    return changes
