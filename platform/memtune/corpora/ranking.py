"""Questions about a corpus' own sentences: a word, or one of four others that are as frequent?

Where no questions are published, sentence completion can be asked of any text: in each sentence one word is
drawn, and four candidates beside it out of the words nearest to it by frequency. Sentences keep their trees.
"""

import random
from collections.abc import Iterator, Sequence
from typing import Any

from memtune.corpora.examples import Example
from memtune.corpora.store import Corpus
from memtune.corpora.vocabulary import EOS, UNK
from memtune.errors import CorpusError

__all__ = ["ranking_questions"]

IMPOSTORS = 4
NEIGHBOURS = 10
"""Impostors are drawn from so many words on either side, by frequency."""
RAREST = 5
"""Times that a word stands in the training text, at least, to be asked for or offered."""


def ranking_questions(corpus: Corpus, split: str, seed: int, frequent: int = 100) -> Iterator[Example]:
    """A question for each sentence of a split that has a word to ask for; a function of its arguments.

    The `frequent` most frequent words are neither asked for nor offered, as they need no context. Raises
    CorpusError when too few words are left.
    """
    special = {EOS, UNK}.intersection(corpus.vocabulary.tokens)
    known = sum(count >= RAREST for count in corpus.vocabulary.counts[len(special) :])
    askable = range(len(special) + frequent, len(special) + known)
    if len(askable) <= 2 * NEIGHBOURS:
        raise CorpusError(
            f'"{corpus.name}" has {len(askable)} words to ask for: {RAREST} times or more in training, '
            f"but not one of the {frequent} most frequent; take fewer of these"
        )
    opened, source = corpus[split], random.Random(f"{seed} {split}")
    trees = _trees(corpus, split)
    for number, (start, length) in enumerate(zip(opened.starts, opened.lengths, strict=True)):
        ids = opened.tokens(start, start + length - 1).tolist()
        places = [place for place, id in enumerate(ids) if id in askable]
        if places:
            blank = source.choice(places)
            yield _question(
                corpus, ids, blank, _offered(ids[blank], askable, source), trees[number], str(number)
            )


def _offered(right: int, askable: range, source: random.Random) -> list[int]:
    """The candidates, in an order that tells nothing."""
    first = min(max(right - NEIGHBOURS, askable.start), askable.stop - 2 * NEIGHBOURS - 1)
    near = [id for id in range(first, first + 2 * NEIGHBOURS + 1) if id != right]
    offered = [right, *source.sample(near, IMPOSTORS)]
    source.shuffle(offered)
    return offered


def _question(
    corpus: Corpus, ids: list[int], blank: int, offered: list[int], tree: list[tuple[Any, ...]], name: str
) -> Example:
    sentences = [corpus.vocabulary.decode([*ids[:blank], id, *ids[blank + 1 :]]) for id in offered]
    asked = (0, len(offered), blank, offered.index(ids[blank]), name)
    rows = {"completion": [asked], "trees": tree * len(offered)}
    return Example(sentences, {kind: found for kind, found in rows.items() if found})


def _trees(corpus: Corpus, split: str) -> Sequence[list[tuple[Any, ...]]]:
    """A list of each sentence's tree, its relations as text; empty lists without trees."""
    tables = corpus.annotations.get("trees", {})
    if split not in tables:
        return [[]] * corpus[split].sentence_count
    labels = corpus.manifest.annotations["trees"].labels
    return [
        [(tuple(row["heads"]), tuple(labels[relation] for relation in row["relations"]))]
        for row in tables[split].to_pylist()
    ]
