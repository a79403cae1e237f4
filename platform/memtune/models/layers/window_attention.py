"""Attention of every time step over the n most recent positions, for all time steps at once.

A window that slides by one each step is a band of the T x K matrix of all scores. So the scores of content
are one matrix product, those of position are skewed into the band by padding and a change of view, and the
rest of the matrix is -inf before the softmax. A long text is cut into blocks along time that become entries
of the batch, each with its own keys and the n - 1 before, so that little of the matrix lies outside the band.

Shapes: B batch, T time, n slots of the window (the most recent is the last), K = n - 1 + T keys (those of the
text and the n - 1 before it), H width; X = B x blocks, L steps of a block, J = n - 1 + L keys of a block.
"""

import torch
from torch import Tensor
from torch.nn import functional

__all__ = [
    "absent_slots",
    "banded_weights",
    "linear_window_weights",
    "window_context",
    "window_slots",
    "window_weights",
]

STEPS_PER_BLOCK = 64


def window_weights(query_BTH: Tensor, key_BKH: Tensor, position_BTn: Tensor) -> Tensor:
    """Dense softmax weights_XLJ of query . key + position over each window; -inf in `position` shuts a slot.

    Every step needs one open slot. `window_context` and `window_slots` read the result.
    """
    return _scores(query_BTH, key_BKH, position_BTn).softmax(dim=2)


def linear_window_weights(query_BTH: Tensor, key_BKH: Tensor, position_BTn: Tensor) -> Tensor:
    """The same without the softmax: the scores themselves, 0 in slots that are shut."""
    scores_XLJ = _scores(query_BTH, key_BKH, position_BTn)
    return scores_XLJ.masked_fill(scores_XLJ.isneginf(), 0.0)


def _scores(query_BTH: Tensor, key_BKH: Tensor, position_BTn: Tensor) -> Tensor:
    """query . key + position in the band, -inf outside of it."""
    _, steps, slots = position_BTn.shape
    length = _block_length(steps, slots)
    band_XLJ = _skew(_cut(position_BTn, length), -torch.inf)
    query_XLH = _cut(query_BTH, length)
    keys_XJH = _cut_keys(key_BKH, steps, length)
    return torch.baddbmm(band_XLJ, query_XLH, keys_XJH.transpose(1, 2))


def banded_weights(scores_BTn: Tensor) -> Tensor:
    """Dense softmax weights_XLJ of scores given slot by slot, for `window_context`; -inf shuts a slot."""
    _, steps, slots = scores_BTn.shape
    return _skew(_cut(scores_BTn.softmax(dim=2), _block_length(steps, slots)), 0.0)


def window_context(weights_XLJ: Tensor, value_BKH: Tensor, steps: int) -> Tensor:
    """context_BTH: each step's values, weighted."""
    context_XLH = torch.bmm(weights_XLJ, _cut_keys(value_BKH, steps, weights_XLJ.shape[1]))
    return _join(context_XLH, len(value_BKH), steps)


def window_slots(weights_XLJ: Tensor, batch_size: int, steps: int) -> Tensor:
    """weights_BTn of each step's own slots, the most recent last."""
    rows, length, keys = weights_XLJ.shape
    slots = keys - length + 1
    flat_XF = functional.pad(weights_XLJ.flatten(1), (0, length))
    return _join(flat_XF.view(rows, length, keys + 1)[:, :, :slots], batch_size, steps)


def absent_slots(steps: int, slots: int, history: int, device: torch.device) -> Tensor:
    """Boolean (T, n): true where a window reaches back past the first of `history` earlier positions."""
    first = slots - 1 - history - torch.arange(steps, device=device)
    return torch.arange(slots, device=device) < first.unsqueeze(1)


def _block_length(steps: int, slots: int) -> int:
    """Steps of a block: even, and enough that a block reaches back no further than into the one before."""
    blocks = max(1, steps // max(STEPS_PER_BLOCK, slots))
    return -(-steps // blocks)


def _cut(values_BTF: Tensor, length: int) -> Tensor:
    """(B, T, F) as blocks (X, L, F); the last one is filled up."""
    padded_BTF = functional.pad(values_BTF, (0, 0, 0, -values_BTF.shape[1] % length))
    return padded_BTF.reshape(-1, length, values_BTF.shape[2])


def _cut_keys(keys_BKH: Tensor, steps: int, length: int) -> Tensor:
    """(B, K, H) as overlapping blocks (X, J, H): the keys of a block and the n - 1 before."""
    before = keys_BKH.shape[1] - steps
    if steps == length:
        return keys_BKH
    padded_BKH = functional.pad(keys_BKH, (0, 0, 0, -steps % length))
    own_XLH = _cut(padded_BKH[:, before:], length)
    earlier_XLH = _cut(padded_BKH[:, : padded_BKH.shape[1] - before], length)
    return torch.cat([earlier_XLH[:, :before], own_XLH], dim=1)


def _join(blocks_XLF: Tensor, batch_size: int, steps: int) -> Tensor:
    return blocks_XLF.reshape(batch_size, -1, blocks_XLF.shape[2])[:, :steps]


def _skew(window_XLn: Tensor, outside: float) -> Tensor:
    """(X, L, n) as (X, L, J): row t moved t places to the right, `outside` where the band is not.

    A row padded to n + L entries and read back in rows of n + L - 1 moves one place more at each step.
    """
    rows, length, slots = window_XLn.shape
    padded_XLP = functional.pad(window_XLn, (0, length), value=outside)
    flat_XF = padded_XLP.flatten(1)[:, : length * (slots + length - 1)]
    return flat_XF.view(rows, length, slots + length - 1)
