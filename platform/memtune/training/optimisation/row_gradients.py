"""Sparse gradients of embedding tables, which hold only the rows that a batch read.

A dense gradient of a table has V rows to fill, to measure and to add, although a batch of N tokens reads at
most N of them. An optimiser that does not change rows with a gradient of zero (plain SGD) gives the same
result with the rows that were read.
"""

from torch import Tensor, nn

__all__ = ["coalesce", "enable_sparse_gradients", "get_stored_entries"]


def enable_sparse_gradients(model: nn.Module) -> None:
    """Make every embedding table return a sparse gradient with one row per token.

    A table that another layer shares, such as a tied output layer, still has a dense gradient: their sum.
    """
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            module.sparse = True


def coalesce(gradient: Tensor) -> Tensor:
    """A gradient with one entry per row: the sum over the tokens that read the row, in their order."""
    return gradient.coalesce() if gradient.is_sparse else gradient


def get_stored_entries(gradient: Tensor) -> Tensor:
    """The entries of a coalesced gradient that may differ from zero."""
    return gradient.values() if gradient.is_sparse else gradient
