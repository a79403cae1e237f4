"""What the tests of a GPU share: their marks, and the trial that they train."""

from typing import Any

import pytest
import torch

from memtune.models import list_families
from memtune.training import TrialConfig
from memtune.values import parse

__all__ = ["FAMILIES", "make_family_trial", "needs_cuda"]

FAMILIES = list_families(trained_by_gradient=True)

needs_cuda = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU with CUDA"),
]


def make_family_trial(
    family: str, model: dict[str, Any] | None = None, batch_size: int = 16, **training: Any
) -> TrialConfig:
    """A trial of a family with two reports."""
    # Adam's small steps: with large ones a rounded ReLU of fifteen residual layers changes the course.
    optimiser = {"kind": "adam", "learning_rate": 1e-3}
    data = {
        "model": {"family": family, "width": 8, **(model or {})},
        "protocol": {"kind": "sentence", "batch_size": batch_size},
        "training": {"tokens": 2000, "report_every": 1000, "optimiser": optimiser, **training},
    }
    return parse(TrialConfig, data, "trial")
