"""What the tests of a GPU share: their marks, and the trial that they train."""

from typing import Any

import pytest
import torch

from memtune.models import list_families
from memtune.training import TrialConfig
from memtune.values import parse

__all__ = ["FAMILIES", "make_family_trial", "needs_cuda"]

FAMILIES = list_families(trained_by_gradient=True)
AWD_MASKS = ("weight_drop", "embedding_dropout", "input_dropout", "hidden_dropout", "output_dropout")
UNMASKED = {"awd_lstm": dict.fromkeys(AWD_MASKS, 0.0)}
"""Fields of families that drop units by default."""
SGD = {"kind": "sgd", "learning_rate": 0.03}
OPTIMISERS = {"awd_lstm": SGD, "mixer_blocks": SGD}
"""Those of families that Adam takes along another course after another rounding: on a CPU the loss of mixer
blocks in float32 is 2e-4 from that in float64 with Adam, and 1e-7 with SGD."""

needs_cuda = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU with CUDA"),
]


def make_family_trial(
    family: str, model: dict[str, Any] | None = None, batch_size: int = 16, **training: Any
) -> TrialConfig:
    """A trial of a family with two reports, without dropout: a GPU draws other masks than a CPU."""
    # Adam's small steps: with large ones a rounded ReLU of fifteen residual layers changes the course.
    optimiser = OPTIMISERS.get(family, {"kind": "adam", "learning_rate": 1e-3})
    data = {
        "model": {"family": family, "width": 8, **UNMASKED.get(family, {}), **(model or {})},
        "protocol": {"kind": "sentence", "batch_size": batch_size},
        "training": {"tokens": 2000, "report_every": 1000, "optimiser": optimiser, **training},
    }
    return parse(TrialConfig, data, "trial")
