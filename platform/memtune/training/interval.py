"""What happens between two reports, summed where it happens."""

import time
from math import isfinite

import torch
from torch import Tensor

__all__ = ["Interval"]


class Interval:
    """Running sums since the last report; those of tensors stay on their device until they are asked for."""

    def __init__(self, device: torch.device) -> None:
        self.tokens = 0
        self.steps = 0
        self.learning_rate = 0.0
        self._nats = torch.zeros((), dtype=torch.float64, device=device)
        self._norms = torch.zeros((), dtype=torch.float64, device=device)
        self._started = time.perf_counter()

    def add(self, nats: Tensor, norm: Tensor, tokens: int, learning_rate: float) -> None:
        """A step: its summed nats, the norm of its gradient, its tokens and its learning rate."""
        self._nats += nats.detach()
        self._norms += norm
        self.tokens += tokens
        self.steps += 1
        self.learning_rate = learning_rate

    def problem(self) -> str | None:
        """What is no longer a finite number; on a GPU this waits for it."""
        if not isfinite(self._nats.item()):
            return "the training loss is not finite"
        return None if isfinite(self._norms.item()) else "the gradient is not finite"

    def loss(self) -> float:
        """Nats per token."""
        return self._nats.item() / self.tokens

    def gradient_norm(self) -> float:
        """Mean over the steps."""
        return self._norms.item() / self.steps

    def speed(self) -> float:
        """Tokens per second, up to now."""
        return self.tokens / (time.perf_counter() - self._started)
