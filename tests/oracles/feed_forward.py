"""The feed-forward n-gram network one word at a time: Bengio et al. (2003), equation 1."""

import torch
from torch import Tensor

from memtune.models.families.feed_forward import FeedForwardConfig
from tests.oracles.cases import EXAMPLE_SIZE, OracleCase
from tests.oracles.output_layers import Parameters


def compute_feed_forward_logits(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """logits[b][t], a vector over the vocabulary; the features of x run from the oldest word on."""
    return [_read_sentence(config, parameters, words.tolist()) for words in tokens_BT]


def _read_sentence(config, parameters: Parameters, words: list[int]) -> list[Tensor]:
    C, H, d = (parameters[name] for name in ("embedding.weight", "hidden.weight", "hidden.bias"))
    b, UW = parameters["output.bias"], parameters["output.weight"]
    U, W = UW[:, : config.width], UW[:, config.width :]
    outputs = []
    for t in range(len(words)):
        places = range(t - config.order + 2, t + 1)
        x = torch.cat([C[words[place]] if place >= 0 else torch.zeros_like(C[0]) for place in places])
        y = b + U @ torch.tanh(d + H @ x)
        outputs.append(y + W @ x if config.direct else y)
    return outputs


def make_case(order: int, direct: bool) -> OracleCase:
    config = FeedForwardConfig(width=6, embedding_width=4, initial_range=0.6, order=order, direct=direct)
    return OracleCase(config=config, logits=compute_feed_forward_logits, cuts=(1, 3, 4, 5, 15))


IDENTITY = "458ad0e9aab97816"
CASES = {
    f"{order}-grams{', direct connections' if direct else ''}": make_case(order, direct)
    for order in (2, 3, 6)
    for direct in (False, True)
}
EXAMPLES = [
    FeedForwardConfig(**EXAMPLE_SIZE, embedding_width=5, order=4),
    FeedForwardConfig(**EXAMPLE_SIZE, embedding_width=3, order=2, direct=True),
]
