"""The registry of model families: MODELS maps the name of a family to its configuration class.

Each module of `models.families` has a built-in family. Families of users' files and of packages (entry points
`memtune.models`) are added while a process runs.

Tables, curves and identities of trials of a family that is not loaded need no source. Its sizes and its model
do, and executing stored source takes the user's consent.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pkgutil import iter_modules
from typing import Annotated, Any, overload

import torch

from memtune.errors import ConfigurationError, did_you_mean
from memtune.models import families as family_modules
from memtune.models.architecture import (
    LanguageModel,
    LanguageModelConfig,
    NeuralLanguageModel,
    NeuralLanguageModelConfig,
)
from memtune.models.mixers.mixer_registry import list_mixer_names
from memtune.plugins import ConfigRegistry


def _describe_stored(config: LanguageModelConfig) -> dict[str, str | int | float]:
    """The stored fields that are texts and numbers."""
    fields = config.model_dump(mode="json", exclude={"family", "source", "initial_range"})
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
    {"is_trained_by_gradient": True, "describe": _describe_stored},
)
ModelConfig = Annotated[LanguageModelConfig, MODELS]
"""The configuration of a family of the registry, chosen by `family`."""
MIXER_PREFIX = "mixer="


def find_model(name: str, ending: str) -> dict[str, Any]:
    """The table [model] of a name: that of a family, or of `mixer_blocks` with the mixer of that name.

    "mixer=lstm" is the mixer where a family has the same name, and fields may follow a mixer's name. Raises
    ConfigurationError for another name; `ending` is that of the files which may be named too.
    """
    families, mixers = MODELS.list_names(), list_mixer_names()
    mixer = name.removeprefix(MIXER_PREFIX)
    if name in families:
        return {"family": name}
    if mixer.partition(" ")[0] in mixers:
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
    with fix_defaults(seed):
        return config.build(vocabulary_size)


_random_states = threading.RLock()


@contextmanager
def fork_random_states(devices: Sequence[torch.device] = ()) -> Iterator[None]:
    """In the block, torch's default generators may be seeded: those of the CPU and of GPUs are kept.

    They are those of the process, so one thread at a time is in such a block, and others wait.
    """
    with _random_states, torch.random.fork_rng(devices=devices):
        yield


@contextmanager
def fix_defaults(seed: int) -> Iterator[None]:
    """In the block, torch's default generator is seeded and its default type is float32."""
    with fork_random_states():
        dtype = torch.get_default_dtype()
        # torch.manual_seed would seed GPUs too, whose generators are not forked. Where there are none, it
        # keeps the text of the stack for each of their kinds, which takes milliseconds.
        torch.default_generator.manual_seed(seed)
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
