"""The registry of sequence mixers, and the names of published ones.

A new mixer is one module, one import and one line of MIXERS; a published point of a mixer is one line of
PRESETS.
"""

import json
from typing import Annotated, Any

from pydantic import BeforeValidator, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core.core_schema import CoreSchema

from memtune.errors import did_you_mean
from memtune.models.mixers.attention import AttentionConfig
from memtune.models.mixers.gated_units import HGRNConfig, MinGRUConfig, MinLSTMConfig, RGLRUConfig
from memtune.models.mixers.matrix_memory import MatrixMemoryConfig
from memtune.models.mixers.mesa import MesaConfig
from memtune.models.mixers.mixer import MixerConfig
from memtune.models.mixers.recurrent_layers import (
    ElmanLayerConfig,
    LSTMLayerConfig,
    RecurrentMemoryLayerConfig,
)
from memtune.models.mixers.slstm import SLSTMConfig
from memtune.plugins import ConfigRegistry

MIXERS: ConfigRegistry[MixerConfig] = ConfigRegistry(
    "mixer",
    "memtune.mixers",
    "kind",
    MixerConfig,  # type: ignore[type-abstract]
    (
        MatrixMemoryConfig,
        MesaConfig,
        AttentionConfig,
        MinGRUConfig,
        MinLSTMConfig,
        RGLRUConfig,
        HGRNConfig,
        SLSTMConfig,
        LSTMLayerConfig,
        ElmanLayerConfig,
        RecurrentMemoryLayerConfig,
    ),
)
"""Kind -> the configuration of a mixer."""


def _make_memory(**fields: Any) -> MatrixMemoryConfig:
    """A matrix memory without the parts that are not named."""
    bare = {"keys": "plain", "decay": "none", "erase": "none", "write": "plain"}
    return MatrixMemoryConfig(**bare | fields)


_DELTA: dict[str, Any] = {"keys": "unit", "erase": "delta", "write": "scaled"}
PRESETS: dict[str, MixerConfig] = {
    "linear_attention": _make_memory(),
    "retnet": _make_memory(decay="head", rotation="position"),
    "mamba2": _make_memory(decay="number", write="step", skip=True),
    "gla": _make_memory(decay="vector", decay_map="sigmoid"),
    "mlstm": _make_memory(decay="number", decay_map="sigmoid", decay_power=1.0, write="exponential"),
    "deltanet": _make_memory(**_DELTA),
    "deltanet_negative": _make_memory(**_DELTA, negative_eigenvalues=True),
    "gated_deltanet": _make_memory(**_DELTA, decay="number"),
    "gated_deltanet_negative": _make_memory(**_DELTA, decay="number", negative_eigenvalues=True),
    "kda": _make_memory(**_DELTA, decay="vector"),
    "gated_deltanet2": _make_memory(keys="unit", decay="vector", erase="channel", write="channel"),
    "deltaproduct": _make_memory(**_DELTA, steps=2, negative_eigenvalues=True),
    "gated_deltaproduct": _make_memory(**_DELTA, decay="number", steps=2, negative_eigenvalues=True),
    "rwkv7": _make_memory(decay="vector", decay_map="bounded", erase="own_key"),
    "comba": _make_memory(keys="unit", decay="number", erase="closed_loop", write="scaled", read="corrected"),
    "mesanet": MesaConfig(),
    "mamba3": _make_memory(
        keys="normed", decay="number", decay_map="product", write="trapezoid", rotation="data", skip=True
    ),
    "attention": AttentionConfig(),
    "forgetting_attention": AttentionConfig(positions="none", forget_gate=True),
    "path": AttentionConfig(positions="path"),
    "path_forgetting": AttentionConfig(positions="path", forget_gate=True),
    "min_gru": MinGRUConfig(),
    "min_lstm": MinLSTMConfig(),
    "rg_lru": RGLRUConfig(),
    "hgrn": HGRNConfig(),
    "slstm": SLSTMConfig(),
    "lstm": LSTMLayerConfig(),
    "rnn": ElmanLayerConfig(),
    "recurrent_memory": RecurrentMemoryLayerConfig(),
}
"""Published mixers, by the name that a configuration may have in place of a table: `mixer = "kda"`.

A name that is a kind too is that kind with its defaults.
"""


def list_mixer_names() -> list[str]:
    """The names that may stand in place of a table: published mixers, then kinds with their defaults."""
    return list(dict.fromkeys([*PRESETS, *MIXERS.list_names()]))


def list_settings(mixer: MixerConfig) -> list[str]:
    """The fields of a mixer that are not the defaults of its kind, each as in a file: `decay = "vector"`."""
    fields = mixer.model_dump(exclude_defaults=True, exclude={"kind", "source"})
    return [f"{field} = {json.dumps(value)}" for field, value in fields.items()]


def _find_mixer(value: object) -> object:
    """The published mixer, or the table of the kind, that a text names; any other value as it is."""
    if not isinstance(value, str):
        return value
    if value in PRESETS:
        return PRESETS[value]
    if value in MIXERS:
        return {MIXERS.tag: value}
    raise ValueError(f'no mixer "{value}"; {did_you_mean(value, list_mixer_names())}')


class _NamesInSchema:
    """The names that a field takes, in its JSON schema."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string", "enum": list_mixer_names()}, handler(schema)]}


MixerChoice = Annotated[MixerConfig, MIXERS, BeforeValidator(_find_mixer), _NamesInSchema()]
"""A mixer, by its table or by its name."""
