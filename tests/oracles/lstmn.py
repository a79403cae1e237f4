"""The LSTM-network one sentence, one word and one layer at a time, from its equations.

Cheng, Dong and Lapata (2016), sections 3.2 and 3.3. Rows of the gates: output, input, forget, candidate.
"""

import torch
from torch import Tensor
from torch.nn import functional

from memtune.models.families.lstmn import LSTMNConfig
from tests.oracles.cases import EXAMPLE_SIZE, OracleCase
from tests.oracles.lstm import compute_output_logits
from tests.oracles.output_layers import Parameters


def compute_lstmn_logits(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """logits[b][t], a vector over the vocabulary, from a tape of one slot of zeros."""
    return [_read_sentence(config, parameters, words.tolist())[0] for words in tokens_BT]


def compute_lstmn_attention(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[list[Tensor]]]:
    """weights[b][layer][t], one weight for each existing slot, the oldest first."""
    return [_read_sentence(config, parameters, words.tolist())[1] for words in tokens_BT]


def _read_sentence(
    config, parameters: Parameters, words: list[int]
) -> tuple[list[Tensor], list[list[Tensor]]]:
    inputs = [parameters["embedding.weight"][word] for word in words]
    attention = []
    for layer in range(config.layers):
        hidden, attended, weights = _run_layer(config, parameters, f"layers.{layer}", inputs)
        attention.append(weights)
        if layer == 0 and "skip.weight" in parameters:
            inputs = [parameters["skip.weight"] @ x for x in inputs]
        if layer + 1 < config.layers:
            output = attended if config.layer_output == "attended" else hidden
            # 0 * h: without it, a state that no step reads has no gradient, instead of a gradient of zero.
            inputs = [x + y + 0 * h for x, y, h in zip(inputs, output, hidden, strict=True)]
    return compute_output_logits(config, parameters, hidden), attention


def _run_layer(
    config, parameters: Parameters, name: str, inputs: list[Tensor]
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    width = config.width
    W_gates_x = parameters[f"{name}.gates_input.weight"]
    W_gates_h = parameters[f"{name}.gates_attended.weight"]
    b = parameters[f"{name}.gates_input.bias"]
    zeros = W_gates_x.new_zeros(width)
    H, C, attended = [zeros], [zeros], [zeros]
    hidden, attention = [], []
    for x in inputs:
        if config.tape_size is not None:
            H, C = H[-config.tape_size :], C[-config.tape_size :]
        tape = torch.stack(H)
        s = _score(parameters, name, tape, x, attended[-1]).softmax(0)  # equations 4 and 5
        h_tilde, c_tilde = s @ tape, s @ torch.stack(C)  # equation 6
        o, i, f, c_hat = (W_gates_x @ x + W_gates_h @ h_tilde + b).split(width)  # equation 7
        c = f.sigmoid() * c_tilde + i.sigmoid() * c_hat.tanh()  # equation 8
        h = o.sigmoid() * c.tanh()  # equation 9
        H, C = [*H, h], [*C, c]
        hidden.append(h)
        attended.append(h_tilde)
        attention.append(s)
    return hidden, attended[1:], attention


def _score(parameters: Parameters, name: str, tape: Tensor, x: Tensor, h_tilde_before: Tensor) -> Tensor:
    """One score for each slot of the tape."""
    query = parameters[f"{name}.query_input.weight"] @ x
    if f"{name}.query_attended.weight" in parameters:
        query = query + parameters[f"{name}.query_attended.weight"] @ h_tilde_before
    return (tape @ parameters[f"{name}.key.weight"].T + query).tanh() @ parameters[f"{name}.score"]


def run_reference_layer(layer, inputs_BTE: Tensor) -> Tensor:
    """hidden_BTH of an `LSTMNLayer` without limit, from a slot of zeros: equations 4 to 9 for a whole batch.

    The slow reference of the benchmark: it computes no terms before the loop and keeps only the tapes.
    """
    zeros_BH = inputs_BTE.new_zeros(len(inputs_BTE), layer.width)
    hidden, memory, attended_BH = [zeros_BH], [zeros_BH], zeros_BH
    W = torch.cat([layer.gates_attended.weight, layer.gates_input.weight], dim=1)
    for x_BE in inputs_BTE.unbind(1):
        tape_BSH = torch.stack(hidden, dim=1)
        query_BH = layer.query_input(x_BE) + layer.query_attended(attended_BH)
        a_BS = (layer.key(tape_BSH) + query_BH.unsqueeze(1)).tanh() @ layer.score
        s_BS1 = a_BS.softmax(1).unsqueeze(2)
        attended_BH = (s_BS1 * tape_BSH).sum(1)
        remembered_BH = (s_BS1 * torch.stack(memory, dim=1)).sum(1)
        gates_BF = functional.linear(torch.cat([attended_BH, x_BE], dim=1), W, layer.gates_input.bias)
        o, i, f, candidate = gates_BF.chunk(4, dim=1)
        memory.append(f.sigmoid() * remembered_BH + i.sigmoid() * candidate.tanh())
        hidden.append(o.sigmoid() * memory[-1].tanh())
    return torch.stack(hidden[1:], dim=1)


def make_case(
    lengths: tuple[int, ...] = (1, 2),
    float32_lengths: tuple[int, ...] = (16,),
    rows: int = 2,
    **fields,
) -> OracleCase:
    """Wide initial values make attention uneven, so that reading a wrong slot changes the result.

    The cuts are inside, at the end of and after the first tape of 4 slots.
    """
    return OracleCase(
        config=LSTMNConfig(**{"width": 5, "initial_range": 0.8} | fields),
        logits=compute_lstmn_logits,
        lengths=lengths,
        float32_lengths=float32_lengths,
        cuts=(1, 3, 4, 10, 15),
        rows=rows,
    )


IDENTITY = "8de3912e09a4312e"
CASES = {
    "one layer": make_case(),
    "narrow embeddings": make_case(embedding_width=3),
    "two layers": make_case(layers=2),
    "three layers": make_case(layers=3),
    "three layers that pass on h": make_case(layers=3, layer_output="hidden"),
    "projected skip connection": make_case(layers=3, embedding_width=4),
    "without the previous attention": make_case(layers=2, previous_attention=False),
    "tape of four": make_case(layers=2, tape_size=4),
    "tape of one": make_case(tape_size=1),
    "tied": make_case(tie_output=True),
    "long sentence": make_case((33,), (), rows=1, width=3, layers=2),
    "long sentence, tape of fifteen": make_case((33,), (), rows=1, width=3, layers=2, tape_size=15),
    "long sentence in single precision": make_case((), (33,), width=8, initial_range=0.5),
}
EXAMPLES = [
    LSTMNConfig(**EXAMPLE_SIZE),
    LSTMNConfig(**EXAMPLE_SIZE, layers=3, embedding_width=6, dropout=0.4),
    LSTMNConfig(
        **EXAMPLE_SIZE,
        layers=2,
        tape_size=3,
        layer_output="hidden",
        previous_attention=False,
        tie_output=True,
    ),
]
