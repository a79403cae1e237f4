"""MesaNet: a matrix memory that is read through the least squares of its keys.

von Oswald et al. (2025), "MesaNet: Sequence Modeling by Locally Optimal Test-Time Training", 2506.05233. Per
head, with a decay g and a strength b that are sigmoids of maps, and unit vectors of silu as keys and queries,

    C_t = g C_{t-1} + b k k'        S_t = g S_{t-1} + b k v'        o_t = S_t' (C_t + diag(l))^-1 q_t

It is a mixer of its own because its read needs the second, symmetric memory C: with a decay per channel or
erasures C is not symmetric, and the system may be singular. Deviation: the paper solves the systems by up to
30 steps of conjugate gradients; here they are solved exactly.

Shapes: B batch, H heads, T time, W words of a chunk, K keys, V values.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from memtune.models.mixers.matrix_recurrence import MemorySteps, run_memory
from memtune.models.mixers.mixer import LinearMap, MappedMixer, MappedMixerConfig, MixerState, split_width

SMALLEST_RIDGE, INITIAL_RIDGE = 0.25, 1.0
"""Of l: section 3 of the paper."""
INITIAL_DECAY_BIAS = 4.0
"""A memory of about 55 words."""
CHUNK_WORDS = 32
"""Words whose matrices C are computed together. On a CPU, half as many take 0.90 to 1.15 times the time, and
twice as many 1.08 to 1.28 times."""


class MesaConfig(MappedMixerConfig):
    """MesaNet."""

    kind: Literal["mesa"] = "mesa"
    heads: int = Field(4, ge=1, description="H: memories of a block")
    key_ratio: float = Field(0.5, gt=0, le=4, description="Width of the keys of all heads, by the width")

    @override
    def output_shape(self, width: int) -> tuple[int, int]:
        return self.heads, split_width(width, 1.0, self.heads)

    def split_keys(self, width: int) -> int:
        """K."""
        return split_width(width, self.key_ratio, self.heads)

    @override
    def list_maps(self, width: int) -> Mapping[str, LinearMap]:
        keys, values = self.heads * self.split_keys(width), self.heads * self.output_shape(width)[1]
        gates = {name: LinearMap(self.heads, has_bias=True) for name in ("decay", "strength")}
        return {"query": LinearMap(keys), "key": LinearMap(keys), "value": LinearMap(values), **gates}

    @override
    def list_vectors(self, width: int) -> Mapping[str, tuple[int, ...]]:
        return {"ridge": (self.heads * self.split_keys(width),)}

    @override
    def count_products(self, width: int) -> int:
        """Writes of C and S, the factor of C and two systems, and a read."""
        keys, values = self.split_keys(width), self.output_shape(width)[1]
        return self.heads * (2 * keys * values + 3 * keys * keys + keys**3 // 3)

    @override
    def state_size(self, width: int) -> int:
        """S and C."""
        keys = self.split_keys(width)
        return self.heads * keys * (self.output_shape(width)[1] + keys)

    @override
    def count_extra_activations(self, width: int, length: int) -> int:
        """The scores of a chunk's reads and the factors of C; of each word C, its system and the solution."""
        return self.heads * (3 * min(length, CHUNK_WORDS) + 4 * self.split_keys(width) ** 2)

    @override
    def build(self, width: int, depth: float) -> "Mesa":
        return Mesa(self, width)


class Mesa(MappedMixer):
    """State: memory S (B, H, K, V) and covariance C (B, H, K, K)."""

    def __init__(self, config: MesaConfig, width: int) -> None:
        super().__init__(config, width)
        self.key_width = config.split_keys(width)

    @override
    @torch.no_grad()
    def set_constants(self) -> None:
        self.vectors["ridge"].fill_(INITIAL_RIDGE - SMALLEST_RIDGE).expm1_().log_()
        self.maps["decay"].bias.fill_(INITIAL_DECAY_BIAS)  # type: ignore[operator]
        self.maps["strength"].bias.zero_()  # type: ignore[operator]

    @override
    def initial_state(self, batch_size: int) -> MixerState:
        shape = (batch_size, self.heads, self.key_width)
        return {
            "memory": self.make_zeros(*shape, self.head_width),
            "covariance": self.make_zeros(*shape, self.key_width),
        }

    @override
    def mix(self, mapped: Mapping[str, Tensor], state: MixerState) -> tuple[Tensor, MixerState]:
        heads = {name: self.split_heads(values_BTX).squeeze(3) for name, values_BTX in mapped.items()}
        query_BHTK, key_BHTK = (
            functional.normalize(functional.silu(heads[name]), dim=3) for name in ("query", "key")
        )
        log_decay_BHT1 = functional.logsigmoid(heads["decay"])
        strength_BHT1 = heads["strength"].sigmoid()
        ridge_H1K = SMALLEST_RIDGE + functional.softplus(self.view_heads("ridge").squeeze(1))
        ridge_H1KK = ridge_H1K.diag_embed()
        solved, covariance_BHKK = [], state["covariance"]
        parts = (
            torch.split(each, CHUNK_WORDS, dim=2)
            for each in (query_BHTK, key_BHTK, log_decay_BHT1, strength_BHT1)
        )
        for query_BHWK, key_BHWK, log_decay_BHW1, strength_BHW1 in zip(*parts, strict=True):
            matrices_BHWKK = sum_outer_products(key_BHWK, log_decay_BHW1, strength_BHW1, covariance_BHKK)
            covariance_BHKK = matrices_BHWKK[:, :, -1]
            system_BHWKK = matrices_BHWKK + ridge_H1KK
            # `solve` and `cholesky_solve` wait for a GPU. Here a singular system gives no finite number, and
            # the trial diverges.
            solved.append(torch.linalg.solve_ex(system_BHWKK, query_BHWK.unsqueeze(4)).result.squeeze(4))
        values_BHTV = strength_BHT1 * heads["value"]
        steps = MemorySteps(key_BHTK, values_BHTV, torch.cat(solved, dim=2), log_decay_BHT1, None)
        outputs_BHTV, memory_BHKV = run_memory(steps, state["memory"])
        return outputs_BHTV.transpose(1, 2), {"memory": memory_BHKV, "covariance": covariance_BHKK}


def sum_outer_products(
    key_BHWK: Tensor, log_decay_BHW1: Tensor, strength_BHW1: Tensor, before_BHKK: Tensor
) -> Tensor:
    """C after each word, (B, H, W, K, K)."""
    sums_BHW1 = log_decay_BHW1.cumsum(2)
    differences_BHWW = sums_BHW1 - sums_BHW1.transpose(2, 3)
    later_WW = torch.ones_like(differences_BHWW[0, 0], dtype=torch.bool).triu(1)
    factors_BHWW = differences_BHWW.masked_fill(later_WW, -torch.inf).exp()
    products_BHWX = ((strength_BHW1 * key_BHWK).unsqueeze(4) * key_BHWK.unsqueeze(3)).flatten(3)
    own_BHWKK = (factors_BHWW @ products_BHWX).view(*products_BHWX.shape[:3], *before_BHKK.shape[2:])
    return own_BHWKK + sums_BHW1.exp().unsqueeze(4) * before_BHKK.unsqueeze(2)
