"""Means of hidden states over spans of words.

Shapes: B batch, T time, H hidden width, N spans.
"""

from typing import NamedTuple, Self

import torch
from torch import Tensor


class Spans(NamedTuple):
    """Words `start` to `stop` - 1 of a row, all int64; a span holds at least one word."""

    rows_N: Tensor
    starts_N: Tensor
    stops_N: Tensor

    @classmethod
    def from_lengths(cls, lengths_B: Tensor) -> Self:
        """One span per row, from its first word to its length."""
        return cls(
            torch.arange(len(lengths_B), device=lengths_B.device), torch.zeros_like(lengths_B), lengths_B
        )


def average_spans(hidden_BTH: Tensor, spans: Spans) -> Tensor:
    """means_NH of the hidden states of each span; words outside all spans change no mean.

    The sum of a span is the difference of two running sums, so the cost does not depend on the lengths of
    spans. Running sums are in float64: in float32 the mean of one word at the end of a long sentence would
    lose digits.
    """
    rows_N, starts_N, stops_N = spans
    sums_BTH = hidden_BTH.cumsum(1, dtype=torch.float64)
    last_NH = sums_BTH[rows_N, stops_N - 1]
    before_NH = sums_BTH[rows_N, (starts_N - 1).clamp(min=0)] * (starts_N > 0).unsqueeze(1)
    return ((last_NH - before_NH) / (stops_N - starts_N).unsqueeze(1)).to(hidden_BTH.dtype)
