"""Matrix products in bfloat16 on every processor."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["autocast_to_bfloat16"]


@contextmanager
def autocast_to_bfloat16() -> Iterator[None]:
    """Autocast with torch's own kernels, which emulate bfloat16: oneDNN's LSTM needs its instructions."""
    with warnings.catch_warnings():
        # `flags` sets a switch for Intel's GPUs too, which warns without one.
        warnings.filterwarnings("ignore", "TF32 acceleration on top of oneDNN")
        with torch.backends.mkldnn.flags(enabled=False), torch.autocast("cpu", torch.bfloat16):
            yield
