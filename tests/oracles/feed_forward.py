"""The feed-forward n-gram network one word at a time: Bengio et al. (2003), equation 1."""

import torch
from torch import Tensor

from tests.oracles.lstm import Parameters


def feed_forward_logits(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """logits[b][t], a vector over the vocabulary; the features of x run from the oldest word on."""
    return [_sentence(config, parameters, words.tolist()) for words in tokens_BT]


def _sentence(config, parameters: Parameters, words: list[int]) -> list[Tensor]:
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
