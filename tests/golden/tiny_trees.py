"""Small trees of many shapes in memory, as (words, heads, labels), and a corpus from a grammar."""

import random
from pathlib import Path

import numpy as np

from memtune.corpora import Corpus, Example, ImportOptions, Split, import_corpus, open_corpus
from memtune.corpora.batching.tree_protocol import Treebank
from memtune.corpora.grammar.embedded_corpus import generate_sentences
from memtune.corpora.store.arrow_files import ShardArrays

Sentence = tuple[list[int], list[int], list[int]]
LABEL_COUNT = 5
SENTENCES_PER_SPLIT = {"train": 40, "valid": 10}


def make_trees_of_every_shape(vocabulary_size: int, seed: int = 0) -> list[Sentence]:
    """One word, a forward chain, a backward chain, a star, and random trees with crossing edges."""
    source = random.Random(seed)
    shapes = [
        [-1],
        [-1, 0, 1, 2, 3],
        [1, 2, 3, -1],
        [2, 2, -1, 2, 2],
        *(_draw_random_heads(source, n) for n in range(2, 12)),
    ]
    return [
        (
            [source.randrange(1, vocabulary_size) for _ in heads],
            heads,
            [-1 if head < 0 else source.randrange(LABEL_COUNT) for head in heads],
        )
        for heads in shapes
    ]


def _draw_random_heads(source: random.Random, count: int) -> list[int]:
    """Random heads: the head of each word is a word that was drawn before it."""
    order = source.sample(range(count), count)
    heads = [-1] * count
    for place, word in enumerate(order[1:], start=1):
        heads[word] = order[source.randrange(place)]
    return heads


def make_treebank(sentences: list[Sentence], unknown: int | None = None) -> Treebank:
    """A treebank of the sentences; as in corpora, roots have a relation, which is ignored."""
    ids = [id for words, _, _ in sentences for id in (*words, 0)]
    offsets = np.cumsum([0, *(len(words) + 1 for words, _, _ in sentences)])
    split = Split("train", [ShardArrays(np.array(ids, np.uint16), offsets.astype(np.int32))])
    heads = np.array([head for _, heads, _ in sentences for head in heads], np.int32)
    relations = np.where(heads < 0, 0, [label for _, _, labels in sentences for label in labels]).astype(
        np.int16
    )
    return Treebank(split, heads, relations, LABEL_COUNT, unknown)


def make_tree_corpus(folder: Path, sentences: dict[str, int] | None = None) -> Corpus:
    """A corpus of the first sentences of the embedded grammar with their trees.

    By default it has 40 training and 10 validation sentences. Words that occur once are `<unk>`.
    """
    drawn = {
        split: list(generate_sentences(split, count))
        for split, count in (sentences or SENTENCES_PER_SPLIT).items()
    }
    examples = {
        split: [Example([each.words], {"trees": [(each.heads, each.relations)]}) for each in found]
        for split, found in drawn.items()
    }
    options = ImportOptions(min_count=2)
    import_corpus("trees", examples, folder / "store", options, cache=folder / "cache")
    return open_corpus("trees", folder / "store", folder / "cache")
