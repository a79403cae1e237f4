"""The embedded corpus: sentences of an unambiguous probabilistic grammar, with their exact probabilities.

About 730 English words and sentences of 4 to 40 words whose distant parts depend on one another: subjects
and verbs agree in number and category over up to five nouns, in nested relative clauses; brackets are
closed by their kind; separable verbs fix the particle behind their object; people named early are named
again later. Every sentence comes with its dependency tree and log probability, so the perplexity of an
ideal model is known (rules.py and derivation.py say how).
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from math import exp, inf
from pathlib import Path

from memtune.corpora.examples import Example
from memtune.corpora.grammar.derivation import LONGEST, SHORTEST, Derivation, draw, read
from memtune.corpora.grammar.entropy import entropy, mean_tokens
from memtune.corpora.grammar.lexicon import NAMES, NOUNS, NUMBERS, OTHER_FORM, WORDS
from memtune.corpora.importing import Imported, import_corpus
from memtune.corpora.location import Store
from memtune.corpora.manifest import ImportOptions
from memtune.errors import CorpusError, did_you_mean

__all__ = [
    "LONGEST",
    "SHORTEST",
    "SPLIT_SIZES",
    "WORDS",
    "Agreement",
    "Sentence",
    "entropy",
    "ideal_perplexity",
    "import_grammar",
    "log_probability",
    "mean_tokens",
    "next_word",
    "sentences",
    "stream",
]

SPLIT_SIZES = {"train": 60_000, "valid": 3_000, "test": 3_000}
"""Sentences of each split."""

_SEEDS = {"train": 20_160_101, "valid": 20_160_102, "test": 20_160_103}


@dataclass(frozen=True)
class Agreement:
    """An inflected verb and what makes its form hard to choose.

    verb: its position; right, wrong: its form in the sentence and the form of the other number; attractors:
    nouns of the other number that stand between its subject and the verb.
    """

    verb: int
    right: str
    wrong: str
    attractors: int


@dataclass(frozen=True)
class Sentence:
    """One sentence: its words, gold dependencies, exact log probability and hardest agreement.

    heads: position of each word's head, -1 for the root's; relations: its label, of Universal Dependencies;
    log_probability: natural, of the words and the end after them; agreement: the verb with the most
    attractors, the first of several, None if every subject is a name.
    """

    words: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    log_probability: float
    agreement: Agreement | None


def sentences(split: str, count: int | None = None) -> Iterator[Sentence]:
    """The first `count` sentences of a split, by default SPLIT_SIZES[split]; the same ones on every machine.

    A larger count goes on with further sentences from the same stream. Raises CorpusError for an unknown
    split.
    """
    if split not in SPLIT_SIZES:
        raise CorpusError(f'the grammar has no split "{split}"; {did_you_mean(split, SPLIT_SIZES)}')
    return islice(stream(_SEEDS[split]), SPLIT_SIZES[split] if count is None else count)


def stream(seed: int) -> Iterator[Sentence]:
    """Sentences without end; the same ones for a seed on every machine."""
    source = random.Random(seed)
    while True:
        yield _sentence(draw(source))


@cache
def ideal_perplexity(split: str) -> float:
    """Perplexity per token, ends included, of the grammar itself on a split: what a perfect model reaches."""
    return _ideal_perplexity(sentences(split))


def _ideal_perplexity(drawn: Iterable[Sentence]) -> float:
    nats = tokens = 0.0
    for sentence in drawn:
        nats -= sentence.log_probability
        tokens += len(sentence.words) + 1
    return exp(nats / tokens)


def import_grammar(
    name: str, store: str | Path | Store, *, replace: bool = False, cache: Path | None = None
) -> Imported:
    """Imports the embedded corpus as `name`, its manifest with ideal perplexities.

    Every sentence has its tree, and those with a verb that agrees with a noun their hardest agreement.
    Training holds every word; the import would refuse another. Raises what import_corpus does.
    """
    drawn = {split: list(sentences(split)) for split in SPLIT_SIZES}
    return import_corpus(
        name,
        {split: [_example(sentence) for sentence in drawn[split]] for split in drawn},
        store,
        ImportOptions(unknown="refuse"),
        licence="drawn from memtune's own grammar",
        ideal={split: _ideal_perplexity(drawn[split]) for split in drawn},
        replace=replace,
        cache=cache,
    )


def _example(sentence: Sentence) -> Example:
    rows: dict[str, list[tuple[object, ...]]] = {"trees": [(sentence.heads, sentence.relations)]}
    if asked := sentence.agreement:
        rows["agreement"] = [(0, asked.verb, asked.right, asked.wrong, asked.attractors)]
    return Example([sentence.words], rows)


def log_probability(words: Sequence[str]) -> float:
    """Natural log probability of the sentence, its end included; -inf if the language has no such sentence.

    Raises CorpusError for a word that is not in WORDS.
    """
    derivation = _read(words)
    return derivation.log_probability + derivation.end_log_probability() if derivation else -inf


def next_word(prefix: Sequence[str]) -> dict[str, float]:
    """Probability of every word that may follow the beginning of a sentence; "" is its end.

    Raises CorpusError for an unknown word and for words that begin no sentence.
    """
    derivation = _read(prefix)
    if derivation is None:
        raise CorpusError(
            f'no sentence of the grammar begins with "{" ".join(prefix)}"; see sentences("train")'
        )
    return derivation.next_words()


def _read(words: Sequence[str]) -> Derivation | None:
    if isinstance(words, str):
        raise CorpusError(f"a sentence is a sequence of words, got the text {words!r}; split it")
    for word in words:
        if word not in _KNOWN:
            raise CorpusError(f'the grammar has no word "{word}"; {did_you_mean(word, WORDS)}')
    return read(words)


def _sentence(derivation: Derivation) -> Sentence:
    words = tuple(derivation.words)
    heads, relations = derivation.dependencies()
    agreement = _hardest_agreement(words, heads, relations)
    return Sentence(words, heads, relations, derivation.log_probability, agreement)


def _hardest_agreement(
    words: tuple[str, ...], heads: tuple[int, ...], relations: tuple[str, ...]
) -> Agreement | None:
    hardest: Agreement | None = None
    for subject, (verb, relation) in enumerate(zip(heads, relations, strict=True)):
        if relation == "nsubj" and words[subject] not in _NAMES:
            number = _NUMBER_OF[words[subject]]
            between = (_NUMBER_OF.get(word, number) for word in words[subject + 1 : verb])
            attractors = sum(other != number for other in between)
            if hardest is None or (attractors, -verb) > (hardest.attractors, -hardest.verb):
                hardest = Agreement(verb, words[verb], OTHER_FORM[words[verb]], attractors)
    return hardest


_KNOWN = frozenset(WORDS)
_NAMES = frozenset(name for lexicon in NAMES.values() for name in lexicon.words)
_NUMBER_OF = dict.fromkeys(_NAMES, "singular") | {
    noun: number for forms in NOUNS.values() for number in NUMBERS for noun in forms[number].words
}
