"""The LSTM, the Elman layer and the recurrent memory as mixers: old memories in the block of new ones.

The cells are those of the families `lstm` and `rnn`, on the fused kernels of the device. The recurrent
memory is an LSTM with the memory block of Tran, Bisazza and Monz (2016), section 3.1 (see the family
recurrent_memory). Deviation: the paper's tables M and C of words are linear maps of the inputs of the block,
which hold more than a word above the first block.

Shapes: B batch, T time, D width of the block, which is also that of the layer, n slots, P inputs carried (at
most n - 1), S = n - 1 + T.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from memtune.models.layers.lstm_stack import LSTMStack
from memtune.models.memories import composition as compositions
from memtune.models.memories import window_attention as windows
from memtune.models.mixers.mixer import Mixer, MixerConfig, MixerState


class LSTMLayerConfig(MixerConfig):
    """An LSTM layer (see the family lstm)."""

    kind: Literal["lstm"] = "lstm"
    forget_bias: float = Field(1.0, description="Initial input bias of the forget gates")

    @override
    def parameter_count(self, width: int) -> int:
        return LSTMStack.count_parameters(width, width, 1)

    @override
    def multiply_adds(self, width: int) -> int:
        return LSTMStack.count_multiply_adds(width, width, 1)

    @override
    def state_size(self, width: int) -> int:
        return 2 * width

    @override
    def build(self, width: int, depth: float) -> "LSTMLayer":
        return LSTMLayer(self, width)


class LSTMLayer(Mixer):
    """State: hidden and cell, (B, D)."""

    def __init__(self, config: "LSTMLayerConfig | RecurrentMemoryLayerConfig", width: int) -> None:
        super().__init__(config, width)
        self.forget_bias = config.forget_bias
        self.stack = LSTMStack(width, width, 1, 0.0, "between")

    @override
    def set_constants(self) -> None:
        self.stack.set_forget_bias(self.forget_bias)

    @override
    def initial_state(self, batch_size: int) -> MixerState:
        return {name: self.make_zeros(batch_size, self.head_width) for name in ("hidden", "cell")}

    @override
    def forward(self, inputs_BTD: Tensor, state: MixerState) -> tuple[Tensor, MixerState]:
        before = {name: state[name].unsqueeze(1) for name in ("hidden", "cell")}
        outputs_BTD, after = self.stack(inputs_BTD, before)
        return outputs_BTD.unsqueeze(2), {name: value.squeeze(1) for name, value in after.items()}


class ElmanLayerConfig(MixerConfig):
    """An Elman layer with tanh units (see the family rnn)."""

    kind: Literal["rnn"] = "rnn"

    @override
    def parameter_count(self, width: int) -> int:
        return 2 * width * (width + 1)

    @override
    def multiply_adds(self, width: int) -> int:
        return 2 * width * width

    @override
    def state_size(self, width: int) -> int:
        return width

    @override
    def build(self, width: int, depth: float) -> "ElmanLayer":
        return ElmanLayer(self, width)


class ElmanLayer(Mixer):
    """State: hidden, (B, D)."""

    def __init__(self, config: ElmanLayerConfig, width: int) -> None:
        super().__init__(config, width)
        self.rnn = nn.RNN(width, width, batch_first=True)

    @override
    def initial_state(self, batch_size: int) -> MixerState:
        return {"hidden": self.make_zeros(batch_size, self.head_width)}

    @override
    def forward(self, inputs_BTD: Tensor, state: MixerState) -> tuple[Tensor, MixerState]:
        outputs_BTD, hidden_1BD = self.rnn(inputs_BTD, state["hidden"].unsqueeze(0).contiguous())
        return outputs_BTD.unsqueeze(2), {"hidden": torch.squeeze(hidden_1BD, 0)}


class RecurrentMemoryLayerConfig(MixerConfig):
    """An LSTM layer with a memory block over the last inputs."""

    kind: Literal["recurrent_memory"] = "recurrent_memory"
    memory_size: int = Field(15, ge=1, description="n: the most recent inputs, the current one included")
    composition: compositions.CompositionKind = Field(
        "gate", description="g(s, h) (see the field of the family recurrent_memory)"
    )
    forget_bias: float = Field(1.0, description="Initial input bias of the forget gates")

    @override
    def parameter_count(self, width: int) -> int:
        memory = 2 * width * width + self.memory_size * width
        composed = compositions.count_parameters(self.composition, width)
        return LSTMStack.count_parameters(width, width, 1) + memory + composed

    @override
    def multiply_adds(self, width: int) -> int:
        memory = 2 * width * width + 3 * self.memory_size * width
        composed = compositions.count_multiply_adds(self.composition, width)
        return LSTMStack.count_multiply_adds(width, width, 1) + memory + composed

    @override
    def state_size(self, width: int) -> int:
        """The hidden state, the cell and the inputs before the present one."""
        return (1 + self.memory_size) * width

    @override
    def build(self, width: int, depth: float) -> "RecurrentMemoryLayer":
        return RecurrentMemoryLayer(self, width)


class RecurrentMemoryLayer(LSTMLayer):
    """State: hidden and cell, (B, D), and the last inputs, (B, P, D)."""

    def __init__(self, config: RecurrentMemoryLayerConfig, width: int) -> None:
        super().__init__(config, width)
        self.memory_size = config.memory_size
        self.input_memory = nn.Linear(width, width, bias=False)
        self.output_memory = nn.Linear(width, width, bias=False)
        self.temporal_nD = nn.Parameter(torch.empty(config.memory_size, width))
        self.composition = compositions.build_composition(config.composition, width)

    @override
    def initial_state(self, batch_size: int) -> MixerState:
        inputs_B0D = self.make_zeros(batch_size, 0, self.head_width)
        return {**super().initial_state(batch_size), "inputs": inputs_B0D}

    @override
    def forward(self, inputs_BTD: Tensor, state: MixerState) -> tuple[Tensor, MixerState]:
        hidden_BT1D, after = super().forward(inputs_BTD, state)
        hidden_BTD = hidden_BT1D.squeeze(2)
        words, slots, history = inputs_BTD.shape[1], self.memory_size, state["inputs"].shape[1]
        read_BSD = torch.cat([state["inputs"], inputs_BTD], dim=1)
        padded_BSD = functional.pad(read_BSD, (0, 0, slots - 1 - history, 0))
        absent_Tn = windows.mask_absent_slots(words, slots, history, inputs_BTD.device)
        position_BTn = (hidden_BTD @ self.temporal_nD.t()).masked_fill(absent_Tn, -torch.inf)
        weights_XLJ = windows.compute_weights(hidden_BTD, self.input_memory(padded_BSD), position_BTn)
        context_BTD = windows.sum_values(weights_XLJ, self.output_memory(padded_BSD), words)
        after["inputs"] = read_BSD[:, max(0, read_BSD.shape[1] - slots + 1) :]
        return self.composition(context_BTD, hidden_BTD).unsqueeze(2), after
