"""The LSTM language model one sentence, one word and one layer at a time, from its equations.

Tran, Bisazza and Monz (2016), section 2, with the standard cell: sigmoid on the three gates, tanh on the
candidate. The rows of torch's matrices are the input, forget, candidate and output gates, in this order.
"""

from torch import Tensor

from tests.oracles.output_layers import Parameters, predict


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
    return [predict(config, parameters, h) for h in hidden]


def regularised_lstm_logits(config, parameters: Parameters, tokens_BT: Tensor, masks) -> list[list[Tensor]]:
    """The same under the masks of each layer and that of the output, as `LSTMStack` draws them.

    Semeniuta et al. (2016): the candidate times its mask. Gal and Ghahramani (2016): inputs, output and the
    state that the gates read times one mask a sequence. Krueger et al. (2017): kept units stay as they were,
    and the hidden state comes from the cell before any of it is kept.
    """
    layers, output = masks
    logits = []
    for row, words in enumerate(tokens_BT):
        values = [parameters["embedding.weight"][word] for word in words.tolist()]
        for layer, mask in enumerate(layers):
            weights = [
                parameters[f"stack.lstm.{name}_l{layer}"]
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            ]
            values = _regularised_layer(values, weights, mask, row)
        if output is not None:
            values = [h * output[row, 0] for h in values]
        logits.append(output_logits(config, parameters, values))
    return logits


def _regularised_layer(inputs: list[Tensor], weights: list[Tensor], masks, row: int) -> list[Tensor]:
    W, U, b_input, b_recurrent = weights
    width = U.shape[1]
    h = c = W.new_zeros(width)
    outputs = []
    for t, x in enumerate(inputs):
        x = x if masks.input_B1E is None else x * masks.input_B1E[row, 0]
        read = h if masks.state_BH is None else h * masks.state_BH[row]
        gates = W @ x + U @ read + b_input + b_recurrent
        i = gates[0 * width : 1 * width].sigmoid()
        f = gates[1 * width : 2 * width].sigmoid()
        j = gates[2 * width : 3 * width].tanh()
        o = gates[3 * width : 4 * width].sigmoid()
        j = j if masks.candidate_TBH is None else j * masks.candidate_TBH[t, row]
        cell = f * c + i * j
        hidden = o * cell.tanh()
        c = kept(c, cell, masks.kept_cell_TBH, t, row)
        h = kept(h, hidden, masks.kept_hidden_TBH, t, row)
        outputs.append(h)
    return outputs


def kept(before: Tensor, after: Tensor, share_TBH: Tensor | None, t: int, row: int) -> Tensor:
    if share_TBH is None:
        return after
    return share_TBH[t, row] * before + (1 - share_TBH[t, row]) * after
