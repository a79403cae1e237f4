"""The residual blocks one sentence, one block and one word at a time, from their equations.

The oracles of the mixers are in tests/oracles/mixers; ORACLES has one for each kind.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from memtune.models import MixerBlocksConfig
from memtune.models.mixers.attention import AttentionConfig
from memtune.models.mixers.matrix_memory import MatrixMemoryConfig
from memtune.models.mixers.mixer import MixerConfig
from memtune.models.mixers.mixer_registry import PRESETS
from tests.oracles.cases import EXAMPLE_SIZE, OracleCase
from tests.oracles.mixers.attention import read_attention
from tests.oracles.mixers.matrix_memory import read_matrix_memory
from tests.oracles.mixers.mesa import read_mesa
from tests.oracles.mixers.parts import silu
from tests.oracles.mixers.recurrent import (
    read_hgrn,
    read_lstm,
    read_min_gru,
    read_min_lstm,
    read_recurrent_memory,
    read_rg_lru,
    read_rnn,
    read_slstm,
)
from tests.oracles.output_layers import Parameters, predict

ORACLES: dict[str, Callable[..., list[Tensor]]] = {
    "matrix_memory": read_matrix_memory,
    "mesa": read_mesa,
    "attention": read_attention,
    "min_gru": read_min_gru,
    "min_lstm": read_min_lstm,
    "rg_lru": read_rg_lru,
    "hgrn": read_hgrn,
    "slstm": read_slstm,
    "lstm": read_lstm,
    "rnn": read_rnn,
    "recurrent_memory": read_recurrent_memory,
}
"""Kind -> the outputs of a mixer, heads in a row, after each input from an empty state."""


def compute_logits(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """logits[b][t], a vector over the vocabulary, from an empty state."""
    return [_read_sentence(config, parameters, words.tolist()) for words in tokens_BT]


def _read_sentence(config, parameters: Parameters, words: list[int]) -> list[Tensor]:
    stream = [parameters["embedding.weight"][word] for word in words]
    for index, mixer in enumerate(config.mixers):
        stream = _read_block(config, mixer, parameters, index, stream)
    return [predict(config, parameters, _norm(config, parameters, "norm", x)) for x in stream]


def _read_block(
    config, mixer: MixerConfig, parameters: Parameters, index: int, stream: list[Tensor]
) -> list[Tensor]:
    name = f"blocks.{index}"
    inputs = [_norm(config, parameters, f"{name}.norm", x) for x in stream]
    if config.convolution:
        inputs = [
            _convolve(parameters[f"{name}.convolution_CD"], inputs[: t + 1]) for t in range(len(inputs))
        ]
    mixed = ORACLES[mixer.kind](
        mixer, lambda part: parameters.get(f"{name}.mixer.{part}"), inputs, index / config.layers
    )
    heads, values = mixer.output_shape(config.width)
    outputs = []
    for x, y, z in zip(stream, mixed, inputs, strict=True):
        if config.head_norm:
            y = (
                torch.cat([_rms(part) for part in y.view(heads, values)])
                * parameters[f"{name}.head_weight_X"]
            )
        if config.output_gate != "none":
            gate = parameters[f"{name}.gate.weight"] @ z
            y = y * (gate.sigmoid() if config.output_gate == "sigmoid" else silu(gate))
        x = x + parameters[f"{name}.project.weight"] @ y
        if config.channel_ratio:
            first, second = (
                parameters[f"{name}.channel_in.weight"] @ _norm(config, parameters, f"{name}.channel_norm", x)
            ).chunk(2)
            x = x + parameters[f"{name}.channel_out.weight"] @ (silu(first) * second)
        outputs.append(x)
    return outputs


def _convolve(weights: Tensor, inputs: list[Tensor]) -> Tensor:
    """The last input plus the weighted sum of the last C inputs; the last row is its own weight."""
    total = inputs[-1]
    for weight, x in zip(weights.flip(0), reversed(inputs), strict=False):
        total = total + weight * x
    return total


def _rms(x: Tensor) -> Tensor:
    return x / ((x * x).mean() + 1e-5).sqrt()


def _norm(config, parameters: Parameters, name: str, x: Tensor) -> Tensor:
    if config.norm == "none":
        return x
    if config.norm == "rms":
        return _rms(x) * parameters[f"{name}.weight"]
    centred = x - x.mean()
    normed = centred / ((centred * centred).mean() + 1e-5).sqrt()
    return normed * parameters[f"{name}.weight"] + parameters[f"{name}.bias"]


def shrink(mixer: MixerConfig) -> MixerConfig:
    """The mixer with two heads, keys of several numbers and a window that a short text fills."""
    small: dict[str, Any] = {"heads": 2, "key_ratio": 1.0, "window": 6, "decay_rank": 2, "memory_size": 4}
    return mixer.model_copy(update={name: small[name] for name in type(mixer).model_fields if name in small})


def make_case(mixer: MixerConfig | None = None, **fields: Any) -> OracleCase:
    """One block of width 6, and texts longer than its window and than the chunks of decays per channel.

    Forget gates and products between words need two words.
    """
    chosen = {} if mixer is None else {"mixer": mixer, "layers": 1}
    config = MixerBlocksConfig(**{"width": 6, "initial_range": 0.5, "channel_ratio": 0.0} | chosen | fields)
    return OracleCase(
        config=config, logits=compute_logits, lengths=(2,), float32_lengths=(), cuts=(1, 7), cut_length=18
    )


def make_chunked_case(mixer: MixerConfig) -> OracleCase:
    """Two chunks of 32 steps follow each cut, so that a chunk changes a memory that is not empty."""
    case = make_case(mixer)
    if isinstance(mixer, MatrixMemoryConfig):
        return replace(case, cut_length=10 + 32 // mixer.steps)
    return replace(case, cut_length=42) if mixer.kind == "mesa" else case


def make_float32_case(mixer: MixerConfig) -> OracleCase:
    """Without the norm of the heads: the gradients of gates that it undoes cancel to rounding errors.

    In texts of 5 words no gradient of a preset comes near to cancelling.
    """
    case = make_case(mixer, head_norm=False, output_gate="none", norm="none")
    return replace(case, lengths=(), cuts=(), float32_lengths=(5,))


def make_memory_case(**fields: Any) -> OracleCase:
    return make_chunked_case(MatrixMemoryConfig(heads=2, key_ratio=1.0, decay_rank=2, **fields))


BLOCK: dict[str, Any] = {"mixer": shrink(PRESETS["gated_deltanet"]), "channel_ratio": 2.0}
IDENTITY = "d07177609df33ac7"
CASES = {
    **{name: make_chunked_case(shrink(mixer)) for name, mixer in PRESETS.items()},
    **{f"{name} in float32": make_float32_case(shrink(mixer)) for name, mixer in PRESETS.items()},
    "two blocks": make_case(**BLOCK),
    "hgrn in the third block": make_case(mixer=PRESETS["hgrn"], layers=3),
    "a pattern with attention": make_case(
        **BLOCK, layers=3, pattern="ma", alternate=shrink(PRESETS["attention"])
    ),
    "layer norm, no convolution": make_case(**BLOCK, norm="layer", convolution=0, output_gate="sigmoid"),
    "no norms, no gate": make_case(**BLOCK, norm="none", head_norm=False, output_gate="none", convolution=1),
    "tied": make_case(**BLOCK, tie_output=True),
    "whole context": make_case(AttentionConfig(heads=3, window=None)),
    "whole context, path": make_case(
        AttentionConfig(heads=2, window=None, positions="path", forget_gate=True)
    ),
    "one head, wide values": make_memory_case(value_ratio=2.0, decay="vector"),
    "delta, plain write": make_memory_case(write="plain", decay="vector", decay_map="bounded"),
    "delta, exponential write": make_memory_case(write="exponential", decay="vector"),
    "own key, exponential write, two steps": make_memory_case(
        erase="own_key", write="exponential", decay="none", steps=2
    ),
    "closed loop, step": make_memory_case(
        erase="closed_loop", write="step", decay="vector", decay_map="product"
    ),
    "channels, two steps, trapezoid": make_memory_case(
        erase="channel",
        write="trapezoid",
        steps=2,
        negative_eigenvalues=True,
        decay_map="bounded",
        keys="normed",
    ),
    "own key, three steps, scaled": make_memory_case(erase="own_key", write="scaled", steps=3, decay="head"),
    "delta, plain keys": make_memory_case(keys="plain", steps=2),
    "closed loop, normed keys": make_memory_case(keys="normed", erase="closed_loop"),
    "delta, rotated": make_memory_case(rotation="position", read="corrected", skip=True, decay="none"),
    "channels of values": make_memory_case(erase="none", write="channel", decay_map="sigmoid", steps=2),
}
EXAMPLES = [
    *(MixerBlocksConfig(**EXAMPLE_SIZE, layers=1, mixer=shrink(mixer)) for mixer in PRESETS.values()),
    MixerBlocksConfig(
        **EXAMPLE_SIZE,
        layers=3,
        pattern="mma",
        alternate=AttentionConfig(window=None),
        dropout=0.4,
        tie_output=True,
    ),
    MixerBlocksConfig(
        **EXAMPLE_SIZE, norm="layer", convolution=0, head_norm=False, output_gate="none", channel_ratio=0.0
    ),
]
