"""Recurrence down trees, level after level: one state a node, whatever the number of paths through it.

A node's state follows from that of its parent, so all nodes of a level are reached at once:

    s(n) = sigmoid(x(n) + R s(parent of n))

Nodes stand level after level, and in each level those with children first: R is multiplied with the states
of these alone, once for all of their children. A text read from left to right is a tree of one node a level.

Shapes: N nodes, A of them in the first level, which stands above all roots; H width, L nodes of one level,
P of these with children, D dependency labels, K ancestors.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["Trees", "ancestor_words", "label_features", "states_by_level"]


class Trees(Protocol):
    """Trees of words. Level 0 is what stands above all roots: the boundary of sentences, as their parent."""

    @property
    def words_N(self) -> Tensor:  # noqa: N802
        """The word of every node, level after level, in each those with children first."""

    @property
    def parents_N(self) -> Tensor:  # noqa: N802
        """The node above each; those of level 0 are their own parents."""

    @property
    def labels_N(self) -> Tensor:  # noqa: N802
        """The dependency label of the edge from its parent; -1 where there is none, as of roots."""

    @property
    def bounds(self) -> tuple[int, ...]:
        """The first node of each level, and N."""

    @property
    def branching(self) -> tuple[int, ...]:
        """Nodes of each level that have children."""


def states_by_level(
    inputs_NH: Tensor,
    recurrent_HH: Tensor,
    before_AH: Tensor,
    parents_N: Tensor,
    bounds: Sequence[int],
    branching: Sequence[int],
) -> Tensor:
    """s of every node below level 0, (N - A, H), from their x and the s of level 0, `before_AH`."""
    states_NH: Tensor = _StatesByLevel.apply(  # type: ignore[no-untyped-call]
        inputs_NH, recurrent_HH, before_AH, parents_N, tuple(bounds), tuple(branching)
    )
    return states_NH


class _StatesByLevel(torch.autograd.Function):
    """Written out: a level has so few rows that what autograd would note of it costs more than its sums."""

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
        errors_NH[bounds[1] :] = gradient_NH  # of s from above; from a level on, also what its children add
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


def label_features(trees: Trees, count: int, decay: float, dtype: torch.dtype) -> Tensor:
    """features_ND of the labels on the way to each node below level 0.

    The label of a node's own edge is 1; every other is `decay` times what it is at the parent.
    """
    labels_N = torch.where(trees.labels_N < 0, count, trees.labels_N)  # that of no label falls off the end
    features_ND = torch.zeros(len(labels_N), count + 1, dtype=dtype, device=labels_N.device)
    if decay:
        for first, stop in pairwise(trees.bounds[1:]):
            features_ND[first:stop] = decay * features_ND[trees.parents_N[first:stop]]
            features_ND[first:stop].scatter_(1, labels_N[first:stop].unsqueeze(1), 1.0)
    else:
        features_ND.scatter_(1, labels_N.unsqueeze(1), 1.0)
    return features_ND[trees.bounds[1] :, :count]


def ancestor_words(trees: Trees, count: int) -> Tensor:
    """words_NK above each node below level 0: its parent's last, before it that one's, and so on."""
    above_N = trees.parents_N[trees.bounds[1] :]
    words = [trees.words_N[above_N]]
    for _ in range(count - 1):
        above_N = trees.parents_N[above_N]
        words.append(trees.words_N[above_N])
    return torch.stack(words[::-1], dim=1)
