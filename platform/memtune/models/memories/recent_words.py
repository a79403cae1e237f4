"""The last words of a text, which a model with a fixed window carries from one piece to the next.

Shapes: B batch, K words.
"""

import torch
from torch import Tensor


def make_empty_words(batch_size: int, device: torch.device) -> Tensor:
    """The words before the start of a text: none, (B, 0)."""
    return torch.empty(batch_size, 0, dtype=torch.int64, device=device)


def keep_recent_words(words_BK: Tensor, count: int) -> Tensor:
    """The last `count` words of each row, or all words if there are fewer."""
    return words_BK[:, max(0, words_BK.shape[1] - count) :]
