"""Studies from files and programs, and the checks of everything that a study names before a trial starts."""

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from memtune.arguments import check_type
from memtune.corpora.probes.probe_corpora import open_or_draw_corpus
from memtune.errors import ConfigurationError, CorpusError, StudyError, did_you_mean
from memtune.library import FileKind, find_file
from memtune.model_checks.check_run import check_new_families
from memtune.models import MODELS
from memtune.plugins import find_installed_file, load_plugin_files
from memtune.search import StudyReader
from memtune.search.database.study_database import find_max_tokens, redact_url
from memtune.settings import Settings
from memtune.spaces import (
    FAMILY_FIELD,
    MAX_ALTERNATIVES,
    FittedSize,
    RandomChooser,
    SizeKind,
    Space,
    check_space,
    combine_spaces,
    load_spaces,
    override_space,
)
from memtune.studies.definition.resolved_study import BUDGET_SAMPLES, ResolvedStudy
from memtune.studies.definition.study import NAME_PATTERN, Study, copy_as_toml
from memtune.studies.definition.study_terms import LENGTH_FIELDS, SharedTerms
from memtune.studies.definition.toml_files import (
    find_folder,
    load_listed_models,
    name_place,
    override_fields,
    read_toml,
)
from memtune.toml_text import locate_field
from memtune.training import TrainingConfig, TrialConfig
from memtune.values import parse

StudySource = str | Path | Mapping[str, Any] | Study
"""A study as users give it: a TOML file, the name of a packaged one, the content of a file, or a value."""

FAMILY_SAMPLES = 32
"""Samples among which each family of the study is met."""


def open_study(source: StudySource, overrides: Mapping[str, Any] | None = None) -> tuple[Path | None, Study]:
    """The file of a study, None for one of a program, and the study with `overrides` by dotted name.

    Paths in the study of a program start at the working folder. Raises ArgumentError for another value than
    a StudySource, and the errors of `load_study`.
    """
    expected = "a TOML file, the name of a packaged study, a mapping with the content of a file, or a Study"
    check_type("study", source, (str, Path, Mapping, Study), expected)
    if isinstance(source, str | Path):
        path = find_file(FileKind.STUDY, Path(source))
        return path, load_study(path, overrides)
    document = copy_as_toml(source)
    if isinstance(source, Study) and "trials" not in source.budget.model_fields_set:
        del document["budget"]["trials"]  # its default depends on the overrides
    if document.get("name") is None and "spaces" in document:
        raise StudyError(
            'the study: name is missing; one that is not a file needs it, such as "name": "memories"'
        )
    return None, _parse_study(document, None, overrides)


def load_study(path: Path, overrides: Mapping[str, Any] | None = None) -> Study:
    """The study in a TOML file; `overrides` has values by dotted name that replace the file's.

    The files of `models` are executed: they define the families and rules that the study may name. Raises
    StudyError when the file cannot be read, PluginError for a file of `models` that cannot be used, and
    ConfigurationError when a value is not valid; all name the file.
    """
    return _parse_study({"name": path.stem, **read_toml(path)}, path, overrides)


def _parse_study(document: dict[str, Any], path: Path | None, overrides: Mapping[str, Any] | None) -> Study:
    model, place = document.get("model"), name_place(path)
    if "spaces" not in document and isinstance(model, dict) and "family" in model:
        command = "memtune.train(...)" if path is None else f"memtune train {path}"
        raise StudyError(f"{place} is one trial, because it names no search spaces; run: {command}")
    override_fields(document, overrides)
    if path is not None and document["name"] == path.stem and not re.match(NAME_PATTERN, path.stem):
        raise StudyError(
            f'{path}: a study has the name of its file, of letters from A to Z, digits, ".", "_" and "-"; '
            'write another into the file, such as name = "memories"'
        )
    load_listed_models(document, path)
    return Study.model_validate(parse(Study, document, lambda name: locate_field(place, name)))


def resolve_study(path: Path | None, study: Study, settings: Settings) -> ResolvedStudy:
    """Open and check everything that a study names; `path` is its file, None for the study of a program.

    Spaces are searched next to the study file, in the `search_spaces` folders of the folders above it and of
    the working folder, and among the packaged ones. Raises CorpusError, SpaceError or StudyError.
    """
    sources = load_plugin_files(study.models, find_folder(path))
    try:
        corpus = open_or_draw_corpus(study.corpus, settings.corpus_store)
    except CorpusError as error:
        raise CorpusError(f"{locate_field(name_place(path), 'corpus')}: {error}") from None
    spaces = check_spaces(path, study, len(corpus.vocabulary))
    families = [space.family for space in spaces if space.family]
    own = [MODELS.get_source(family) for family in families if family in MODELS]
    sources = tuple({source.digest: source for source in (*sources, *own) if source is not None}.values())
    space = combine_spaces(spaces)
    shared = _read_shared(name_place(path), space)
    resolved = ResolvedStudy(study, space, corpus, settings, shared, sources, path)
    study.sampler.check_space(space)
    if study.compare not in (known := (FAMILY_FIELD, *resolved.searched_fields)):
        raise StudyError(
            f'{resolved.place}: compare = "{study.compare}" is not a field that the study searches; '
            f"{did_you_mean(study.compare, known)}"
        )
    compared = [each for each in resolved.space.parameters() if each.field == study.compare]
    if study.compare != FAMILY_FIELD and not any(each.list_alternatives() for each in compared):
        raise StudyError(
            f'{resolved.place}: compare = "{study.compare}" is a range of more than {MAX_ALTERNATIVES} '
            "values; name those to compare with choice, or compare another field"
        )
    _check_objectives_vary(resolved, families)
    _check_reports(resolved)
    _check_database(resolved)
    if study.warm_start is None or not StudyReader(settings.study_database).has_begun(resolved.id):
        resolved.list_initial_points()
    _check_target(resolved)
    _check_budget(resolved)
    check_new_families(resolved.draw(range(FAMILY_SAMPLES)))
    if problem := resolved.early_stopping.get_problem(resolved.trial_tokens):
        raise StudyError(f"{resolved.place}: {problem}")
    return resolved


def _read_shared(file: str, space: Space) -> SharedTerms:
    """What all trials of a space share. Raises StudyError where the figures of two would not compare."""
    parameters = space.parameters()
    for field in (f"training.{name}" for name in LENGTH_FIELDS):
        if any(each.field == field for each in parameters):
            raise StudyError(
                f"{locate_field(file, field)}: {field} is a parameter, but trials of one study are compared "
                "after the same tokens; give one number"
            )
    first = {each.name: value for each in parameters for value in each.leaf.test_values()[:1]}
    points = space.family_choices() or [{}]
    for each in parameters:
        if each.field.startswith(("protocol.", "task.")):
            points += [{**each.conditions, each.name: value} for value in each.leaf.test_values()]
    # A point pins every parameter, so nothing is drawn.
    tables = [space.root.sample(RandomChooser(0, first | point), "") for point in points]
    length = next((table["training"] for table in tables if "training" in table), {"epochs": 1})
    shared = {"training": {name: length[name] for name in LENGTH_FIELDS if name in length}}
    found = list[SharedTerms]()
    for table in tables:
        own = {name: table[name] for name in ("protocol", "task") if name in table}
        with suppress(ConfigurationError):  # fields that exclude each other
            found.append(parse(SharedTerms, shared | own, file))
    labels = sorted({(each.protocol.label, each.task.label) for each in found})
    if len(labels) > 1:
        one, other = labels[:2]
        place = locate_field(file, "protocol" if one[0] != other[0] else "task")
        raise StudyError(
            f"{place}: figures compare only under one protocol and task, but the space has "
            f'"{", ".join(filter(None, one))}" and "{", ".join(filter(None, other))}"; choose one'
        )
    return found[0] if found else parse(SharedTerms, shared | own, file)


def _check_reports(resolved: ResolvedStudy) -> None:
    """Raise StudyError where a trial ends before its first report, or early stopping sees only its end."""
    tokens, every = resolved.trial_tokens, resolved.shared.training.report_every
    place = locate_field(resolved.place, "training.report_every")
    if every is not None and every > tokens:
        raise StudyError(
            f"{place}: training.report_every = {every:,} is above the {tokens:,} tokens of a trial; make it "
            "smaller, or raise training.tokens"
        )
    stopping = resolved.early_stopping.kind
    if stopping != "none" and (every or resolved.task.epoch_tokens) >= tokens:
        raise StudyError(
            f"{place}: a trial reports only at its end, after {tokens:,} tokens, so early_stopping.kind = "
            f'"{stopping}" would stop none; set training.report_every to {max(1, tokens // 4)}, for instance'
        )


def _check_target(resolved: ResolvedStudy) -> None:
    target, objective = resolved.study.budget.target, resolved.task.objective
    if target is not None and objective.compute_target_cost(target) < 0:
        raise StudyError(
            f"{locate_field(resolved.place, 'budget.target')}: budget.target = {target:g} is never reached: "
            f"it is {objective.figure_range}"
        )


def _check_budget(resolved: ResolvedStudy) -> None:
    """Raise StudyError when none of 200 sampled configurations may start."""
    for sample in resolved.draw(range(BUDGET_SAMPLES)):
        reason = resolved.limits.get_refusal_reason(sample.model_dump(mode="json"))
        if reason is None:
            return
    raise StudyError(
        f"study {resolved.study.name}: none of {BUDGET_SAMPLES} sampled configurations may be started, for "
        f"instance because {reason}; change the budget or the space"
    )


def _check_database(resolved: ResolvedStudy) -> None:
    tokens, database = resolved.trial_tokens, resolved.settings.study_database
    if tokens > (limit := find_max_tokens(database)):
        raise StudyError(
            f"{locate_field(resolved.place, 'training.tokens')}: a trial has {tokens:,} tokens, and "
            f"{redact_url(database)} stores reports up to {limit:,} tokens; lower training.tokens, or set "
            "MEMTUNE_PROPOSALS to a journal such as journal:///shared/studies.log"
        )


def _check_objectives_vary(resolved: ResolvedStudy, families: Collection[str]) -> None:
    """Raise StudyError for an objective that is equal for all models, or that models do not have."""
    objectives = resolved.study.objectives
    counting = [family for family in families if not MODELS[family].is_trained_by_gradient]
    if len(objectives) > 1 and counting:
        raise StudyError(
            f"{resolved.place}: objectives = {json.dumps(objectives)} compares networks, and "
            f"{', '.join(counting)} learns by counting and has no parameters; take it out of the spaces"
        )
    for parameter in resolved.space.parameters():
        leaf = parameter.leaf
        if isinstance(leaf, FittedSize) and leaf.size_kind in objectives:
            raise StudyError(
                f"{resolved.place}: [{parameter.field}] {leaf.name} = {leaf.target} makes the objective "
                f'"{leaf.size_kind}" equal for all models; sample the field, or take the objective out'
            )


def check_spaces(path: Path | None, study: Study, vocabulary_size: int) -> list[Space]:
    """The checked spaces of a study, with its constants. Raises SpaceError or StudyError."""
    folders = [(find_folder(path) / name).parent for name in study.models]
    found = [space for name in study.spaces for space in load_spaces(find_space(name, path, folders))]
    families = {space.family for space in found}
    _check_families(name_place(path), study, families)
    spaces = [_apply_terms(space, study, families, name_place(path)) for space in found]
    for space in spaces:
        _check_length(name_place(path), space)
        _check_fields(space, partial(_locate_entry, path, study, space), vocabulary_size)
    return spaces


def _check_fields(space: Space, where: Callable[[str], str], vocabulary_size: int) -> None:
    def measure_size(sampled: Any, kind: SizeKind) -> int:
        config: TrialConfig = parse(TrialConfig, sampled, where)
        try:
            return config.measure_size(kind, vocabulary_size)
        except ConfigurationError as error:  # of the vocabulary, which names no file
            raise ConfigurationError(f"{where('model')}: {error}") from None

    check_space(space, TrialConfig, where, measure_size)


def _check_length(file: str, space: Space) -> None:
    """Raise StudyError where neither the study nor its space says how long a trial trains."""
    given = space.root.sample(RandomChooser(0), "").get("training", {}).keys()
    # A misspelt length is explained as an unknown name.
    if given and given <= TrainingConfig.model_fields.keys() and given.isdisjoint({"epochs", "tokens"}):
        raise StudyError(
            f"{locate_field(file, 'training')}: the length of a trial is missing; write it under [training], "
            "such as epochs = 10 or tokens = 1_000_000"
        )


def _check_families(file: str, study: Study, families: Collection[str | None]) -> None:
    known = [family for family in families if family]
    for name, own in study.families.items():
        if name not in known:
            field = ".".join(["families", name, *[*own.model_dump(exclude_defaults=True)][:1]])
            place = f"{locate_field(file, field)}: families.{name}"
            advice = did_you_mean(name, known)
            raise StudyError(f"{place}: no space of the study is of this family; {advice}")


def _apply_terms(space: Space, study: Study, families: Collection[str | None], file: str) -> Space:
    """The space with the study's constants, the terms for its family alone, and the digest of its source.

    The digest of a user's family then is part of every trial.
    """
    space = override_space(space, study.select_entries(space.family, families), file)
    if own := study.families.get(space.family or ""):
        place = f"families.{space.family}"
        space = override_space(space, own.model_dump(exclude_defaults=True), file, place)
    source = MODELS.get_source(space.family) if space.family and space.family in MODELS else None
    return space if source is None else override_space(space, {"model": {"source": source.digest}})


def _locate_entry(path: Path | None, study: Study, space: Space, name: str) -> str:
    """The line of a study that sets a field, else that of its space, else both files."""
    source, own = space.source, f"families.{space.family}.{name}"
    in_study = own if "." in name and study.sets_field(own) else name
    if path is None:
        is_set = study.sets_field(in_study)
        return f"{name_place(path)}, over {source}" if is_set else locate_field(source, name)
    if (place := locate_field(path, in_study)) != str(path):
        return f"{place}, over {source}"
    if (place := locate_field(source, name)) != source:
        return place
    return f"{path} over {source}"


def find_space(name: str, study: Path | None, model_folders: Iterable[Path] = ()) -> Path:
    """The file of a space named in a study; `study` is its file, None for the study of a program.

    It is a path ending in .toml, or a name: a file next to a model file of the study (in `model_folders`), in
    a `search_spaces` folder of the user, a packaged one, or one next to the module of an installed family.
    Raises StudyError that names the searched folders.
    """
    if name.endswith(".toml"):
        return find_folder(study) / name
    for folder in dict.fromkeys(model_folders):
        if os.path.isfile(folder / f"{name}.toml") and os.path.isfile(folder / f"{name}.py"):
            return folder / f"{name}.toml"
    packaged = FileKind.SPACE.folder
    start = find_folder(study).absolute()
    above = [folder / "search_spaces" for folder in (start, *start.parents, Path.cwd())]
    folders = [*(folder for folder in above if folder != packaged), packaged]
    for folder in folders:
        if os.path.isfile(folder / f"{name}.toml"):  # False also for a name that no file can have
            return folder / f"{name}.toml"
    if (installed := find_installed_file(MODELS, name, f"{name}.toml")) is not None:
        return installed
    known = {file.stem for folder in folders for file in folder.glob("*.toml")}
    raise StudyError(
        f'{name_place(study)}: no search space "{name}"; {did_you_mean(name, known)}; searched every folder '
        f"named search_spaces above {study or start}, that of the working folder, and {packaged}; a path "
        "ends in .toml"
    )
