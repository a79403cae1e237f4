"""Syne Tune's schedulers in a simulation, through a process in an environment of their own.

Syne Tune has no conditional parameters: its searchers see the parameters of all families at once, and the
ones that a configuration does not use have no effect. It needs an environment of its own:

    python -m venv .venv/syne-tune && .venv/syne-tune/bin/pip install "syne-tune[gpsearchers]==0.14.2"
"""

import json
import subprocess
from pathlib import Path
from typing import Any, Self

from benchmarks.tables.simulation import SimulatedTrial
from memtune.spaces import Categorical, Integer, RandomChooser, Real, Space

__all__ = ["SYNE_TUNE_PYTHON", "SyneTuneSearch"]

SYNE_TUNE_PYTHON = Path(".venv/syne-tune/bin/python")
SERVER = Path(__file__).with_name("syne_tune_server.py")


class SyneTuneSearch:
    """One study of a scheduler: "asha-stopping", "asha-promotion", "mobster-stopping"; closes its process."""

    def __init__(
        self, space: Space, reports: int, seed: int, method: str, python: Path = SYNE_TUNE_PYTHON
    ) -> None:
        self._space = space
        self._parameters: dict[int, dict[str, Any]] = {}
        self._reports_done: dict[int, int] = {}
        self._process = subprocess.Popen(
            [str(python), str(SERVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        described = {each.name: _describe(each.leaf) for each in space.parameters()}
        request = {"method": method, "seed": seed, "reports": reports}
        self._send({**request, "parameters": described})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._send(None)
        self._process.communicate(timeout=60)

    def start_trial(self) -> SimulatedTrial | None:
        """A new trial, or one that the scheduler promotes."""
        answer = self._ask({"start": True})
        if answer is None:
            return None
        number = answer["number"]
        if "parameters" in answer:
            chooser = RandomChooser(0, answer["parameters"])
            self._space.sample(chooser)
            self._parameters[number] = dict(chooser.parameters)
        return SimulatedTrial(number, self._parameters[number], self._reports_done.get(number, 0))

    def report(self, number: int, costs: tuple[float, ...]) -> bool:
        """The scheduler's decision about the last cost."""
        self._reports_done[number] = len(costs)
        return bool(self._ask({"number": number, "cost": costs[-1], "count": len(costs)}))

    def end(self, number: int) -> None:
        """Nothing: the scheduler knows its own decisions."""

    def _ask(self, request: dict[str, Any]) -> Any:
        self._send(request)
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def _send(self, request: dict[str, Any] | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()


def _describe(leaf: object) -> dict[str, Any]:
    if isinstance(leaf, Categorical):
        return {"choices": list(leaf.choices)}
    assert isinstance(leaf, Integer | Real)
    is_int = isinstance(leaf, Integer)
    step = None if is_int and leaf.step == 1 else leaf.step
    return {"low": leaf.low, "high": leaf.high, "step": step, "log": leaf.log, "is_int": is_int}
