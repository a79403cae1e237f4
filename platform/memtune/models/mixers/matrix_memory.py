"""The matrix memory: keys and values in a matrix of fixed size, with the update rule as fields.

Per head, with keys of K and values of V numbers, one word changes the memory S and reads it:

    S_t = (D_t - e_t r_t') S_{t-1} + k_t u_t'          o_t = S_t' q_t

D_t decays, r_t is what is read to be erased, e_t where it is erased, k_t u_t' what is written. The fields
choose each of them; published memories are points of this space, which have names of their own.
p = k / |k|^2, which is k for unit keys: with keys of any length, an erasure at b = 1 leaves nothing of what S
has at k.

| field | value | equation |
|---|---|---|
| decay | none, head | D = 1, or D = 1 - 2^(-5-h) of head h (RetNet, 2307.08621) |
| | number, vector | D = exp(g) with a number g per word and head, or with one per channel of the keys |
| decay_map | softplus | g = -exp(A) softplus(x) (Mamba-2, 2405.21060; KDA, 2510.26692) |
| | sigmoid | g = log sigmoid(x) * decay_power (GLA, 2312.06635; mLSTM, 2405.04517) |
| | bounded | g = -exp(-1/2) sigmoid(x) (RWKV-7, 2503.14456) |
| | product | g = -softplus(x) dt (Mamba-3, 2603.15569) |
| erase | delta | e = k, r = b D p (DeltaNet, 2406.06484; Gated DeltaNet, 2412.06464) |
| | closed_loop | e = k, r = b D sigmoid(c) p with a number c per head (Comba, 2506.02475) |
| | channel | e = k, r = D (b * p) with a vector b (Gated DeltaNet-2, 2605.22791) |
| | own_key | e = a * n, r = n with a vector a, n the unit vector of s * k; k (1 + (a - 1) m) for k (RWKV-7) |
| write | plain, scaled | u = v, or u = b v |
| | channel | u = w * v with a vector w (Gated DeltaNet-2) |
| | step | u = dt v with dt = softplus(x) (Mamba-2) |
| | trapezoid | u = l dt v, and (1 - l) dt D k v' of the word before (Mamba-3) |
| | exponential | u = exp(i) v; n_t = D n + exp(i) k is carried too, and o = S'q / max(abs(n'q), 1) (mLSTM) |
| steps | n | n erasures and writes of a word, with keys and values of their own (DeltaProduct, 2502.10297) |
| read | corrected | q - d k in place of q, with a number d per head (Comba) |

b = sigmoid(x), or 2 sigmoid(x) with negative eigenvalues (2411.12537). The rotation turns pairs of queries
and keys by the sum of angles so far: fixed ones per position (RetNet), or dt times a map of the inputs
(Mamba-3).

Deviations. Every head has keys of its own, which Mamba-2 and Mamba-3 share among heads. RWKV-7 is its time
mixing without the value of the first layer, the bonus of the current word and the token shift, whose place
the short convolution of the block takes. Mamba-3 is the form with one input and one output. Linear attention
has neither a map of the keys nor a normaliser. The decays start with memories of 10 to 1,000 words, spread
evenly in log over heads or channels, whatever the parametrisation.

Shapes: B batch, T time, D width, H heads, n steps, M steps with those of the state, K keys, V values, P
pairs.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from memtune.models.layers.rotation import list_speeds, rotate
from memtune.models.mixers.matrix_recurrence import STEPS, STEPS_BY_DIFFERENCE, MemorySteps, run_memory
from memtune.models.mixers.mixer import LinearMap, MappedMixer, MappedMixerConfig, MixerState, split_width

SHORTEST_MEMORY, LONGEST_MEMORY = 10.0, 1000.0
"""Words after which a new memory has decayed to 1 / e."""
BOUNDED_RATE = math.exp(-0.5)
NORM_EPSILON = 1e-5


class MatrixMemoryConfig(MappedMixerConfig):
    """A matrix memory; the defaults are Gated DeltaNet."""

    kind: Literal["matrix_memory"] = "matrix_memory"
    heads: int = Field(4, ge=1, description="H: memories of a block")
    key_ratio: float = Field(0.5, gt=0, le=4, description="Width of the keys of all heads, by the width")
    value_ratio: float = Field(1.0, gt=0, le=4, description="Width of the values of all heads, by the width")
    keys: Literal["plain", "unit", "normed"] = Field(
        "unit",
        description='Queries and keys: "plain" with q / sqrt(K), "unit" vectors of silu (DeltaNet), or '
        '"normed" by RMSNorm with weights and biases (Mamba-3)',
    )
    decay: Literal["none", "head", "number", "vector"] = Field(
        "number", description="D: none, a constant per head, a number per word and head, or a vector"
    )
    decay_map: Literal["softplus", "sigmoid", "bounded", "product"] = Field(
        "softplus", description="How a number or a vector of decays is computed (see the table)"
    )
    decay_power: float = Field(0.0625, ge=0.002, le=1, description="Power of a decay by sigmoid: 1/16 in GLA")
    decay_rank: int = Field(16, ge=1, description="Rank of the maps to vectors of the keys: 16 in GLA")
    erase: Literal["none", "delta", "closed_loop", "channel", "own_key"] = Field(
        "delta", description="e and r (see the table)"
    )
    write: Literal["plain", "scaled", "channel", "step", "trapezoid", "exponential"] = Field(
        "scaled", description="u (see the table)"
    )
    negative_eigenvalues: bool = Field(False, description="Whether b is in (0, 2) instead of (0, 1)")
    steps: int = Field(1, ge=1, le=8, description="n: erasures and writes of a word")
    read: Literal["query", "corrected"] = Field("query", description="What reads the memory (see the table)")
    rotation: Literal["none", "position", "data"] = Field(
        "none", description="Angles by which pairs of queries and keys are rotated"
    )
    skip: bool = Field(False, description="Whether the value times a number per head is added (Mamba-2)")

    @override
    def output_shape(self, width: int) -> tuple[int, int]:
        return self.heads, split_width(width, self.value_ratio, self.heads)

    def split_keys(self, width: int) -> int:
        """K."""
        return split_width(width, self.key_ratio, self.heads)

    @property
    def uses_strength(self) -> bool:
        """Whether there is a number b."""
        return self.erase in ("delta", "closed_loop") or self.write == "scaled"

    @property
    def uses_step(self) -> bool:
        """Whether there is a step dt."""
        by_decay = self.decay == "number" and self.decay_map in ("softplus", "product")
        by_vector = self.decay == "vector" and self.decay_map == "product"
        return by_decay or by_vector or self.write in ("step", "trapezoid") or self.rotation == "data"

    @override
    def list_maps(self, width: int) -> Mapping[str, LinearMap]:
        heads, keys, values = self.heads, self.split_keys(width), self.output_shape(width)[1]
        rank, steps = self.decay_rank, self.steps * heads
        found = {
            "query": LinearMap(heads * keys),
            "key": LinearMap(steps * keys),
            "value": LinearMap(steps * values),
        }
        if self.uses_strength:
            found["strength"] = LinearMap(steps)
        if self.uses_step:
            found["step"] = LinearMap(heads, has_bias=True)
        if self.decay == "vector":
            found["decay"] = LinearMap(heads * keys, has_bias=True, rank=rank)
        elif self.decay == "number" and self.decay_map != "softplus":
            found["decay"] = LinearMap(heads, has_bias=True)
        if self.erase in ("channel", "own_key"):
            found["erase"] = LinearMap(steps * keys, has_bias=True, rank=rank)
        if self.write == "channel":
            found["write"] = LinearMap(steps * values, has_bias=True, rank=rank)
        if self.write == "trapezoid":
            found["share"] = LinearMap(heads, has_bias=True)
        if self.write == "exponential":
            found["input"] = LinearMap(heads, has_bias=True)
        if self.rotation == "data" and keys > 1:
            found["angle"] = LinearMap(heads * (keys // 2))
        return found

    @override
    def list_vectors(self, width: int) -> Mapping[str, tuple[int, ...]]:
        heads, keys = self.heads, self.split_keys(width)
        found: dict[str, tuple[int, ...]] = {}
        if self.decay in ("number", "vector") and self.decay_map == "softplus":
            found["rate"] = (heads,)
        if self.erase == "closed_loop":
            found["loop"] = (heads,)
        if self.erase == "own_key":
            found |= {"removal": (heads * keys,), "blend": (heads * keys,)}
        if self.read == "corrected":
            found["correction"] = (heads,)
        if self.keys == "normed":
            found |= {
                f"{of}_{part}": (heads * keys,) for of in ("query", "key") for part in ("weight", "bias")
            }
        if self.skip:
            found["skip"] = (heads,)
        return found

    @override
    def count_products(self, width: int) -> int:
        """A read, and a write and an erasure per step: each is a product of K and V numbers."""
        products = 1 + self.steps * (1 + (self.erase != "none")) + (self.write == "trapezoid")
        return products * self.heads * self.split_keys(width) * self._count_columns(width)

    @override
    def state_size(self, width: int) -> int:
        """S, and what the write and the rotation carry."""
        keys, columns = self.split_keys(width), self._count_columns(width)
        carried = keys * columns
        if self.write == "exponential":
            carried += 1
        if self.write == "trapezoid":
            carried += keys + columns
        if self.rotation != "none":
            carried += keys // 2
        return self.heads * carried

    @override
    def count_extra_activations(self, width: int, length: int) -> int:
        """The system of a chunk's erasures, its solution and the scores of the reads; and of a decay by
        channel the differences, their factors and products, of the reads and the erasures.
        """
        scores = 4 * self.heads * self.steps * min(self.steps * length, STEPS)
        if self.decay != "vector":
            return scores
        pairs = STEPS_BY_DIFFERENCE * self.steps * self.heads * self.split_keys(width)
        return scores + 3 * (1 + (self.erase != "none")) * pairs

    def _count_columns(self, width: int) -> int:
        """V, and the normaliser of exponential writes."""
        return self.output_shape(width)[1] + (self.write == "exponential")

    @override
    def build(self, width: int, depth: float) -> "MatrixMemory":
        return MatrixMemory(self, width)


@dataclass
class ReadText:
    """What a text gives the rule: the values of the maps, the state before it and after it, and the numbers
    of each word that the rule has.
    """

    mapped: Mapping[str, Tensor]
    before: MixerState
    after: MixerState = field(default_factory=dict)
    step: Tensor = field(init=False)
    """dt, (B, H, T, 1)."""
    strength: Tensor = field(init=False)
    """b, (B, H, T, n, 1)."""
    decay: Tensor | None = None
    """g, (B, H, T, 1) or (B, H, T, K)."""
    shift: Tensor | None = None
    """With exponential writes: what g has more than the logarithm of D, (B, H, T, 1)."""
    floor: Tensor | None = None
    """With exponential writes: the least divisor of what is read, (B, H, T, 1)."""


class MatrixMemory(MappedMixer):
    """State: memory (B, H, K, V), with one more column for the normaliser of exponential writes; what the
    write and the rotation carry.
    """

    def __init__(self, config: MatrixMemoryConfig, width: int) -> None:
        super().__init__(config, width)
        self.config = config
        self.key_width = config.split_keys(width)

    @override
    @torch.no_grad()
    def set_constants(self) -> None:
        starts = {"rate": 0.0, "loop": 1.0, "correction": 0.02, "query_bias": 0.0, "key_bias": 0.0}
        for name, vector in self.vectors.items():
            vector.fill_(starts.get(name, 1.0))
        for name, each in self.maps.items():
            bias = each[-1].bias if isinstance(each, nn.Sequential) else each.bias
            if isinstance(bias, Tensor):
                bias.copy_(self._spread_biases(name, len(bias)))

    def _spread_biases(self, name: str, count: int) -> Tensor:
        """Initial biases of a map; with inputs of zero they give memories from the shortest to the
        longest.
        """
        per_head = self.heads if count == self.heads else self.key_width
        rates = torch.logspace(-math.log10(SHORTEST_MEMORY), -math.log10(LONGEST_MEMORY), per_head)
        by_name = {"decay": self.config.decay_map, "step": "softplus"}
        match by_name.get(name):
            case "softplus":
                biases = rates.expm1().log()
            case "sigmoid":
                biases = torch.special.logit((-rates / self.config.decay_power).exp())
            case "bounded":
                biases = torch.special.logit(rates / BOUNDED_RATE)
            case _:
                return torch.zeros(count)
        return biases.repeat(count // per_head)

    @override
    def initial_state(self, batch_size: int) -> MixerState:
        config, shape = self.config, (batch_size, self.heads)
        columns = self.head_width + (config.write == "exponential")
        state = {"memory": self.make_zeros(*shape, self.key_width, columns)}
        if config.write == "exponential":
            state["stabiliser"] = self.make_zeros(*shape)
        if config.write == "trapezoid":
            state["last_key"] = self.make_zeros(*shape, self.key_width)
            state["last_value"] = self.make_zeros(*shape, columns)
        if config.rotation != "none":
            state["angle"] = self.make_zeros(*shape, self.key_width // 2)
        return state

    @override
    def mix(self, mapped: Mapping[str, Tensor], state: MixerState) -> tuple[Tensor, MixerState]:
        text = ReadText(mapped, state)
        if self.config.uses_step:
            text.step = functional.softplus(self.split_heads(mapped["step"]).squeeze(3))
        if self.config.uses_strength:
            text.strength = self._compute_strength(mapped["strength"])
        text.decay = self._compute_decay(text)
        query_BHTK, keys_BHTnK = self._compute_keys(text)
        values_BHTnV = self.split_heads(mapped["value"], self.config.steps)
        written_BHTnV = self._scale_values(text, values_BHTnV)  # may shift the decay, which erasures read
        keys, written, erased = self._list_steps(text, keys_BHTnK, written_BHTnV)
        if self.config.write == "trapezoid":
            last = self._carry_last_word(text, keys_BHTnK, values_BHTnV)
            keys, written = (torch.cat(pair, dim=3) for pair in zip((keys, written), last, strict=True))
            erased = None if erased is None else functional.pad(erased, (0, 0, 0, 1))
        decay = text.decay
        if decay is not None:  # of the first step of a word only
            decay = functional.pad(decay.unsqueeze(3), (0, 0, 0, keys.shape[3] - 1)).flatten(2, 3)
        erased = None if erased is None else erased.flatten(2, 3)
        steps = MemorySteps(keys.flatten(2, 3), written.flatten(2, 3), query_BHTK, decay, erased)
        outputs_BHTV, text.after["memory"] = run_memory(steps, state["memory"])
        if text.floor is not None:
            outputs_BHTV, sums_BHT1 = torch.split(outputs_BHTV, [self.head_width, 1], dim=3)
            outputs_BHTV = outputs_BHTV / torch.maximum(sums_BHT1.abs(), text.floor)
        if self.config.skip:
            outputs_BHTV = outputs_BHTV + self.vectors["skip"][:, None, None] * values_BHTnV[:, :, :, -1]
        return outputs_BHTV.transpose(1, 2), text.after

    def _compute_strength(self, values_BTX: Tensor) -> Tensor:
        """b, a number or a vector."""
        strength = self.split_heads(values_BTX, self.config.steps).sigmoid()
        return 2 * strength if self.config.negative_eigenvalues else strength

    def _compute_decay(self, text: ReadText) -> Tensor | None:
        config, mapped = self.config, text.mapped
        if config.decay == "none":
            return None
        if config.decay == "head":
            query_BTX = mapped["query"]
            head_H = torch.arange(self.heads, device=query_BTX.device, dtype=query_BTX.dtype)
            decay_H = torch.log1p(-(2.0 ** (-5 - head_H)))
            return decay_H[:, None, None].expand(len(query_BTX), -1, query_BTX.shape[1], -1)
        if config.decay == "number" and config.decay_map == "softplus":
            return self._scale_rate(text.step)
        input_BHTX = self.split_heads(mapped["decay"]).squeeze(3)
        match config.decay_map:
            case "softplus":
                return self._scale_rate(functional.softplus(input_BHTX))
            case "sigmoid":
                return functional.logsigmoid(input_BHTX) * config.decay_power
            case "bounded":
                return -BOUNDED_RATE * input_BHTX.sigmoid()
            case "product":
                return -functional.softplus(input_BHTX) * text.step

    def _scale_rate(self, values_BHTX: Tensor) -> Tensor:
        """Decays by softplus, times -exp(A) of the head."""
        rate_H: Tensor = self.vectors["rate"]
        return -rate_H.exp()[:, None, None] * values_BHTX

    def _compute_keys(self, text: ReadText) -> tuple[Tensor, Tensor]:
        """q and k, (B, H, T, K) and (B, H, T, n, K)."""
        query = self.split_heads(text.mapped["query"])
        keys = self.split_heads(text.mapped["key"], self.config.steps)
        match self.config.keys:
            case "plain":
                query = query * self.key_width**-0.5
            case "unit":
                query = functional.normalize(functional.silu(query), dim=4)
                keys = functional.normalize(functional.silu(keys), dim=4)
            case "normed":
                query, keys = self._normalise("query", query), self._normalise("key", keys)
        if self.config.rotation != "none":
            angle_BHTP = self._sum_angles(text)
            text.after["angle"] = angle_BHTP[:, :, -1].remainder(2 * math.pi)
            query, keys = rotate(query, angle_BHTP.unsqueeze(3)), rotate(keys, angle_BHTP.unsqueeze(3))
        if self.config.read == "corrected":
            query = query - self.view_heads("correction") * keys[:, :, :, -1:]
        return query.squeeze(3), keys

    def _normalise(self, name: str, vectors_BHTnK: Tensor) -> Tensor:
        normed = functional.rms_norm(vectors_BHTnK, (self.key_width,), eps=NORM_EPSILON)
        return normed * self.view_heads(f"{name}_weight") + self.view_heads(f"{name}_bias")

    def _sum_angles(self, text: ReadText) -> Tensor:
        """The sum of the angles up to each word, (B, H, T, P)."""
        before_BHP = text.before["angle"]
        if "angle" in text.mapped:
            turns_BHTP = self.split_heads(text.mapped["angle"]).squeeze(3) * text.step
        else:
            speeds_P = list_speeds(self.key_width, before_BHP)
            turns_BHTP = speeds_P.expand(*before_BHP.shape[:2], text.mapped["query"].shape[1], -1)
        return before_BHP.unsqueeze(2) + turns_BHTP.cumsum(2)

    def _scale_values(self, text: ReadText, values_BHTnV: Tensor) -> Tensor:
        """u."""
        match self.config.write:
            case "plain":
                return values_BHTnV
            case "scaled":
                return text.strength * values_BHTnV
            case "channel":
                return self.split_heads(text.mapped["write"], self.config.steps).sigmoid() * values_BHTnV
            case "exponential":
                return self._stabilise(text, values_BHTnV)
        step_BHT11 = text.step.unsqueeze(3)
        if self.config.write == "trapezoid":
            step_BHT11 = self.split_heads(text.mapped["share"]).sigmoid() * step_BHT11
        return step_BHT11 * values_BHTnV

    def _carry_last_word(
        self, text: ReadText, keys_BHTnK: Tensor, values_BHTnV: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The keys, decayed, and the scaled values of the word before each word, (B, H, T, 1, K or V)."""
        key_BHSK = torch.cat([text.before["last_key"].unsqueeze(2), keys_BHTnK[:, :, :, -1]], dim=2)
        value_BHSV = torch.cat([text.before["last_value"].unsqueeze(2), values_BHTnV[:, :, :, -1]], dim=2)
        text.after |= {"last_key": key_BHSK[:, :, -1], "last_value": value_BHSV[:, :, -1]}
        key_BHTK = key_BHSK[:, :, :-1] if text.decay is None else key_BHSK[:, :, :-1] * text.decay.exp()
        share_BHT1 = (-self.split_heads(text.mapped["share"])).sigmoid().squeeze(3)
        return key_BHTK.unsqueeze(3), (share_BHT1 * text.step * value_BHSV[:, :, :-1]).unsqueeze(3)

    def _stabilise(self, text: ReadText, values_BHTnV: Tensor) -> Tensor:
        """u = exp(i - m) v with a column exp(i - m), for a memory that is stored times exp(-m).

        m_t = max(log f_t + m_{t-1}, i_t), with the largest channel of D for f. What is read does not depend
        on m, so no gradient goes through it.
        """
        input_BHT1 = self.split_heads(text.mapped["input"]).squeeze(3)
        kept_BHT1 = torch.zeros_like(input_BHT1)
        if text.decay is not None:
            kept_BHT1 = text.decay.detach().amax(3, keepdim=True)
        before_BH11, sums_BHT1 = text.before["stabiliser"].detach()[:, :, None, None], kept_BHT1.cumsum(2)
        largest_BHT1 = (input_BHT1.detach() - sums_BHT1).cummax(2).values
        m_BHT1 = sums_BHT1 + torch.maximum(largest_BHT1, before_BH11)
        text.after["stabiliser"] = m_BHT1[:, :, -1, 0]
        text.shift = torch.cat([before_BH11, m_BHT1[:, :, :-1]], dim=2) - m_BHT1
        text.decay = text.shift if text.decay is None else text.decay + text.shift
        text.floor = (-m_BHT1).exp()
        return functional.pad(values_BHTnV, (0, 1), value=1.0) * (input_BHT1 - m_BHT1).exp().unsqueeze(3)

    def _list_steps(
        self, text: ReadText, keys_BHTnK: Tensor, written_BHTnV: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """k, u and r of all steps of a word, (B, H, T, M, K or V); the first r reads the decayed memory."""
        match self.config.erase:
            case "none":
                return keys_BHTnK, written_BHTnV, None
            case "own_key":
                return self._erase_own_key(text, keys_BHTnK, written_BHTnV)
            case "channel":
                strength = self._compute_strength(text.mapped["erase"])
            case _:
                strength = text.strength
        erased = strength * keys_BHTnK
        if self.config.keys != "unit":
            erased = erased / keys_BHTnK.square().sum(4, keepdim=True).clamp_min(NORM_EPSILON)
        if self.config.erase == "closed_loop":
            erased = erased * self.view_heads("loop").sigmoid()
        return keys_BHTnK, written_BHTnV, scale_first_step(erased, text.decay)

    def _erase_own_key(
        self, text: ReadText, keys_BHTnK: Tensor, written_BHTnV: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """An erasure at the removal key and a write at the blended key for each step."""
        rate_BHTnK = self.split_heads(text.mapped["erase"], self.config.steps).sigmoid()
        removal_BHTnK = functional.normalize(keys_BHTnK * self.view_heads("removal"), dim=4)
        blended_BHTnK = keys_BHTnK * (1 + (rate_BHTnK - 1) * self.view_heads("blend"))
        pairs = (
            (rate_BHTnK * removal_BHTnK, blended_BHTnK),
            (torch.zeros_like(written_BHTnV), written_BHTnV),
            (removal_BHTnK, torch.zeros_like(removal_BHTnK)),
        )
        keys, values, erased = (torch.stack(pair, dim=4).flatten(3, 4) for pair in pairs)
        return keys, values, scale_first_step(erased, text.shift)


def scale_first_step(erased_BHTMK: Tensor, log_factor: Tensor | None) -> Tensor:
    """r with its first step times exp of a factor's logarithm."""
    if log_factor is None:
        return erased_BHTMK
    first, rest = erased_BHTMK[:, :, :, :1], erased_BHTMK[:, :, :, 1:]
    return torch.cat([first * log_factor.exp().unsqueeze(3), rest], dim=3)
