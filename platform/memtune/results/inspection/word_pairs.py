"""Pairs of words that attention joins: links of a sentence, training counts, and dependency paths.

Cheng, Dong and Lapata (2016), figures 1, 4 and 5, draw the words that each word of a sentence attends to.

Tran, Bisazza and Monz (2016), table 3, ask whether distant attention repeats frequent co-occurrences. A pair
is the most attended word and the word to predict. The paper does not define a co-occurrence; here it is the
attended word at most a window of words before the predicted one, in one sentence unless the model reads on
across sentences.

Their figure 6 has attention by the dependency path from the attended word to the word to predict: `→obj`
means that the word to predict is the object of the attended word, `subj←` that the attended word is the
subject of the word to predict, and `subj← →kon →cj` first leads up from a subject and then down to a
conjunct.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from memtune.corpora import Split
from memtune.corpora.batching.batches import BOUNDARY
from memtune.errors import CorpusError
from memtune.results.inspection.attention_weights import DISTANT_WORDS, find_most_attended, select_layer
from memtune.results.inspection.sentence_readings import (
    SentenceAttention,
    TextChoice,
    WordTree,
    list_signs,
    read_attention,
    read_one,
    reads_boundary,
)
from memtune.results.loaded_models import TrainedModel
from memtune.values import Value

CHUNK_TOKENS = 2**20
ALL = "ALL"
"""The name of the mean over all pairs of words."""
DISTANCE_BINS = ((1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 7), (8, 10), (11, 15))
"""First and last distance of each bin; the paper bins the distant ones too."""
FIRST_FAR_BIN = 4


class Link(Value):
    """Attention of one word to another."""

    layer: int
    """From 1, the lowest layer."""
    word: int
    """The position of the word read."""
    attended: int
    """The position of the word attended to."""
    weight: float


class SentenceLinks(Value):
    """The attention within one sentence."""

    model: str
    family: str
    number: int
    """Counted from 0 within its split."""
    words: tuple[str, ...]
    """The words as the model reads them, `<eos>` before the first where it reads it."""
    layers: int
    links: tuple[Link, ...]
    """All links, in the order of layers and words; links to words of earlier sentences are left out."""

    def select(self, layer: int, min_weight: float = 0.0) -> list[Link]:
        """The links of a layer with at least this weight."""
        return [link for link in self.links if link.layer == layer and link.weight >= min_weight]


def find_links(model: TrainedModel, choice: TextChoice, number: int = 0) -> SentenceLinks:
    """The links within sentence `number`, in every layer that attends.

    A model that reads on across sentences reads all sentences before it. Raises CorpusError where the text
    has no such sentence, and the errors of `read_attention`.
    """
    reading = read_one(read_attention, model, choice, number)
    steps = len(reading.inputs_T)
    places_Tn = np.arange(steps)[:, None] + reading.offsets_n
    inside = (places_Tn >= 0) & (places_Tn < steps)
    return SentenceLinks(
        model=model.name,
        family=model.network.config.family,
        number=reading.sentence.number,
        words=tuple(model.corpus.vocabulary.decode(reading.inputs_T.tolist())),
        layers=len(reading.weights_LTn),
        links=tuple(
            Link(layer=layer, word=word, attended=int(places_Tn[word, slot]), weight=float(weight))
            for layer, weights_Tn in enumerate(reading.weights_LTn, start=1)
            for (word, slot), weight in np.ndenumerate(weights_Tn)
            if inside[word, slot]
        ),
    )


class AttendedPair(Value):
    """A most attended word and the word that was predicted."""

    attended: str
    predicted: str
    distance: int
    predictions: int
    """How often the inspected text has it at this distance."""
    training_count: int
    """Co-occurrences in the training text, at any distance of the window."""
    training_count_at_distance: int


class PairDistance(Value):
    """The different pairs at one distance."""

    distance: int
    pairs: int
    predictions: int
    mean_training_count: float
    """The paper's mean frequency: the mean over the different pairs."""
    mean_training_count_at_distance: float


class AttendedPairs(Value):
    """All pairs with distant attention."""

    model: str
    family: str
    window: int
    """The largest distance of a co-occurrence."""
    by_distance: tuple[PairDistance, ...]
    pairs: tuple[AttendedPair, ...]
    """The pairs that are most frequent in the training text first."""


def count_attended_pairs(
    model: TrainedModel,
    choice: TextChoice,
    min_distance: int = DISTANT_WORDS,
    window: int | None = None,
    layer: int | None = None,
) -> AttendedPairs:
    """The pairs whose most attended word is at least `min_distance` words before the predicted one.

    Pairs with `<eos>` or `<unk>` are left out. `window` is by default the largest distance found. Raises the
    errors of `read_attention` and of `select_layer`.
    """
    found, skipped = Counter[tuple[int, int, int]](), list_signs(model.corpus)
    for reading in read_attention(model, choice):
        distances = reading.distances_n.tolist()
        for _, slot, _, words in find_most_attended(reading, layer):
            if distances[slot] >= min_distance and skipped.isdisjoint(words):
                found[distances[slot], *words] += 1
    reach = window or max((distance for distance, _, _ in found), default=min_distance)
    counts = count_cooccurrences(
        model.corpus["train"],
        {(attended, predicted) for _, attended, predicted in found},
        reach,
        across_sentences=model.config.protocol.carries_state,
    )
    tokens = model.corpus.vocabulary.tokens
    pairs = [
        AttendedPair(
            attended=tokens[attended],
            predicted=tokens[predicted],
            distance=distance,
            predictions=predictions,
            training_count=sum(counts[attended, predicted].values()),
            training_count_at_distance=counts[attended, predicted][distance],
        )
        for (distance, attended, predicted), predictions in found.items()
    ]
    pairs.sort(key=lambda pair: (-pair.training_count, pair.attended, pair.predicted, pair.distance))
    groups = defaultdict[int, list[AttendedPair]](list)
    for pair in pairs:
        groups[pair.distance].append(pair)
    by_distance = tuple(
        PairDistance(
            distance=distance,
            pairs=len(group),
            predictions=sum(pair.predictions for pair in group),
            mean_training_count=mean(pair.training_count for pair in group),
            mean_training_count_at_distance=mean(pair.training_count_at_distance for pair in group),
        )
        for distance, group in sorted(groups.items())
    )
    return AttendedPairs(
        model=model.name,
        family=model.network.config.family,
        window=reach,
        by_distance=by_distance,
        pairs=tuple(pairs),
    )


def count_cooccurrences(
    split: Split, pairs: set[tuple[int, int]], window: int, *, across_sentences: bool
) -> dict[tuple[int, int], Counter[int]]:
    """For each pair of ids, the number of places by distance at which the first precedes the second.

    Distances are from 1 to `window`; without `across_sentences` both words are in one sentence.
    """
    counts = {pair: Counter[int]() for pair in pairs}
    if not pairs:
        return counts
    base = 1 + max(max(pair) for pair in pairs)
    codes_P = np.sort(np.array([first * base + second for first, second in pairs]))
    for start in range(0, split.token_count, CHUNK_TOKENS):
        low, stop = max(0, start - window), min(start + CHUNK_TOKENS, split.token_count)
        words_K = split.read_tokens(low, stop)
        sentence_K = np.cumsum(words_K == BOUNDARY) - (words_K == BOUNDARY)
        for distance in range(1, window + 1):
            # Predicted words of this chunk; a word before it may be in the chunk before.
            places = np.arange(max(start - low, distance), len(words_K))
            first, second = words_K[places - distance], words_K[places]
            is_near = (first < base) & (second < base)
            if not across_sentences:
                is_near &= sentence_K[places - distance] == sentence_K[places]
            codes = (first * base + second)[is_near]
            found, occurrences = np.unique(codes[np.isin(codes, codes_P)], return_counts=True)
            for code, count in zip(found.tolist(), occurrences.tolist(), strict=True):
                counts[divmod(code, base)][distance] += count
    return counts


class DistanceMean(Value):
    """Pairs of words at the distances of a bin."""

    first: int
    last: int
    mean: float | None
    """The mean weight on the attended word; None where the text has no such pair."""
    pairs: int


class PathAttention(Value):
    """The attention between words that one path joins."""

    path: str
    pairs: int
    mean: float
    by_distance: tuple[DistanceMean, ...]


class DependencyAttention(Value):
    """The attention of a model by dependency path."""

    model: str
    family: str
    sentences: int
    everything: PathAttention
    """The mean over all pairs of words, whatever joins them."""
    paths: tuple[PathAttention, ...]
    """Those with most pairs of distant words first."""


def average_dependencies(
    model: TrainedModel,
    choice: TextChoice,
    max_steps: int = 1,
    min_pairs: int = 10,
    layer: int | None = None,
) -> DependencyAttention:
    """The mean attention to words by the path from them to the predicted word.

    Paths have at most `max_steps` relations; those with fewer than `min_pairs` pairs are left out. So are
    words after the predicted one and words more than 15 words before it.

    Raises CorpusError for a text without trees and the errors of `read_attention` and of `select_layer`.
    """
    # For each path and each bin of distance, the sum of weights and the number of pairs.
    sums = defaultdict[str, NDArray[np.float64]](lambda: np.zeros((len(DISTANCE_BINS), 2)))
    sentences = 0
    for reading in read_attention(model, choice):
        if (tree := reading.sentence.tree) is None:
            place = f'corpus "{choice.corpus or model.corpus.name}"' if choice.text is None else "the text"
            raise CorpusError(
                f"{place} has no dependency trees for this text; name a corpus with trees by --corpus, "
                "such as one imported with --format conllu"
            )
        sentences += 1
        for attended, predicted, bin, weight in _iterate_pairs(reading, layer, reads_boundary(model)):
            sums[ALL][bin] += weight, 1
            if path := find_path(tree, attended, predicted, max_steps):
                sums[" ".join(path)][bin] += weight, 1

    def rank(path: PathAttention) -> tuple[int, int, str]:
        far = sum(bin.pairs for bin in path.by_distance[FIRST_FAR_BIN:])
        return -far, -path.pairs, path.path

    everything = _average_path(ALL, sums[ALL])
    paths = (_average_path(path, found) for path, found in sums.items() if path != ALL)
    return DependencyAttention(
        model=model.name,
        family=model.network.config.family,
        sentences=sentences,
        everything=everything,
        paths=tuple(sorted((path for path in paths if path.pairs >= min_pairs), key=rank)),
    )


def _average_path(path: str, sums: NDArray[np.float64]) -> PathAttention:
    """The means of a path from the sum of weights and the number of pairs of each bin."""
    bins = zip(DISTANCE_BINS, sums.tolist(), strict=True)
    weight, pairs = sums.sum(0).tolist()
    return PathAttention(
        path=path,
        pairs=int(pairs),
        mean=weight / max(1, pairs),
        by_distance=tuple(
            DistanceMean(first=first, last=last, mean=total / count if count else None, pairs=int(count))
            for (first, last), (total, count) in bins
        ),
    )


def _iterate_pairs(
    reading: SentenceAttention, layer: int | None, reads_boundary: bool
) -> Iterator[tuple[int, int, int, float]]:
    """Yield attended word, predicted word (positions in the sentence), bin of their distance, and weight."""
    bins = {
        distance: bin
        for bin, (first, last) in enumerate(DISTANCE_BINS)
        for distance in range(first, last + 1)
    }
    weights_Tn, lead = select_layer(reading, layer), int(reads_boundary)
    for step in range(len(reading.inputs_T) - 1):
        predicted = step + 1 - lead
        for slot, distance in enumerate(reading.distances_n.tolist()):
            attended = predicted - distance
            if attended >= 0 and distance in bins:
                yield attended, predicted, bins[distance], float(weights_Tn[step, slot])


def find_path(tree: WordTree, start: int, end: int, max_steps: int) -> tuple[str, ...] | None:
    """The relations on the way from one word of a tree to another, None for more than `max_steps` of them.

    `rel←` leads from a dependent up to its head, `→rel` from a head down to its dependent.
    """
    above_start, above_end = _list_ancestors(tree, start, max_steps), _list_ancestors(tree, end, max_steps)
    for ups, ancestor in enumerate(above_start):
        if ancestor in above_end:
            downs = above_end.index(ancestor)
            if ups + downs > max_steps:
                return None
            up = [f"{tree.relations[word]}←" for word in above_start[:ups]]
            down = [f"→{tree.relations[word]}" for word in reversed(above_end[:downs])]
            return (*up, *down)
    return None


def _list_ancestors(tree: WordTree, word: int, max_steps: int) -> Sequence[int]:
    """A word and the words above it, at most `max_steps` of them."""
    found = [word]
    while len(found) <= max_steps and tree.heads[found[-1]] >= 0:
        found.append(tree.heads[found[-1]])
    return found
