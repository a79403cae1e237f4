"""Networks on a GPU: they agree with the float64 equations on the CPU, and keep the contract of families."""

import pytest
import torch

from memtune.model_checks.oracles import assert_agreement
from memtune.training import open_device
from tests.gpu.cuda import needs_cuda
from tests.oracles.table import list_cases

pytestmark = needs_cuda

# A case with `bind` has the masks that the CPU's generator draws; the GPU's draws others.
CASES = {name: case for name, case in list_cases().items() if case.bind is None}
FLOAT32_TOLERANCE = 1e-5
"""As on the CPU: TensorFloat-32 would give 1e-3."""


@pytest.mark.parametrize("name", CASES)
def test_float32_agrees_with_the_equations(name):
    case = CASES[name]
    for length in case.float32_lengths:
        model = case.build(torch.float32).to(open_device("cuda"))
        assert_agreement(
            model, case.get_oracle(model), case.draw_text(length), FLOAT32_TOLERANCE, seed=length
        )


@pytest.mark.parametrize("name", CASES)
def test_float64_carries_its_state_as_the_equations_do(name):
    case = CASES[name]
    for cut in case.cuts:
        model = case.build(torch.float64).to(open_device("cuda"))
        assert_agreement(model, case.get_oracle(model), case.draw_text(case.cut_length), 1e-9, cut)
