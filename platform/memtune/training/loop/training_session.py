"""Blocks of training: their time, their random states and interruptions."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from memtune.errors import TrialError
from memtune.training.loop.random_states import RandomStates

__all__ = ["TrainingSession"]


class TrainingSession:
    """Runs blocks of training under the trial's own random states and adds up their time.

    An exception that leaves a block (also KeyboardInterrupt) may leave the weights in the middle of a step,
    so the session refuses all later blocks.
    """

    def __init__(self, random_states: RandomStates) -> None:
        self.random_states = random_states
        self.elapsed_seconds = 0.0
        self._is_interrupted = False

    @contextmanager
    def run_block(self) -> Iterator[None]:
        """Context of a block; raises TrialError after an interruption."""
        self.check_uninterrupted()
        self._is_interrupted = True
        started = time.perf_counter()
        with self.random_states.use_states():
            yield
        self.elapsed_seconds += time.perf_counter() - started
        self._is_interrupted = False

    def check_uninterrupted(self) -> None:
        """Raise TrialError if a block was interrupted; its weights may be in the middle of a step."""
        if self._is_interrupted:
            raise TrialError("training was interrupted in the middle of a step; restore the last checkpoint")
