"""The Long Short-Term Memory-Network (LSTMN): an LSTM that attends over all its past states, in any depth.

Cheng, Dong and Lapata (2016), "Long Short-Term Memory-Networks for Machine Reading", sections 3.2 and 3.3.
The models of its table 1 are `width=300, embedding_width=150` with `layers=1` and `layers=3`.

The tape starts with one slot of zeros, to which the first word attends, as in the released code. The gates
have one bias and equation 4 has none, as printed; the released code has a second bias of the gates and one
of the score, which add no function that this network cannot compute.

Shapes: B batch, T time, E embedding, H hidden, L layers, S slots of the tape, D = 2H a slot (h_i and c_i side
by side), n attended slots, V vocabulary.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from typing_extensions import override

from memtune.models.architecture import EmbeddingLanguageModel, RecurrentState
from memtune.models.layers.initializers import initialise_uniform
from memtune.models.layers.placed_dropout import DropoutPlacement, PlacedDropout
from memtune.models.layers.shared_fields import InitialRange, Probability, TieOutput
from memtune.models.memories.memory_tape import TapeWeights, run_memory_tape
from memtune.models.memories.memory_traces import AttentionTrace, MemoryTrace
from memtune.models.narrow_embeddings import NarrowEmbeddingsConfig

MEAN_SLOTS_PER_WORD = 11
"""Slots read per word where the tape has no limit: half of the mean sentence of 21 words (section 5.1)."""


class LSTMNConfig(NarrowEmbeddingsConfig):
    """An LSTMN language model; the defaults are the one-layer model of Cheng et al. (2016), table 1, with
    embeddings as wide as the layer.
    """

    family: Literal["lstmn"] = "lstmn"
    memory_traces: ClassVar[tuple[MemoryTrace, ...]] = ("attention",)
    width: int = Field(300, ge=1, description="Width of hidden states, memories and attention (section 5.1)")
    layers: int = Field(1, ge=1, description="LSTMN layers with skip connections between (section 3.3)")
    tape_size: int | None = Field(
        None,
        ge=1,
        description="Most slots of a tape: the oldest is dropped (section 3.2 allows a limit); without it a "
        "tape grows with the text, so set one for protocols that read a stream",
    )
    layer_output: Literal["attended", "hidden"] = Field(
        "attended",
        description='What a layer adds to the next layer\'s input: "attended", the vector h~ as printed '
        '(section 3.3), or "hidden", the state h',
    )
    previous_attention: bool = Field(
        True,
        description="Whether attention depends on the vector attended to before, W_h~ h~ in equation 4; the "
        "released encoder leaves it out",
    )
    dropout: Probability = Field(0.0, description="Probability that a value is dropped; Cheng has none")
    dropout_placement: DropoutPlacement = "between"
    tie_output: TieOutput = False
    initial_range: InitialRange = 0.05
    forget_bias: float = Field(
        0.0, description="Initial bias of the forget gates; the released code gives them no special one"
    )

    @model_validator(mode="before")
    @classmethod
    def _read_earlier_name(cls, fields: Any) -> Any:
        """Trials stored before 2026-11-22 have `handed_up` in place of `layer_output`."""
        if not (isinstance(fields, Mapping) and "handed_up" in fields):
            return fields
        return {"layer_output" if name == "handed_up" else name: own for name, own in fields.items()}

    @override
    def build(self, vocabulary_size: int) -> "LSTMNLanguageModel":
        return LSTMNLanguageModel(self, vocabulary_size)

    @override
    def parameter_count(self, vocabulary_size: int) -> int:
        vectors = self.layers * 5 * self.width  # v and the gates' biases
        output = self.output.parameter_count(self.width, vocabulary_size, self.tie_output)
        return vocabulary_size * self.input_width + self._count_matrix_entries() + vectors + output

    @override
    def multiply_adds(self, vocabulary_size: int) -> int:
        slots = min(MEAN_SLOTS_PER_WORD, self.tape_size or MEAN_SLOTS_PER_WORD)
        reading = self.layers * slots * 3 * self.width  # a score, a hidden state and a memory per slot
        return self._count_matrix_entries() + reading + self.output.multiply_adds(self.width, vocabulary_size)

    @override
    def find_width_scaling_problem(self, base_width: int) -> str | None:
        base = self.model_copy(update={"width": base_width})
        if base.has_skip_projection != self.has_skip_projection:
            return "not embeddings as wide as the layers at one width alone; change embedding_width"
        return super().find_width_scaling_problem(base_width)

    @property
    @override
    def state_grows(self) -> bool:
        return self.tape_size is None

    @override
    def count_extra_activations(self, length: int) -> int:
        # The weights of each tape, and the tangents that backward recomputes.
        return (self.layers + 1) * length

    @override
    def state_size(self) -> int:
        """The tapes, and the vectors attended to last; without a limit the tapes of a mean sentence."""
        slots = self.tape_size or 2 * MEAN_SLOTS_PER_WORD
        return self.layers * (2 * slots + 1) * self.width

    @override
    def describe(self) -> dict[str, str | int | float]:
        fields = self.select_fields("width", "layers", "tape_size", "layer_output", "dropout")
        return fields | {"tape_size": self.tape_size or "unlimited"}

    def _count_matrix_entries(self) -> int:
        """Entries of the matrices of all layers; each matrix has one product per word."""
        own = (6 if self.previous_attention else 5) * self.width
        first, others = self.input_width, (self.layers - 1) * self.width
        return self.width * (self.layers * own + 5 * (first + others) + first * self.has_skip_projection)

    @property
    def has_skip_projection(self) -> bool:
        """Whether the embeddings need a projection to be added to the output of the first layer."""
        return self.layers > 1 and self.input_width != self.width


class LSTMNLayer(nn.Module):
    """Equations 4 to 9 over whole sequences; the gates' rows are output, input, forget and candidate."""

    def __init__(self, input_width: int, width: int, max_slots: int | None, previous_attention: bool) -> None:
        """A step reads at most `max_slots` slots; None is all."""
        super().__init__()
        self.width, self.max_slots = width, max_slots
        self.gates_input = nn.Linear(input_width, 4 * width)
        self.gates_attended = nn.Linear(width, 4 * width, bias=False)
        self.query_input = nn.Linear(input_width, width, bias=False)
        self.query_attended = nn.Linear(width, width, bias=False) if previous_attention else None
        self.key = nn.Linear(width, width, bias=False)
        self.score = nn.Parameter(torch.empty(width))

    def forward(
        self, inputs_BTE: Tensor, tape_BSD: Tensor, attended_BH: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """tape_BND with T new slots, attended_BTH, and weights_BTN of each step over the slots."""
        inputs_TBE = inputs_BTE.transpose(0, 1).contiguous()
        tape_BND, attended_TBH, weights_BTN = run_memory_tape(
            inputs_TBE, self.tape_weights(), tape_BSD, attended_BH, self.max_slots
        )
        return tape_BND, attended_TBH.transpose(0, 1), weights_BTN

    def tape_weights(self) -> TapeWeights:
        """The parameters by their names in the recurrence."""
        query_attended = self.query_attended
        return TapeWeights(
            gates_input_FE=self.gates_input.weight,
            gates_bias_F=self.gates_input.bias,
            gates_attended_FH=self.gates_attended.weight,
            query_input_HE=self.query_input.weight,
            query_attended_HH=(
                torch.zeros_like(self.key.weight) if query_attended is None else query_attended.weight
            ),
            key_HH=self.key.weight,
            score_H=self.score,
        )


class LSTMNLanguageModel(EmbeddingLanguageModel):
    """Carried state: the tapes, (B, L, S, 2H), and the vectors attended to last, (B, L, H)."""

    config: LSTMNConfig

    def __init__(self, config: LSTMNConfig, vocabulary_size: int) -> None:
        width, input_width = config.width, config.input_width
        super().__init__(config, vocabulary_size, input_width)
        layers = [
            LSTMNLayer(width if index else input_width, width, config.tape_size, config.previous_attention)
            for index in range(config.layers)
        ]
        self.layers = nn.ModuleList(layers)
        self.skip = nn.Linear(input_width, width, bias=False) if config.has_skip_projection else nn.Identity()
        self.dropout = PlacedDropout(config.dropout, config.dropout_placement)
        self.output = self.build_output(width)
        initialise_uniform(self, config.initial_range)
        for layer in layers:
            nn.init.constant_(layer.gates_input.bias[2 * width : 3 * width], config.forget_bias)

    @override
    def initial_state(self, batch_size: int) -> RecurrentState:
        layers, width = self.config.layers, self.config.width
        new_zeros = self.embedding.weight.new_zeros
        return {
            "tape": new_zeros(batch_size, layers, 1, 2 * width),
            "attended": new_zeros(batch_size, layers, width),
        }

    @override
    def encode(self, tokens_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        hidden_BTH, after, _ = self._run_layers(tokens_BT, state)
        return hidden_BTH, after

    @override
    @torch.no_grad()
    def trace_attention(self, tokens_BT: Tensor, state: RecurrentState) -> AttentionTrace:
        """The slot of zeros is the oldest until the tape is full and drops it."""
        weights = self._run_layers(tokens_BT, state)[2]
        aligned_LBTn = torch.stack([_align_right(layer_BTN, self.config.tape_size) for layer_BTN in weights])
        return AttentionTrace(aligned_LBTn, tuple(range(-aligned_LBTn.shape[3], 0)))

    def _run_layers(
        self, tokens_BT: Tensor, state: RecurrentState
    ) -> tuple[Tensor, RecurrentState, list[Tensor]]:
        """hidden_BTH of the top layer, the state after the last word, and weights_BTN of every layer."""
        inputs_BTE = self.dropout.input(self.embedding(tokens_BT))
        tapes, attended, weights = [], [], []
        for index, layer in enumerate(self.layers):
            tape_BND, attended_BTH, weights_BTN = layer(
                inputs_BTE, state["tape"][:, index], state["attended"][:, index]
            )
            hidden_BTH = tape_BND[:, -tokens_BT.shape[1] :, : self.config.width]
            tapes.append(tape_BND[:, -(self.config.tape_size or tape_BND.shape[1]) :])
            attended.append(attended_BTH[:, -1])
            weights.append(weights_BTN)
            if index + 1 < len(self.layers):
                output_BTH = attended_BTH if self.config.layer_output == "attended" else hidden_BTH
                skipped_BTH = inputs_BTE if index else self.skip(inputs_BTE)
                inputs_BTE = skipped_BTH + self.dropout.between(output_BTH)
        after = {"tape": torch.stack(tapes, dim=1), "attended": torch.stack(attended, dim=1)}
        return self.dropout.output(hidden_BTH), after, weights


def _align_right(weights_BTN: Tensor, limit: int | None) -> Tensor:
    """Weights over the slots before each step, the most recent last, from weights over the tape's slots."""
    _, steps, slots = weights_BTN.shape
    widest = slots - 1 if limit is None else min(limit, slots - 1)
    first_T1 = torch.arange(slots - steps - widest, slots - widest, device=weights_BTN.device).unsqueeze(1)
    places_Tn = first_T1 + torch.arange(widest, device=weights_BTN.device)
    gathered_BTn = weights_BTN.gather(2, places_Tn.clamp(min=0).expand(len(weights_BTN), -1, -1))
    return gathered_BTn * (places_Tn >= 0)
