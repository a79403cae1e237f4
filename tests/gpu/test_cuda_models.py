"""Networks on a GPU: they agree with the float64 equations on the CPU, and keep the contract of families."""

from collections.abc import Callable

import pytest
import torch

from memtune.model_checks.oracles import assert_agreement
from memtune.models import NeuralLanguageModel
from memtune.training import open_device
from tests.gpu.cuda import needs_cuda
from tests.oracles.cases import OracleCase
from tests.oracles.table import list_cases

pytestmark = needs_cuda

# A case with `bind` has the masks that the CPU's generator draws; the GPU's draws others.
CASES = {name: case for name, case in list_cases().items() if case.bind is None}
FLOAT32_TOLERANCE = 5e-5
"""Gradients on an H200 are up to 2.6e-5 off, those on a CPU 1e-5: cuDNN adds in another order. TensorFloat-32
would give 1e-3."""


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Callable[[OracleCase, torch.dtype], NeuralLanguageModel]:
    """Builds a case on the GPU. cuDNN has no gradients of a network in evaluation; torch's kernels do."""

    def build_on_gpu(case: OracleCase, dtype: torch.dtype) -> NeuralLanguageModel:
        model = case.build(dtype).to(open_device("cuda"))
        monkeypatch.setattr(torch.backends.cudnn, "enabled", model.training)
        return model

    return build_on_gpu


@pytest.mark.parametrize("name", CASES)
def test_float32_agrees_with_the_equations(name, build):
    case = CASES[name]
    for length in case.float32_lengths:
        model = build(case, torch.float32)
        assert_agreement(
            model, case.get_oracle(model), case.draw_text(length), FLOAT32_TOLERANCE, seed=length
        )


@pytest.mark.parametrize("name", CASES)
def test_float64_carries_its_state_as_the_equations_do(name, build):
    case = CASES[name]
    for cut in case.cuts:
        model = build(case, torch.float64)
        assert_agreement(model, case.get_oracle(model), case.draw_text(case.cut_length), 1e-9, cut)
