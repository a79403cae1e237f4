"""Small trees: of every shape in memory, sentences as (words, heads, labels), and a corpus of a grammar's."""

import random
from pathlib import Path

import numpy as np

from memtune.corpora import Corpus, Example, ImportOptions, Split, grammar, import_corpus, open_corpus
from memtune.corpora.shards import ShardArrays
from memtune.corpora.trees import Treebank

Sentence = tuple[list[int], list[int], list[int]]
LABELS = 5
SIZES = {"train": 40, "valid": 10}


def trees_of_every_shape(words: int, seed: int = 0) -> list[Sentence]:
    """One word, a chain read forwards and one backwards, a star, and random trees that cross themselves."""
    source = random.Random(seed)
    shapes = [
        [-1],
        [-1, 0, 1, 2, 3],
        [1, 2, 3, -1],
        [2, 2, -1, 2, 2],
        *(_random(source, n) for n in range(2, 12)),
    ]
    return [
        (
            [source.randrange(1, words) for _ in heads],
            heads,
            [-1 if head < 0 else source.randrange(LABELS) for head in heads],
        )
        for heads in shapes
    ]


def _random(source: random.Random, count: int) -> list[int]:
    """Each word hangs from one that was drawn before it."""
    order = source.sample(range(count), count)
    heads = [-1] * count
    for place, word in enumerate(order[1:], start=1):
        heads[word] = order[source.randrange(place)]
    return heads


def treebank(sentences: list[Sentence], unknown: int | None = None) -> Treebank:
    """The sentences as a split; relations of roots are there, as corpora have them, and mean nothing."""
    ids = [id for words, _, _ in sentences for id in (*words, 0)]
    offsets = np.cumsum([0, *(len(words) + 1 for words, _, _ in sentences)])
    split = Split("train", [ShardArrays(np.array(ids, np.uint16), offsets.astype(np.int32))])
    heads = np.array([head for _, heads, _ in sentences for head in heads], np.int32)
    relations = np.where(heads < 0, 0, [label for _, _, labels in sentences for label in labels]).astype(
        np.int16
    )
    return Treebank(split, heads, relations, LABELS, unknown)


def tree_corpus(folder: Path, sentences: dict[str, int] | None = None) -> Corpus:
    """A corpus of the first sentences of the embedded grammar with their trees, 40 and 10 of validation.

    Words that came once are `<unk>`.
    """
    drawn = {split: list(grammar.sentences(split, count)) for split, count in (sentences or SIZES).items()}
    examples = {
        split: [Example([each.words], {"trees": [(each.heads, each.relations)]}) for each in found]
        for split, found in drawn.items()
    }
    options = ImportOptions(min_count=2)
    import_corpus("trees", examples, folder / "store", options, cache=folder / "cache")
    return open_corpus("trees", folder / "store", folder / "cache")
