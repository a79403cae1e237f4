"""How far back a model uses words: what its predictions change when one earlier word is another.

Attention shows where a memory reads; this shows what depends on it, for every network and in one unit. The
influence of an earlier word on a prediction is KL(p || q) in nats: p is the prediction after the text as it
is, q the one after the text with a word of the training text, drawn at random, in place of the earlier word.
If p were the truth, the loss would rise by so much. Khandelwal et al. (2018) change the context of an LSTM to
see how much of it the loss depends on; Li, Monroe and Jurafsky (2016) erase words to see what a decision
rests on.

Shapes: T words of a passage, R of its texts with one word replaced, V words of the vocabulary, P passages,
D distances from 0.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from memtune.corpora import Split
from memtune.corpora.batching.batches import BOUNDARY
from memtune.models import NeuralLanguageModel, find_device, logits
from memtune.results.inspection.sentence_readings import TextChoice, read_sentences
from memtune.results.loaded_models import TrainedModel
from memtune.tasks.item_costs import ItemCosts
from memtune.values import Value

PASSAGE_WORDS = 100
"""The longest passage, which bounds the distances."""
MAX_ELEMENTS = 2**23
"""Log-probabilities that exist at once."""


class DistanceInfluence(Value):
    """The influence of the words at one distance."""

    distance: int
    """Words from the replaced word to the predicted one: 1 is the word before it."""
    mean: float
    """Nats; the mean over the predictions with a word at this distance."""
    interval: tuple[float, float] | None
    """95 %, over passages; None where fewer than 20 have this distance."""
    predictions: int


class WordInfluence(Value):
    """The influence of earlier words on the predictions of a model."""

    model: str
    memory: str
    """Its family, or the mixer of its blocks."""
    predictions: int
    distances: tuple[DistanceInfluence, ...]
    """The nearest first."""


def average_influence(
    model: TrainedModel, choice: TextChoice, words: int = 2000, seed: int = 0
) -> WordInfluence:
    """The mean influence by distance, over the first passages that have this many predictions.

    A passage is a sentence up to its hundredth word, or 100 words of a text that is read on across
    sentences; each is read from the initial state. The seed draws the replacements. Raises ConfigurationError
    for a model that counts, a classifier and a model of trees, and the errors of `read_sentences`.
    """
    purpose = "the influence of words"
    model.model.require_language_model(purpose)
    model.config.protocol.require_text(purpose)
    network, train, random = model.network, model.corpus["train"], np.random.default_rng(seed)
    sums, counts = list[NDArray[np.float64]](), list[NDArray[np.int64]]()
    predictions = 0
    for read_T in _iterate_passages(model, choice):
        places_R = np.flatnonzero(read_T != BOUNDARY)
        replacements_R = _draw_words(train, len(places_R), random)
        influence_RT = _measure_influence(network, read_T, places_R, replacements_R)
        distances_RT = 1 + np.arange(len(read_T)) - places_R[:, None]
        is_later_RT = distances_RT > 0
        found, size = distances_RT[is_later_RT], PASSAGE_WORDS + 1
        sums.append(np.bincount(found, influence_RT[is_later_RT], size).astype(np.float64))
        counts.append(np.bincount(found, minlength=size))
        predictions += len(read_T)
        if predictions >= words:
            break
    return WordInfluence(
        model=model.name,
        memory=model.memory,
        predictions=predictions,
        distances=tuple(_average_by_distance(np.array(sums), np.array(counts))),
    )


def _iterate_passages(model: TrainedModel, choice: TextChoice) -> Iterator[NDArray[np.int64]]:
    """The words that are read at once, as in training: with the boundary before each sentence."""
    read_T = np.empty(0, np.int64)
    for sentence in read_sentences(model, choice):
        words_T = np.concatenate([[BOUNDARY], sentence.ids_W])
        if not model.config.protocol.carries_state:
            yield words_T[:PASSAGE_WORDS]
            continue
        read_T = np.concatenate([read_T, words_T])
        while len(read_T) >= PASSAGE_WORDS:
            yield read_T[:PASSAGE_WORDS]
            read_T = read_T[PASSAGE_WORDS:]
    if len(read_T):
        yield read_T


def _draw_words(train: Split, count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Words of the training text without `<eos>`, each as often as the text has it."""
    drawn = train.gather(random.integers(train.token_count, size=count))
    while (is_end := drawn == BOUNDARY).any():
        drawn[is_end] = train.gather(random.integers(train.token_count, size=is_end.sum()))
    return drawn


@torch.no_grad()
def _measure_influence(
    network: NeuralLanguageModel,
    read_T: NDArray[np.int64],
    places_R: NDArray[np.int64],
    replacements_R: NDArray[np.int64],
) -> NDArray[np.float64]:
    """influence_RT of each replacement on the prediction after each word, in nats."""
    texts_RT = np.repeat(read_T[None], len(places_R), axis=0)
    texts_RT[np.arange(len(places_R)), places_R] = replacements_R

    def predict(texts_RT: Tensor) -> Tensor:
        return logits(network, texts_RT.to(find_device(network)))[0].log_softmax(-1)

    known_1TV = predict(torch.from_numpy(read_T[None]))
    rows = max(1, MAX_ELEMENTS // known_1TV.numel())
    parts = (predict(part_RT) for part_RT in torch.split(torch.from_numpy(texts_RT), rows))
    found = [(known_1TV.exp() * (known_1TV - part_RTV)).sum(-1) for part_RTV in parts]
    return torch.cat(found).double().cpu().numpy()


def _average_by_distance(
    sums_PD: NDArray[np.float64], counts_PD: NDArray[np.int64]
) -> Iterator[DistanceInfluence]:
    """The mean of each distance that some passage has, as a ratio of sums over passages."""
    for distance in np.flatnonzero(counts_PD.sum(0)).tolist():
        has_P = counts_PD[:, distance] > 0
        found = ItemCosts("sentences", sums_PD[has_P, distance], counts_PD[has_P, distance])
        yield DistanceInfluence(
            distance=distance,
            mean=found.cost,
            interval=found.compute_interval(),
            predictions=int(found.counts_I.sum()),
        )
