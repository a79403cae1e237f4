"""The LSTM language model one sentence, one word and one layer at a time, from its equations.

Tran, Bisazza and Monz (2016), section 2, with the standard cell: sigmoid on the three gates, tanh on the
candidate. The rows of torch's matrices are the input, forget, candidate and output gates, in this order.
"""

from typing import Any

from torch import Tensor

from memtune.models import LSTMConfig
from tests.oracles.cases import EXAMPLE_SIZE, OracleCase, make_masked_case
from tests.oracles.output_layers import Parameters, predict


def compute_lstm_logits(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """logits[b][t], a vector over the vocabulary, from a zero state."""
    return [_read_sentence(config, parameters, words.tolist()) for words in tokens_BT]


def _read_sentence(config, parameters: Parameters, words: list[int]) -> list[Tensor]:
    embeddings = [parameters["embedding.weight"][word] for word in words]
    hidden = run_lstm_stack(parameters, "stack.lstm", config.layers, embeddings)
    return compute_output_logits(config, parameters, hidden)


def run_lstm_stack(parameters: Parameters, name: str, layers: int, inputs: list[Tensor]) -> list[Tensor]:
    """The last layer's hidden vector after each input, from a zero state."""
    for layer in range(layers):
        inputs = _run_layer(
            inputs,
            parameters[f"{name}.weight_ih_l{layer}"],
            parameters[f"{name}.weight_hh_l{layer}"],
            parameters[f"{name}.bias_ih_l{layer}"] + parameters[f"{name}.bias_hh_l{layer}"],
        )
    return inputs


def _run_layer(inputs: list[Tensor], W: Tensor, U: Tensor, b: Tensor) -> list[Tensor]:
    hidden = cell = W.new_zeros(U.shape[1])
    outputs = []
    for x in inputs:
        i, f, j, o = (W @ x + U @ hidden + b).chunk(4)
        cell = cell * f.sigmoid() + i.sigmoid() * j.tanh()
        hidden = cell.tanh() * o.sigmoid()
        outputs.append(hidden)
    return outputs


def compute_output_logits(config, parameters: Parameters, hidden: list[Tensor]) -> list[Tensor]:
    return [predict(config, parameters, h) for h in hidden]


def compute_regularised_lstm_logits(
    config, parameters: Parameters, tokens_BT: Tensor, masks
) -> list[list[Tensor]]:
    """The logits under the masks of each layer and of the output, as `LSTMStack` draws them.

    Semeniuta et al. (2016): a mask multiplies the candidate. Gal and Ghahramani (2016): one mask per sequence
    multiplies inputs, output and the state that the gates read. Krueger et al. (2017): kept units have their
    previous value, and the hidden state is computed from the cell before zoneout.
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
            values = _run_regularised_layer(values, weights, mask, row)
        if output is not None:
            values = [h * output[row, 0] for h in values]
        logits.append(compute_output_logits(config, parameters, values))
    return logits


def _run_regularised_layer(inputs: list[Tensor], weights: list[Tensor], masks, row: int) -> list[Tensor]:
    W, U, b_input, b_recurrent = weights
    h = c = W.new_zeros(U.shape[1])
    outputs = []
    for t, x in enumerate(inputs):
        x = x if masks.input_B1E is None else x * masks.input_B1E[row, 0]
        read = h if masks.state_BH is None else h * masks.state_BH[row]
        i, f, j, o = (W @ x + U @ read + b_input + b_recurrent).chunk(4)
        j = j.tanh() if masks.candidate_TBH is None else j.tanh() * masks.candidate_TBH[t, row]
        cell = f.sigmoid() * c + i.sigmoid() * j
        hidden = o.sigmoid() * cell.tanh()
        c = apply_zoneout(c, cell, masks.kept_cell_TBH, t, row)
        h = apply_zoneout(h, hidden, masks.kept_hidden_TBH, t, row)
        outputs.append(h)
    return outputs


def apply_zoneout(before: Tensor, after: Tensor, share_TBH: Tensor | None, t: int, row: int) -> Tensor:
    if share_TBH is None:
        return after
    return share_TBH[t, row] * before + (1 - share_TBH[t, row]) * after


def bind_masks(model):
    """The oracle under the masks that the model draws next; in evaluation, under their means."""

    def oracle(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
        masks = config.regularisation.draw_stack_masks(
            model.embedding(tokens_BT), config.width, config.layers, model.training
        )
        return compute_regularised_lstm_logits(config, parameters, tokens_BT, masks)

    return oracle


def make_case(**fields) -> OracleCase:
    config = LSTMConfig(**{"width": 6, "initial_range": 0.5} | fields)
    return OracleCase(config=config, logits=compute_lstm_logits)


def make_regularised_case(is_training: bool = True, **fields) -> OracleCase:
    config = LSTMConfig(width=6, initial_range=0.5, **fields)
    return make_masked_case(config, bind_masks, is_training=is_training, float32_lengths=(16,))


ALL_REGULARISATION: dict[str, Any] = {
    "recurrent_dropout": 0.2,
    "variational_dropout": 0.3,
    "variational_recurrent_dropout": 0.4,
    "zoneout_cell": 0.5,
    "zoneout_hidden": 0.1,
    "layers": 2,
}
IDENTITY = "2ca659713fccff34"
CASES = {
    "one layer": make_case(),
    "three layers": make_case(width=5, layers=3),
    "tied": make_case(tie_output=True),
    "narrow embeddings": make_case(layers=2, embedding_width=4),
    "recurrent dropout": make_regularised_case(recurrent_dropout=0.4),
    "variational dropout": make_regularised_case(variational_dropout=0.4),
    "variational recurrent dropout": make_regularised_case(variational_recurrent_dropout=0.4),
    "zoneout of cells": make_regularised_case(zoneout_cell=0.4),
    "zoneout of hidden units": make_regularised_case(zoneout_hidden=0.4),
    "all regularisation": make_regularised_case(**ALL_REGULARISATION),
    "narrow embeddings, all regularisation": make_regularised_case(embedding_width=4, **ALL_REGULARISATION),
    "all regularisation, evaluation": make_regularised_case(is_training=False, **ALL_REGULARISATION),
}
EXAMPLES = [
    LSTMConfig(**EXAMPLE_SIZE),
    LSTMConfig(**EXAMPLE_SIZE, layers=3, tie_output=True, dropout=0.4),
    LSTMConfig(**EXAMPLE_SIZE, zoneout_cell=0.3, variational_dropout=0.4),
    LSTMConfig(**EXAMPLE_SIZE, embedding_width=3),
]
