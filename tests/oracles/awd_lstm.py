"""The AWD-LSTM one sentence, one word and one layer at a time, under given masks, and its regularisation.

Merity, Keskar and Socher (2017): masks multiply the recurrent matrix (section 2), the rows of the embedding
table and the inputs of each layer (sections 4.2 and 4.3); alpha and beta are those of section 4.6.
"""

from typing import Any

import torch
from torch import Tensor

from memtune.models.families.awd_lstm import AWDLSTMConfig
from tests.oracles.cases import EXAMPLE_SIZE, MASKED_LENGTHS, OracleCase
from tests.oracles.lstm import compute_output_logits
from tests.oracles.output_layers import Parameters


def compute_awd_lstm_logits(config, parameters: Parameters, tokens_BT: Tensor, masks) -> list[list[Tensor]]:
    """logits[b][t], a vector over the vocabulary, from a zero state."""
    _, masked = compute_awd_lstm_outputs(config, parameters, tokens_BT, masks)
    return [compute_output_logits(config, parameters, outputs) for outputs in masked]


def compute_awd_lstm_outputs(config, parameters: Parameters, tokens_BT: Tensor, masks):
    """[b][t] of the last layer's output, and of the same after dropout, which the output layer reads."""
    raw, masked = [], []
    for row, words in enumerate(tokens_BT):
        values = [_embed(parameters["embedding.weight"], masks, word, row) for word in words.tolist()]
        for layer in range(config.layers):
            values = _run_layer(parameters, layer, values, masks.recurrent_GH[layer])
            raw_values, values = values, [_apply_mask(h, masks.read_B1H[layer + 1], row) for h in values]
        raw.append(raw_values)
        masked.append(values)
    return raw, masked


def _embed(table: Tensor, masks, word: int, row: int) -> Tensor:
    vector = table[word] if masks.words_V is None else table[word] * masks.words_V[word]
    return _apply_mask(vector, masks.read_B1H[0], row)


def _apply_mask(vector: Tensor, mask_B1H: Tensor | None, row: int) -> Tensor:
    return vector if mask_B1H is None else vector * mask_B1H[row, 0]


def _run_layer(
    parameters: Parameters, layer: int, inputs: list[Tensor], recurrent_mask: Tensor | None
) -> list[Tensor]:
    W, U, b_input, b_recurrent = (
        parameters[f"layers.{layer}.{name}_l0"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    U = U if recurrent_mask is None else U * recurrent_mask
    h = c = W.new_zeros(U.shape[1])
    outputs = []
    for x in inputs:
        i, f, j, o = (W @ x + U @ h + b_input + b_recurrent).chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * j.tanh()
        h = o.sigmoid() * c.tanh()
        outputs.append(h)
    return outputs


def compute_activation_regularisation(
    config, raw_outputs, masked_outputs, is_counted: list[list[bool]]
) -> Tensor:
    """alpha times the mean square of the masked outputs, plus beta times that of the differences between
    steps, all times the number of counted tokens.
    """
    squares, steps = [], []
    for raw_row, masked_row, counts in zip(raw_outputs, masked_outputs, is_counted, strict=True):
        for t, count in enumerate(counts):
            if count:
                squares.append((masked_row[t] ** 2).mean())
            if t and count and counts[t - 1]:
                steps.append(((raw_row[t] - raw_row[t - 1]) ** 2).mean())
    per_token = config.activation_regularisation * torch.stack(squares).mean()
    if steps:
        per_token = per_token + config.temporal_regularisation * torch.stack(steps).mean()
    return len(squares) * per_token


def bind_masks(model):
    """The oracle under the masks that the model draws next; in evaluation there are none."""

    def oracle(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
        return compute_awd_lstm_logits(config, parameters, tokens_BT, model._draw_masks(len(tokens_BT)))

    return oracle


def make_case(is_training: bool, **fields) -> OracleCase:
    """Training cases have no activation regularisation, which changes the gradient but not the loss.

    Only evaluation cases have cuts: in training the second piece would have other masks.
    """
    unpenalised = {"activation_regularisation": 0.0, "temporal_regularisation": 0.0} if is_training else {}
    return OracleCase(
        config=AWDLSTMConfig(
            **{"embedding_width": 5, "width": 7, "initial_range": 0.5} | unpenalised | fields
        ),
        bind=bind_masks,
        is_training=is_training,
        lengths=MASKED_LENGTHS if is_training else (),
        cuts=() if is_training else (1, 7, 15),
        float32_lengths=(16,) if is_training else (),
    )


NO_DROPOUT = {
    "weight_drop": 0.0,
    "embedding_dropout": 0.0,
    "input_dropout": 0.0,
    "hidden_dropout": 0.0,
    "output_dropout": 0.0,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "as released": {},
    "weight drop alone": NO_DROPOUT | {"weight_drop": 0.5},
    "word dropout alone": NO_DROPOUT | {"embedding_dropout": 0.5},
    "two untied layers": {"layers": 2, "tie_output": False},
    "one layer": {"layers": 1},
}
IDENTITY = "2d555b3af6155b96"
CASES = {
    f"{name}, {'training' if is_training else 'evaluation'}": make_case(is_training, **options)
    for name, options in OPTIONS.items()
    for is_training in (True, False)
}
EXAMPLES = [
    AWDLSTMConfig(**EXAMPLE_SIZE, embedding_width=5),
    AWDLSTMConfig(**EXAMPLE_SIZE, embedding_width=6, layers=1, tie_output=False),
]
