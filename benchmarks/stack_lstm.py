"""The multipop stack against the sum over its 22 states: forward and backward of policy, stack, combination.

Both sides get the same embeddings and hidden states; the LSTM, which does not read the stack, is excluded. At
the paper's width, the time of the stack is also compared with that of the LSTM.

    python -m benchmarks.stack_lstm [--width 128 650]
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.side_by_side import compare_times, describe_machine, make_refusal
from memtune.model_checks.oracles import assert_agreement, assert_near
from memtune.models import build_model
from memtune.models.families.stack_lstm import StackLSTMConfig, StackLSTMLanguageModel
from tests.oracles.stack_lstm import compute_next_stack, compute_stack_lstm_logits

STEPS, WORDS = 35, 300
BATCH = {128: 20, 650: 32}
MUST, GOAL = 4.5, 7.5
LSTM_GOALS = {650: 0.8}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--width", type=int, nargs="+", default=[128, 650])
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(describe_machine())
    for width in arguments.width:
        for line in measure(width, arguments.repeats):
            print(line, flush=True)


def measure(width: int, repeats: int) -> list[str]:
    config = StackLSTMConfig(width=width)
    model = build_model(config, WORDS, seed=0)
    assert isinstance(model, StackLSTMLanguageModel)
    (embedded_BTH, hidden_BTH), gradient_BTH = make_inputs(width)
    parameters = [*model.stack.parameters(), *model.combination.parameters()]
    wanted = [embedded_BTH, hidden_BTH, *parameters]
    summed = make_step(lambda: run_summed_layer(model, embedded_BTH, hidden_BTH), wanted, gradient_BTH)
    ours = make_step(lambda: run_our_layer(model, embedded_BTH, hidden_BTH), wanted, gradient_BTH)
    try:
        require_agreement(model, summed(), ours())
    except AssertionError as error:
        raise make_refusal(error) from None
    states = 2 * (config.stack_size + 1)
    name = f"sum over {states} states / multipop stack, d={width}"
    lines = [compare_times(summed, ours, repeats).format_measure(name, GOAL, MUST)]
    if width in LSTM_GOALS:
        wanted = [embedded_BTH, *model.lstm.parameters()]
        lstm = make_step(lambda: run_lstm_layer(model, embedded_BTH), wanted, gradient_BTH)
        ratio = compare_times(ours, lstm, repeats)
        name = f"multipop stack / nn.LSTM time, d={width}"
        lines.append(ratio.format_measure(name, LSTM_GOALS[width], at_most=True))
    return lines


def make_inputs(width: int) -> tuple[list[Tensor], Tensor]:
    """Embeddings and hidden states that require gradients, and the gradient of the layer's output."""
    generator = torch.Generator().manual_seed(0)
    shape = BATCH.get(width, 20), STEPS, width
    embedded, hidden, gradient = (torch.randn(shape, generator=generator).mul_(0.3) for _ in range(3))
    return [embedded.requires_grad_(), hidden.requires_grad_()], gradient


def run_our_layer(model: StackLSTMLanguageModel, embedded_BTH: Tensor, hidden_BTH: Tensor) -> Tensor:
    cells_BKH = model.initial_state(len(hidden_BTH))["stack"]
    top_BTH, _ = model.stack(embedded_BTH, hidden_BTH, cells_BKH)
    return model.combination(top_BTH, hidden_BTH)


def run_summed_layer(model: StackLSTMLanguageModel, embedded_BTH: Tensor, hidden_BTH: Tensor) -> Tensor:
    parameters: dict[str, Tensor] = dict(model.named_parameters())
    cells_BKH = model.initial_state(len(hidden_BTH))["stack"]
    tops = []
    for embedded_BH, hidden_BH in zip(embedded_BTH.unbind(1), hidden_BTH.unbind(1), strict=True):
        cells_BKH, _ = compute_next_stack(model.config, parameters, cells_BKH, embedded_BH, hidden_BH)
        tops.append(cells_BKH[:, 0])
    return model.combination(torch.stack(tops, dim=1), hidden_BTH)


def run_lstm_layer(model: StackLSTMLanguageModel, embedded_BTH: Tensor) -> Tensor:
    return model.lstm(embedded_BTH, model.initial_state(len(embedded_BTH)))[0]


def make_step(
    layer: Callable[[], Tensor], wanted: list[Tensor], gradient_BTH: Tensor
) -> Callable[[], list[Tensor]]:
    """A step that returns the output of a layer and the gradients of its inputs and parameters."""

    def run() -> list[Tensor]:
        output_BTH = layer()
        return [output_BTH.detach(), *torch.autograd.grad(output_BTH, wanted, gradient_BTH)]

    return run


def require_agreement(model: StackLSTMLanguageModel, summed: list[Tensor], ours: list[Tensor]) -> None:
    """Compare the two sides with each other, and the model with its equations in float64."""
    for index, (reference, value) in enumerate(zip(summed, ours, strict=True)):
        assert_near(value, reference.double(), 1e-5, f"output or gradient {index}")
    words_BT = torch.randint(WORDS, (1, STEPS + 1), generator=torch.Generator().manual_seed(0))
    assert_agreement(model, compute_stack_lstm_logits, words_BT, tolerance=1e-5)


if __name__ == "__main__":
    main()
