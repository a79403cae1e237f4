"""The interface of every output layer, and the full softmax with its exact loss in chunks of rows.

The softmax over V words takes most of the time of a language model's step. The loss therefore never holds the
logits of all N rows. It iterates over chunks of rows, computes loss and gradients of a chunk together while
its logits are in the cache, and reuses one buffer of C x V. The result is exact.

Shapes: N rows (batch x time), C rows of a chunk, H hidden width, V vocabulary; S and O as in
`outputs.hashed_ngrams`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from typing_extensions import override

from memtune.errors import ConfigurationError
from memtune.models.outputs.hashed_ngrams import Slices, add_slices, add_to_slices

# The logits of a chunk should fit into the cache, but a matrix product of fewer than 64 rows loses more time
# than the cache saves.
MAX_CHUNK_LOGITS = {"cpu": 7_000_000, "cuda": 100_000_000}
MAX_CHUNK_ROWS = {"cpu": 256, "cuda": 4096}
MIN_CHUNK_ROWS = 64


class OutputLayer(nn.Module, ABC):
    """A map from hidden vectors to distributions over the vocabulary."""

    @abstractmethod
    def forward(self, hidden_H: Tensor) -> Tensor:
        """Logits over the vocabulary for hidden vectors of any leading shape, defined up to a constant."""

    @abstractmethod
    def negative_log_likelihood_by_row(
        self, hidden_NH: Tensor, targets_N: Tensor, weights_N: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The result of `negative_log_likelihood`, and nats_N of each row, unweighted and detached."""

    def negative_log_likelihood(
        self, hidden_NH: Tensor, targets_N: Tensor, weights_N: Tensor | None = None, **contexts: Tensor
    ) -> Tensor:
        """Nats of the targets summed over the rows, each times its weight.

        A boolean mask is a valid weight; None stands for 1 everywhere.
        """
        return self.negative_log_likelihood_by_row(hidden_NH, targets_N, weights_N, **contexts)[0]

    def set_word_counts(self, counts: Sequence[int]) -> None:
        """Use the counts of the words in the training text; call before training. Most layers ignore them."""


class NoOutput(OutputLayer):
    """The output layer of a body below a classifier head; predicting words raises ConfigurationError."""

    @override
    def forward(self, hidden_H: Tensor) -> NoReturn:
        raise ConfigurationError(
            'output.kind = "none" predicts no words; leave output out for language modelling'
        )

    @override
    def negative_log_likelihood_by_row(
        self, hidden_NH: Tensor, targets_N: Tensor, weights_N: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        self.forward(hidden_NH)


class SoftmaxOutput(OutputLayer):
    """A linear map to the vocabulary, under a full softmax."""

    weight: Tensor
    bias: Tensor

    def __init__(
        self, width: int, vocabulary_size: int, tied_to: nn.Embedding | None = None, bias: bool = True
    ) -> None:
        """With `tied_to`, the weight is the embedding table: one parameter with the gradients of both uses.

        Without `bias`, the bias is a constant zero and no parameter.
        """
        super().__init__()
        own = nn.Parameter(torch.empty(vocabulary_size, width))
        self.weight = own if tied_to is None else tied_to.weight
        if bias:
            self.bias = nn.Parameter(torch.empty(vocabulary_size))
        else:
            self.register_buffer("bias", torch.zeros(vocabulary_size), persistent=False)

    @override
    def forward(self, hidden_H: Tensor, direct: Slices | None = None) -> Tensor:
        logits_V = functional.linear(hidden_H, self.weight, self.bias)
        if direct is None:
            return logits_V
        words_V = torch.arange(len(self.bias), device=hidden_H.device)
        starts_O = direct.find_starts(0, len(self.bias))
        return logits_V + sum(direct.table_S[start.unsqueeze(-1) + words_V] for start in starts_O.unbind(-1))

    @override
    def negative_log_likelihood_by_row(
        self,
        hidden_NH: Tensor,
        targets_N: Tensor,
        weights_N: Tensor | None = None,
        direct: Slices | None = None,
    ) -> tuple[Tensor, Tensor]:
        return compute_chunked_loss(hidden_NH, self.weight, self.bias, targets_N, weights_N, direct=direct)


def compute_chunked_loss(
    hidden_NH: Tensor,
    weight_VH: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    weights_N: Tensor | None = None,
    rows: int | None = None,
    direct: Slices | None = None,
) -> tuple[Tensor, Tensor]:
    """Weighted sum of -log softmax(hidden weight^T + bias)[target] in nats, and these costs by row.

    Forward computes required gradients together with the loss, `rows` rows at a time, so backward can run
    only once per forward. Under autocast the matrix products run in its dtype, the softmax and the sums in
    float32.
    """
    if rows is None:
        # All chunks are about equal: a short last one costs as much as a full one.
        chunks = math.ceil(len(hidden_NH) / find_chunk_rows(hidden_NH.device.type, len(bias_V)))
        rows = max(1, math.ceil(len(hidden_NH) / max(1, chunks)))
    if weights_N is None:
        weights_N = torch.ones_like(targets_N)
    leaves = select_leaves(hidden_NH, weight_VH, bias_V, direct)
    starts_NO = None if direct is None else direct.find_starts(0, len(bias_V))
    nats: tuple[Tensor, Tensor] = _ChunkedLoss.apply(*leaves, targets_N, weights_N, rows, starts_NO)  # type: ignore[no-untyped-call]
    return nats


def select_leaves(
    hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor, direct: Slices | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The tensors whose gradients a loss may compute, and the table of `direct`.

    They are detached where gradients are disabled, which `needs_input_grad` of an autograd function ignores.
    """
    table_S = None if direct is None else direct.table_S
    if not torch.is_grad_enabled():
        hidden_NH, weight_VH, bias_V = hidden_NH.detach(), weight_VH.detach(), bias_V.detach()
        table_S = None if table_S is None else table_S.detach()
    return hidden_NH, weight_VH, bias_V, table_S


def find_product_type(values: Tensor) -> torch.dtype:
    """The dtype of matrix products of these values: that of autocast where it is enabled."""
    device = values.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else values.dtype


def find_chunk_rows(device: str, vocabulary_size: int) -> int:
    """The maximum number of rows of a chunk, on a device of a type such as "cpu"."""
    kind = device if device in MAX_CHUNK_LOGITS else "cpu"
    return max(MIN_CHUNK_ROWS, min(MAX_CHUNK_ROWS[kind], MAX_CHUNK_LOGITS[kind] // vocabulary_size))


class _ChunkedLoss(torch.autograd.Function):
    """Forward computes the loss and all gradients; backward only scales the gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor,
        table_S: Tensor | None,
        targets_N: Tensor,
        weights_N: Tensor,
        rows: int,
        starts_NO: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        product_type = find_product_type(hidden_NH)
        with torch.autocast(hidden_NH.device.type, enabled=False):
            leaves = hidden_NH, weight_VH, bias_V, table_S
            loss = _LossAccumulator(leaves, product_type, rows, ctx.needs_input_grad, starts_NO)
            for first in range(0, len(hidden_NH), rows):
                chunk = slice(first, first + rows)
                loss.add_chunk(chunk, targets_N[chunk], weights_N[chunk])
        ctx.gradients = loss.gradients()
        ctx.mark_non_differentiable(loss.nats_N)
        return loss.nats, loss.nats_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        assert ctx.gradients is not None, "the chunked loss gives its gradients once per forward"
        gradients, ctx.gradients = ctx.gradients, None
        scaled = (None if gradient is None else gradient.mul_(scale) for gradient in gradients)
        return (*scaled, None, None, None, None)


class _LossAccumulator:
    """Sums of loss and gradients over the chunks so far, and the buffer for the logits of each chunk."""

    def __init__(
        self,
        leaves: tuple[Tensor, Tensor, Tensor, Tensor | None],
        product_type: torch.dtype,
        rows: int,
        wanted: tuple[bool, ...],
        starts_NO: Tensor | None,
    ) -> None:
        """`leaves` are those of `select_leaves`; `starts` the slices of their table that rows add."""
        hidden_NH, weight_VH, bias_V, self.table_S = leaves
        self.starts_NO = starts_NO
        sum_type = torch.promote_types(product_type, torch.float32)
        self.hidden_NH = hidden_NH.to(product_type)
        self.weight_VH = weight_VH.to(product_type)
        self.bias_V = bias_V.to(product_type)
        self.buffer_CV = hidden_NH.new_empty(min(rows, len(hidden_NH)), len(weight_VH), dtype=sum_type)
        self.nats = hidden_NH.new_zeros((), dtype=sum_type)
        self.nats_N = hidden_NH.new_empty(len(hidden_NH), dtype=sum_type)
        self.hidden_gradient_NH = torch.empty_like(hidden_NH) if wanted[0] else None
        self.weight_gradient_VH = torch.zeros_like(weight_VH) if wanted[1] else None
        self.bias_gradient_V = torch.zeros_like(bias_V) if wanted[2] else None
        self.table_gradient_S: Tensor | None = None
        if self.table_S is not None and wanted[3]:
            self.table_gradient_S = torch.zeros_like(self.table_S)

    def gradients(self) -> tuple[Tensor | None, ...]:
        """The gradients of hidden, weight, bias and table; None for one that is not required."""
        return self.hidden_gradient_NH, self.weight_gradient_VH, self.bias_gradient_V, self.table_gradient_S

    def add_chunk(self, chunk: slice, targets_C: Tensor, weights_C: Tensor) -> None:
        """Add the loss and the gradients of one chunk.

        The exponentials overwrite the logits. The softmax is never divided out over C x V: each matrix
        product applies the division and the weights to its narrow factor, of C x H.
        """
        hidden_CH, targets_C1 = self.hidden_NH[chunk], targets_C.unsqueeze(1)
        weights_C1 = weights_C.unsqueeze(1).to(self.nats.dtype)
        logits_CV = self.buffer_CV[: len(hidden_CH)]
        if logits_CV.dtype == hidden_CH.dtype:
            torch.addmm(self.bias_V, hidden_CH, self.weight_VH.t(), out=logits_CV)
        else:
            logits_CV.copy_(torch.addmm(self.bias_V, hidden_CH, self.weight_VH.t()))
        if self.table_S is not None and self.starts_NO is not None:
            add_slices(logits_CV, self.table_S, self.starts_NO[chunk])
        target_C1 = logits_CV.gather(1, targets_C1)
        top_C1 = logits_CV.amax(1, keepdim=True)
        exponentials_CV = logits_CV.sub_(top_C1).exp_()
        total_C1 = exponentials_CV.sum(1, keepdim=True)
        nats_C1 = top_C1 + total_C1.log() - target_C1
        self.nats_N[chunk] = nats_C1.squeeze(1)
        self.nats += (nats_C1 * weights_C1).sum()
        errors_CV = exponentials_CV.scatter_add_(1, targets_C1, -total_C1)
        self._add_gradients(chunk, hidden_CH, errors_CV, weights_C1 / total_C1)

    def _add_gradients(self, chunk: slice, hidden_CH: Tensor, errors_CV: Tensor, scale_C1: Tensor) -> None:
        """Gradients of the chunk, where d loss / d logits = scale * errors."""
        # Divide before the conversion: the sum of exponentials can exceed the range of a 16-bit dtype.
        if errors_CV.dtype != hidden_CH.dtype:
            errors_CV, scale_C1 = (errors_CV * scale_C1).to(hidden_CH.dtype), torch.ones_like(scale_C1)
        scale_C1 = scale_C1.to(hidden_CH.dtype)
        if self.hidden_gradient_NH is not None:
            self.hidden_gradient_NH[chunk] = (errors_CV @ self.weight_VH).mul_(scale_C1)
        if self.weight_gradient_VH is not None:
            factors = errors_CV.t(), hidden_CH * scale_C1
            if self.weight_gradient_VH.dtype == errors_CV.dtype:
                self.weight_gradient_VH.addmm_(*factors)
            else:
                self.weight_gradient_VH += torch.mm(*factors)
        if self.bias_gradient_V is not None:
            self.bias_gradient_V += errors_CV.t() @ scale_C1.squeeze(1)
        if self.table_gradient_S is not None and self.starts_NO is not None:
            add_to_slices(self.table_gradient_S, self.starts_NO[chunk], errors_CV * scale_C1)
