"""A training step of a model next to that of an LSTM with as many parameters: time and memory."""

import time
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor

from memtune.errors import SpaceError
from memtune.models import (
    LSTMConfig,
    NeuralLanguageModel,
    NeuralLanguageModelConfig,
    build_model,
    negative_log_likelihood,
)
from memtune.spaces import FittedSize

ROWS, STEPS = 20, 35
REPEATS = 5


@dataclass(frozen=True)
class StepComparison:
    """Medians of alternating training steps over the same batch."""

    lstm: LSTMConfig
    parameters: int
    lstm_parameters: int
    seconds: float
    lstm_seconds: float
    saved_bytes: int
    """Of the tensors that the forward pass keeps for the backward pass."""
    lstm_saved_bytes: int

    def __str__(self) -> str:
        """One line."""
        return (
            f"A training step takes {1000 * self.seconds:.1f} ms, {self.seconds / self.lstm_seconds:.2f} "
            f"times that of an LSTM of width {self.lstm.width}; it keeps {self.saved_bytes / 2**20:.1f} MiB, "
            f"{self.saved_bytes / self.lstm_saved_bytes:.2f} times as much"
        )


def compare_with_lstm(config: NeuralLanguageModelConfig, words: int) -> StepComparison:
    """Time steps of 20 rows of 35 words, and count the bytes that they keep."""
    parameters = config.parameter_count(words)
    lstm = LSTMConfig(width=_fit_width(parameters, words))
    ours, theirs = (_Step(each, words) for each in (config, lstm))
    saved = [step.measure_saved_bytes() for step in (ours, theirs)]
    times = [(ours.time(), theirs.time()) for _ in range(REPEATS)]
    return StepComparison(
        lstm,
        parameters,
        lstm.parameter_count(words),
        median(own for own, _ in times),
        median(other for _, other in times),
        *saved,
    )


def _fit_width(parameters: int, words: int) -> int:
    """The width of the LSTM with the nearest number of parameters."""
    fitted = FittedSize("parameters", parameters)
    try:
        return fitted.solve(lambda width: LSTMConfig(width=width).parameter_count(words))
    except SpaceError:  # fewer parameters than an LSTM of width 1 has
        return 1


class _Step:
    def __init__(self, config: NeuralLanguageModelConfig, words: int) -> None:
        self._model: NeuralLanguageModel = build_model(config, words, seed=0).train()
        generator = torch.Generator().manual_seed(0)
        self._words_BT = torch.randint(words, (ROWS, STEPS + 1), generator=generator)

    def compute_loss(self) -> Tensor:
        return negative_log_likelihood(self._model, self._words_BT[:, :-1], self._words_BT[:, 1:])[0]

    def time(self) -> float:
        """Seconds of a forward and a backward pass."""
        self._model.zero_grad()
        started = time.perf_counter()
        self.compute_loss().backward()  # type: ignore[no-untyped-call]
        return time.perf_counter() - started

    def measure_saved_bytes(self) -> int:
        """Bytes of the distinct tensors that autograd keeps, without the parameters."""
        own = {parameter.untyped_storage().data_ptr() for parameter in self._model.parameters()}
        sizes: dict[int, int] = {}
        kept: list[Any] = []  # freed storages would give their address to the next one

        def pack(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                sizes[storage.data_ptr()] = storage.nbytes()
                kept.append(tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            self.compute_loss()
        return sum(sizes.values())
