"""The simple recurrent language model one sentence, one word and one layer at a time, from its equation."""

from typing import Any

import torch
from torch import Tensor

from memtune.models.families.rnn import RNNConfig
from tests.oracles.cases import EXAMPLE_SIZE, OracleCase, make_masked_case
from tests.oracles.lstm import apply_zoneout, compute_output_logits
from tests.oracles.output_layers import Parameters

ACTIVATIONS = {
    "tanh": torch.tanh,
    "sigmoid": lambda a: 1 / (1 + torch.exp(-a)),
    "relu": lambda a: a * (a > 0),
}


def compute_rnn_logits(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """logits[b][t], a vector over the vocabulary, from a zero state."""
    return [_read_sentence(config, parameters, words.tolist()) for words in tokens_BT]


def _read_sentence(config, parameters: Parameters, words: list[int]) -> list[Tensor]:
    f = ACTIVATIONS[config.activation]
    hidden = [parameters["embedding.weight"].new_zeros(config.width) for _ in range(config.layers)]
    outputs = []
    for word in words:
        x = parameters["embedding.weight"][word]
        for layer in range(config.layers):
            W, R, b, b_recurrent = (
                parameters[f"layers.{layer}.rnn.{name}_l0"]
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            x = hidden[layer] = f(W @ x + R @ hidden[layer] + b + b_recurrent)
        outputs.append(x)
    return compute_output_logits(config, parameters, outputs)


def compute_regularised_rnn_logits(
    config, parameters: Parameters, tokens_BT: Tensor, masks
) -> list[list[Tensor]]:
    """The logits under the masks of each layer and of the output, as the model draws them."""
    layers, output = masks
    logits = []
    for row, words in enumerate(tokens_BT):
        values = [parameters["embedding.weight"][word] for word in words.tolist()]
        for layer, mask in enumerate(layers):
            weights = [
                parameters[f"layers.{layer}.rnn.{name}_l0"]
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            ]
            values = _run_regularised_layer(ACTIVATIONS[config.activation], values, weights, mask, row)
        if output is not None:
            values = [h * output[row, 0] for h in values]
        logits.append(compute_output_logits(config, parameters, values))
    return logits


def _run_regularised_layer(f, inputs: list[Tensor], weights: list[Tensor], masks, row: int) -> list[Tensor]:
    W, R, b_input, b_recurrent = weights
    h = W.new_zeros(R.shape[0])
    outputs = []
    for t, x in enumerate(inputs):
        x = x if masks.input_B1E is None else x * masks.input_B1E[row, 0]
        read = h if masks.state_BH is None else h * masks.state_BH[row]
        candidate = f(W @ x + R @ read + b_input + b_recurrent)
        if masks.candidate_TBH is not None:
            candidate = candidate * masks.candidate_TBH[t, row]
        h = apply_zoneout(h, candidate, masks.kept_hidden_TBH, t, row)
        outputs.append(h)
    return outputs


def bind_masks(model):
    """The oracle under the masks that the model draws next; in evaluation, under their means."""

    def oracle(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
        masks = config.regularisation.draw_stack_masks(
            model.embedding(tokens_BT), config.width, config.layers, model.training
        )
        return compute_regularised_rnn_logits(config, parameters, tokens_BT, masks)

    return oracle


def make_case(**fields) -> OracleCase:
    config = RNNConfig(**{"width": 6, "initial_range": 0.5} | fields)
    return OracleCase(config=config, logits=compute_rnn_logits)


def make_regularised_case(is_training: bool = True, **fields) -> OracleCase:
    config = RNNConfig(width=6, initial_range=0.5, **fields)
    return make_masked_case(config, bind_masks, is_training=is_training)


ALL_REGULARISATION: dict[str, Any] = {
    "recurrent_dropout": 0.2,
    "variational_dropout": 0.3,
    "variational_recurrent_dropout": 0.4,
    "zoneout": 0.5,
    "layers": 2,
    "activation": "sigmoid",
}
IDENTITY = "e37135e30da6149f"
CASES = {
    "tanh": make_case(),
    "sigmoid": make_case(activation="sigmoid", initial_range=0.8),
    "relu": make_case(activation="relu"),
    "three layers of tanh": make_case(width=5, layers=3),
    "two layers of sigmoid, tied": make_case(
        width=5, layers=2, activation="sigmoid", tie_output=True, initial_range=0.8
    ),
    "narrow embeddings": make_case(layers=2, embedding_width=4),
    "recurrent dropout": make_regularised_case(recurrent_dropout=0.4),
    "variational dropout": make_regularised_case(variational_dropout=0.4, layers=2),
    "variational recurrent dropout": make_regularised_case(
        variational_recurrent_dropout=0.4, activation="relu"
    ),
    "zoneout": make_regularised_case(zoneout=0.4),
    "all regularisation": make_regularised_case(**ALL_REGULARISATION),
    "narrow embeddings, all regularisation": make_regularised_case(embedding_width=4, **ALL_REGULARISATION),
    "all regularisation, evaluation": make_regularised_case(is_training=False, **ALL_REGULARISATION),
}
EXAMPLES = [
    RNNConfig(**EXAMPLE_SIZE),
    RNNConfig(**EXAMPLE_SIZE, layers=2, activation="sigmoid", tie_output=True, dropout=0.4),
    RNNConfig(**EXAMPLE_SIZE, zoneout=0.3, recurrent_dropout=0.2),
    RNNConfig(**EXAMPLE_SIZE, embedding_width=3),
]
