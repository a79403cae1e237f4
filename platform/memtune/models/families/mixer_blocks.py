"""Residual blocks with a sequence mixer each: present-day memories in equal surroundings.

A block is x + project(gate(norm(mixer(convolution(norm(x)))))), then x + channel_mix(norm(x)). Each part is a
field, and the mixer is one of docs/memory_blocks.md: a matrix memory whose update rule is a search
space, softmax attention, gated units, or a recurrent layer. The stack repeats a pattern of two mixers.

- Norm before the mixer, and at the end of the stack: RMSNorm (Zhang and Sennrich 2019), LayerNorm or none.
- Short convolution: x_t + sum_j w_j * x_{t-j} with weights per channel, the form of Canon layers (Allen-Zhu
  2025, "Physics of Language Models: Part 4.1"); 0 leaves it out.
- Norm of each head of the mixer's output, then a gate by a map of the mixer's input (Sun et al. 2023,
RetNet).
- Channel mix: SwiGLU (Shazeer 2020), W3 (silu(W1 x) * W2 x), with `channel_ratio` times the width within.

Matrices start in U(-range, range), those that add to the residual stream divided by sqrt(2 layers), as
GPT-2's.

Shapes: B batch, T time, D width, H heads, V values of a head, C words that a convolution reads, V vocabulary.
"""

from typing import Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from memtune.models.architecture import EmbeddingLanguageModel, NeuralLanguageModelConfig, RecurrentState
from memtune.models.layers.initializers import initialise_uniform
from memtune.models.layers.shared_fields import Dropout, TieOutput
from memtune.models.mixers.attention import AttentionConfig
from memtune.models.mixers.matrix_memory import MatrixMemoryConfig
from memtune.models.mixers.mixer import MixerConfig
from memtune.models.mixers.mixer_registry import MixerChoice, describe_mixer

NORM_EPSILON = 1e-5
Norm = Literal["rms", "layer", "none"]
Gate = Literal["none", "sigmoid", "silu"]


class MixerBlocksConfig(NeuralLanguageModelConfig):
    """Residual blocks of mixers; the defaults are Gated DeltaNet."""

    family: Literal["mixer_blocks"] = "mixer_blocks"
    width: int = Field(128, ge=1, description="D: width of embeddings and blocks")
    layers: int = Field(2, ge=1, description="Blocks")
    mixer: MixerChoice = Field(
        MatrixMemoryConfig(),
        description='The mixer "m" of the pattern: a table with its `kind`, or a name, also with fields',
    )
    alternate: MixerChoice = Field(AttentionConfig(), description='The mixer "a" of the pattern')
    pattern: str = Field(
        "m", description='Mixers of the blocks in order, repeated: "mmma" has the alternate in every fourth'
    )
    norm: Norm = Field("rms", description="Norm before each mixer and channel mix, and after the last block")
    convolution: int = Field(
        4,
        ge=0,
        le=64,
        description="Words that the short convolution reads, the current one included; 0 for none",
    )
    head_norm: bool = Field(True, description="RMSNorm of each head of the mixer's output")
    output_gate: Gate = Field("silu", description="Activation of the gate of the mixer's output")
    channel_ratio: float = Field(
        2.0, ge=0, le=16, description="Width within the channel mix by the width; 0 for no channel mix"
    )
    dropout: Dropout = 0.0
    tie_output: TieOutput = False
    initial_range: float = Field(
        0.035,
        ge=0,
        le=100,
        description="Matrices start in U(-range, range); 0.035 has the deviation of 0.02 of GPT-2",
    )

    @field_validator("pattern")
    @classmethod
    def _check_pattern(cls, pattern: str) -> str:
        if not pattern or set(pattern) - {"m", "a"}:
            raise ValueError(
                f'pattern has the letters m, for mixer, and a, for alternate, got "{pattern}"; such as "mmma"'
            )
        return pattern

    @property
    def mixers(self) -> list[MixerConfig]:
        """The mixer of each block."""
        letters = (self.pattern * self.layers)[: self.layers]
        return [self.mixer if letter == "m" else self.alternate for letter in letters]

    @property
    def channel_width(self) -> int:
        """Width within the channel mix."""
        return max(1, round(self.channel_ratio * self.width)) if self.channel_ratio else 0

    @property
    @override
    def is_loaded(self) -> bool:
        return super().is_loaded and self.mixer.is_loaded and self.alternate.is_loaded

    @property
    @override
    def state_grows(self) -> bool:
        return any(mixer.state_grows for mixer in self.mixers)

    @override
    def build(self, vocabulary_size: int) -> "MixerBlocksLanguageModel":
        return MixerBlocksLanguageModel(self, vocabulary_size)

    @override
    def parameter_count(self, vocabulary_size: int) -> int:
        width = self.width
        norm = {"rms": width, "layer": 2 * width, "none": 0}[self.norm]
        total = vocabulary_size * width + norm
        for mixer in self.mixers:
            heads, values = mixer.output_shape(width)
            total += norm + self.convolution * width + mixer.parameter_count(width)
            total += heads * values * (width + self.head_norm + width * (self.output_gate != "none"))
            total += 3 * width * self.channel_width + (norm if self.channel_width else 0)
        return total + self.output.parameter_count(width, vocabulary_size, self.tie_output)

    @override
    def multiply_adds(self, vocabulary_size: int) -> int:
        width, total = self.width, 0
        for mixer in self.mixers:
            heads, values = mixer.output_shape(width)
            total += self.convolution * width + mixer.multiply_adds(width)
            total += heads * values * width * (1 + (self.output_gate != "none"))
            total += 3 * width * self.channel_width
        return total + self.output.multiply_adds(width, vocabulary_size)

    @override
    def state_size(self) -> int:
        """The states of the mixers, and the last inputs of the convolutions."""
        carried = max(0, self.convolution - 1) * self.width
        return sum(carried + mixer.state_size(self.width) for mixer in self.mixers)

    @override
    def count_extra_activations(self, length: int) -> int:
        return sum(mixer.count_extra_activations(self.width, length) for mixer in self.mixers)

    @property
    @override
    def idle_fields(self) -> tuple[str, ...]:
        letters = self.pattern[: self.layers]
        return tuple(name for letter, name in (("m", "mixer"), ("a", "alternate")) if letter not in letters)

    @override
    def describe(self) -> dict[str, str | int | float]:
        used = [name for name in ("mixer", "alternate") if name not in self.idle_fields]
        mixers = {name: describe_mixer(getattr(self, name)) for name in used}
        fields = self.select_fields(
            "width", "layers", "pattern", *used, "convolution", "output_gate", "channel_ratio", "dropout"
        )
        return fields | mixers


def _build_norm(kind: Norm, width: int) -> nn.Module:
    if kind == "none":
        return nn.Identity()
    return nn.RMSNorm(width, NORM_EPSILON) if kind == "rms" else nn.LayerNorm(width, NORM_EPSILON)


class MixerBlocksLanguageModel(EmbeddingLanguageModel):
    """Carried state: that of each block, under names such as "0.memory"."""

    config: MixerBlocksConfig

    def __init__(self, config: MixerBlocksConfig, vocabulary_size: int) -> None:
        super().__init__(config, vocabulary_size, config.width)
        self.blocks = nn.ModuleList(
            MixerBlock(config, mixer, index / config.layers) for index, mixer in enumerate(config.mixers)
        )
        self.norm = _build_norm(config.norm, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.output = self.build_output(config.width)
        initialise_uniform(self, config.initial_range)
        for module in self.modules():
            if isinstance(module, nn.RMSNorm | nn.LayerNorm):
                module.reset_parameters()
            if isinstance(module, MixerBlock):
                module.set_constants((2 * config.layers) ** -0.5)

    @override
    def initial_state(self, batch_size: int) -> RecurrentState:
        state: RecurrentState = {}
        for index, block in enumerate(self.blocks):
            assert isinstance(block, MixerBlock)
            own = block.initial_state(batch_size)
            state |= {f"{index}.{name}": value for name, value in own.items()}
        return state

    @override
    def encode(self, tokens_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        values_BTD = self.dropout(self.embedding(tokens_BT))
        after: RecurrentState = {}
        for index, block in enumerate(self.blocks):
            own = {
                name.removeprefix(f"{index}."): state[name] for name in state if name.startswith(f"{index}.")
            }
            values_BTD, own = block(values_BTD, own)
            after |= {f"{index}.{name}": value for name, value in own.items()}
        return self.norm(values_BTD), after


class MixerBlock(nn.Module):
    """One block; state: that of the mixer, and the last inputs of the convolution, (B, C - 1, D)."""

    def __init__(self, config: MixerBlocksConfig, mixer: MixerConfig, depth: float) -> None:
        super().__init__()
        width, inner = config.width, config.channel_width
        self.gate_kind = config.output_gate
        self.norm = _build_norm(config.norm, width)
        self.convolution_CD = (
            nn.Parameter(torch.empty(config.convolution, width)) if config.convolution else None
        )
        self.mixer = mixer.build(width, depth)
        outputs = self.mixer.heads * self.mixer.head_width
        self.head_weight_X = nn.Parameter(torch.empty(outputs)) if config.head_norm else None
        self.gate = nn.Linear(width, outputs, bias=False) if config.output_gate != "none" else None
        self.project = nn.Linear(outputs, width, bias=False)
        self.channel_norm = _build_norm(config.norm if inner else "none", width)
        self.channel_in = nn.Linear(width, 2 * inner, bias=False) if inner else None
        self.channel_out = nn.Linear(inner, width, bias=False) if inner else None
        self.dropout = nn.Dropout(config.dropout)

    @torch.no_grad()
    def set_constants(self, residual_scale: float) -> None:
        """Set the constants of the mixer and the norms, and scale what adds to the residual stream."""
        self.mixer.set_constants()
        self.project.weight.mul_(residual_scale)
        if self.head_weight_X is not None:
            self.head_weight_X.fill_(1.0)
        if self.channel_out is not None:
            self.channel_out.weight.mul_(residual_scale)

    def initial_state(self, batch_size: int) -> RecurrentState:
        """The state before the first word."""
        state = self.mixer.initial_state(batch_size)
        if self.convolution_CD is not None and len(self.convolution_CD) > 1:
            kept, width = len(self.convolution_CD) - 1, self.convolution_CD.shape[1]
            state["convolution"] = self.convolution_CD.new_zeros(batch_size, kept, width)
        return state

    @override
    def forward(self, values_BTD: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        inputs_BTD, convolved = self._convolve(self.norm(values_BTD), state)
        mixed_BTHV, after = self.mixer(inputs_BTD, state)
        if self.head_weight_X is not None:
            mixed_BTHV = functional.rms_norm(mixed_BTHV, mixed_BTHV.shape[3:], eps=NORM_EPSILON)
        mixed_BTX = mixed_BTHV.flatten(2)
        if self.head_weight_X is not None:
            mixed_BTX = mixed_BTX * self.head_weight_X
        if self.gate is not None:
            activation = torch.sigmoid if self.gate_kind == "sigmoid" else functional.silu
            mixed_BTX = mixed_BTX * activation(self.gate(inputs_BTD))
        values_BTD = values_BTD + self.dropout(self.project(mixed_BTX))
        if self.channel_in is not None and self.channel_out is not None:
            gate_BTX, value_BTX = self.channel_in(self.channel_norm(values_BTD)).chunk(2, dim=2)
            values_BTD = values_BTD + self.dropout(self.channel_out(functional.silu(gate_BTX) * value_BTX))
        return values_BTD, after | convolved

    def _convolve(self, inputs_BTD: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """The inputs with what the convolution adds, and its state."""
        if self.convolution_CD is None:
            return inputs_BTD, {}
        last = {}
        read_BSD = inputs_BTD
        if "convolution" in state:
            read_BSD = torch.cat([state["convolution"], inputs_BTD], dim=1)
            last["convolution"] = read_BSD[:, inputs_BTD.shape[1] :]
        words = inputs_BTD.shape[1]
        for at, weight_D in enumerate(self.convolution_CD):
            inputs_BTD = torch.addcmul(inputs_BTD, weight_D, read_BSD[:, at : at + words])
        return inputs_BTD, last
