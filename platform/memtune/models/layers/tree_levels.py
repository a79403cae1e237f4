"""Recurrence down trees, one level at a time. A node has one state, however many paths lead through it.

The state of a node depends on the state of its parent, so all nodes of a level are computed together:

    s(n) = sigmoid(x(n) + R s(parent of n))

Nodes are sorted by level, and within a level the nodes with children come first. R is multiplied only with
the states of nodes with children, once per parent. A text read from left to right is a tree with one node on
each level.

Shapes: N nodes, A of them in level 0, above all roots; H width, L nodes of one level, P of these with
children, D dependency labels, K ancestors.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Trees(Protocol):
    """Trees of words. Level 0 holds the boundary of sentences, the parent of every root."""

    @property
    def words_N(self) -> Tensor:  # noqa: N802
        """The word of every node, level by level; in each level, nodes with children come first."""

    @property
    def parents_N(self) -> Tensor:  # noqa: N802
        """The parent of each node; a node of level 0 is its own parent."""

    @property
    def labels_N(self) -> Tensor:  # noqa: N802
        """The dependency label of the edge from each node's parent; -1 for no label, as for roots."""

    @property
    def bounds(self) -> tuple[int, ...]:
        """The first node of each level, and N."""

    @property
    def branching_counts(self) -> tuple[int, ...]:
        """Nodes of each level that have children."""


def run_tree_levels(
    inputs_NH: Tensor,
    recurrent_HH: Tensor,
    before_AH: Tensor,
    parents_N: Tensor,
    bounds: Sequence[int],
    branching: Sequence[int],
) -> Tensor:
    """The states s of all nodes below level 0, (N - A, H), from their inputs x.

    `before_AH` are the states of level 0.
    """
    states_NH: Tensor = _StatesByLevel.apply(  # type: ignore[no-untyped-call]
        inputs_NH, recurrent_HH, before_AH, parents_N, tuple(bounds), tuple(branching)
    )
    return states_NH


class _StatesByLevel(torch.autograd.Function):
    """A backward pass by hand: with few rows per level, autograd's bookkeeping costs more than the sums."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs_NH: Tensor,
        recurrent_HH: Tensor,
        before_AH: Tensor,
        parents_N: Tensor,
        bounds: tuple[int, ...],
        branching: tuple[int, ...],
    ) -> Tensor:
        with torch.autocast(inputs_NH.device.type, enabled=False):
            states_NH = torch.cat([before_AH, inputs_NH])
            for level, (first, stop) in enumerate(pairwise(bounds[1:])):
                above = bounds[level]
                carried_PH = states_NH[above : above + branching[level]] @ recurrent_HH.t()
                carried_LH = carried_PH[parents_N[first:stop] - above]
                states_NH[first:stop].add_(carried_LH).sigmoid_()
        ctx.save_for_backward(states_NH, recurrent_HH, parents_N)
        ctx.bounds, ctx.branching = bounds, branching
        return states_NH[bounds[1] :]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NH: Tensor) -> tuple[Tensor | None, ...]:
        states_NH, recurrent_HH, parents_N = ctx.saved_tensors
        bounds, branching = ctx.bounds, ctx.branching
        errors_NH = states_NH.new_zeros(states_NH.shape)
        # The gradient of s from the caller; the loop adds the gradient from the children of each level.
        errors_NH[bounds[1] :] = gradient_NH
        recurrent_gradient_HH = torch.zeros_like(recurrent_HH)
        for level in range(len(bounds) - 3, -1, -1):
            above, first, stop = bounds[level : level + 3]
            read = slice(above, above + branching[level])
            errors_LH, states_LH = errors_NH[first:stop], states_NH[first:stop]
            errors_LH.mul_(states_LH).mul_(1 - states_LH)
            carried_PH = errors_NH.new_zeros(branching[level], errors_NH.shape[1])
            carried_PH.index_add_(0, parents_N[first:stop] - above, errors_LH)
            recurrent_gradient_HH.addmm_(carried_PH.t(), states_NH[read])
            errors_NH[read].addmm_(carried_PH, recurrent_HH)
        return errors_NH[bounds[1] :], recurrent_gradient_HH, errors_NH[: bounds[1]], None, None, None


def compute_label_features(trees: Trees, count: int, decay: float, dtype: torch.dtype) -> Tensor:
    """features_ND of the labels on the path to each node below level 0.

    The label of a node's own edge has the value 1; every other label has `decay` times its value at the
    parent.
    """
    # Nodes without a label write to column `count`, which the last line drops.
    labels_N = torch.where(trees.labels_N < 0, count, trees.labels_N)
    features_ND = torch.zeros(len(labels_N), count + 1, dtype=dtype, device=labels_N.device)
    if decay:
        for first, stop in pairwise(trees.bounds[1:]):
            features_ND[first:stop] = decay * features_ND[trees.parents_N[first:stop]]
            features_ND[first:stop].scatter_(1, labels_N[first:stop].unsqueeze(1), 1.0)
    else:
        features_ND.scatter_(1, labels_N.unsqueeze(1), 1.0)
    return features_ND[trees.bounds[1] :, :count]


def collect_ancestor_words(trees: Trees, count: int) -> Tensor:
    """words_NK of the `count` nearest ancestors of each node below level 0, the parent last."""
    above_N = trees.parents_N[trees.bounds[1] :]
    words = [trees.words_N[above_N]]
    for _ in range(count - 1):
        above_N = trees.parents_N[above_N]
        words.append(trees.words_N[above_N])
    return torch.stack(words[::-1], dim=1)
