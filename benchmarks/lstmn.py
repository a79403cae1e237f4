"""An LSTMN layer against the eager loop as written, and an LSTMN's training step against an LSTM's.

The layer reads embeddings of 150 into a width of 300 as in Cheng et al. (2016), section 5.1, forward and
back, from the gradient of its hidden states. The step is loss, back-propagation, clipping and SGD of a whole
model with 10,000 words and the same output layer on both sides.

    python -m benchmarks.lstmn [--repeats 15]
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.side_by_side import compare, describe_machine, refuse
from memtune.models import Architecture, LSTMConfig, LSTMNConfig, build_model, negative_log_likelihood
from memtune.models.lstmn import LSTMNLayer
from memtune.training.configuration import TrainingConfig
from memtune.training.updates import Updates
from tests.oracles.agreement import assert_agreement, assert_near
from tests.oracles.lstmn import layer_as_written, lstmn_logits

EMBEDDING, WIDTH, WORDS = 150, 300, 10_000
LAYERS = [(40, 35, 1.8, 2.7), (20, 100, 2.5, 4.5)]
"""Rows, words a row, must and goal."""
STEP_BATCH, STEP_LENGTH, STEP_MUST, STEP_GOAL = 40, 35, 0.72, 0.82


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    try:
        require_agreement()
    except AssertionError as error:
        raise refuse(error) from None
    print(describe_machine())
    for batch, length, must, goal in LAYERS:
        slow, fast = (layer_work(read, batch, length) for read in (layer_as_written, layer_as_built))
        name = f"LSTMN layer / eager loop as written, B={batch}, T={length}"
        print(compare(slow, fast, repeats).line(name, goal, must), flush=True)
    lstm, lstmn = LSTMConfig(width=WIDTH), LSTMNConfig(width=WIDTH)
    ratio = compare(training_step(lstm), training_step(lstmn), repeats)
    name = f"LSTMN tokens/s / LSTM, same head, V={WORDS // 1000}k, T={STEP_LENGTH}"
    print(ratio.line(name, STEP_GOAL, STEP_MUST))


def require_agreement() -> None:
    """The model with its equations, and both sides with one another in float64, at the width measured."""
    config = LSTMNConfig(width=WIDTH, embedding_width=EMBEDDING)
    words_BT = torch.randint(50, (1, 36), generator=torch.Generator().manual_seed(0))
    assert_agreement(build_model(config, 50, seed=0), lstmn_logits, words_BT, tolerance=1e-5)
    for batch, length, *_ in LAYERS:
        fast, slow = (
            layer_gradients(new_layer().double(), read, inputs(batch, length).double())
            for read in (layer_as_built, layer_as_written)
        )
        for value, reference in zip(fast, slow, strict=True):
            assert_near(value, reference, 1e-9, f"layer, T={length}")


def layer_gradients(layer: LSTMNLayer, read: Callable[..., Tensor], inputs_BTE: Tensor) -> tuple[Tensor, ...]:
    hidden_BTH = read(layer, inputs_BTE)
    total = (hidden_BTH * output_gradient(*inputs_BTE.shape[:2])).sum()
    return hidden_BTH, *torch.autograd.grad(total, list(layer.parameters()))


def layer_as_built(layer: LSTMNLayer, inputs_BTE: Tensor) -> Tensor:
    batch = len(inputs_BTE)
    zeros = inputs_BTE.new_zeros(batch, 1, 2 * WIDTH), inputs_BTE.new_zeros(batch, WIDTH)
    tape_BND, _, _ = layer(inputs_BTE, *zeros)
    return tape_BND[:, 1:, :WIDTH]


def layer_work(read: Callable[..., Tensor], batch: int, length: int) -> Callable[[], None]:
    layer, inputs_BTE = new_layer(), inputs(batch, length).requires_grad_()
    gradient_BTH = output_gradient(batch, length)

    def run() -> None:
        layer.zero_grad()
        inputs_BTE.grad = None
        read(layer, inputs_BTE).backward(gradient_BTH)

    return run


def training_step(config: Architecture) -> Callable[[], None]:
    """Loss, back-propagation, clipping and SGD as a trial does them."""
    model = build_model(config, WORDS, seed=0)
    updates = Updates(TrainingConfig(epochs=1), model, torch.device("cpu"))
    generator = torch.Generator().manual_seed(1)
    inputs_BT, targets_BT = torch.randint(WORDS, (2, STEP_BATCH, STEP_LENGTH), generator=generator)

    def run() -> None:
        nats, _ = negative_log_likelihood(model, inputs_BT, targets_BT)
        updates.step(nats / (STEP_BATCH * STEP_LENGTH), learning_rate=1.0)

    return run


def new_layer() -> LSTMNLayer:
    layer = LSTMNLayer(EMBEDDING, WIDTH, limit=None, previous_attention=True)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-0.05, 0.05, generator=generator)
    return layer


def inputs(batch: int, length: int) -> Tensor:
    return torch.randn(batch, length, EMBEDDING, generator=torch.Generator().manual_seed(1))


def output_gradient(batch: int, length: int) -> Tensor:
    return torch.randn(batch, length, WIDTH, generator=torch.Generator().manual_seed(2))


if __name__ == "__main__":
    main()
