"""Softmax attention over the words before: rotary positions, a forget gate, or Householder products (PaTH).

Per head, word i attends to the words j <= i of its window with scores and values

    o_i = sum_j softmax_j(s_ij) v_j,    s_ij = q_i' P_ij k_j / sqrt(K) + sum_{l=j+1}^{i} log f_l

With "rotary" positions (Su et al. 2021, 2104.09864) P_ij turns pairs of numbers by i - j times fixed angles.
With "path" positions (Yang et al. 2025, 2505.16381) P_ij is the product of H_l = I - b_l w_l w_l' from l = i
down to j + 1, with unit vectors w and b in (0, 2). The sum over log f is the forget gate of FoX (Lin et al.
2025, 2503.02130), with f = sigmoid of a map.

The products of PaTH are one unit lower triangular system over the words that are read together: the k_j meet
w_l in order, and c_lj = b_l w_l' H_{l-1} ... H_{j+1} k_j is what H_l takes away. Carried keys are those
after the products up to the last word, so the state has no products.

Shapes: B batch, T time, D width, H heads, K values of a head, P words carried (at most window - 1), S = P +
T.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from memtune.models.layers.rotation import list_speeds, rotate
from memtune.models.mixers.mixer import LinearMap, MappedMixer, MappedMixerConfig, MixerState, split_width

MEAN_WORDS = 21
"""Words of a mean sentence, for sizes without a window."""
DIRECTION_RANK = 32
"""Rank of the map to w: section 3.2 of PaTH."""
LARGEST_FORGET_BIAS = 6.0
"""Forget gates start with biases from 0 to this over the heads: memories of 1 to 400 words."""


class AttentionConfig(MappedMixerConfig):
    """Softmax attention; the defaults are that of a Transformer with rotary positions."""

    kind: Literal["attention"] = "attention"
    heads: int = Field(4, ge=1, description="H")
    window: int | None = Field(
        256,
        ge=1,
        description="Most words attended to, the current one included; without it the state grows with the "
        "text, so set one for protocols that read a stream",
    )
    positions: Literal["none", "rotary", "path"] = Field("rotary", description="P (see the equation)")
    forget_gate: bool = Field(False, description="Whether scores have the term with f (FoX)")

    @property
    @override
    def state_grows(self) -> bool:
        return self.window is None

    @override
    def output_shape(self, width: int) -> tuple[int, int]:
        return self.heads, split_width(width, 1.0, self.heads)

    @override
    def list_maps(self, width: int) -> Mapping[str, LinearMap]:
        inner = self.heads * self.output_shape(width)[1]
        found = {name: LinearMap(inner) for name in ("query", "key", "value")}
        if self.positions == "path":
            found |= {
                "direction": LinearMap(inner, rank=DIRECTION_RANK),
                "strength": LinearMap(self.heads, True),
            }
        if self.forget_gate:
            found["forget"] = LinearMap(self.heads, has_bias=True)
        return found

    @override
    def count_products(self, width: int) -> int:
        """A score and a value per word attended to, about half of a mean sentence without a window."""
        heads, values = self.output_shape(width)
        words = self.window or (MEAN_WORDS + 1) // 2
        return (2 + (self.positions == "path")) * words * heads * values

    @override
    def state_size(self, width: int) -> int:
        """Keys, values and forget gates of the words before the present one; without a window, of a
        sentence.
        """
        heads, values = self.output_shape(width)
        words = MEAN_WORDS if self.window is None else self.window - 1
        return words * heads * (2 * values + self.forget_gate)

    @override
    def count_extra_activations(self, width: int, length: int) -> int:
        """The terms of the scores with weights and gradient, and PaTH's system; without terms no kernel keeps
        weights.
        """
        has_path = self.positions == "path"
        return self.heads * (3 * (has_path or self.forget_gate) + 4 * has_path) * length

    @override
    def build(self, width: int, depth: float) -> "Attention":
        return Attention(self, width)


class Attention(MappedMixer):
    """State: keys, values (B, P, H, K) and, with a forget gate, log_forgets (B, P, H)."""

    def __init__(self, config: AttentionConfig, width: int) -> None:
        super().__init__(config, width)
        self.config = config

    @override
    @torch.no_grad()
    def set_constants(self) -> None:
        if self.config.positions == "path":
            self.maps["strength"].bias.zero_()  # type: ignore[operator]
        if self.config.forget_gate:
            biases_H = torch.linspace(0, LARGEST_FORGET_BIAS, self.heads)
            self.maps["forget"].bias.copy_(biases_H)  # type: ignore[operator]

    @override
    def initial_state(self, batch_size: int) -> MixerState:
        empty = self.make_zeros(batch_size, 0, self.heads, self.head_width)
        state = {"keys": empty, "values": empty.clone()}
        if self.config.forget_gate:
            state["log_forgets"] = self.make_zeros(batch_size, 0, self.heads)
        return state

    @override
    def mix(self, mapped: Mapping[str, Tensor], state: MixerState) -> tuple[Tensor, MixerState]:
        heads = {name: self.split_heads(values_BTX).squeeze(3) for name, values_BTX in mapped.items()}
        new = {"keys": heads["key"].transpose(1, 2), "values": heads["value"].transpose(1, 2)}
        if self.config.forget_gate:
            new["log_forgets"] = functional.logsigmoid(mapped["forget"])
        read = {name: torch.cat([state[name], value], dim=1) for name, value in new.items()}
        query_BHTK, keys_BHSK = heads["query"], read["keys"].transpose(1, 2)
        scores = self._compute_bias(query_BHTK.shape[2], read)
        if self.config.positions == "rotary":
            # The last word has the same position as a query and as a key.
            position_S = torch.arange(keys_BHSK.shape[2], device=keys_BHSK.device, dtype=keys_BHSK.dtype)
            angles_SP = position_S.unsqueeze(1) * list_speeds(keys_BHSK.shape[3], keys_BHSK)
            query_BHTK = rotate(query_BHTK, angles_SP[-query_BHTK.shape[2] :])
            keys_BHSK = rotate(keys_BHSK, angles_SP)
        if self.config.positions == "path":
            term_BHTS, after_BHSK = reflect(query_BHTK, keys_BHSK, heads["direction"], heads["strength"])
            read["keys"] = after_BHSK.transpose(1, 2)
            assert scores is not None
            scores = term_BHTS + scores
        outputs_BHTK = functional.scaled_dot_product_attention(
            query_BHTK, keys_BHSK, read["values"].transpose(1, 2), attn_mask=scores, is_causal=scores is None
        )
        kept = read["keys"].shape[1] if self.config.window is None else self.config.window - 1
        first = max(0, read["keys"].shape[1] - kept)
        return outputs_BHTK.transpose(1, 2), {name: value[:, first:] for name, value in read.items()}

    def _compute_bias(self, words: int, read: MixerState) -> Tensor | None:
        """What is added to the scores, (T, S) or (B, H, T, S): the forget gates, and -inf outside the window.

        None where later words alone are absent, for which the kernels need no mask.
        """
        keys, window = read["keys"], self.config.window
        all_words, device = keys.shape[1], keys.device
        has_terms = self.config.forget_gate or self.config.positions == "path"
        if not has_terms and words == all_words and (window is None or window >= words):
            return None
        reader_T1 = torch.arange(all_words - words, all_words, device=device).unsqueeze(1)
        distance_TS = reader_T1 - torch.arange(all_words, device=device)
        absent_TS = distance_TS < 0
        if window is not None:
            absent_TS = absent_TS | (distance_TS >= window)
        if not self.config.forget_gate:
            return keys.new_zeros(absent_TS.shape).masked_fill(absent_TS, -torch.inf)
        sums_BHS = read["log_forgets"].cumsum(1).transpose(1, 2)
        forgets_BHTS = sums_BHS[:, :, all_words - words :, None] - sums_BHS[:, :, None]
        return forgets_BHTS.masked_fill(absent_TS, -torch.inf)


def reflect(
    query_BHTK: Tensor, keys_BHSK: Tensor, direction_BHTK: Tensor, strength_BHT1: Tensor
) -> tuple[Tensor, Tensor]:
    """What PaTH adds to the scaled scores, (B, H, T, S), and the keys after the last word's product.

    `direction` and `strength` are the values of the maps, before the norm and the sigmoid.
    """
    unit_BHTK = functional.normalize(direction_BHTK, dim=3)
    scaled_BHTK = 2 * strength_BHT1.sigmoid() * unit_BHTK
    words, all_words = unit_BHTK.shape[2], keys_BHSK.shape[2]
    met_BHTS = (scaled_BHTK @ keys_BHSK.transpose(2, 3)).tril(all_words - words - 1)
    system_BHTT = (scaled_BHTK @ unit_BHTK.transpose(2, 3)).tril(-1)
    taken_BHTS = torch.linalg.solve_triangular(system_BHTT, met_BHTS, upper=False, unitriangular=True)
    seen_BHTT = (query_BHTK @ unit_BHTK.transpose(2, 3)).tril()
    after_BHSK = keys_BHSK - taken_BHTS.transpose(2, 3) @ unit_BHTK
    return -(seen_BHTT @ taken_BHTS) * query_BHTK.shape[3] ** -0.5, after_BHSK
