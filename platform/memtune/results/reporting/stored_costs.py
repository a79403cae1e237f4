"""The costs of the validation split's items under a trial's best weights, stored next to its checkpoints."""

from contextlib import suppress
from typing import Literal

import numpy as np
from pydantic import ValidationError

from memtune.storage.folder import Folder
from memtune.tasks import ItemCosts
from memtune.values import Value

__all__ = ["ITEM_COSTS_FILE", "read_stored_costs", "write_stored_costs"]

ITEM_COSTS_FILE = "valid_costs.json"
"""In the folder of a trial."""


class _StoredCosts(Value):
    """The content of ITEM_COSTS_FILE."""

    unit: Literal["sentences", "questions", "examples"]
    trial_cost: float
    """The cost of the weights that the items were evaluated with."""
    costs: list[float]
    counts: list[int]


def read_stored_costs(folder: Folder, trial_cost: float) -> ItemCosts | None:
    """The stored costs of a trial with this cost; None where none are stored for these weights."""
    with suppress(ValidationError):
        stored = _StoredCosts.model_validate(folder.read_json(ITEM_COSTS_FILE))
        if stored.trial_cost == trial_cost:
            return ItemCosts(stored.unit, np.array(stored.costs), np.array(stored.counts))
    return None


def write_stored_costs(folder: Folder, trial_cost: float, costs: ItemCosts) -> None:
    """Store the costs of a trial's items."""
    content = _StoredCosts(
        unit=costs.unit,
        trial_cost=trial_cost,
        costs=costs.costs_I.tolist(),
        counts=costs.counts_I.tolist(),
    )
    folder.write_json(ITEM_COSTS_FILE, content.model_dump())
