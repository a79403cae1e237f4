"""Bodies that run as CUDA graphs: losses, gradients and states are those of plain passes."""

from itertools import product

import pytest
import torch
from torch import Tensor

from memtune.model_checks.family_contract import draw_text, make_model
from memtune.models import NeuralLanguageModel, negative_log_likelihood
from memtune.training import open_device
from memtune.training.optimisation.cuda_graphs import GraphedBody
from tests.gpu.cuda import needs_cuda
from tests.oracles.table import list_examples

pytestmark = needs_cuda

EXAMPLES = [each for each in list_examples() if not each.reads_trees]
LENGTHS = (9, 13)
PASSES = 4
"""The second one of a shape is captured, and later ones are replayed."""


def make_pair(config) -> tuple[NeuralLanguageModel, NeuralLanguageModel, GraphedBody]:
    """The same model plain and with graphs."""
    plain, graphed = (make_model(config).train().to(open_device("cuda")) for _ in range(2))
    body = GraphedBody(graphed)
    graphed.wrap_body(lambda _: body)
    return plain, graphed, body


def run_passes(model: NeuralLanguageModel) -> list[Tensor]:
    """Losses, gradients, and the carried state of passes over two shapes in turn."""
    found: list[Tensor] = []
    state = None
    for number, length in product(range(PASSES), LENGTHS):
        torch.manual_seed(number)
        words_BT = draw_text(3, length).to("cuda")
        loss, after = negative_log_likelihood(model, words_BT[:, :-1], words_BT[:, 1:], state=state)
        model.zero_grad()
        loss.backward()
        state = {name: tensor.detach() for name, tensor in after.items()}
        gradients = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
        found += [loss.detach(), *gradients, *(state[name].clone() for name in sorted(state))]
        del loss, after  # as in training, where the graph of a pass ends before the next
    return found


@pytest.mark.parametrize("config", EXAMPLES, ids=[f"{i}-{each.family}" for i, each in enumerate(EXAMPLES)])
def test_passes_as_graphs_are_those_of_the_plain_network(config):
    plain, graphed, body = make_pair(config)
    torch.testing.assert_close(run_passes(graphed), run_passes(plain), rtol=1e-9, atol=1e-11)
    for own, other in zip(graphed.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(own, other)
    assert body.can_capture or getattr(config, "linear_start", False)


def compute_gradients(model: NeuralLanguageModel, *texts: Tensor) -> list[Tensor]:
    """Of the summed loss of texts, whose passes all come before the backward pass."""
    losses = [negative_log_likelihood(model, words_BT[:, :-1], words_BT[:, 1:])[0] for words_BT in texts]
    return list(torch.autograd.grad(torch.stack(losses).sum(), list(model.parameters())))


@pytest.mark.parametrize("family", ["lstm", "mixer_blocks"])
def test_a_network_that_reads_two_texts_before_the_backward_pass_has_its_gradients(family):
    config = next(each for each in EXAMPLES if each.family == family)
    plain, graphed, _ = make_pair(config)
    texts = [draw_text(3, 9).to("cuda"), draw_text(3, 9).flip(1).to("cuda")]
    for _ in range(PASSES):
        torch.testing.assert_close(
            compute_gradients(graphed, *texts), compute_gradients(plain, *texts), rtol=1e-9, atol=1e-11
        )


def test_a_network_that_waits_for_the_gpu_runs_as_it_is_and_leaves_the_gpu_usable():
    config = next(each for each in EXAMPLES if each.family == "memory_network")
    plain, graphed, body = make_pair(config.model_copy(update={"linear_start": True}))
    stream = torch.cuda.current_stream()
    torch.testing.assert_close(run_passes(graphed), run_passes(plain), rtol=1e-9, atol=1e-11)
    assert not body.can_capture
    assert torch.cuda.current_stream() == stream
    torch.cuda.empty_cache()
    assert torch.nn.functional.dropout(torch.ones(999, device="cuda")).unique().numel() == 2


def test_gradients_of_several_backward_passes_add_up():
    config = next(each for each in EXAMPLES if each.family == "lstm")
    plain, graphed, _ = make_pair(config)
    words_BT = draw_text(3, 9).to("cuda")
    for model in (plain, graphed):
        for _ in range(PASSES):
            negative_log_likelihood(model, words_BT[:, :-1], words_BT[:, 1:])[0].backward()
    for own, other in zip(graphed.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad, rtol=1e-9, atol=1e-11)
