"""The continuous cache a word at a time, straight from Grave, Joulin and Usunier (2017), equations 1 to 3."""

from math import exp, log

import torch
from torch import Tensor

from memtune.models import NeuralLanguageModel, logits


def compute_cached_nats(
    model: NeuralLanguageModel, texts: list[list[int]], size: int, flatness: float, weight: float
) -> list[float]:
    """Nats of every word of every text, in order; each text resets the state but not the cache."""
    past: list[tuple[Tensor, int]] = []
    nats = []
    for text in texts:
        inputs_BT = torch.tensor([[0, *text[:-1]]])
        hidden_BTH, _ = model.encode(inputs_BT, model.initial_state(1))
        probabilities_TV = logits(model, inputs_BT)[0][0].softmax(1)
        for hidden_H, probabilities_V, word in zip(hidden_BTH[0], probabilities_TV, text, strict=True):
            probability = probabilities_V[word].item()
            if past:
                votes = [(exp(flatness * float(hidden_H @ before_H)), came) for before_H, came in past]
                share = sum(vote for vote, came in votes if came == word) / sum(vote for vote, _ in votes)
                probability = (1 - weight) * probability + weight * share
            nats.append(-log(probability))
            past = [*past, (hidden_H, word)][-size:]
    return nats
