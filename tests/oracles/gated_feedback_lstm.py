"""The gated-feedback LSTM one sentence, one word, one layer and one gate at a time, from its equations.

Chung et al. (2015), section 3. Rows of the gates: candidate, output, input, forget.
"""

import torch
from torch import Tensor

from memtune.models.families.gated_feedback_lstm import GatedFeedbackLSTMConfig
from tests.oracles.cases import EXAMPLE_SIZE, OracleCase
from tests.oracles.lstm import compute_output_logits
from tests.oracles.output_layers import Parameters


def compute_gated_feedback_lstm_logits(
    config, parameters: Parameters, tokens_BT: Tensor
) -> list[list[Tensor]]:
    """logits[b][t], a vector over the vocabulary, from a zero state."""
    return [_read_sentence(config, parameters, words.tolist()) for words in tokens_BT]


def _read_sentence(config, parameters: Parameters, words: list[int]) -> list[Tensor]:
    zeros = parameters["output.bias"].new_zeros(config.width)
    hidden, cells = [zeros] * config.layers, [zeros] * config.layers
    outputs = []
    for word in words:
        x, before = parameters["embedding.weight"][word], list(hidden)
        for layer in range(config.layers):
            x, cells[layer] = _step(config, parameters, layer, x, before, cells[layer])
            hidden[layer] = x
        outputs.append(x)
    return compute_output_logits(config, parameters, outputs)


def _step(
    config, parameters: Parameters, layer: int, x: Tensor, before: list[Tensor], c: Tensor
) -> tuple[Tensor, Tensor]:
    name = f"layers.{layer}"
    sums = parameters[f"{name}.gates.weight"] @ x + parameters[f"{name}.gates.bias"]
    candidate, o, i, f = sums.split(config.width)
    R_o, R_i, R_f = parameters[f"{name}.recurrent.weight"].split(config.width)
    o = (o + R_o @ before[layer]).sigmoid()
    i = (i + R_i @ before[layer]).sigmoid()
    f = (f + R_f @ before[layer]).sigmoid()
    h_star = torch.cat(before)
    for source, h in enumerate(before):
        w = parameters[f"{name}.reset_input.weight"][source]
        u = parameters[f"{name}.reset_states.weight"][source]
        g = (w @ x + u @ h_star).sigmoid()
        candidate = candidate + g * (parameters[f"{name}.feedback"][source] @ h)
    c = f * c + i * candidate.tanh()
    return o * c.tanh(), c


def make_case(**fields) -> OracleCase:
    """Wide initial values, so that the gates are not close to one half."""
    config = GatedFeedbackLSTMConfig(**{"width": 5, "initial_range": 0.8} | fields)
    return OracleCase(config=config, logits=compute_gated_feedback_lstm_logits)


IDENTITY = "a944ee55136c6ca0"
CASES = {
    "three layers": make_case(),
    "narrow embeddings": make_case(embedding_width=3),
    "one layer": make_case(layers=1),
    "tied": make_case(layers=2, tie_output=True),
}
EXAMPLES = [
    GatedFeedbackLSTMConfig(**EXAMPLE_SIZE, dropout=0.4),
    GatedFeedbackLSTMConfig(**EXAMPLE_SIZE, layers=2, tie_output=True),
]
