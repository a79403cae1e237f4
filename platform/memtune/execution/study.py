"""A study as its file says it, and as it stands once everything it names has been found and checked."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import Field

from memtune.corpora import Corpus, open_corpus
from memtune.errors import ConfigurationError, StudyError, did_you_mean
from memtune.execution.documents import read_toml
from memtune.execution.fitting import needed_bytes, share_of
from memtune.execution.settings import Settings
from memtune.execution.terms import Budget, Repeats, Resources
from memtune.models import MODELS, Architecture, CountingConfig
from memtune.search import HalvingConfig, Proposals, SamplerConfig
from memtune.spaces import Chooser, RandomChooser, Space, check_space, combine, fix, load_spaces
from memtune.tasks import AnyTask, open_task
from memtune.training import (
    MemoryEstimate,
    TrainingConfig,
    TrialConfig,
    available_bytes,
    estimate,
    longest_row,
)
from memtune.values import Value, digest, parse

__all__ = [
    "Budget",
    "ReadyStudy",
    "Repeats",
    "Resources",
    "Study",
    "check_spaces",
    "find_space",
    "load_study",
    "prepare",
]

HOME = Path(__file__).parents[3]
"""The source tree that memtune runs from, whose search_spaces are everybody's."""

BUDGET_SAMPLES = 200
TYPICAL_SAMPLES = 32


class Study(Value):
    """A question, the spaces that may hold the answer, and the terms under which trials compare.

    `task`, `model`, `protocol` and `training` hold constants for every trial; they override the spaces' own
    entries. What only some of the study's families have (a width, a training) holds for those.
    """

    question: str
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    corpus: str
    spaces: tuple[str, ...] = Field(min_length=1)
    task: dict[str, Any] = Field(default_factory=dict)
    model: dict[str, Any] = Field(default_factory=dict)
    protocol: dict[str, Any] = Field(default_factory=dict)
    training: dict[str, Any] = Field(default_factory=dict)
    seed: int = 0
    sampler: SamplerConfig = SamplerConfig()
    halving: HalvingConfig | None = None
    budget: Budget = Budget()
    resources: Resources = Resources()
    repeats: Repeats = Repeats()

    def entries(self, family: str | None, families: Collection[str | None]) -> dict[str, Any]:
        """What is laid over the space of one of the study's families.

        What none of them has stays, to be told as a mistake.
        """
        own, others = MODELS.get(family or ""), [MODELS[name] for name in families if name in MODELS]
        if own is None:
            return self._laid(self.model, self.training)
        counts = issubclass(own, CountingConfig)
        beside_networks = counts and any(issubclass(other, Architecture) for other in others)
        elsewhere = {name for other in others for name in other.model_fields}
        model = {
            name: value
            for name, value in self.model.items()
            if name in own.model_fields or not (beside_networks or name in elsewhere)
        }
        return self._laid(model, {} if beside_networks else self.training)

    def _laid(self, model: dict[str, Any], training: dict[str, Any]) -> dict[str, Any]:
        laid: dict[str, Any] = {
            "task": self.task,
            "model": model,
            "protocol": self.protocol,
            "training": training,
        }
        laid["seed"] = self.seed
        return {name: value for name, value in laid.items() if value != {}}


@dataclass(frozen=True)
class ReadyStudy:
    """A study whose corpus is open and whose space is read and checked."""

    study: Study
    space: Space
    corpus: Corpus
    settings: Settings

    @property
    def trial_tokens(self) -> int:
        """The training budget of one trial, in predicted tokens; what only counts reads the text once."""
        samples = (self.sample(RandomChooser(seed)) for seed in range(BUDGET_SAMPLES))
        trained = (sample.training for sample in samples if sample.training is not None)
        training = next(trained, TrainingConfig(epochs=1))
        if training.tokens:
            return training.tokens
        return math.ceil((training.epochs or 0) * self.open_task().epoch_tokens)

    def open_task(self) -> AnyTask:
        """The study's task on its corpus; raises CorpusError or ConfigurationError for what is lacking."""
        sample = self.sample(RandomChooser(self.study.seed))
        return open_task(sample.task, self.corpus, sample.protocol)

    def proposals(self, guard: Callable[[], None] = lambda: None, repeats: Space | None = None) -> Proposals:
        """The study's trials as its storage has them, or those of its repeats, kept beside them.

        `guard` is called before every write.
        """
        name, space, sampler = self.id, self.space, self.study.sampler
        if repeats is not None:
            name, space, sampler = f"{self.id}-repeats", repeats, SamplerConfig(kind="random")
        return Proposals(
            self.settings.proposals,
            name,
            space,
            sampler,
            self.identify,
            self.refuse,
            self.count_parameters,
            guard,
        )

    def sample(self, chooser: Chooser) -> TrialConfig:
        """A trial of the space."""
        return configured(self.space.sample(chooser, self.count_parameters))

    @property
    def id(self) -> str:
        """Name and content: the same question on the same corpus is the same study, wherever it is run.

        Budgets, resources and repeats may change between runs of one study and are left out.
        """
        terms = self.study.model_dump(
            mode="json", exclude={"budget", "resources", "repeats", "name", "question"}
        )
        return f"{self.study.name}-{digest(terms, self.space.describe(), self.corpus.digest)[:8]}"

    def typical_gpus(self, gpu_bytes: int | None) -> float:
        """The GPUs that the trials of the space ask for on average."""
        samples = [self.sample(RandomChooser(seed)) for seed in range(TYPICAL_SAMPLES)]
        return sum(self.gpus(sample, gpu_bytes) for sample in samples) / len(samples)

    @property
    def searched(self) -> tuple[str, ...]:
        """The dotted fields that the study's trials may differ in, in the order of its spaces."""
        return tuple(dict.fromkeys(parameter.field for parameter in self.space.leaves()))

    @property
    def vocabulary_size(self) -> int:
        """Words a model of this study predicts."""
        return len(self.corpus.vocabulary)

    @property
    def checkpoints(self) -> str:
        """Where the study's trials keep their checkpoints."""
        return f"{self.settings.studies}/{self.id}/checkpoints"

    def device(self, config: TrialConfig) -> str:
        """What a trial trains on; what counts needs no GPU."""
        counts = isinstance(config.model, CountingConfig)
        return "cuda" if self.study.resources.gpus_per_trial and not counts else "cpu"

    def gpus(self, config: TrialConfig, gpu_bytes: int | None) -> float:
        """The GPUs a trial asks for; with "fit" by its memory and that of one GPU, known by then."""
        asked = self.study.resources.gpus_per_trial
        if self.device(config) == "cpu":
            return 0.0
        if asked != "fit":
            return asked
        assert gpu_bytes is not None, "a trial is fitted to a GPU of known memory"
        return share_of(self._estimated(config).total, gpu_bytes) or 1.0

    def identify(self, configuration: Mapping[str, Any]) -> str:
        """The identity of a sampled configuration on this corpus."""
        return configured(configuration).identity(self.corpus.digest)

    def count_parameters(self, configuration: Mapping[str, Any]) -> int:
        """Parameters of a configuration's model on this corpus."""
        return configured(configuration).parameter_count(self.vocabulary_size)

    def refuse(self, configuration: Mapping[str, Any]) -> str | None:
        """Why a configuration is never started, or None: its parameters or its memory are out of bounds, or
        the task cannot have such a model.
        """
        try:
            parameters = self.count_parameters(configuration)
        except ConfigurationError as error:
            return str(error)
        if isinstance(configured(configuration).model, CountingConfig):
            return None
        budget = self.study.budget
        if parameters > (budget.max_parameters or math.inf):
            return f"{parameters:,} parameters are more than max_parameters = {budget.max_parameters:,}"
        if parameters < (budget.min_parameters or 0):
            return f"{parameters:,} parameters are fewer than min_parameters = {budget.min_parameters:,}"
        return self._too_large(configured(configuration))

    def check_budget(self) -> None:
        """Raise StudyError when hardly any configuration of the space may be started."""
        for seed in range(BUDGET_SAMPLES):
            reason = self.refuse(self.sample(RandomChooser(seed)).model_dump(mode="json"))
            if reason is None:
                return
        raise StudyError(
            f"study {self.study.name}: none of {BUDGET_SAMPLES} sampled configurations may be started, for "
            f"instance because {reason}; change the budget or the space"
        )

    def _too_large(self, config: TrialConfig) -> str | None:
        """Why the trial would not fit this machine's memory, or a GPU's where the study says it; or None."""
        needed = self._estimated(config)
        if self.device(config) == "cuda":
            memory = self.study.resources.gpu_memory
            if memory is None or share_of(needed.total, memory) is not None:
                return None
            asked = needed_bytes(needed.total) / 2**20
            there = memory / 2**20
            return f"it would take {needed}, and {asked:,.0f} MiB of a GPU, which has {there:,.0f}"
        available = available_bytes(torch.device("cpu"))
        if needed.total <= available:
            return None
        return f"it would take {needed} of the {available / 2**20:,.0f} MiB there are"

    def _estimated(self, config: TrialConfig) -> MemoryEstimate:
        return estimate(config, self.vocabulary_size, longest_row(config.protocol, self.corpus["train"]))


def configured(sampled: Mapping[str, Any]) -> TrialConfig:
    """A sampled configuration as a trial. Raises ConfigurationError where its fields forbid each other."""
    return TrialConfig.model_validate(parse(TrialConfig, sampled, "sampled configuration"))


def load_study(path: Path, overrides: Mapping[str, Any] | None = None) -> Study:
    """The study in a TOML file, with `overrides` (dotted names) put over it.

    Raises StudyError when the file cannot be read and ConfigurationError when it says something that makes no
    sense; both name the file.
    """
    document = read_toml(path)
    if "spaces" not in document and "family" in document.get("model", {}):
        raise StudyError(f"{path} is one trial, for it names no search spaces; run: memtune train {path}")
    document.setdefault("name", path.stem)
    for name, value in (overrides or {}).items():
        section, _, key = name.rpartition(".")
        (document.setdefault(section, {}) if section else document)[key] = value
    return Study.model_validate(parse(Study, document, str(path)))


def prepare(path: Path, study: Study, settings: Settings) -> ReadyStudy:
    """Find and check everything a study names, before anything starts.

    Spaces are looked for beside the study file and in the `search_spaces` folders of the folders above it and
    of the working folder. Raises CorpusError, SpaceError or StudyError.
    """
    corpus = open_corpus(study.corpus, settings.store)
    ready = ReadyStudy(study, combine(check_spaces(path, study, len(corpus.vocabulary))), corpus, settings)
    ready.open_task()
    ready.check_budget()
    grace, tokens = study.halving.grace if study.halving else 0, ready.trial_tokens
    if grace >= tokens:
        raise StudyError(
            f"{path}: no trial would ever be halved, for halving.grace = {grace:,} and a trial has "
            f"{tokens:,} tokens; lower grace or leave [halving] out"
        )
    return ready


def check_spaces(path: Path, study: Study, vocabulary_size: int) -> list[Space]:
    """The spaces a study names under its own entries, each checked. Raises SpaceError or StudyError."""
    found = [space for name in study.spaces for space in load_spaces(find_space(name, path))]
    families = {space.family for space in found}
    spaces = [fix(space, study.entries(space.family, families), str(path)) for space in found]
    for space in spaces:
        check_space(
            space,
            TrialConfig,
            f"{path} over {space.source}",
            lambda sampled: configured(sampled).parameter_count(vocabulary_size),
        )
    return spaces


def find_space(name: str, study: Path) -> Path:
    """The file of a space named in a study: a path ending in .toml, or a name in a `search_spaces` folder.

    Raises StudyError that names what was looked through.
    """
    if name.endswith(".toml"):
        return study.parent / name
    folders = [folder / "search_spaces" for folder in (*study.absolute().parents, Path.cwd(), HOME)]
    for folder in folders:
        if (folder / f"{name}.toml").is_file():
            return folder / f"{name}.toml"
    known = {file.stem for folder in folders for file in folder.glob("*.toml")}
    raise StudyError(
        f'{study}: no search space "{name}"; {did_you_mean(name, known)}; looked in every folder named '
        f"search_spaces above {study}, above the working folder and in {HOME}; a path ends in .toml"
    )
