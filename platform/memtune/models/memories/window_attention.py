"""Attention of every time step over the n most recent positions, for all time steps together.

A window that slides by one position per step is a band of the T x K matrix of all scores. One matrix product
computes the scores of content. Padding and a change of view skew the scores of position into the band. The
rest of the matrix is -inf before the softmax. A long text is cut along time into blocks, which become entries
of the batch, each with its own keys and the n - 1 keys before them. So only a small part of each matrix is
outside the band.

Shapes: B batch, T time, n slots of the window (the most recent is the last), K = n - 1 + T keys (those of the
text and the n - 1 before it), H width; X = B x blocks, L steps of a block, J = n - 1 + L keys of a block.
"""

import torch
from torch import Tensor
from torch.nn import functional

STEPS_PER_BLOCK = 64


def compute_weights(
    query_BTH: Tensor, key_BKH: Tensor, position_BTn: Tensor, is_linear: bool = False
) -> Tensor:
    """Dense softmax weights_XLJ of query . key + position over each window; -inf in `position` masks a slot.

    Each step needs an unmasked slot. `sum_values` and `arrange_slots` read the result. Without the softmax
    (`is_linear`) the weights are the scores, and 0 for masked slots.
    """
    _, steps, slots = position_BTn.shape
    length = _compute_block_length(steps, slots)
    band_XLJ = _skew(_split_blocks(position_BTn, length), -torch.inf)
    query_XLH = _split_blocks(query_BTH, length)
    keys_XJH = _split_key_blocks(key_BKH, steps, length)
    scores_XLJ = torch.baddbmm(band_XLJ, query_XLH, keys_XJH.transpose(1, 2))
    return scores_XLJ.masked_fill(scores_XLJ.isneginf(), 0.0) if is_linear else scores_XLJ.softmax(dim=2)


def compute_banded_weights(scores_BTn: Tensor) -> Tensor:
    """Dense softmax weights_XLJ of scores by slot, for `sum_values`; -inf masks a slot."""
    _, steps, slots = scores_BTn.shape
    return _skew(_split_blocks(scores_BTn.softmax(dim=2), _compute_block_length(steps, slots)), 0.0)


def sum_values(weights_XLJ: Tensor, value_BKH: Tensor, steps: int) -> Tensor:
    """context_BTH: the weighted sum of the values in the window of each step."""
    context_XLH = torch.bmm(weights_XLJ, _split_key_blocks(value_BKH, steps, weights_XLJ.shape[1]))
    return _join_blocks(context_XLH, len(value_BKH), steps)


def arrange_slots(weights_XLJ: Tensor, batch_size: int, steps: int) -> Tensor:
    """weights_BTn of the slots in the window of each step, the most recent last."""
    rows, length, keys = weights_XLJ.shape
    slots = keys - length + 1
    flat_XF = functional.pad(weights_XLJ.flatten(1), (0, length))
    return _join_blocks(flat_XF.view(rows, length, keys + 1)[:, :, :slots], batch_size, steps)


def mask_absent_slots(steps: int, slots: int, history: int, device: torch.device) -> Tensor:
    """Boolean (T, n): true for slots before the first of the `history` earlier positions."""
    first = slots - 1 - history - torch.arange(steps, device=device)
    return torch.arange(slots, device=device) < first.unsqueeze(1)


def _compute_block_length(steps: int, slots: int) -> int:
    """Steps of a block: blocks are about equal, and a window reaches back at most into the block before."""
    blocks = max(1, steps // max(STEPS_PER_BLOCK, slots))
    return -(-steps // blocks)


def _split_blocks(values_BTF: Tensor, length: int) -> Tensor:
    """(B, T, F) as blocks (X, L, F); the last block is padded with zeros."""
    padded_BTF = functional.pad(values_BTF, (0, 0, 0, -values_BTF.shape[1] % length))
    return padded_BTF.reshape(-1, length, values_BTF.shape[2])


def _split_key_blocks(keys_BKH: Tensor, steps: int, length: int) -> Tensor:
    """(B, K, H) as overlapping blocks (X, J, H): the keys of a block and the n - 1 keys before them."""
    before = keys_BKH.shape[1] - steps
    if steps == length:
        return keys_BKH
    padded_BKH = functional.pad(keys_BKH, (0, 0, 0, -steps % length))
    own_XLH = _split_blocks(padded_BKH[:, before:], length)
    earlier_XLH = _split_blocks(padded_BKH[:, : padded_BKH.shape[1] - before], length)
    return torch.cat([earlier_XLH[:, :before], own_XLH], dim=1)


def _join_blocks(blocks_XLF: Tensor, batch_size: int, steps: int) -> Tensor:
    return blocks_XLF.reshape(batch_size, -1, blocks_XLF.shape[2])[:, :steps]


def _skew(window_XLn: Tensor, outside: float) -> Tensor:
    """(X, L, n) as (X, L, J): row t moves t places to the right; the rest of the matrix is `outside`.

    Rows padded to n + L entries and read back as rows of n + L - 1 move one place more at each step.
    """
    rows, length, slots = window_XLn.shape
    padded_XLP = functional.pad(window_XLn, (0, length), value=outside)
    flat_XF = padded_XLP.flatten(1)[:, : length * (slots + length - 1)]
    return flat_XF.view(rows, length, slots + length - 1)
