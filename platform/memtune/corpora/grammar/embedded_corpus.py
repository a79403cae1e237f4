"""The embedded corpus: sentences of an unambiguous probabilistic grammar, with their exact probabilities.

It has about 730 English words and sentences of 4 to 40 words with long-distance dependencies. Subjects and
verbs agree in number and category across up to five nouns and in nested relative clauses. Each bracket is
closed by one of the same kind. A separable verb determines the particle after its object. Names recur. Every
sentence has a dependency tree and a log probability, so the perplexity of an ideal model is known;
productions.py and derivation.py define the grammar.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from math import exp, inf
from pathlib import Path
from typing import TypeVar

from memtune.corpora.grammar.derivation import Derivation, parse_words, sample_derivation
from memtune.corpora.grammar.lexicon import NAME_WORDS, NUMBER_BY_NOUN, OTHER_FORM, WORDS
from memtune.corpora.importing.importer import ImportResult, import_corpus
from memtune.corpora.store.corpus_store import CorpusStore
from memtune.corpora.store.manifest import ImportOptions
from memtune.corpora.text_blocks import Example
from memtune.errors import CorpusError, did_you_mean

T = TypeVar("T")

SPLIT_SIZES = {"train": 60_000, "valid": 3_000, "test": 3_000}
"""Sentences of each split."""

_SEEDS = {"train": 20_160_101, "valid": 20_160_102, "test": 20_160_103}


@dataclass(frozen=True)
class VerbAgreement:
    """An inflected verb whose number depends on its subject.

    verb: position of the verb. right: its form in the sentence. wrong: its form in the other number.
    attractors: number of nouns of the other number between subject and verb.
    """

    verb: int
    right: str
    wrong: str
    attractors: int


@dataclass(frozen=True)
class Sentence:
    """One sentence: its words, gold dependencies and exact log probability.

    heads: position of the head of each word, -1 for the root. relations: label of each word in Universal
    Dependencies. log_probability: natural logarithm for the words and the sentence end.
    """

    words: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    log_probability: float

    @cached_property
    def agreement(self) -> VerbAgreement | None:
        """The verb with the most attractors, the first one of several; None if every subject is a name."""
        found = []
        for subject, (verb, relation) in enumerate(zip(self.heads, self.relations, strict=True)):
            if relation == "nsubj" and self.words[subject] not in NAME_WORDS:
                number, right = NUMBER_BY_NOUN[self.words[subject]], self.words[verb]
                between = (
                    "singular" if word in NAME_WORDS else NUMBER_BY_NOUN.get(word, number)
                    for word in self.words[subject + 1 : verb]
                )
                attractors = sum(other != number for other in between)
                found.append(VerbAgreement(verb, right, OTHER_FORM[right], attractors))
        return max(found, key=lambda each: (each.attractors, -each.verb), default=None)

    @cached_property
    def children(self) -> list[list[int]]:
        """For each word the positions of the words that depend on it."""
        children: list[list[int]] = [[] for _ in self.words]
        for position, head in enumerate(self.heads):
            if head >= 0:
                children[head].append(position)
        return children

    def collect_phrase(self, position: int) -> set[int]:
        """Positions of a word and of all its descendants."""
        return {position}.union(*map(self.collect_phrase, self.children[position]))


def generate_sentences(split: str, count: int | None = None) -> Iterator[Sentence]:
    """Yields the first `count` sentences of a split, by default SPLIT_SIZES[split].

    They are the same on every machine. A larger count extends the same stream. Raises CorpusError for an
    unknown split.
    """
    if split not in SPLIT_SIZES:
        raise CorpusError(f'the grammar has no split "{split}"; {did_you_mean(split, SPLIT_SIZES)}')
    return islice(stream_sentences(_SEEDS[split]), SPLIT_SIZES[split] if count is None else count)


def stream_sentences(seed: int) -> Iterator[Sentence]:
    """Yields sentences without end; one seed gives the same sentences on every machine."""
    rng = random.Random(seed)
    while True:
        yield draw_sentence(rng)


def draw_items(
    seed: int, limit: int, make: Callable[[Sentence, int, random.Random], T | None]
) -> Iterator[T]:
    """Yields the first `limit` items that `make` makes of a seed's sentences.

    It gets a sentence, the number of the item and a random stream, and returns None where it makes none.
    """
    rng, number = random.Random(seed), 0
    for sentence in stream_sentences(seed):
        if number == limit:
            return
        if item := make(sentence, number, rng):
            yield item
            number += 1


def draw_sentence(rng: random.Random) -> Sentence:
    """The next sentence of a random stream."""
    derivation = sample_derivation(rng)
    return Sentence(tuple(derivation.words), *derivation.dependencies(), derivation.log_probability)


def import_grammar(
    name: str,
    store: str | Path | CorpusStore | None = None,
    *,
    replace: bool = False,
) -> ImportResult:
    """Imports the embedded corpus as `name`; its manifest has the ideal perplexities.

    `store` is by default that of the environment's settings.
    Every sentence has its tree. Sentences with a verb that agrees with a noun have one agreement question.
    The training split contains every word. Raises the errors of import_corpus.
    """
    examples: dict[str, list[Example]] = {}
    ideal: dict[str, float] = {}
    for split in SPLIT_SIZES:
        sentences, examples[split] = list(generate_sentences(split)), []
        for sentence in sentences:
            rows: dict[str, list[tuple[object, ...]]] = {"trees": [(sentence.heads, sentence.relations)]}
            if verb := sentence.agreement:
                rows["agreement"] = [(0, verb.verb, verb.right, verb.wrong, verb.attractors)]
            examples[split].append(Example([sentence.words], rows))
        nats = -sum(sentence.log_probability for sentence in sentences)
        ideal[split] = exp(nats / sum(len(sentence.words) + 1 for sentence in sentences))
    return import_corpus(
        name,
        examples,
        store,
        ImportOptions(unknown="refuse"),
        licence="drawn from memtune's own grammar",
        ideal=ideal,
        replace=replace,
    )


def log_probability(words: Sequence[str]) -> float:
    """Natural log probability of a sentence, its end included; -inf if the grammar cannot generate it.

    Raises CorpusError for a word that is not in WORDS.
    """
    derivation = _parse_words(words)
    return derivation.log_probability + derivation.end_log_probability() if derivation else -inf


def next_word_probabilities(prefix: Sequence[str]) -> dict[str, float]:
    """Probability of every word that can follow the first words of a sentence; "" is the sentence end.

    Raises CorpusError for an unknown word and for a prefix of no sentence.
    """
    derivation = _parse_words(prefix)
    if derivation is None:
        raise CorpusError(
            f'no sentence of the grammar begins with "{" ".join(prefix)}"; see generate_sentences("train")'
        )
    return derivation.next_words()


def _parse_words(words: Sequence[str]) -> Derivation | None:
    if isinstance(words, str):
        raise CorpusError(f"a sentence is a sequence of words, got the text {words!r}; split it")
    for word in words:
        if word not in _WORD_SET:
            raise CorpusError(f'the grammar has no word "{word}"; {did_you_mean(word, WORDS)}')
    return parse_words(words)


_WORD_SET = frozenset(WORDS)
