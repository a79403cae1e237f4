"""The registry of sequence mixers, and the names of published ones.

A new mixer is one module, one import and one line of MIXERS; a published point of a mixer is one entry of
_PUBLISHED.
"""

import json
import re
from collections.abc import Sequence
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
from memtune.plugins.source_modules import SOURCE_FIELD

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
_GATED = {**_DELTA, "decay": "number"}
_PUBLISHED: dict[str, tuple[MixerConfig, str]] = {
    "linear_attention": (_make_memory(), "Katharopoulos et al. (2020), 2006.16236, section 3.4"),
    "retnet": (
        _make_memory(decay="head", rotation="position"),
        "Sun et al. (2023), 2307.08621, sections 2.1 and 2.2",
    ),
    "mamba2": (
        _make_memory(decay="number", write="step", skip=True),
        "Dao and Gu (2024), 2405.21060, section 7",
    ),
    "gla": (
        _make_memory(decay="vector", decay_map="sigmoid"),
        "Yang et al. (2024), 2312.06635, section 4",
    ),
    "mlstm": (
        _make_memory(decay="number", decay_map="sigmoid", decay_power=1.0, write="exponential"),
        "Beck et al. (2024), 2405.04517, section 2.3",
    ),
    "deltanet": (
        _make_memory(**_DELTA),
        "Schlag et al. (2021), 2102.11174, section 4.2; Yang et al. (2024), 2406.06484, section 2.2",
    ),
    "deltanet_negative": (
        _make_memory(**_DELTA, negative_eigenvalues=True),
        "Grazzi et al. (2025), 2411.12537, section 4.2",
    ),
    "gated_deltanet": (
        _make_memory(**_GATED),
        "Yang, Kautz and Hatamizadeh (2025), 2412.06464, section 3.1",
    ),
    "gated_deltanet_negative": (
        _make_memory(**_GATED, negative_eigenvalues=True),
        "Grazzi et al. (2025), 2411.12537, section 4.2, for Gated DeltaNet",
    ),
    "kda": (
        _make_memory(**_DELTA, decay="vector"),
        "Kimi Team (2025), 2510.26692, equation 1",
    ),
    "gated_deltanet2": (
        _make_memory(keys="unit", decay="vector", erase="channel", write="channel"),
        "Hatamizadeh, Choi and Kautz (2026), 2605.22791, equation 10",
    ),
    "deltaproduct": (
        _make_memory(**_DELTA, steps=2, negative_eigenvalues=True),
        "Siems et al. (2025), 2502.10297, section 4",
    ),
    "gated_deltaproduct": (
        _make_memory(**_GATED, steps=2, negative_eigenvalues=True),
        "Siems et al. (2025), 2502.10297, section 4",
    ),
    "rwkv7": (
        _make_memory(decay="vector", decay_map="bounded", erase="own_key"),
        "Peng et al. (2025), 2503.14456, section 4.1",
    ),
    "comba": (
        _make_memory(keys="unit", decay="number", erase="closed_loop", write="scaled", read="corrected"),
        "Hu et al. (2025), 2506.02475, section 3",
    ),
    "mesanet": (MesaConfig(), "von Oswald et al. (2025), 2506.05233, section 3"),
    "mamba3": (
        _make_memory(
            keys="normed", decay="number", decay_map="product", write="trapezoid", rotation="data", skip=True
        ),
        "Lahoti et al. (2026), 2603.15569, sections 3.1 and 3.2",
    ),
    "attention": (AttentionConfig(), "Su et al. (2021), 2104.09864, section 3.2"),
    "forgetting_attention": (
        AttentionConfig(positions="none", forget_gate=True),
        "Lin et al. (2025), 2503.02130, section 3",
    ),
    "path": (AttentionConfig(positions="path"), "Yang et al. (2025), 2505.16381, section 3"),
    "path_forgetting": (
        AttentionConfig(positions="path", forget_gate=True),
        "Yang et al. (2025), 2505.16381, section 3, with the gate of Lin et al. (2025)",
    ),
    "min_gru": (MinGRUConfig(), "Feng et al. (2024), 2410.01201, section 3.1"),
    "min_lstm": (MinLSTMConfig(), "Feng et al. (2024), 2410.01201, section 3.2"),
    "rg_lru": (RGLRUConfig(), "De et al. (2024), 2402.19427, section 2.4"),
    "hgrn": (HGRNConfig(), "Qin et al. (2023), 2311.04823, section 3"),
    "slstm": (SLSTMConfig(), "Beck et al. (2024), 2405.04517, section 2.2"),
    "lstm": (LSTMLayerConfig(), "Zaremba, Sutskever and Vinyals (2014), 1409.2329, section 3"),
    "rnn": (ElmanLayerConfig(), 'Elman (1990), "Finding Structure in Time", figure 2'),
    "recurrent_memory": (
        RecurrentMemoryLayerConfig(),
        "Tran, Bisazza and Monz (2016), 1601.01272, section 3.1",
    ),
}
PRESETS: dict[str, MixerConfig] = {name: mixer for name, (mixer, _) in _PUBLISHED.items()}
"""Published mixers, by the name that a configuration may have in place of a table: `mixer = "kda"`.

A name that is a kind too is that kind with its defaults.
"""
MIXERS.reserved = frozenset(PRESETS)
SOURCES: dict[str, str] = {name: source for name, (_, source) in _PUBLISHED.items()}
"""The paper of each published mixer: authors, year, its number on arXiv, and the equations in it."""


EXAMPLE = '"attention window=64"'
"""A text that is a mixer."""
_WORD = re.compile(r'(?:"(?:\\.|[^"\\])*"|\S)+')
"""A name or a field of such a text; blanks within quotation marks belong to it."""


def list_mixer_names() -> list[str]:
    """The names that may stand in place of a table: published mixers, then kinds with their defaults."""
    return list(dict.fromkeys([*PRESETS, *MIXERS.list_names()]))


def list_settings(mixer: MixerConfig) -> list[str]:
    """The fields of a mixer that are not the defaults of its kind, each as in a file: `decay = "vector"`."""
    fields = mixer.model_dump(exclude_defaults=True, exclude={"kind", "source"})
    return [f"{field} = {json.dumps(value)}" for field, value in fields.items()]


def describe_mixer(mixer: MixerConfig) -> str:
    """The nearest name of its kind, with the fields that differ: as a text of a configuration has it.

    >>> describe_mixer(AttentionConfig(window=64)), describe_mixer(PRESETS["kda"])
    ('attention window=64', 'kda')
    """
    named = {name: preset for name, preset in PRESETS.items() if type(mixer) is type(preset)}
    texts = [_format_difference(name, mixer, preset) for name, preset in named.items()]
    return min(texts or [_format_difference(mixer.kind, mixer)], key=lambda text: text.count(" "))


def _format_difference(name: str, mixer: MixerConfig, preset: MixerConfig | None = None) -> str:
    """`name field=value field=value` with the fields that are not those of the preset, or not the default."""
    fields = mixer.model_dump(mode="json", exclude={MIXERS.tag, SOURCE_FIELD}, exclude_defaults=not preset)
    own = preset.model_dump(mode="json") if preset else {}
    differing = {field: value for field, value in fields.items() if field not in own or own[field] != value}
    return " ".join([name, *(f"{field}={_format_value(value)}" for field, value in differing.items())])


def _format_value(value: object) -> str:
    """A text as it is, where it is read as itself, and JSON of anything else."""
    is_plain = isinstance(value, str) and _WORD.fullmatch(value) and _parse_value(value) == value
    return str(value) if is_plain else json.dumps(value, separators=(",", ":"))


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _find_mixer(value: object) -> object:
    """The mixer that a text names, or the table of its kind; any other value as it is.

    Fields may follow the name, as `describe_mixer` writes them.
    """
    if not isinstance(value, str):
        return value
    name, *settings = _WORD.findall(value) or [""]
    if name in PRESETS and not settings:
        return PRESETS[name]
    if name not in PRESETS and name not in MIXERS:
        raise ValueError(f'no mixer "{name}"; {did_you_mean(name, list_mixer_names())}')
    table = PRESETS[name].model_dump() if name in PRESETS else {MIXERS.tag: name}
    return table | _parse_settings(settings, value)


def _parse_settings(settings: Sequence[str], mixer: str) -> dict[str, Any]:
    """The fields of `field=value` each, which are those of the text `mixer`."""
    fields: dict[str, Any] = {}
    for setting in settings:
        field, sign, text = setting.partition("=")
        if not (field and sign and text) or field == MIXERS.tag:
            raise ValueError(f'"{mixer}" has "{setting}"; a mixer is a name with fields, as in {EXAMPLE}')
        if field in fields:
            raise ValueError(f'"{mixer}" has two values of {field}; leave one of them out')
        fields[field] = _parse_value(text)
    return fields


class _NamesInSchema:
    """The names that a field takes, in its JSON schema."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        names = list_mixer_names()
        with_fields = rf"^({'|'.join(names)})( \w+=\S.*)$"
        texts = [{"type": "string", "enum": names}, {"type": "string", "pattern": with_fields}]
        return {"anyOf": [*texts, handler(schema)]}


MixerChoice = Annotated[MixerConfig, MIXERS, BeforeValidator(_find_mixer), _NamesInSchema()]
"""A mixer, by its table or by its name, which fields may follow."""
