"""The random states of one trial, separate from those of the process."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from memtune.values import digest


class RandomStates:
    """Random states for dropout: one for each kind of device, derived from a seed."""

    def __init__(self, seed: int, device: torch.device) -> None:
        derived = int(digest("training", seed)[:12], 16)  # differs from the seed of the initialisation
        self._device = device
        self._states = {
            kind: torch.Generator(kind).manual_seed(derived).get_state()
            for kind in sorted({"cpu", device.type})
        }

    @contextmanager
    def use_states(self) -> Iterator[None]:
        """Context in which torch uses these states; it restores those of the process afterwards."""
        on_gpu = self._device.type == "cuda"
        with torch.random.fork_rng(devices=[self._device] if on_gpu else []):
            torch.set_rng_state(self._states["cpu"])
            if on_gpu:
                torch.cuda.set_rng_state(self._states["cuda"], self._device)
            yield
            self._states["cpu"] = torch.get_rng_state()
            if on_gpu:
                self._states["cuda"] = torch.cuda.get_rng_state(self._device)

    def state_dict(self) -> dict[str, Tensor]:
        """The states by kind of device, (bytes,) uint8."""
        return dict(self._states)

    def load_state_dict(self, states: dict[str, Tensor]) -> None:
        """Continue with the states that `state_dict` returned.

        A kind of device without a state starts from the seed. Raises RuntimeError or TypeError for a tensor
        that is not a random state.
        """
        for kind in self._states.keys() & states.keys():
            torch.Generator(kind).set_state(states[kind])
            self._states[kind] = states[kind]
