"""A compiled network has the loss and the gradients of the plain one.

On a CPU the graphs that torch.compile captures run as they are ("aot_eager"); code generation for a GPU is
tested in tests/gpu.
"""

from functools import partial

import pytest
import torch
from torch import Tensor

from memtune.model_checks.family_contract import draw_text, make_model
from memtune.models import NeuralLanguageModel, negative_log_likelihood
from tests.oracles.table import list_examples

pytestmark = pytest.mark.long  # tracing takes seconds for each example

EXAMPLES = list_examples()


def compute_loss_and_gradients(model: NeuralLanguageModel, words_BT: Tensor) -> list[Tensor]:
    loss, _ = negative_log_likelihood(model, words_BT[:, :-1], words_BT[:, 1:])
    return [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]


@pytest.fixture(autouse=True)
def _captured_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))


@pytest.mark.filterwarnings("ignore")  # torch's compiler warns of its own internals
@pytest.mark.parametrize("config", EXAMPLES, ids=[f"{i}-{each.family}" for i, each in enumerate(EXAMPLES)])
def test_a_compiled_body_changes_neither_loss_nor_gradients(config):
    plain, compiled = make_model(config), make_model(config)
    compiled.wrap_body(lambda network: torch.compile(network.encode, dynamic=True))
    for length in (13, 9):
        words_BT = draw_text(3, length)
        torch.testing.assert_close(
            compute_loss_and_gradients(compiled, words_BT),
            compute_loss_and_gradients(plain, words_BT),
            rtol=1e-9,
            atol=1e-12,
        )
