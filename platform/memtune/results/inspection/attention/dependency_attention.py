"""Attention between words by the dependency path that joins them: Tran, Bisazza and Monz (2016), figure 6.

A path leads from the attended word to the word to predict, as in the paper: `→obj` means that the word to
predict is the object of the attended word, `subj←` that the attended word is the subject of the word to
predict, and `subj← →kon →cj` first leads up from a subject and then down to a conjunct.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from memtune.errors import CorpusError
from memtune.results.inspection.attention.attention_layer import select_layer
from memtune.results.inspection.inspected_model import InspectedModel
from memtune.results.inspection.inspected_text import TextChoice, WordTree
from memtune.results.inspection.sentence_readings import SentenceAttention, read_attention
from memtune.values import Value

ALL = "ALL"
"""The name of the mean over all pairs of words."""
DISTANCE_BINS = ((1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 7), (8, 10), (11, 15))
"""First and last distance of each bin; the paper bins the distant ones too."""
FIRST_FAR_BIN = 4

Path = tuple[str, ...]


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


class _Sums:
    """Sums of weights by bin of distance."""

    def __init__(self) -> None:
        self.weights = np.zeros(len(DISTANCE_BINS))
        self.pairs = np.zeros(len(DISTANCE_BINS), np.int64)

    def add(self, bin: int, weight: float) -> None:
        self.weights[bin] += weight
        self.pairs[bin] += 1

    def to_value(self, path: str) -> PathAttention:
        means = [
            DistanceMean(
                first=first, last=last, mean=float(weight / pairs) if pairs else None, pairs=int(pairs)
            )
            for (first, last), weight, pairs in zip(DISTANCE_BINS, self.weights, self.pairs, strict=True)
        ]
        total = int(self.pairs.sum())
        mean = float(self.weights.sum()) / max(1, total)
        return PathAttention(path=path, pairs=total, mean=mean, by_distance=tuple(means))


def average_dependencies(
    model: InspectedModel,
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
    sums, everything, sentences = defaultdict[Path, _Sums](_Sums), _Sums(), 0
    for reading in read_attention(model, choice):
        tree = _require_tree(model, choice, reading)
        sentences += 1
        for attended, predicted, bin, weight in _iterate_pairs(reading, layer, model.reads_boundary):
            everything.add(bin, weight)
            path = find_path(tree, attended, predicted, max_steps)
            if path:
                sums[path].add(bin, weight)
    paths = [found.to_value(" ".join(path)) for path, found in sums.items()]
    return DependencyAttention(
        model=model.name,
        family=model.family,
        sentences=sentences,
        everything=everything.to_value(ALL),
        paths=tuple(
            sorted((path for path in paths if path.pairs >= min_pairs), key=_rank_path),
        ),
    )


def _require_tree(model: InspectedModel, choice: TextChoice, reading: SentenceAttention) -> WordTree:
    if reading.sentence.tree is None:
        place = f'corpus "{choice.corpus or model.corpus.name}"' if choice.text is None else "the text"
        raise CorpusError(
            f"{place} has no dependency trees for this text; name a corpus with trees by --corpus, "
            "such as one imported with --format conllu"
        )
    return reading.sentence.tree


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


def find_path(tree: WordTree, start: int, end: int, max_steps: int) -> Path | None:
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


def _rank_path(path: PathAttention) -> tuple[int, int, str]:
    far = sum(bin.pairs for bin in path.by_distance[FIRST_FAR_BIN:])
    return -far, -path.pairs, path.path
