"""Words predicted with attention to a distant word: Tran, Bisazza and Monz (2016), figure 5."""

import heapq
from itertools import count as count_from

import torch

from memtune.results.inspection.attention.attention_layer import find_most_attended
from memtune.results.inspection.attention.attention_samples import AttendedWord, list_attended_words
from memtune.results.inspection.inspected_model import InspectedModel
from memtune.results.inspection.inspected_text import TextChoice
from memtune.results.inspection.sentence_readings import SentenceAttention, read_attention
from memtune.values import Value

NEXT_WORDS = 5
DISTANT_WORDS = 7
"""The paper's distant words are more than six positions to the left."""


class NextWord(Value):
    """A word and its log-probability in nats."""

    word: str
    log_probability: float


class AttentionExample(Value):
    """A prediction, what it attended to, and the most likely next words."""

    sentence: int
    """Counted from 0 within the split."""
    predicted: NextWord
    rank: int
    """Of the predicted word among all words, from 1."""
    most_attended: AttendedWord
    attended: tuple[AttendedWord, ...]
    """All words in the memory, the most distant first."""
    next_words: tuple[NextWord, ...]
    """The most likely next words, the likeliest first."""


def find_distant_examples(
    model: InspectedModel,
    choice: TextChoice,
    count: int = 3,
    min_distance: int = DISTANT_WORDS,
    max_rank: int = NEXT_WORDS,
    layer: int | None = None,
) -> list[AttentionExample]:
    """The predictions with most weight on a word at least `min_distance` words before the predicted one.

    Only predictions whose correct word is among the `max_rank` likeliest count, and neither word is `<unk>`
    or `<eos>`; each pair of words appears once. The largest weight comes first. Raises the errors of
    `read_attention` and of `select_layer`.
    """
    skipped = model.find_signs()
    best: list[tuple[float, int, AttentionExample]] = []
    seen, order = set[tuple[int, int]](), count_from(0, -1)
    for reading in read_attention(model, choice):
        words_Tn, distances = reading.find_attended_words(), reading.distances_n
        for step, slot, weight in find_most_attended(reading, layer):
            pair = int(words_Tn[step, slot]), int(reading.targets_T[step])
            is_far = distances[slot] >= min_distance and skipped.isdisjoint(pair) and pair not in seen
            if not is_far or (len(best) == count and weight <= best[0][0]):
                continue
            example = _describe_example(model, reading, step, slot, layer)
            if example.rank <= max_rank:
                seen.add(pair)
                # The descending number keeps the first of equal weights and the comparison off the example.
                heapq.heappush(best, (weight, next(order), example))
                if len(best) > count:
                    heapq.heappop(best)
    return [example for _, _, example in sorted(best, key=lambda entry: entry[:2], reverse=True)]


@torch.no_grad()
def _describe_example(
    model: InspectedModel, reading: SentenceAttention, step: int, slot: int, layer: int | None
) -> AttentionExample:
    tokens = model.corpus.vocabulary.tokens
    log_probabilities_V = model.network.output(reading.hidden_TH[step : step + 1])[0].log_softmax(0)
    values, ids = (found.tolist() for found in log_probabilities_V.topk(min(NEXT_WORDS, len(tokens))))
    target = int(reading.targets_T[step])
    attended = list_attended_words(model, reading, step, layer)
    distance = int(reading.distances_n[slot])
    return AttentionExample(
        sentence=reading.sentence.number,
        predicted=NextWord(word=tokens[target], log_probability=float(log_probabilities_V[target])),
        rank=1 + int((log_probabilities_V > log_probabilities_V[target]).sum()),
        most_attended=next(word for word in attended if word.distance == distance),
        attended=attended,
        next_words=tuple(
            NextWord(word=tokens[word], log_probability=value)
            for word, value in zip(ids, values, strict=True)
        ),
    )
