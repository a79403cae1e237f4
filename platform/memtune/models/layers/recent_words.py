"""The last words of a text, which a model of a fixed window carries from one piece to the next.

Shapes: B batch, K words.
"""

import torch
from torch import Tensor

__all__ = ["no_words", "recent_words"]


def no_words(batch_size: int, device: torch.device) -> Tensor:
    """(B, 0): what is remembered before a text."""
    return torch.empty(batch_size, 0, dtype=torch.int64, device=device)


def recent_words(words_BK: Tensor, count: int) -> Tensor:
    """The last `count` words, or all there are."""
    return words_BK[:, max(0, words_BK.shape[1] - count) :]
