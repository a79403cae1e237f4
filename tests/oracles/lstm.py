"""The LSTM language model one sentence, one word and one layer at a time, from its equations.

Tran, Bisazza and Monz (2016), section 2, with the standard cell: sigmoid on the three gates, tanh on the
candidate. The rows of torch's matrices are the input, forget, candidate and output gates, in this order.
"""

from torch import Tensor

Parameters = dict[str, Tensor]


def lstm_logits(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """logits[b][t], a vector over the vocabulary, from a zero state."""
    return [_sentence(config, parameters, words.tolist()) for words in tokens_BT]


def _sentence(config, parameters: Parameters, words: list[int]) -> list[Tensor]:
    embeddings = [parameters["embedding.weight"][word] for word in words]
    hidden = lstm_stack(parameters, "stack.lstm", config.layers, embeddings)
    return output_logits(config, parameters, hidden)


def lstm_stack(parameters: Parameters, name: str, layers: int, inputs: list[Tensor]) -> list[Tensor]:
    """The last layer's hidden vector after each input, from a zero state."""
    for layer in range(layers):
        inputs = _layer(
            inputs,
            parameters[f"{name}.weight_ih_l{layer}"],
            parameters[f"{name}.weight_hh_l{layer}"],
            parameters[f"{name}.bias_ih_l{layer}"] + parameters[f"{name}.bias_hh_l{layer}"],
        )
    return inputs


def _layer(inputs: list[Tensor], W: Tensor, U: Tensor, b: Tensor) -> list[Tensor]:
    width = U.shape[1]
    hidden = cell = W.new_zeros(width)
    outputs = []
    for x in inputs:
        gates = W @ x + U @ hidden + b
        i = gates[0 * width : 1 * width].sigmoid()
        f = gates[1 * width : 2 * width].sigmoid()
        j = gates[2 * width : 3 * width].tanh()
        o = gates[3 * width : 4 * width].sigmoid()
        cell = cell * f + i * j
        hidden = cell.tanh() * o
        outputs.append(hidden)
    return outputs


def output_logits(config, parameters: Parameters, hidden: list[Tensor]) -> list[Tensor]:
    table = parameters["embedding.weight" if config.tie_output else "output.weight"]
    return [table @ h + parameters["output.bias"] for h in hidden]
