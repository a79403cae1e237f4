"""What a network's memory does while it reads a text: the values of a family's `trace_attention` and
`measure_stack_use`.

Shapes: B batch, T time, L layers that attend, n slots, A actions.
"""

from typing import Literal, NamedTuple

from torch import Tensor

MemoryTrace = Literal["attention", "stack"]
"""The kinds of traces; a family's configuration lists those that its networks have."""


class AttentionTrace(NamedTuple):
    """The attention of a network after each word it reads."""

    weights_LBTn: Tensor
    """Weights over the slots of each attending layer, the lowest layer first; empty slots have 0."""
    offsets: tuple[int, ...]
    """Of each slot, the place of its word relative to the word read: 0 is the word read, -1 the word before
    it, 1 the word to predict."""


class StackAction(NamedTuple):
    """What a step can do with a stack: some pops, and then a push or none."""

    name: str
    pops: int
    is_push: bool


class StackUse(NamedTuple):
    """The actions and the effect of a stack while a model reads a text."""

    actions: tuple[StackAction, ...]
    """The actions in the order of their probabilities."""
    actions_BTA: Tensor
    """Probabilities of each step's actions."""
    contribution_BT: Tensor
    """The norm of W_hm m_t, the term of the stack in each step's prediction (Yogatama et al. 2018,
    section 3.4)."""
