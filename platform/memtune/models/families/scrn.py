"""The structurally constrained recurrent network: a hidden layer, and context units that change slowly.

Mikolov, Joulin, Chopra, Mathieu and Ranzato (2015), "Learning Longer Memory in Recurrent Neural Networks",
sections 3.1 (equations 2 to 4) and 3.3:

    s_t = (1 - alpha) B x_t + alpha s_{t-1}
    h_t = sigmoid(P s_t + A x_t + R h_{t-1})
    y_t = softmax(U h_t + V s_t)

The context s is a linear filter of the words, so all its time steps are one product with a Toeplitz matrix of
the powers of alpha; only h is computed step by step.

Shapes: B batch, T time, H hidden width, C context width, L steps of a block and
P = L + 1 with the state before it, V vocabulary.
"""

import math
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from typing_extensions import override

from memtune.models.architecture import NeuralLanguageModel, NeuralLanguageModelConfig, RecurrentState
from memtune.models.layers.initializers import initialise_uniform

STEPS_PER_BLOCK = 64
"""Longest piece of a text that one Toeplitz matrix filters: its cost grows with the square."""


class SCRNConfig(NeuralLanguageModelConfig):
    """A structurally constrained network; the defaults are the largest on Penn Treebank (table 2)."""

    family: Literal["scrn"] = "scrn"
    width: int = Field(100, ge=1, description="Hidden units h (equation 3)")
    context_width: int = Field(40, ge=1, description="Context units s (equation 2)")
    alpha: float = Field(0.95, gt=0, lt=1, description="Share a context unit keeps at each word (equation 2)")
    learn_alpha: bool = Field(
        False, description="An alpha for each context unit, trained from `alpha` on (Q of section 3.3)"
    )
    hidden_reads: Literal["current", "previous"] = Field(
        "current", description='h_t reads s_t as in equation 3 ("current"), or s_{t-1} (released code)'
    )
    initial_range: float = Field(
        0.05, ge=0, le=100, description="Every parameter but alpha starts in U(-range, range)"
    )

    @override
    def build(self, vocabulary_size: int) -> "SCRNLanguageModel":
        return SCRNLanguageModel(self, vocabulary_size)

    @override
    def parameter_count(self, vocabulary_size: int) -> int:
        tables = (self.width + self.context_width) * vocabulary_size
        learned = self.context_width if self.learn_alpha else 0
        output = self.output.parameter_count(self.width + self.context_width, vocabulary_size, bias=False)
        return tables + self._matrix_entries + learned + output

    @override
    def multiply_adds(self, vocabulary_size: int) -> int:
        return self._matrix_entries + self.output.multiply_adds(
            self.width + self.context_width, vocabulary_size
        )

    @override
    def state_size(self) -> int:
        """The hidden state and the context."""
        return self.width + self.context_width

    @override
    def describe(self) -> dict[str, str | int | float]:
        fields = self.select_fields("width", "context_width", "alpha", "hidden_reads")
        return fields | ({"alpha": "learned"} if self.learn_alpha else {})

    @property
    def _matrix_entries(self) -> int:
        """Entries of P and R."""
        return self.width * (self.width + self.context_width)


class SCRNLanguageModel(NeuralLanguageModel):
    """Carried state: hidden (B, H) and context (B, C), both initially zero.

    A and B are embedding tables; the weight of the output layer is U and V concatenated.
    """

    config: SCRNConfig

    def __init__(self, config: SCRNConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.vocabulary_size = vocabulary_size
        self.hidden_embedding = nn.Embedding(vocabulary_size, config.width)
        self.context_embedding = nn.Embedding(vocabulary_size, config.context_width)
        self.context_to_hidden = nn.Linear(config.context_width, config.width, bias=False)
        self.recurrent_HH = nn.Parameter(torch.empty(config.width, config.width))
        # Equation 4 is softmax(U h + V s): neither it nor the released code has a bias.
        self.output = config.output.build(config.width + config.context_width, vocabulary_size, bias=False)
        initialise_uniform(self, config.initial_range)
        self.filter = _ExponentialFilter(config)

    @override
    def initial_state(self, batch_size: int) -> RecurrentState:
        zeros = self.recurrent_HH.new_zeros
        return {
            "hidden": zeros(batch_size, self.config.width),
            "context": zeros(batch_size, self.config.context_width),
        }

    @override
    def encode(self, tokens_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        tokens_TB = tokens_BT.t()
        context_TBC = self.filter(self.context_embedding(tokens_TB), state["context"])
        read_TBC = context_TBC
        if self.config.hidden_reads == "previous":
            read_TBC = torch.cat([state["context"].unsqueeze(0), context_TBC[:-1]])
        inputs_TBH = self.context_to_hidden(read_TBC) + self.hidden_embedding(tokens_TB)
        hidden_TBH = _SigmoidRecurrence.apply(inputs_TBH, state["hidden"], self.recurrent_HH)  # type: ignore[no-untyped-call]
        both_BTF = torch.cat([hidden_TBH, context_TBC], dim=2).transpose(0, 1)
        return both_BTF, {"hidden": hidden_TBH[-1], "context": context_TBC[-1]}


class _ExponentialFilter(nn.Module):
    """s_t = (1 - alpha) x_t + alpha s_{t-1} for all t; a learned alpha is the sigmoid of `logit_C`."""

    def __init__(self, config: SCRNConfig) -> None:
        super().__init__()
        self.alpha = config.alpha
        start = math.log(config.alpha / (1 - config.alpha))
        self.logit_C = (
            nn.Parameter(torch.full((config.context_width,), start)) if config.learn_alpha else None
        )

    @override
    def forward(self, inputs_TBC: Tensor, state_BC: Tensor) -> Tensor:
        """The filtered inputs, (T, B, C), starting from `state`."""
        share: float | Tensor = 1 - self.alpha
        log_alpha: float | Tensor = math.log(self.alpha)
        if self.logit_C is not None:
            share = (-self.logit_C).sigmoid()
            log_alpha = functional.logsigmoid(self.logit_C).view(-1, 1, 1)
        blocks = []
        for block_LBC in torch.split(share * inputs_TBC, STEPS_PER_BLOCK):
            blocks.append(_filter_block(block_LBC, state_BC, log_alpha))
            state_BC = blocks[-1][-1]
        return torch.cat(blocks)


def _filter_block(inputs_LBC: Tensor, state_BC: Tensor, log_alpha: float | Tensor) -> Tensor:
    """The filtered inputs of a block; the state precedes them as one more input, which alpha multiplies.

    `log_alpha` is one number for all context units, or (C, 1, 1).
    """
    length, rows, width = inputs_LBC.shape
    series_PBC = torch.cat([state_BC.unsqueeze(0), inputs_LBC])
    step_P = torch.arange(length + 1, dtype=inputs_LBC.dtype, device=inputs_LBC.device)
    lag_LP = (step_P[1:].unsqueeze(1) - step_P).clamp(min=0)
    powers = (lag_LP * log_alpha).exp().tril(1)
    if isinstance(log_alpha, float):
        return (powers @ series_PBC.flatten(1)).view(length, rows, width)
    return torch.bmm(powers, series_PBC.permute(2, 0, 1).contiguous()).permute(1, 2, 0)


class _SigmoidRecurrence(torch.autograd.Function):
    """h_t = sigmoid(inputs_t + R h_{t-1}) for all t, (T, B, H), starting from `hidden`.

    Steps write into one buffer; the gradient of R is one product after the loop, not one per step."""

    @staticmethod
    def forward(ctx: Any, inputs_TBH: Tensor, hidden_BH: Tensor, recurrent_HH: Tensor) -> Tensor:
        outputs_TBH = inputs_TBH.clone(memory_format=torch.contiguous_format)
        before_BH, transposed_HH = hidden_BH, recurrent_HH.t().contiguous()
        for output_BH in outputs_TBH.unbind():
            before_BH = output_BH.addmm_(before_BH, transposed_HH).sigmoid_()
        ctx.save_for_backward(outputs_TBH, hidden_BH, recurrent_HH)
        return outputs_TBH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_TBH: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        outputs_TBH, hidden_BH, recurrent_HH = ctx.saved_tensors
        errors_TBH = outputs_TBH * (1 - outputs_TBH)
        after_BH = torch.zeros_like(hidden_BH)
        gradients = gradient_TBH.clone(memory_format=torch.contiguous_format).unbind()
        for error_BH, gradient_BH in zip(reversed(errors_TBH.unbind()), reversed(gradients), strict=True):
            after_BH = error_BH.mul_(gradient_BH.addmm_(after_BH, recurrent_HH))
        before_TBH = torch.cat([hidden_BH.unsqueeze(0), outputs_TBH[:-1]])
        recurrent_gradient_HH = errors_TBH.flatten(0, 1).t() @ before_TBH.flatten(0, 1)
        return errors_TBH, errors_TBH[0] @ recurrent_HH, recurrent_gradient_HH
