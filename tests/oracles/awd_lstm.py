"""The AWD-LSTM one sentence, one word and one layer at a time, under given masks, and its regularisation.

Merity, Keskar and Socher (2017): the recurrent matrix times its mask (section 2), the embedding table's rows
and everything that is read times theirs (sections 4.2 and 4.3), alpha and beta of section 4.6.
"""

import torch
from torch import Tensor

from tests.oracles.lstm import Parameters, output_logits


def awd_lstm_logits(config, parameters: Parameters, tokens_BT: Tensor, masks) -> list[list[Tensor]]:
    """logits[b][t], a vector over the vocabulary, from a zero state."""
    _, shown = awd_lstm_outputs(config, parameters, tokens_BT, masks)
    return [output_logits(config, parameters, outputs) for outputs in shown]


def awd_lstm_outputs(config, parameters: Parameters, tokens_BT: Tensor, masks):
    """[b][t] of what the last layer gives, and of what the output layer reads."""
    raw, shown = [], []
    for row, words in enumerate(tokens_BT):
        values = [_embedded(parameters["embedding.weight"], masks, word, row) for word in words.tolist()]
        for layer in range(config.layers):
            values = _layer(parameters, layer, values, masks.recurrent_GH[layer])
            raw_values, values = values, [_times(h, masks.read_B1H[layer + 1], row) for h in values]
        raw.append(raw_values)
        shown.append(values)
    return raw, shown


def _embedded(table: Tensor, masks, word: int, row: int) -> Tensor:
    vector = table[word] if masks.words_V is None else table[word] * masks.words_V[word]
    return _times(vector, masks.read_B1H[0], row)


def _times(vector: Tensor, mask_B1H: Tensor | None, row: int) -> Tensor:
    return vector if mask_B1H is None else vector * mask_B1H[row, 0]


def _layer(parameters: Parameters, layer: int, inputs: list[Tensor], drop: Tensor | None) -> list[Tensor]:
    W, U, b_input, b_recurrent = (
        parameters[f"layers.{layer}.{name}_l0"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    U = U if drop is None else U * drop
    width = U.shape[1]
    h = c = W.new_zeros(width)
    outputs = []
    for x in inputs:
        gates = W @ x + U @ h + b_input + b_recurrent
        i = gates[0 * width : 1 * width].sigmoid()
        f = gates[1 * width : 2 * width].sigmoid()
        j = gates[2 * width : 3 * width].tanh()
        o = gates[3 * width : 4 * width].sigmoid()
        c = f * c + i * j
        h = o * c.tanh()
        outputs.append(h)
    return outputs


def activation_regularisation(config, raw, shown, counted: list[list[bool]]) -> Tensor:
    """alpha times the mean square of what is shown, beta times that of the steps, times the tokens."""
    squares, steps = [], []
    for raw_row, shown_row, counts in zip(raw, shown, counted, strict=True):
        for t, count in enumerate(counts):
            if count:
                squares.append((shown_row[t] ** 2).mean())
            if t and count and counts[t - 1]:
                steps.append(((raw_row[t] - raw_row[t - 1]) ** 2).mean())
    per_token = config.activation_regularisation * torch.stack(squares).mean()
    if steps:
        per_token = per_token + config.temporal_regularisation * torch.stack(steps).mean()
    return len(squares) * per_token
