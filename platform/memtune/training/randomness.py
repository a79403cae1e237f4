"""The random states of one trial, apart from those of the process it runs in."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from memtune.values import digest

__all__ = ["RandomStates"]


class RandomStates:
    """What dropout draws from: a random state per kind of device, begun from a seed."""

    def __init__(self, seed: int, device: torch.device) -> None:
        derived = int(digest("training", seed)[:12], 16)  # not the stream that initialised the model
        self._device = device
        self._states = {
            kind: torch.Generator(kind).manual_seed(derived).get_state()
            for kind in sorted({"cpu", device.type})
        }

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Let torch draw from these states; those of the process are put back after."""
        on_gpu = self._device.type == "cuda"
        with torch.random.fork_rng(devices=[self._device] if on_gpu else []):
            torch.set_rng_state(self._states["cpu"])
            if on_gpu:
                torch.cuda.set_rng_state(self._states["cuda"], self._device)
            yield
            self._states["cpu"] = torch.get_rng_state()
            if on_gpu:
                self._states["cuda"] = torch.cuda.get_rng_state(self._device)

    def state(self) -> dict[str, Tensor]:
        """The states by kind of device, (bytes,) uint8."""
        return dict(self._states)

    def load_state(self, states: dict[str, Tensor]) -> None:
        """Go on from what `state` gave; a kind of device that was not there then begins from the seed."""
        self._states |= {kind: state for kind, state in states.items() if kind in self._states}
