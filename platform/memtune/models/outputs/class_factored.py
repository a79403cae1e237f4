"""The softmax in two steps: the class of a word, then the word within its class.

Goodman (2001), "Classes for Fast Maximum Entropy Training"; in recurrent networks Mikolov et al. (2011),
"Extensions of Recurrent Neural Network Language Model":

    p(word | h) = p(class of word | h) p(word | class of word, h)

A training step computes for each row only the logits of the classes and of the words in its target's class.
Rows are sorted by class, so each class in the batch costs one matrix product forward and two backward. One
vector holds the logits of all rows, which differ in length, one after the other.

Shapes: N rows, H hidden width, V vocabulary, K classes, E logits of all rows (each over its target's class),
for one class R rows and W words; S and O as in `outputs.hashed_ngrams`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from typing_extensions import override

from memtune.models.outputs.hashed_ngrams import Slices, locate_slice_entries
from memtune.models.outputs.output_layer import OutputLayer, SoftmaxOutput, find_product_type, select_leaves
from memtune.models.outputs.word_classes import ClassMass, compute_class_borders, compute_zipf_counts


class ClassFactoredOutput(OutputLayer):
    """A softmax over classes of words, and one over the words of each class."""

    borders: Tensor
    """The first word of each class, and the size of the vocabulary: (K + 1,)."""

    def __init__(
        self,
        width: int,
        vocabulary_size: int,
        classes: int,
        mass: ClassMass,
        tied_to: nn.Embedding | None = None,
        bias: bool = True,
    ) -> None:
        """With `tied_to`, the weight of the words is the embedding table.

        Until `set_word_counts` is called, the classes assume counts under Zipf's law.
        """
        super().__init__()
        self.mass = mass
        self.classes = SoftmaxOutput(width, classes, bias=bias)
        self.words = SoftmaxOutput(width, vocabulary_size, tied_to, bias)
        self.register_buffer("borders", torch.empty(classes + 1, dtype=torch.int64))
        self.set_word_counts(compute_zipf_counts(vocabulary_size))

    @override
    def set_word_counts(self, counts: Sequence[float]) -> None:
        classes = len(self.borders) - 1
        self.borders.copy_(torch.tensor(compute_class_borders(counts, classes, self.mass)))

    @override
    def forward(self, hidden_H: Tensor, direct: Slices | None = None) -> Tensor:
        """Log-probabilities of all words."""
        sizes = self.borders.diff()
        log_p_K: Tensor = self.classes(hidden_H, direct).log_softmax(-1)
        logits_V = self.words(hidden_H)
        if direct is not None:
            logits_V = logits_V + sum(direct.table_S[entries_V] for entries_V in self._locate_entries(direct))
        logits = torch.split(logits_V, sizes.tolist(), -1)
        within_V = torch.cat([logits_W.log_softmax(-1) for logits_W in logits], -1)
        return log_p_K.repeat_interleave(sizes, -1) + within_V

    def _locate_entries(self, direct: Slices) -> Iterator[Tensor]:
        """The index in the table of every word's weight, for each length of context."""
        sizes = self.borders.diff()
        every_context = direct._replace(contexts_RO=direct.contexts_RO.unsqueeze(-2))
        groups_K1 = torch.arange(1, len(self.borders), device=sizes.device).unsqueeze(1)
        offsets_V = torch.arange(int(self.borders[-1]), device=sizes.device)
        offsets_V -= self.borders[:-1].repeat_interleave(sizes)
        for starts_K in every_context.find_starts(groups_K1, sizes.unsqueeze(1)).unbind(-1):
            yield starts_K.repeat_interleave(sizes, -1) + offsets_V

    @override
    def negative_log_likelihood_by_row(
        self,
        hidden_NH: Tensor,
        targets_N: Tensor,
        weights_N: Tensor | None = None,
        direct: Slices | None = None,
    ) -> tuple[Tensor, Tensor]:
        class_N = torch.bucketize(targets_N.contiguous(), self.borders[1:], right=True)
        nats, nats_N = self.classes.negative_log_likelihood_by_row(hidden_NH, class_N, weights_N, direct)
        if len(targets_N) == 0:
            return nats, nats_N
        if weights_N is None:
            weights_N = torch.ones_like(targets_N)
        rows = _RowsByClass(class_N, self.borders)
        leaves = select_leaves(hidden_NH, self.words.weight, self.words.bias, direct)
        entries_OE = None if direct is None else rows.locate_entries(direct)
        within, within_N = _LossWithinClasses.apply(*leaves, targets_N, weights_N, rows, entries_OE)  # type: ignore[no-untyped-call]
        return nats + within, nats_N + within_N


class _RowsByClass:
    """The rows of a batch sorted by the class of their targets, and the classes that have rows."""

    def __init__(self, class_N: Tensor, borders: Tensor) -> None:
        self.order_N = class_N.argsort(stable=True)
        self.class_N = class_N[self.order_N]
        self.first_N, self.sizes_N = borders[self.class_N], borders.diff()[self.class_N]
        counts = class_N.bincount(minlength=len(borders) - 1).tolist()
        self.sizes: list[int] = borders.diff().tolist()
        self.present_classes = [k for k, rows in enumerate(counts) if rows]
        self.row_counts = [counts[k] for k in self.present_classes]

    def split_present_words(self, values_VX: Tensor) -> list[Tensor]:
        """The rows of `values`, one per word, split into those of each class that has rows."""
        parts = torch.split(values_VX, self.sizes)
        return [parts[k] for k in self.present_classes]

    def split_absent_words(self, values_VX: Tensor) -> list[Tensor]:
        """The rows of `values`, one per word, split into those of each class that has no rows."""
        present = set(self.present_classes)
        return [part for k, part in enumerate(torch.split(values_VX, self.sizes)) if k not in present]

    def locate_entries(self, direct: Slices) -> Tensor:
        """entries_OE: the indices in the table of the weights of each row's class."""
        sorted_rows = direct._replace(contexts_RO=direct.contexts_RO[self.order_N])
        starts_NO = sorted_rows.find_starts(self.class_N.unsqueeze(1) + 1, self.sizes_N.unsqueeze(1))
        return locate_slice_entries(starts_NO, self.sizes_N)

    def split_logits(self, logits_E: Tensor) -> list[Tensor]:
        """logits_RW of each class that has rows."""
        shapes = [
            (rows, self.sizes[k]) for rows, k in zip(self.row_counts, self.present_classes, strict=True)
        ]
        parts = torch.split(logits_E, [rows * words for rows, words in shapes])
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


class _LossWithinClasses(torch.autograd.Function):
    """Weighted sum of -log p(word | class of word), and nats_N of each row, unweighted and detached.

    Forward saves the gradients of the logits of each row, only over the words of its class.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor,
        table_S: Tensor | None,
        targets_N: Tensor,
        weights_N: Tensor,
        rows: _RowsByClass,
        entries_OE: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        product_type = find_product_type(hidden_NH)
        with torch.autocast(hidden_NH.device.type, enabled=False):
            hidden_NH = hidden_NH[rows.order_N].to(product_type)
            logits_E = _compute_logits(hidden_NH, weight_VH, bias_V, rows)
        if table_S is not None and entries_OE is not None:
            for entries_E in entries_OE:
                logits_E += table_S[entries_E]
        log_p_E = torch.empty_like(logits_E)
        for logits_RW, log_p_RW in zip(rows.split_logits(logits_E), rows.split_logits(log_p_E), strict=True):
            torch.log_softmax(logits_RW, 1, out=log_p_RW)
        target_N = rows.sizes_N.cumsum(0) - rows.sizes_N + targets_N[rows.order_N] - rows.first_N
        nats_N = -log_p_E[target_N]
        weights_N = weights_N[rows.order_N].to(nats_N.dtype)
        if any(ctx.needs_input_grad):
            errors_E = log_p_E.exp_()
            errors_E[target_N] -= 1
            ctx.rows, ctx.entries_OE = rows, entries_OE
            ctx.table_size = 0 if table_S is None else len(table_S)
            ctx.save_for_backward(hidden_NH, weight_VH, bias_V, errors_E, weights_N)
        by_row_N = torch.empty_like(nats_N).index_copy_(0, rows.order_N, nats_N)
        ctx.mark_non_differentiable(by_row_N)
        return (nats_N * weights_N).sum(), by_row_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        hidden_NH, weight_VH, bias_V, errors_E, weights_N = ctx.saved_tensors
        rows, scale_N = ctx.rows, weights_N * scale
        hidden_gradient_NH = weight_gradient_VH = bias_gradient_V = table_gradient_S = None
        errors = [block_RW.to(hidden_NH.dtype) for block_RW in rows.split_logits(errors_E)]
        if ctx.needs_input_grad[0]:
            hidden_gradient_NH = _compute_hidden_gradient(errors, weight_VH, scale_N, rows)
        if ctx.needs_input_grad[1]:
            scaled_NH = hidden_NH * scale_N.unsqueeze(1).to(hidden_NH.dtype)
            weight_gradient_VH = _compute_word_gradient(errors, scaled_NH, weight_VH, rows)
        if ctx.needs_input_grad[2]:
            bias_gradient_V = _compute_word_gradient(errors, scale_N.to(hidden_NH.dtype), bias_V, rows)
        if ctx.needs_input_grad[3]:
            table_gradient_S = bias_V.new_zeros(ctx.table_size)
            values_E = errors_E * scale_N.repeat_interleave(rows.sizes_N, output_size=len(errors_E))
            for entries_E in ctx.entries_OE:
                table_gradient_S.index_add_(0, entries_E, values_E.to(bias_V.dtype))
        gradients = hidden_gradient_NH, weight_gradient_VH, bias_gradient_V, table_gradient_S
        return (*gradients, None, None, None, None)


def _compute_logits(hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor, rows: _RowsByClass) -> Tensor:
    """logits_E of the words of each row's class, for rows sorted by class."""
    size = sum(count * rows.sizes[k] for count, k in zip(rows.row_counts, rows.present_classes, strict=True))
    logits_E = hidden_NH.new_empty(size)
    for logits_RW, hidden_RH, weight_WH, bias_W in zip(
        rows.split_logits(logits_E),
        torch.split(hidden_NH, rows.row_counts),
        rows.split_present_words(weight_VH.to(hidden_NH.dtype)),
        rows.split_present_words(bias_V.to(hidden_NH.dtype)),
        strict=True,
    ):
        torch.addmm(bias_W, hidden_RH, weight_WH.t(), out=logits_RW)
    return logits_E.to(torch.promote_types(hidden_NH.dtype, torch.float32))


def _compute_hidden_gradient(
    errors: list[Tensor], weight_VH: Tensor, scale_N: Tensor, rows: _RowsByClass
) -> Tensor:
    """The gradient of the hidden vectors, in the order of the batch."""
    sorted_NH = weight_VH.new_empty(len(scale_N), weight_VH.shape[1], dtype=errors[0].dtype)
    words = rows.split_present_words(weight_VH.to(sorted_NH.dtype))
    for errors_RW, weight_WH, gradient_RH in zip(
        errors, words, torch.split(sorted_NH, rows.row_counts), strict=True
    ):
        torch.mm(errors_RW, weight_WH, out=gradient_RH)
    sorted_NH = sorted_NH.to(weight_VH.dtype).mul_(scale_N.unsqueeze(1))
    return torch.empty_like(sorted_NH).index_copy_(0, rows.order_N, sorted_NH)


def _compute_word_gradient(
    errors: list[Tensor], values_NX: Tensor, like_VX: Tensor, rows: _RowsByClass
) -> Tensor:
    """errors^T values, one class at a time; words of classes without rows have a gradient of zero."""
    gradient_VX = torch.empty_like(like_VX)
    for absent_WX in rows.split_absent_words(gradient_VX):
        absent_WX.zero_()
    for errors_RW, values_RX, gradient_WX in zip(
        errors, torch.split(values_NX, rows.row_counts), rows.split_present_words(gradient_VX), strict=True
    ):
        if gradient_WX.dtype == errors_RW.dtype:
            torch.matmul(errors_RW.t(), values_RX, out=gradient_WX)
        else:
            gradient_WX.copy_(errors_RW.t() @ values_RX)
    return gradient_VX
