"""Generate sentence completion questions from the sentences of any corpus.

These questions serve corpora without published ones. For each sentence the generator draws one word as the
answer and four distractors from the words with the nearest frequency ranks. Candidates keep the sentence's
dependency tree.
"""

import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

from memtune.corpora.importing.importer import import_corpus
from memtune.corpora.store.corpus import Corpus, open_corpus
from memtune.corpora.store.manifest import ImportOptions
from memtune.corpora.store.vocabulary import EOS, UNK
from memtune.corpora.text_blocks import Example
from memtune.errors import CorpusError
from memtune.number_format import format_count

DISTRACTOR_COUNT = 4
NEIGHBOURS_PER_SIDE = 10
"""Distractors are drawn from this many words before and after the answer in the frequency ranking."""
EXCLUDED_FREQUENT = 100
"""The most frequent words are neither answers nor distractors: a model predicts them without context."""
MIN_TRAINING_COUNT = 5
"""An answer or distractor occurs at least this many times in the training text."""


def import_ranking_questions(
    corpus: str, name: str, store: str | None, seed: int, limit: int | None
) -> dict[str, int]:
    """Import questions about a corpus' validation and test sentences as the corpus `name`.

    Returns the number of questions by split, at most `limit` each. Raises CorpusError.
    """
    source = open_corpus(corpus, store)
    splits = {
        split: list(islice(generate_ranking_questions(source, split, seed), limit))
        for split in ("valid", "test")
    }
    import_corpus(name, splits, store, ImportOptions(vocabulary="all"), replace=True)
    return {split: len(questions) for split, questions in splits.items()}


def generate_ranking_questions(corpus: Corpus, split: str, seed: int) -> Iterator[Example]:
    """Yields one question for each sentence of a split that has an eligible word.

    The same arguments give the same questions. Raises CorpusError if the corpus has too few eligible words.
    """
    special = {EOS, UNK}.intersection(corpus.vocabulary.tokens)
    frequent_enough = sum(count >= MIN_TRAINING_COUNT for count in corpus.vocabulary.counts[len(special) :])
    eligible_ids = range(len(special) + EXCLUDED_FREQUENT, len(special) + frequent_enough)
    if len(eligible_ids) <= 2 * NEIGHBOURS_PER_SIDE:
        raise CorpusError(
            f'"{corpus.name}" has only {format_count(len(eligible_ids), "word")} for questions: words that '
            f"occur at least {MIN_TRAINING_COUNT} times in training and are not among the "
            f"{EXCLUDED_FREQUENT} most frequent; use a larger corpus"
        )
    text, rng = corpus[split], random.Random(f"{seed} {split}")
    trees = corpus.iterate_trees(split)
    for number, (start, length) in enumerate(zip(text.starts, text.lengths, strict=True)):
        tree = next(trees, None)
        ids = text.read_tokens(start, start + length - 1).tolist()
        positions = [position for position, id in enumerate(ids) if id in eligible_ids]
        if positions:
            blank = rng.choice(positions)
            candidates = _draw_candidates(ids[blank], eligible_ids, rng)
            words = [corpus.vocabulary.decode([*ids[:blank], id, *ids[blank + 1 :]]) for id in candidates]
            row = (0, len(candidates), blank, candidates.index(ids[blank]), str(number))
            asked: dict[str, list[tuple[Any, ...]]] = {"completion": [row]}
            yield Example(words, asked | {"trees": [tree] * len(candidates)} if tree else asked)


def _draw_candidates(answer: int, eligible_ids: range, rng: random.Random) -> list[int]:
    """Ids of the answer and its distractors in random order.

    Near an end of `eligible_ids` the window of neighbours moves inwards, so that it keeps its size.
    """
    first = min(
        max(answer - NEIGHBOURS_PER_SIDE, eligible_ids.start), eligible_ids.stop - 2 * NEIGHBOURS_PER_SIDE - 1
    )
    neighbours = [id for id in range(first, first + 2 * NEIGHBOURS_PER_SIDE + 1) if id != answer]
    candidates = [answer, *rng.sample(neighbours, DISTRACTOR_COUNT)]
    rng.shuffle(candidates)
    return candidates
