"""Attention by position for a sample of predicted words: Tran, Bisazza and Monz (2016), figure 4."""

import numpy as np

from memtune.corpora.batching.batches import BOUNDARY
from memtune.results.inspection.attention.attention_layer import select_layer
from memtune.results.inspection.inspected_model import InspectedModel
from memtune.results.inspection.inspected_text import TextChoice
from memtune.results.inspection.sentence_readings import NO_WORD, SentenceAttention, read_attention
from memtune.values import Value


class AttendedWord(Value):
    """A word in a slot, and its weight."""

    distance: int
    """Words from it to the word to predict."""
    word: str
    weight: float


class AttentionSample(Value):
    """The attention before the prediction of one word."""

    sentence: int
    """Counted from 0 within the split."""
    step: int
    """The position of the predicted word in its sentence, from 0."""
    predicted: str
    attended: tuple[AttendedWord, ...]
    """The most distant earlier word first; slots without a word are left out."""


def sample_attention(
    model: InspectedModel, choice: TextChoice, count: int = 100, seed: int = 0, layer: int | None = None
) -> list[AttentionSample]:
    """A random sample of predicted words, without `<eos>`, in the order of the text.

    Every word has the same chance; a text of fewer words is taken whole. Raises the errors of
    `read_attention` and of `select_layer`.
    """
    random = np.random.default_rng(seed)
    kept: list[tuple[float, AttentionSample]] = []
    for reading in read_attention(model, choice):
        steps = np.flatnonzero(reading.targets_T != BOUNDARY)
        for step, key in zip(steps.tolist(), random.random(len(steps)).tolist(), strict=True):
            # The words with the smallest of independent random keys are a sample without replacement.
            if len(kept) < count or key < kept[-1][0]:
                kept.append((key, _describe_step(model, reading, step, layer)))
                kept = sorted(kept, key=lambda pair: pair[0])[:count]
    samples = (sample for _, sample in kept)
    return sorted(samples, key=lambda sample: (sample.sentence, sample.step))


def _describe_step(
    model: InspectedModel, reading: SentenceAttention, step: int, layer: int | None
) -> AttentionSample:
    return AttentionSample(
        sentence=reading.sentence.number,
        step=step,
        predicted=model.corpus.vocabulary.tokens[int(reading.targets_T[step])],
        attended=list_attended_words(model, reading, step, layer),
    )


def list_attended_words(
    model: InspectedModel, reading: SentenceAttention, step: int, layer: int | None
) -> tuple[AttendedWord, ...]:
    """The words in the slots at a step, the most distant earlier word first."""
    tokens, weights_Tn = model.corpus.vocabulary.tokens, select_layer(reading, layer)
    slots = zip(
        reading.distances_n.tolist(),
        reading.find_attended_words()[step].tolist(),
        weights_Tn[step],
        strict=True,
    )
    return tuple(
        AttendedWord(distance=distance, word=tokens[word], weight=float(weight))
        for distance, word, weight in sorted(slots, key=lambda slot: -slot[0])
        if word != NO_WORD
    )
