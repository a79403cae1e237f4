"""The registry of model families: MODELS maps the name of a family to its configuration class.

Each module of `models.families` has a built-in family. Families of users' files and of packages (entry points
`memtune.models`) are added while a process runs.

Tables, curves and identities of trials of a family that is not loaded need no source. Its sizes and its model
do, and executing stored source takes the user's consent.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import Annotated, Any, ClassVar, NoReturn, overload

import torch
from pydantic import ConfigDict
from typing_extensions import override

from memtune.errors import ConfigurationError, MissingSourceError, did_you_mean
from memtune.models import families as family_modules
from memtune.models.architecture import (
    LanguageModel,
    LanguageModelConfig,
    NeuralLanguageModel,
    NeuralLanguageModelConfig,
)
from memtune.models.mixers.mixer_registry import list_mixer_names
from memtune.plugins import ConfigRegistry


class UnloadedFamilyConfig(LanguageModelConfig):
    """The fields as they were stored; every method that needs the family raises MissingSourceError."""

    model_config = ConfigDict(extra="allow")

    is_trained_by_gradient: ClassVar[bool] = True
    source: str
    """SHA-256 of the source that defines the family."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise MissingSourceError("model family", self.family, self.source)

    require_network: ClassVar[Any] = _refuse
    build: ClassVar[Any] = _refuse
    parameter_count: ClassVar[Any] = _refuse
    multiply_adds: ClassVar[Any] = _refuse
    state_size: ClassVar[Any] = _refuse

    @property
    @override
    def is_loaded(self) -> bool:
        return False

    @override
    def describe(self) -> dict[str, str | int | float]:
        """The stored fields that are texts and numbers."""
        hidden = {"family", "source", "initial_range"}
        fields: dict[str, Any] = self.model_dump(mode="json", exclude=hidden)
        return {name: value for name, value in fields.items() if isinstance(value, str | int | float)}


def _list_built_in() -> list[type[LanguageModelConfig]]:
    """The configuration that each module of `models.families` defines, by the name of the module."""
    prefix = f"{family_modules.__name__}."
    modules = [import_module(each.name) for each in iter_modules(family_modules.__path__, prefix)]
    return [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, LanguageModelConfig)
        and value.__module__ == module.__name__
    ]


MODELS: ConfigRegistry[LanguageModelConfig] = ConfigRegistry(
    "model family",
    "memtune.models",
    "family",
    LanguageModelConfig,  # type: ignore[type-abstract]
    _list_built_in(),
    UnloadedFamilyConfig.model_validate,
)
ModelConfig = Annotated[LanguageModelConfig, MODELS]
"""The configuration of a family of the registry, chosen by `family`."""
MIXER_PREFIX = "mixer="


def find_model(name: str, ending: str) -> dict[str, Any]:
    """The table [model] of a name: that of a family, or of `mixer_blocks` with the mixer of that name.

    "mixer=lstm" is the mixer where a family has the same name. Raises ConfigurationError for another name;
    `ending` is that of the files which may be named too.
    """
    families, mixers = MODELS.list_names(), list_mixer_names()
    mixer = name.removeprefix(MIXER_PREFIX)
    if name in families:
        return {"family": name}
    if mixer in mixers:
        return {"family": "mixer_blocks", "mixer": mixer}
    if mixer != name:
        raise ConfigurationError(f'no mixer "{mixer}"; {did_you_mean(mixer, mixers)}')
    raise ConfigurationError(
        f'no family, mixer or file "{name}"; {did_you_mean(name, families + mixers)}; a file ends in {ending}'
    )


def list_families(*, trained_by_gradient: bool) -> list[str]:
    """The built-in families of networks, or those that learn by counting, by name."""
    families = MODELS.built_in.items()
    return [name for name, config in families if config.is_trained_by_gradient == trained_by_gradient]


@overload
def build_model(
    config: NeuralLanguageModelConfig, vocabulary_size: int, seed: int
) -> NeuralLanguageModel: ...


@overload
def build_model(config: LanguageModelConfig, vocabulary_size: int, seed: int) -> LanguageModel: ...


def build_model(config: LanguageModelConfig, vocabulary_size: int, seed: int) -> LanguageModel:
    """A new model of the configuration; equal arguments give equal parameters, on any machine.

    The state of torch's default generator does not change.
    """
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would seed GPUs too, whose generators are not forked. Where there are none, it
        # keeps the text of the stack for each of their kinds, which takes milliseconds.
        torch.default_generator.manual_seed(seed)
        return config.build(vocabulary_size)
