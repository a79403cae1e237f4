"""Studies from files: reading, and the checks of everything that a study names before a trial starts."""

import json
import os
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from memtune.corpora import open_corpus
from memtune.errors import StudyError, did_you_mean
from memtune.library import FileKind
from memtune.model_checks.first_check import check_new_families
from memtune.models import MODELS
from memtune.plugins import PluginSource, find_installed_file, load_plugin_files
from memtune.search import check_sampler
from memtune.search.study_database import find_max_tokens, redact_url
from memtune.settings import Settings
from memtune.spaces import (
    FittedSize,
    RandomChooser,
    Space,
    check_space,
    combine_spaces,
    load_spaces,
    override_space,
)
from memtune.studies.definition.resolved_study import ResolvedStudy, make_trial_config
from memtune.studies.definition.study import Study
from memtune.studies.definition.toml_files import load_listed_models, read_toml
from memtune.toml_text import locate_field
from memtune.training import TrialConfig
from memtune.values import parse

__all__ = ["check_spaces", "find_space", "load_study", "resolve_study"]

FAMILY_SAMPLES = 32
"""Samples among which each family of the study is met."""


def load_study(path: Path, overrides: Mapping[str, Any] | None = None) -> Study:
    """The study in a TOML file; `overrides` has values by dotted name that replace the file's.

    The files of `models` are executed: they define the families and rules that the study may name. Raises
    StudyError when the file cannot be read, PluginError for a file of `models` that cannot be used, and
    ConfigurationError when a value is not valid; all name the file.
    """
    document = read_toml(path)
    model = document.get("model")
    if "spaces" not in document and isinstance(model, dict) and "family" in model:
        raise StudyError(f"{path} is one trial, because it names no search spaces; run: memtune train {path}")
    document.setdefault("name", path.stem)
    for name, value in (overrides or {}).items():
        section, _, key = name.rpartition(".")
        entries = document.setdefault(section, {}) if section else document
        if isinstance(entries, dict):  # the schema refuses any other value and names it
            entries[key] = value
    load_listed_models(document, path)
    return Study.model_validate(parse(Study, document, lambda name: locate_field(path, name)))


def resolve_study(path: Path, study: Study, settings: Settings) -> ResolvedStudy:
    """Open and check everything that a study names.

    Spaces are searched beside the study file, in the `search_spaces` folders of the folders above it and of
    the working folder, and among the packaged ones. Raises CorpusError, SpaceError or StudyError.
    """
    sources = load_plugin_files(study.models, path)
    corpus = open_corpus(study.corpus, settings.corpus_store)
    spaces = check_spaces(path, study, len(corpus.vocabulary))
    families = [space.family for space in spaces if space.family]
    if study.baseline and study.baseline not in families:
        raise StudyError(
            f'{path}: baseline = "{study.baseline}" is no family of the study; '
            f"{did_you_mean(study.baseline, families)}"
        )
    sources = tuple(
        {source.digest: source for source in (*sources, *_list_family_sources(families))}.values()
    )
    resolved = ResolvedStudy(study, combine_spaces(spaces), corpus, settings, sources)
    check_sampler(study.sampler, resolved.space)
    _check_objectives_vary(path, resolved, families)
    _check_reports(path, resolved)
    _check_database(path, resolved)
    resolved.list_initial_points()
    resolved.open_task()
    resolved.check_budget()
    check_new_families(resolved.sample(RandomChooser(seed)) for seed in range(FAMILY_SAMPLES))
    if problem := resolved.early_stopping.get_problem(resolved.trial_tokens):
        raise StudyError(f"{path}: {problem}")
    return resolved


def _check_reports(path: Path, resolved: ResolvedStudy) -> None:
    """Raise StudyError where a trial ends before its first report, or early stopping sees only its end."""
    tokens, every = resolved.trial_tokens, resolved.find_training().report_every
    place = locate_field(path, "training.report_every")
    if every is not None and every > tokens:
        raise StudyError(
            f"{place}: training.report_every = {every:,} is above the {tokens:,} tokens of a trial; make it "
            "smaller, or raise training.tokens"
        )
    stopping = resolved.study.early_stopping.kind
    if stopping != "none" and (every or resolved.open_task().epoch_tokens) >= tokens:
        raise StudyError(
            f"{place}: a trial reports only at its end, after {tokens:,} tokens, so early_stopping.kind = "
            f'"{stopping}" would stop none; set training.report_every to {max(1, tokens // 4)}, for instance'
        )


def _check_database(path: Path, resolved: ResolvedStudy) -> None:
    """Raise StudyError where the study's database cannot hold a trial's reports."""
    tokens, database = resolved.trial_tokens, resolved.settings.study_database
    if tokens > (limit := find_max_tokens(database)):
        raise StudyError(
            f"{locate_field(path, 'training.tokens')}: a trial has {tokens:,} tokens, and "
            f"{redact_url(database)} stores reports up to {limit:,} tokens; lower training.tokens, or set "
            "MEMTUNE_PROPOSALS to a journal such as journal:///shared/studies.log"
        )


def _check_objectives_vary(path: Path, resolved: ResolvedStudy, families: Collection[str]) -> None:
    """Raise StudyError for an objective that is equal for all models, or that models do not have."""
    objectives = resolved.study.objectives
    counting = [family for family in families if not MODELS[family].is_trained_by_gradient]
    if len(objectives) > 1 and counting:
        raise StudyError(
            f"{path}: objectives = {json.dumps(objectives)} compares networks, and {', '.join(counting)} "
            "learns by counting and has no parameters; take it out of the spaces"
        )
    for parameter in resolved.space.parameters():
        leaf = parameter.leaf
        if isinstance(leaf, FittedSize) and leaf.size_kind in objectives:
            raise StudyError(
                f"{path}: [{parameter.field}] {leaf.name} = {leaf.target} makes the objective "
                f'"{leaf.size_kind}" equal for all models; sample the field, or take the objective out'
            )


def check_spaces(path: Path, study: Study, vocabulary_size: int) -> list[Space]:
    """The checked spaces of a study, with its constants. Raises SpaceError or StudyError."""
    folders = [(path.parent / name).parent for name in study.models]
    found = [space for name in study.spaces for space in load_spaces(find_space(name, path, folders))]
    families = {space.family for space in found}
    spaces = [
        override_space(space, study.select_entries(space.family, families), str(path)) for space in found
    ]
    spaces = [_add_source(space) for space in spaces]
    for space in spaces:
        check_space(
            space,
            TrialConfig,
            partial(_locate_entry, path, space.source),
            lambda sampled, kind: make_trial_config(sampled).measure_size(kind, vocabulary_size),
        )
    return spaces


def _locate_entry(study: Path, space: str, name: str) -> str:
    """The line of a study that sets a field, else that of its space, else both files."""
    for file in (str(study), space):
        if (place := locate_field(file, name)) != file:
            return place if file == space else f"{place}, over {space}"
    return f"{study} over {space}"


def _add_source(space: Space) -> Space:
    """The space of a user's family with the digest of its source, which then is part of every trial."""
    source = MODELS.get_source(space.family) if space.family and space.family in MODELS else None
    return space if source is None else override_space(space, {"model": {"source": source.digest}})


def _list_family_sources(families: Iterable[str]) -> list[PluginSource]:
    found = [MODELS.get_source(family) for family in families if family in MODELS]
    return [source for source in found if source is not None]


def find_space(name: str, study: Path, model_folders: Iterable[Path] = ()) -> Path:
    """The file of a space named in a study.

    It is a path ending in .toml, or a name: a file beside a model file of the study (in `model_folders`), in
    a `search_spaces` folder of the user, a packaged one, or one beside the module of an installed family.
    Raises StudyError that names the searched folders.
    """
    if name.endswith(".toml"):
        return study.parent / name
    for folder in dict.fromkeys(model_folders):
        if os.path.isfile(folder / f"{name}.toml") and os.path.isfile(folder / f"{name}.py"):
            return folder / f"{name}.toml"
    packaged = FileKind.SPACE.folder
    above = [folder / "search_spaces" for folder in (*study.absolute().parents, Path.cwd())]
    folders = [*(folder for folder in above if folder != packaged), packaged]
    for folder in folders:
        if os.path.isfile(folder / f"{name}.toml"):  # False also for a name that no file can have
            return folder / f"{name}.toml"
    if (installed := find_installed_file(MODELS, name, f"{name}.toml")) is not None:
        return installed
    known = {file.stem for folder in folders for file in folder.glob("*.toml")}
    raise StudyError(
        f'{study}: no search space "{name}"; {did_you_mean(name, known)}; searched every folder named '
        f"search_spaces above {study}, that of the working folder, and {packaged}; a path ends in .toml"
    )
