"""A study as its file defines it, and a resolved study, whose corpus and spaces are open and checked."""

import json
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from memtune.corpora import Corpus, open_corpus
from memtune.errors import ConfigurationError, StudyError, did_you_mean
from memtune.library import FileKind
from memtune.model_checks.first_check import check_new_families
from memtune.models import MODELS
from memtune.plugins import PluginSource, SourceStore, find_installed_file, load_plugin_files
from memtune.search import (
    MULTI_OBJECTIVE_KINDS,
    REPEATS_SUFFIX,
    SAMPLERS,
    AnyEarlyStopping,
    MultiObjective,
    ObjectiveName,
    Outcome,
    Proposals,
    Rule,
    SamplerConfig,
    check_sampler,
    compute_coordinate,
)
from memtune.search.early_stopping import EarlyStopping, NoEarlyStoppingConfig
from memtune.search.warm_start import list_warm_start_points
from memtune.settings import Settings
from memtune.spaces import (
    Chooser,
    FittedSize,
    RandomChooser,
    Scalar,
    SizeKind,
    Space,
    adapt_point,
    check_space,
    combine_spaces,
    load_spaces,
    override_space,
    pin_point,
)
from memtune.storage.folder import Folder
from memtune.studies.gpu_share import compute_gpu_bytes, compute_gpu_share
from memtune.studies.study_terms import TERMS_FILE, Budget, ChampionLimits, Prices, Repeats, Resources
from memtune.studies.toml_files import load_listed_models, read_toml
from memtune.tasks import AnyTask, open_task
from memtune.toml_text import locate_field
from memtune.training import (
    MemoryEstimate,
    TrainingConfig,
    TrialConfig,
    compute_sizes,
    estimate_memory,
    find_longest_row,
    measure_available_bytes,
)
from memtune.values import Value, digest, flatten, parse

__all__ = [
    "Budget",
    "Repeats",
    "ResolvedStudy",
    "Resources",
    "Study",
    "check_spaces",
    "find_space",
    "load_study",
    "resolve_study",
]

CHANGEABLE_TERMS = {"budget", "prices", "resources", "repeats", "baseline", "champion", "name", "question"}
"""Terms that may differ between the runs of one study."""
BUDGET_SAMPLES = 200
GPU_REQUEST_SAMPLES = 32
FAMILY_SAMPLES = 32
"""Samples among which each family of the study is met."""


def _flatten_point(point: object) -> object:
    """A point written with dotted keys, which TOML nests, by dotted field."""
    return dict(flatten(point)) if isinstance(point, Mapping) else point


Point = Annotated[
    dict[str, str | bool | int | float],
    BeforeValidator(_flatten_point),
    WithJsonSchema({"type": "object"}),
]
"""Values by dotted field."""


class Study(Value):
    """A question, the spaces to search, and the terms under which trials are compared.

    `task`, `model`, `protocol` and `training` hold constants for every trial, which override the entries of
    the spaces. A field that only some of the study's families have (a width, a training) applies to those.
    """

    question: str
    """The question that the study answers, in one sentence; tables and reports show it."""
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name of the study; default: the name of its file."""
    corpus: str
    """Name of a corpus of the store; "text+questions" joins the text of one with the questions of another."""
    spaces: tuple[str, ...] = Field(min_length=1)
    """Search spaces, by name or as paths that end in .toml."""
    models: tuple[str, ...] = Field(
        default=(),
        description="Python files with model families, relative to the study; their spaces stand beside them",
    )
    task: dict[str, Any] = Field(default_factory=dict)
    """Values, or parameters, that replace those of all spaces: of the task."""
    model: dict[str, Any] = Field(default_factory=dict)
    """The same for the model; a field that only some families have applies to those."""
    protocol: dict[str, Any] = Field(default_factory=dict)
    """The same for the protocol."""
    training: dict[str, Any] = Field(default_factory=dict)
    """The same for the training."""
    seed: int = 0
    """Seed of each trial: of its initialisation, the order of its data and dropout."""
    sampler: SamplerConfig = SamplerConfig()
    """How configurations are sampled."""
    objectives: tuple[ObjectiveName, ...] = Field(
        default=("value",), description="what the sampler makes good: the value, and sizes of the models"
    )
    points: Literal["papers"] | tuple[Point, ...] = Field(
        default=(), description="configurations to try first, as values by dotted field"
    )
    warm_start: str | None = Field(
        default=None,
        description="id of a study in the same storage, whose best configurations are tried first",
    )
    early_stopping: AnyEarlyStopping = NoEarlyStoppingConfig()
    """Which trials end early."""
    budget: Budget = Budget()
    """What ends the study."""
    prices: Prices | None = None
    """Prices of cores and GPUs, for budget.money and for tables."""
    resources: Resources = Resources()
    """Resources of one trial."""
    repeats: Repeats = Repeats()
    """Repeats of the best configurations under other seeds."""
    baseline: str | None = None
    """The family whose best trial the winner is tested against; default: lstm where the study has it."""
    champion: ChampionLimits = Field(
        default=ChampionLimits(), description="limits within which the best value is the study's best"
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_halving(cls, document: Any) -> Any:
        if isinstance(document, Mapping) and "halving" in document:
            raise ValueError('[halving] is now [early_stopping] with kind = "successive_halving"')
        return document

    @model_validator(mode="after")
    def _check_prices(self) -> Self:
        if self.budget.money is not None and self.prices is None:
            raise ValueError(
                "budget.money needs [prices], such as cpu_hour = 0.04 and gpu_hour = 1.2 in currency per hour"
            )
        return self

    @model_validator(mode="after")
    def _check_objectives(self) -> Self:
        named = f"objectives = {json.dumps(self.objectives)}"
        if "value" not in self.objectives or len(set(self.objectives)) < len(self.objectives):
            raise ValueError(
                f'{named} must name "value" and each objective once; write ["value", "parameters"]'
            )
        if len(self.objectives) == 1:
            return self
        if self.sampler.kind not in MULTI_OBJECTIVE_KINDS:
            kinds = ", ".join(f'"{kind}"' for kind in MULTI_OBJECTIVE_KINDS)
            raise ValueError(
                f'sampler.kind = "{self.sampler.kind}" has one objective; with {named} choose one of {kinds}'
            )
        if self.early_stopping.kind != "none":
            raise ValueError(
                f'early_stopping.kind = "{self.early_stopping.kind}" compares trials by their value alone '
                f"and would stop the small models of the front; with {named} leave [early_stopping] out"
            )
        return self

    def select_entries(self, family: str | None, families: Collection[str | None]) -> dict[str, Any]:
        """The study's constants that apply to a family's space.

        A field that no family of the study has is kept, so that the space's check reports it.
        """
        own, others = MODELS.get(family or ""), [MODELS[name] for name in families if name and name in MODELS]
        if own is None:
            return self._build_entries(self.model, self.training)
        beside_networks = not own.is_trained_by_gradient and any(
            other.is_trained_by_gradient for other in others
        )
        elsewhere = {name for other in others for name in other.model_fields}
        model = {
            name: value
            for name, value in self.model.items()
            if name in own.model_fields or not (beside_networks or name in elsewhere)
        }
        return self._build_entries(model, {} if beside_networks else self.training)

    def _build_entries(self, model: dict[str, Any], training: dict[str, Any]) -> dict[str, Any]:
        laid: dict[str, Any] = {
            "task": self.task,
            "model": model,
            "protocol": self.protocol,
            "training": training,
        }
        laid["seed"] = self.seed
        return {name: value for name, value in laid.items() if value != {}}


@dataclass(frozen=True)
class ResolvedStudy:
    """A study with its open corpus and its checked space."""

    study: Study
    space: Space
    corpus: Corpus
    settings: Settings
    sources: tuple[PluginSource, ...] = ()
    """The sources of the families that are not built in."""

    @property
    def trial_tokens(self) -> int:
        """The training budget of one trial in predicted tokens."""
        training = self.find_training()
        if training.tokens:
            return training.tokens
        return math.ceil((training.epochs or 0) * self.open_task().epoch_tokens)

    @property
    def early_stopping(self) -> EarlyStopping:
        """The settings of early stopping, with defaults that depend on the trials."""
        first_report = self.find_training().report_every or self.open_task().epoch_tokens
        return self.study.early_stopping.fill_defaults(first_report)

    def find_training(self) -> TrainingConfig:
        """The training of one trial; models that count read the text once."""
        samples = (self.sample(RandomChooser(seed)) for seed in range(BUDGET_SAMPLES))
        trained = (sample.training for sample in samples if sample.training is not None)
        return next(trained, TrainingConfig(epochs=1))

    def list_within_limits(self, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """The outcomes within the limits of [champion]; all where none is."""
        limits = self.study.champion
        within = [
            outcome
            for outcome in outcomes
            if limits.are_met(
                compute_sizes(make_trial_config(outcome.configuration), self.corpus),
                outcome.usage.tokens_per_second,
            )
        ]
        return within or list(outcomes)

    def open_task(self) -> AnyTask:
        """The study's task on its corpus. Raises CorpusError or ConfigurationError where it lacks data."""
        sample = self.sample(RandomChooser(self.study.seed))
        return open_task(sample.task, self.corpus, sample.protocol)

    def open_proposals(
        self, guard: Callable[[], None] = lambda: None, repeats: Space | None = None
    ) -> Proposals:
        """The trials of the study in its storage, or those of its repeats, which are a separate Optuna study.

        `guard` is called before every write.
        """
        name, space, sampler = self.id, self.space, self.study.sampler
        if repeats is not None:
            name, space, sampler = f"{self.id}{REPEATS_SUFFIX}", repeats, SamplerConfig(kind="random")
        return Proposals(
            self.settings.study_database,
            name,
            space,
            sampler,
            self.identify,
            self.get_refusal_reason,
            self.measure_size,
            guard,
            self.list_initial_points() if repeats is None else (),
            self._make_multi_objective() if repeats is None else None,
        )

    def _make_multi_objective(self) -> MultiObjective | None:
        """The objectives for samplers; None for the value alone."""
        count = len(self.study.objectives)
        return MultiObjective(count, self.compute_objectives) if count > 1 else None

    def compute_objectives(self, outcome: Outcome) -> list[float]:
        """The objectives of a complete trial, lower is better (`compute_coordinate`)."""
        sizes = compute_sizes(make_trial_config(outcome.configuration), self.corpus)
        quantities = {
            **sizes.model_dump(),
            "value": outcome.value,
            "tokens_per_second": outcome.usage.tokens_per_second,
        }
        return [compute_coordinate(name, quantities[name]) for name in self.study.objectives]

    def list_initial_points(self) -> list[dict[str, Scalar]]:
        """The parameters, by name, of the configurations that are tried first.

        Raises SpaceError for a point outside of the space, and StudyError for a study to start from that is
        unknown or does not fit. Settings of papers and of other studies take the nearest values inside.
        """
        if self.study.points == "papers":
            points = [adapt_point(self.space, point) for point in self.space.paper_points]
        else:
            points = [
                pin_point(self.space, point, f"study {self.study.name}: point {number}")
                for number, point in enumerate(self.study.points, 1)
            ]
        if self.study.warm_start is None:
            return points
        other = list_warm_start_points(self.settings.study_database, self.study.warm_start, self.space)
        return points + other

    def store_terms(self) -> None:
        """Write terms and sources of the study beside its checkpoints, for commands without a study file."""
        folder = Folder.open(f"{self.settings.studies_folder}/{self.id}")
        folder.write_json(TERMS_FILE, self.study.model_dump(mode="json"))
        SourceStore(str(folder)).write(self.sources)

    def make_early_stopping_rule(self) -> Rule:
        """The study's early-stopping rule without trials."""
        return self.early_stopping.make_rule(self.trial_tokens)

    def sample(self, chooser: Chooser) -> TrialConfig:
        """The trial that a chooser draws from the space."""
        return make_trial_config(self.space.sample(chooser, self.measure_size))

    @property
    def terms(self) -> dict[str, Any]:
        """The terms of the study file that all drivers of one study share."""
        terms = self.study.model_dump(mode="json", exclude={*CHANGEABLE_TERMS, "models"})
        if self.study.objectives == ("value",):
            del terms["objectives"]
        if not self.study.sampler.options:
            del terms["sampler"]["options"]
        return terms

    @property
    def id(self) -> str:
        """The name and a digest: the same terms on the same corpus are the same study on every machine.

        Budgets, prices, resources, repeats and the rule for the champion may change between runs of one study
        and are left out. The value as only objective is left out too, as in studies of earlier versions. The
        paths of model files are left out: the space holds the digests of their content.
        """
        terms = self.terms
        if source := SAMPLERS.get_source(self.study.sampler.kind):
            terms["sampler"]["source"] = source.digest
        return f"{self.study.name}-{digest(terms, self.space.describe(), self.corpus.digest)[:8]}"

    def compute_average_gpus(self, gpu_bytes: int | None) -> float:
        """The GPUs that the trials of the space request on average."""
        samples = [self.sample(RandomChooser(seed)) for seed in range(GPU_REQUEST_SAMPLES)]
        return sum(self.compute_gpus(sample, gpu_bytes) for sample in samples) / len(samples)

    @property
    def searched_fields(self) -> tuple[str, ...]:
        """The dotted fields that the study's trials may differ in, in the order of its spaces."""
        return tuple(dict.fromkeys(parameter.field for parameter in self.space.parameters()))

    @property
    def vocabulary_size(self) -> int:
        """The number of words that a model of this study predicts."""
        return len(self.corpus.vocabulary)

    @property
    def checkpoint_root(self) -> str:
        """The folder of the checkpoints of the study's trials."""
        return f"{self.settings.studies_folder}/{self.id}/checkpoints"

    def select_device(self, config: TrialConfig) -> str:
        """The device of a trial; models that count need no GPU."""
        uses_gpu = self.study.resources.gpus_per_trial and config.model.is_trained_by_gradient
        return "cuda" if uses_gpu else "cpu"

    def compute_gpus(self, config: TrialConfig, gpu_bytes: int | None) -> float:
        """The GPUs that a trial requests; with "fit" from its memory and that of one GPU."""
        requested = self.study.resources.gpus_per_trial
        if self.select_device(config) == "cpu":
            return 0.0
        if requested != "fit":
            return requested
        assert gpu_bytes is not None, "gpus_per_trial = fit needs the memory of a GPU"
        return compute_gpu_share(self._estimate_memory(config).total, gpu_bytes) or 1.0

    def identify(self, configuration: Mapping[str, Any]) -> str:
        """The identity of a sampled configuration on this corpus."""
        return make_trial_config(configuration).identity(self.corpus.digest)

    def count_parameters(self, configuration: Mapping[str, Any]) -> int:
        """The number of parameters of a configuration's model on this corpus."""
        return make_trial_config(configuration).parameter_count(self.vocabulary_size)

    def measure_size(self, configuration: Mapping[str, Any], kind: SizeKind) -> int:
        """A size of a configuration's model on this corpus."""
        return make_trial_config(configuration).measure_size(kind, self.vocabulary_size)

    def get_refusal_reason(self, configuration: Mapping[str, Any]) -> str | None:
        """Why a configuration must not start, or None.

        Its parameters or its memory are out of bounds, or the task does not support its model.
        """
        try:
            parameters = self.count_parameters(configuration)
        except ConfigurationError as error:
            return str(error)
        if not make_trial_config(configuration).model.is_trained_by_gradient:
            return None
        budget = self.study.budget
        if parameters > (budget.max_parameters or math.inf):
            return f"{parameters:,} parameters are more than max_parameters = {budget.max_parameters:,}"
        if parameters < (budget.min_parameters or 0):
            return f"{parameters:,} parameters are fewer than min_parameters = {budget.min_parameters:,}"
        return self._get_memory_refusal_reason(make_trial_config(configuration))

    def check_budget(self) -> None:
        """Raise StudyError when none of 200 sampled configurations may start."""
        for seed in range(BUDGET_SAMPLES):
            reason = self.get_refusal_reason(self.sample(RandomChooser(seed)).model_dump(mode="json"))
            if reason is None:
                return
        raise StudyError(
            f"study {self.study.name}: none of {BUDGET_SAMPLES} sampled configurations may be started, for "
            f"instance because {reason}; change the budget or the space"
        )

    def _get_memory_refusal_reason(self, config: TrialConfig) -> str | None:
        """Why the trial does not fit the memory of this machine, or of the study's GPUs; or None."""
        needed = self._estimate_memory(config)
        if self.select_device(config) == "cuda":
            memory = self.study.resources.gpu_memory
            if memory is None or compute_gpu_share(needed.total, memory) is not None:
                return None
            gpu_mib, available_mib = compute_gpu_bytes(needed.total) / 2**20, memory / 2**20
            return f"it would take {needed}, and {gpu_mib:,.0f} MiB of a GPU, which has {available_mib:,.0f}"
        available = measure_available_bytes(torch.device("cpu"))
        if needed.total <= available:
            return None
        return f"it would take {needed} of the {available / 2**20:,.0f} MiB there are"

    def _estimate_memory(self, config: TrialConfig) -> MemoryEstimate:
        return estimate_memory(
            config, self.vocabulary_size, find_longest_row(config.protocol, self.corpus["train"])
        )


def make_trial_config(sampled: Mapping[str, Any]) -> TrialConfig:
    """The trial of a sampled configuration. Raises ConfigurationError where its fields exclude each other."""
    return TrialConfig.model_validate(parse(TrialConfig, sampled, "sampled configuration"))


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
