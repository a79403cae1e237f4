"""The end-to-end memory network as a language model: hops of attention over the last words, no recurrence.

Sukhbaatar, Szlam, Weston and Fergus (2015), "End-To-End Memory Networks", sections 2 and 5; with one hop the
MemN baseline of Tran, Bisazza and Monz (2016), table 2. From u^1 = 0.1 in every unit, hop k = 1 to K is

    p_i = softmax(u^k . (A x_i + T_A(i))),   o^k = sum_i p_i (C x_i + T_C(i)),   u^{k+1} = o^k + H u^k

over the n most recent words x_i, the current one included, and W u^{K+1} are the logits, without a bias. All
hops share one A, C, T and H (the "layer-wise" tying). All hops of all time steps are matrix products.

Shapes: B batch, T time, n slots (the most recent is the last), P remembered words (at most n - 1),
K = n - 1 + T words, H width, V vocabulary; X, L, J as in `memories.window_attention`.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from memtune.models.architecture import NeuralLanguageModelConfig, RecurrentState, WindowLanguageModel
from memtune.models.layers.initializers import initialise_uniform
from memtune.models.layers.shared_fields import InitialRange
from memtune.models.memories import window_attention as windows
from memtune.models.memories.memory_traces import AttentionTrace, MemoryTrace
from memtune.models.memories.recent_words import keep_recent_words

INITIAL_QUERY_VALUE = 0.1
"""Every unit of u^1 (section 5): a language model has no question."""


class MemoryNetworkConfig(NeuralLanguageModelConfig):
    """A memory network; the defaults are one hop with the sizes of Tran et al. (2016)."""

    family: Literal["memory_network"] = "memory_network"
    memory_traces: ClassVar[tuple[MemoryTrace, ...]] = ("attention",)
    width: int = Field(128, ge=1, description="Width of memories and of u (section 2.1)")
    hops: int = Field(1, ge=1, description="K: hops, all with the same parameters (section 2.2)")
    memory_size: int = Field(15, ge=1, description="n: the most recent words, the current one included")
    temporal_encoding: bool = Field(
        True, description="T_A and T_C, a row for each slot, are added to the memories (section 4.1)"
    )
    rectify_half: bool = Field(
        False, description="ReLU on the second half of the units of u after each hop (section 5)"
    )
    linear_start: bool = Field(
        False,
        description="Train without the softmax over the slots until validation stops improving (section 4.2)",
    )
    initial_range: InitialRange = 0.05

    @override
    def build(self, vocabulary_size: int) -> "MemoryNetworkLanguageModel":
        return MemoryNetworkLanguageModel(self, vocabulary_size)

    @override
    def parameter_count(self, vocabulary_size: int) -> int:
        rows = 2 * vocabulary_size + (2 * self.memory_size if self.temporal_encoding else 0)
        output = self.output.parameter_count(self.width, vocabulary_size, bias=False)
        return (rows + self.width) * self.width + output

    @override
    def multiply_adds(self, vocabulary_size: int) -> int:
        tables = 4 if self.temporal_encoding else 2
        hop = (tables * self.memory_size + self.width) * self.width
        return self.hops * hop + self.output.multiply_adds(self.width, vocabulary_size)

    @override
    def state_size(self) -> int:
        """The words before the present one."""
        return self.memory_size - 1

    @override
    def describe(self) -> dict[str, str | int | float]:
        return self.select_fields(
            "width", "hops", "memory_size", "temporal_encoding", "rectify_half", "linear_start"
        )


class MemoryNetworkLanguageModel(WindowLanguageModel):
    """Carried state: the last words, (B, P).

    The buffer `softmax`, saved with the weights, is false during a linear start.
    """

    config: MemoryNetworkConfig
    softmax: Tensor

    def __init__(self, config: MemoryNetworkConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.vocabulary_size = vocabulary_size
        self.max_history_words = config.memory_size - 1
        width, slots = config.width, config.memory_size
        self.input_table = nn.Embedding(vocabulary_size, width)
        self.output_table = nn.Embedding(vocabulary_size, width)
        self.temporal_keys = nn.Parameter(torch.empty(slots, width)) if config.temporal_encoding else None
        self.temporal_values = nn.Parameter(torch.empty(slots, width)) if config.temporal_encoding else None
        self.hop = nn.Linear(width, width, bias=False)
        self.output = config.output.build(width, vocabulary_size, bias=False)
        self.register_buffer("softmax", torch.tensor(not config.linear_start))
        initialise_uniform(self, config.initial_range)

    @override
    def encode(self, tokens_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        query_BTH, _ = self._run_hops(tokens_BT, state["words"])
        words_BK = torch.cat([state["words"], tokens_BT], dim=1)
        return query_BTH, {"words": keep_recent_words(words_BK, self.max_history_words)}

    @override
    def on_validation(self, valid_costs: Sequence[float]) -> None:
        """End a linear start at the first validation that is no better than those before it."""
        if self.config.linear_start:
            improved = all(after < before for before, after in pairwise(valid_costs))
            self.softmax.fill_(not improved)

    @override
    @torch.no_grad()
    def trace_attention(self, tokens_BT: Tensor, state: RecurrentState) -> AttentionTrace:
        """The attention of the last hop."""
        _, weights_XLJ = self._run_hops(tokens_BT, state["words"])
        weights_BTn = windows.arrange_slots(weights_XLJ, *tokens_BT.shape)
        return AttentionTrace(weights_BTn.unsqueeze(0), tuple(range(1 - self.config.memory_size, 1)))

    def _run_hops(self, tokens_BT: Tensor, earlier_BP: Tensor) -> tuple[Tensor, Tensor]:
        """u after the last hop, (B, T, H), and the last hop's attention."""
        steps, slots, history = tokens_BT.shape[1], self.config.memory_size, earlier_BP.shape[1]
        words_BK = functional.pad(torch.cat([earlier_BP, tokens_BT], dim=1), (slots - 1 - history, 0))
        keys_BKH, values_BKH = self.input_table(words_BK), self.output_table(words_BK)
        absent_Tn = windows.mask_absent_slots(steps, slots, history, words_BK.device)
        query_BTH = keys_BKH.new_full((*tokens_BT.shape, self.config.width), INITIAL_QUERY_VALUE)
        # Reading the buffer waits for a GPU, so that only a linear start reads it.
        is_linear = self.config.linear_start and not self.softmax
        for _ in range(self.config.hops):
            if self.temporal_keys is None:
                position_BTn = query_BTH.new_zeros(*tokens_BT.shape, slots)
            else:
                position_BTn = query_BTH @ self.temporal_keys.t()
            position_BTn = position_BTn.masked_fill(absent_Tn, -torch.inf)
            weights_XLJ = windows.compute_weights(query_BTH, keys_BKH, position_BTn, is_linear)
            context_BTH = windows.sum_values(weights_XLJ, values_BKH, steps)
            if self.temporal_values is not None:
                slots_BTn = windows.arrange_slots(weights_XLJ, *tokens_BT.shape)
                context_BTH = context_BTH + slots_BTn @ self.temporal_values
            query_BTH = context_BTH + self.hop(query_BTH)
            if self.config.rectify_half:
                linear_BTF, rectified_BTF = query_BTH.tensor_split([self.config.width // 2], dim=2)
                query_BTH = torch.cat([linear_BTF, rectified_BTF.relu()], dim=2)
        return query_BTH, weights_XLJ
