"""Gradients of embedding tables as the rows that were read: a step meets few words of many.

A dense gradient of a table is filled with zeros, measured and stepped along in all of its V rows, of which a
batch of N tokens has read N at most. An optimiser that leaves a row without gradient where it is (plain
gradient descent) does the same with those rows alone.
"""

from torch import Tensor, nn

from memtune.training.optimisers import OptimiserConfig, SGDConfig

__all__ = ["entries", "give_rows", "moves_read_rows_only", "summed"]


def moves_read_rows_only(optimiser: OptimiserConfig) -> bool:
    """Whether a row with a gradient of zero stays as it is, whatever came before."""
    return isinstance(optimiser, SGDConfig) and not optimiser.momentum and not optimiser.weight_decay


def give_rows(model: nn.Module) -> None:
    """Have every embedding table give a sparse gradient, a row a token.

    A table that something else uses too, as the output layer it is tied to, still has a dense one: their sum.
    """
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            module.sparse = True


def summed(gradient: Tensor) -> Tensor:
    """A gradient with one entry a row, the sum over the tokens that read it, in their order."""
    return gradient.coalesce() if gradient.is_sparse else gradient


def entries(gradient: Tensor) -> Tensor:
    """The entries of a summed gradient that may differ from zero."""
    return gradient.values() if gradient.is_sparse else gradient
