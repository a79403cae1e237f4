"""A study as its file says it, and as it stands once everything it names has been found and checked."""

import math
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import torch
from pydantic import BeforeValidator, Field, model_validator

from memtune.corpora import Corpus, open_corpus
from memtune.errors import StudyError, did_you_mean
from memtune.execution.settings import Settings
from memtune.models import MODELS, Architecture, CountingConfig
from memtune.search import HalvingConfig, SamplerConfig
from memtune.spaces import Chooser, RandomChooser, Space, check_space, combine, fix, load_spaces
from memtune.tasks import AnyTask, open_task
from memtune.training import TrainingConfig, TrialConfig, available_bytes, estimate, longest_row
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
    "read_toml",
]

HOME = Path(__file__).parents[3]
"""The source tree that memtune runs from, whose search_spaces are everybody's."""

BUDGET_SAMPLES = 200
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(text: object) -> object:
    """A duration such as "90s", "15m", "2h" or "1d" in seconds; anything else as it is."""
    if not isinstance(text, str):
        return text
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd])\s*", text)
    if not found:
        raise ValueError(
            f'a duration is a number and a unit such as "90s", "15m", "2h" or "1d", got "{text}"'
        )
    return float(found[1]) * UNITS[found[2]]


Duration = Annotated[float, BeforeValidator(seconds), Field(gt=0)]


class Budget(Value):
    """How much a study may spend: configurations, time, and the size a model may have."""

    trials: int = Field(default=12, ge=1, description="different configurations started in all")
    time: Duration | None = Field(default=None, description="wall-clock time of the search, resumed ones too")
    max_parameters: int | None = Field(default=None, ge=1, description="larger models are never started")
    min_parameters: int | None = Field(default=None, ge=1, description="smaller models are never started")


class Resources(Value):
    """What one trial is given."""

    cpus_per_trial: int = Field(default=1, ge=1, description="cores, and threads of torch")
    gpus_per_trial: float = Field(default=0.0, ge=0, description="a share of a GPU below 1, or whole ones")
    max_concurrent: int | None = Field(default=None, ge=1, description="trials at once; default: what fits")
    checkpoint_every: Duration = Field(default=600.0, description="where reports are further apart")
    max_silence: Duration = Field(
        default=3600.0, description="a worker not heard of for so long is ended, its trial tried again"
    )

    @model_validator(mode="after")
    def _checkpoints_break_the_silence(self) -> Self:
        if self.max_silence <= self.checkpoint_every:
            raise ValueError(
                f"max_silence = {self.max_silence:,.0f} s must be longer than checkpoint_every = "
                f"{self.checkpoint_every:,.0f} s, for a worker is heard of with each checkpoint"
            )
        return self


class Repeats(Value):
    """The best configurations once more under other seeds, to see what a difference is worth."""

    best: int = Field(default=0, ge=0, description="how many configurations")
    seeds: int = Field(default=3, ge=2, description="seeds in all, the search's own included")


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

    @property
    def vocabulary_size(self) -> int:
        """Words a model of this study predicts."""
        return len(self.corpus.vocabulary)

    @property
    def checkpoints(self) -> str:
        """Where the study's trials keep their checkpoints."""
        return f"{self.settings.studies}/{self.id}/checkpoints"

    @property
    def device(self) -> str:
        """What trials train on."""
        return "cuda" if self.study.resources.gpus_per_trial else "cpu"

    def identify(self, configuration: Mapping[str, Any]) -> str:
        """The identity of a sampled configuration on this corpus."""
        return configured(configuration).identity(self.corpus.digest)

    def count_parameters(self, configuration: Mapping[str, Any]) -> int:
        """Parameters of a configuration's model on this corpus."""
        return configured(configuration).parameter_count(self.vocabulary_size)

    def refuse(self, configuration: Mapping[str, Any]) -> str | None:
        """Why a configuration is never started, or None: its parameters or its memory are out of bounds."""
        if isinstance(configured(configuration).model, CountingConfig):
            return None
        budget, parameters = self.study.budget, self.count_parameters(configuration)
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
        """Why the trial would not fit this machine's memory, or None; only its worker knows a GPU's."""
        if self.device != "cpu":
            return None
        needed = estimate(config, self.vocabulary_size, longest_row(config.protocol, self.corpus["train"]))
        available = available_bytes(torch.device("cpu"))
        if needed.total <= available:
            return None
        return f"it would take {needed} of the {available / 2**20:,.0f} MiB there are"


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


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as a dictionary. Raises StudyError that names the file, the line and a near name."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        near = sorted(other.name for other in path.parent.glob("*.toml")) if path.parent.is_dir() else []
        raise StudyError(f"no file {path}; {did_you_mean(path.name, near)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"cannot read {path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise StudyError(f"{path} is not TOML: {error}") from None


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
