"""The mixers agree with the plain functions of flash-linear-attention, a second opinion beside the oracles.

It is optional: pip install -e '.[fla]' -c constraints.txt. Its functions compute in float32.
"""

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from memtune.models.layers.rotation import list_speeds, rotate
from memtune.models.mixers.mixer import MappedMixer
from memtune.models.mixers.mixer_registry import PRESETS
from tests.oracles.mixer_blocks import shrink

pytest.importorskip("fla.ops", reason="fla-core is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # of its imports
WIDTH, WORDS = 8, 64
Parts = dict[str, Tensor]
"""The values of the maps by name, (B, T, H, X), or (B, T * n, H, X) where a word has n steps."""


def call(module: str, function: str, *arguments: Any, **options: Any) -> Tensor:
    """The outputs of a naive function, whose second result is a state."""
    result = getattr(import_module(f"fla.ops.{module}.naive"), function)(*arguments, **options)
    outputs: Tensor = result[0] if isinstance(result, tuple) else result
    return outputs


def unit(values: Tensor) -> Tensor:
    return functional.normalize(functional.silu(values), dim=3)


def decay(mixer: Any, values: Tensor) -> Tensor:
    """log g by softplus, with a rate per head."""
    return -mixer.vectors["rate"].exp()[:, None] * functional.softplus(values)


def b(parts: Parts) -> Tensor:
    return parts["strength"].sigmoid().squeeze(3)


def read_delta(mixer: Any, p: Parts) -> Tensor:
    q, k, v, strength = (
        each.transpose(1, 2) for each in (unit(p["query"]), unit(p["key"]), p["value"], b(p))
    )
    # Its function scales the queries by K^-1/2.
    return call("delta_rule", "delta_rule_recurrence", q * mixer.key_width**0.5, k, v, strength).transpose(
        1, 2
    )


def read_gated_delta(mixer: Any, p: Parts) -> Tensor:
    g = decay(mixer, p["step"]).squeeze(3)
    arguments = unit(p["query"]), unit(p["key"]), p["value"], b(p), g
    return call("gated_delta_rule", "naive_recurrent_gated_delta_rule", *arguments, scale=1.0)


def read_kimi(mixer: Any, p: Parts) -> Tensor:
    arguments = unit(p["query"]), unit(p["key"]), p["value"], decay(mixer, p["decay"]), b(p)
    return call("kda", "naive_recurrent_kda", *arguments, scale=1.0)


def read_channels(mixer: Any, p: Parts) -> Tensor:
    gates = p["erase"].sigmoid(), p["write"].sigmoid()
    arguments = unit(p["query"]), unit(p["key"]), p["value"], decay(mixer, p["decay"]), *gates
    return call("gdn2", "naive_recurrent_gdn2", *arguments, scale=1.0)


def read_comba(mixer: Any, p: Parts) -> Tensor:
    k = unit(p["key"])
    q = unit(p["query"]) - mixer.vectors["correction"][:, None] * k
    closed = mixer.vectors["loop"].sigmoid()[:, None] * k
    arguments = q, k, p["value"], closed, b(p), decay(mixer, p["step"]).squeeze(3)
    return call("comba", "naive_recurrent_comba", *arguments, scale=1.0)


def read_product(mixer: Any, p: Parts) -> Tensor:
    g = decay(mixer, p["step"]).squeeze(3)
    arguments = unit(p["query"]), unit(p["key"]), p["value"], g, 2 * b(p), 1.0, None
    return call("gated_delta_product", "naive_recurrent_gated_delta_product", *arguments, num_householder=2)


def read_linear(mixer: Any, p: Parts) -> Tensor:
    return call("linear_attn", "naive_recurrent_linear_attn", p["query"], p["key"], p["value"])


def read_retention(mixer: Any, p: Parts) -> Tensor:
    angles_TP = torch.arange(1.0, WORDS + 1)[:, None] * list_speeds(mixer.key_width, p["query"])
    q, k, v = (p[name].transpose(1, 2) for name in ("query", "key", "value"))
    return call("retention", "naive_retention", rotate(q, angles_TP), rotate(k, angles_TP), v).transpose(1, 2)


def read_rwkv(mixer: Any, p: Parts) -> Tensor:
    removal, blend = (mixer.vectors[name].view(mixer.heads, -1) for name in ("removal", "blend"))
    a = p["erase"].sigmoid()
    n = functional.normalize(removal * p["key"], dim=3)
    k = p["key"] * (1 + (a - 1) * blend)
    g = -math.exp(-0.5) * p["decay"].sigmoid()
    arguments = (each.transpose(1, 2) for each in (p["query"], k, p["value"], -n, a * n, g))
    outputs = call("generalized_delta_rule.dplr", "dplr_recurrence", *arguments)
    return outputs.transpose(1, 2)


def read_gated_linear(mixer: Any, p: Parts) -> Tensor:
    g = functional.logsigmoid(p["decay"]) / 16
    return call("gla", "naive_recurrent_gla", p["query"], p["key"], p["value"], g)


def read_mamba(mixer: Any, p: Parts) -> Tensor:
    g, written = decay(mixer, p["step"]).squeeze(3), p["value"] * functional.softplus(p["step"])
    outputs = call("simple_gla", "naive_recurrent_simple_gla", p["query"], p["key"], written, g)
    return outputs + mixer.vectors["skip"][:, None] * p["value"]


def read_mesa(mixer: Any, p: Parts) -> Tensor:
    ridge = 0.25 + functional.softplus(mixer.vectors["ridge"]).view(mixer.heads, -1)
    g = functional.logsigmoid(p["decay"]).squeeze(3)
    arguments = unit(p["query"]), unit(p["key"]), p["value"], g, ridge, b(p)
    return call("mesa_net", "naive_mesa_net_exact", *arguments)


def read_forgetting(mixer: Any, p: Parts) -> Tensor:
    g = functional.logsigmoid(p["forget"]).squeeze(3)
    options = {"window_size": mixer.config.window}
    return call("forgetting_attn", "naive_forgetting_attn", p["query"], p["key"], p["value"], g, **options)


def read_path(mixer: Any, p: Parts) -> Tensor:
    strength = 2 * p["strength"].sigmoid().squeeze(3)
    direction = functional.normalize(p["direction"], dim=3)
    # Its function also scales the gates by K^-1/2, which FoX does not; so no gates are compared.
    arguments = p["query"], p["key"], p["value"], direction, strength, 0 * strength, mixer.head_width**-0.5
    return call("path_attn", "naive_path_attn", *arguments)


def read_hgrn(mixer: Any, p: Parts) -> Tensor:
    forget = p["forget"].squeeze(2).sigmoid()
    written = (1 - forget) * functional.silu(p["candidate"].squeeze(2))
    return call("hgrn", "naive_recurrent_hgrn", written, forget.log()).unsqueeze(2)


READERS: dict[str, Callable[[Any, Parts], Tensor]] = {
    "linear_attention": read_linear,
    "retnet": read_retention,
    "gla": read_gated_linear,
    "mamba2": read_mamba,
    "deltanet": read_delta,
    "gated_deltanet": read_gated_delta,
    "kda": read_kimi,
    "gated_deltanet2": read_channels,
    "rwkv7": read_rwkv,
    "comba": read_comba,
    "gated_deltaproduct": read_product,
    "mesanet": read_mesa,
    "forgetting_attention": read_forgetting,
    "path": read_path,
    "hgrn": read_hgrn,
}


@pytest.mark.parametrize("name", READERS)
def test_a_mixer_has_the_outputs_of_flash_linear_attention(name):
    config = shrink(PRESETS[name])
    if name == "path":
        config = config.model_copy(update={"window": None})  # its function has none
    torch.manual_seed(0)
    mixer = config.build(WIDTH, 0.0)
    assert isinstance(mixer, MappedMixer)
    mixer.set_constants()
    inputs_BTD = torch.randn(2, WORDS, WIDTH)
    steps = getattr(config, "steps", 1)
    with torch.no_grad():
        parts = {}
        for part, map_ in mixer.maps.items():
            count = steps if part in ("key", "value", "strength") else 1
            parts[part] = map_(inputs_BTD).unflatten(2, (count, mixer.heads, -1)).flatten(1, 2)
        expected_BTHV = READERS[name](mixer, parts)
        outputs_BTHV = mixer(inputs_BTD, mixer.initial_state(2))[0]
    error = (outputs_BTHV - expected_BTHV).norm() / expected_BTHV.norm()
    assert error < 1e-5, f"{error:.1e} off"
