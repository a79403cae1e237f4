"""The depth-gated LSTM one sentence, one word and one layer at a time, from its equations.

Yao et al. (2015). Rows of the gates: depth (where there is one), output, input, forget, candidate.
"""

from torch import Tensor

from memtune.models.families.depth_gated_lstm import DepthGatedLSTMConfig
from tests.oracles.cases import EXAMPLE_SIZE, OracleCase
from tests.oracles.lstm import compute_output_logits
from tests.oracles.output_layers import Parameters


def compute_depth_gated_lstm_logits(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """logits[b][t], a vector over the vocabulary, from a zero state."""
    return [_read_sentence(config, parameters, words.tolist()) for words in tokens_BT]


def _read_sentence(config, parameters: Parameters, words: list[int]) -> list[Tensor]:
    zeros = parameters["output.bias"].new_zeros(config.width)
    hidden, cells = [zeros] * config.layers, [zeros] * config.layers
    outputs = []
    for word in words:
        x, below = parameters["embedding.weight"][word], None
        for layer in range(config.layers):
            x, below = _step(config, parameters, f"layers.{layer}", x, below, hidden[layer], cells[layer])
            hidden[layer], cells[layer] = x, below
        outputs.append(x)
    return compute_output_logits(config, parameters, outputs)


def _step(
    config, parameters: Parameters, name: str, x: Tensor, below: Tensor | None, h: Tensor, c: Tensor
) -> tuple[Tensor, Tensor]:
    W, b = parameters[f"{name}.gates.weight"], parameters[f"{name}.gates.bias"]
    R = parameters[f"{name}.recurrent.weight"]
    *depth, o, i, f, candidate = (W @ x + b).split(config.width)
    R_o, R_i, R_f, R_candidate = R.split(config.width)
    o = (o + R_o @ h).sigmoid()
    i = (i + R_i @ h).sigmoid()
    f = (f + R_f @ h).sigmoid()
    memory = f * c + i * (candidate + R_candidate @ h).tanh()
    if depth:
        d = depth[0] + _weight_memory(parameters[f"{name}.cell_weight"], c)
        if below is None:
            below = parameters[f"{name}.value.weight"] @ x
        else:
            d = d + _weight_memory(parameters[f"{name}.lower_weight"], below)
        memory = memory + d.sigmoid() * below
    return o * memory.tanh(), memory


def _weight_memory(weight: Tensor, memory: Tensor) -> Tensor:
    return weight * memory if weight.dim() == 1 else weight @ memory


def make_case(**fields) -> OracleCase:
    """Wide initial values, so that the gates are not close to one half."""
    config = DepthGatedLSTMConfig(**{"width": 5, "initial_range": 0.8} | fields)
    return OracleCase(config=config, logits=compute_depth_gated_lstm_logits)


IDENTITY = "ce1199805a159c67"
CASES = {
    "three layers": make_case(),
    "narrow embeddings": make_case(embedding_width=3),
    "linked input": make_case(layers=2, embedding_width=4, link_input=True),
    "one linked layer": make_case(layers=1, link_input=True),
    "full gate weights": make_case(gate_weights="full"),
    "full gate weights, linked input": make_case(layers=2, gate_weights="full", link_input=True),
    "tied": make_case(layers=2, tie_output=True),
}
EXAMPLES = [
    DepthGatedLSTMConfig(**EXAMPLE_SIZE, dropout=0.4),
    DepthGatedLSTMConfig(**EXAMPLE_SIZE, layers=2, gate_weights="full", link_input=True, tie_output=True),
]
