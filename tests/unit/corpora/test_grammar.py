"""The grammar of the embedded corpus: one derivation per sentence, and exact probabilities."""

from collections.abc import Iterator
from functools import cache
from math import exp, inf, log, sqrt

import numpy as np
import pytest

from memtune.corpora.grammar.derivation import LONGEST_SENTENCE_WORDS, parse_words
from memtune.corpora.grammar.embedded_corpus import (
    generate_sentences,
    log_probability,
    next_word_probabilities,
)
from memtune.corpora.grammar.lexicon import PARTNERS, WORDS
from memtune.corpora.grammar.productions import PARTNER, SENTENCE, Production, Symbol, list_productions
from memtune.errors import CorpusError
from tests.presence import require
from tests.unit.corpora.grammar_moments import compute_moments, entropy, ideal_perplexity, mean_tokens

END = ""


@cache
def list_remaining_symbols(production: Production) -> tuple[Symbol, ...]:
    """The symbols after the words of a production, with the answers that these words can have."""
    if not any(symbol.word == PARTNER for symbol, _ in production.then):
        return tuple(symbol for symbol, _ in production.then)
    answers = sorted({PARTNERS[word] for word in require(production.words).words})
    return tuple(
        symbol._replace(word="|".join(answers)) if symbol.word == PARTNER else symbol
        for symbol, _ in production.then
    )


def list_words(production: Production) -> frozenset[str]:
    """The words a production may start with; joined answers of `list_remaining_symbols` are separated."""
    return frozenset(part for word in require(production.words).words for part in word.split("|"))


@cache
def find_first_words(symbol: Symbol) -> frozenset[str]:
    """Every word a symbol may start with."""
    return frozenset().union(*(list_words(p) for p in list_productions(symbol) if p.words))


@cache
def is_nullable(symbol: Symbol) -> bool:
    return any(p.words is None for p in list_productions(symbol))


@cache
def find_reachable_symbols() -> tuple[Symbol, ...]:
    found, waiting = {SENTENCE}, [SENTENCE]
    while waiting:
        for production in list_productions(waiting.pop()):
            new = set(list_remaining_symbols(production)) - found
            found |= new
            waiting += new
    return tuple(found)


def find_following_words() -> dict[Symbol, frozenset[str]]:
    """Every word that may come after each symbol, END included, by fixed-point iteration (FOLLOW sets)."""
    after = {symbol: frozenset[str]() for symbol in find_reachable_symbols()}
    after[SENTENCE] = frozenset({END})
    changed = True
    while changed:
        changed = False
        for symbol in find_reachable_symbols():
            for production in list_productions(symbol):
                next_set = after[symbol]
                for left in reversed(list_remaining_symbols(production)):
                    changed |= not next_set <= after[left]
                    after[left] |= next_set
                    next_set = (
                        find_first_words(left) | next_set if is_nullable(left) else find_first_words(left)
                    )
    return after


def test_a_word_is_in_one_lexicon():
    assert len(set(WORDS)) == len(WORDS)
    assert 400 <= len(WORDS) <= 800


def test_the_next_word_determines_the_production():
    """LL(1), hence unambiguous: no two productions of a symbol share a word, nor one and what may follow."""
    after = find_following_words()
    for symbol in find_reachable_symbols():
        starts = [word for p in list_productions(symbol) if p.words for word in list_words(p)]
        assert len(starts) == len(set(starts)), symbol
        if is_nullable(symbol):
            assert not find_first_words(symbol) & after[symbol], symbol


def test_at_most_one_production_of_a_symbol_has_no_word():
    assert all(
        sum(p.words is None for p in list_productions(symbol)) <= 1 for symbol in find_reachable_symbols()
    )


@cache
def find_min_length(symbol: Symbol) -> int:
    return min(count_min_words(production) for production in list_productions(symbol))


def count_min_words(production: Production) -> int:
    return (production.words is not None) + sum(find_min_length(symbol) for symbol, _ in production.then)


@cache
def list_fitting_productions(symbol: Symbol, room: int) -> list[tuple[float, Production]]:
    """Productions whose shortest form fits in `room` words, with their probabilities."""
    fitting = [p for p in list_productions(symbol) if count_min_words(p) <= room]
    total = sum(p.weight for p in fitting)
    return [(p.weight / total, p) for p in fitting]


def iterate_derivations(pending: tuple[Symbol, ...], words: tuple[str, ...], room: int) -> Iterator[float]:
    """Log probability of every derivation of `words`, trying each production of the first pending symbol.

    `room` is how many words may still follow. The search does not use that the next word decides.
    """
    if not pending:
        if not words:
            yield 0.0
        return
    symbol, rest = pending[0], pending[1:]
    if sum_min_lengths(pending) > len(words):
        return
    for p, production in list_fitting_productions(symbol, room - sum_min_lengths(rest)):
        if production.words is None:
            for tail in iterate_derivations(rest, words, room):
                yield log(p) + tail
        elif words and words[0] in production.words.words:
            rank = production.words.words.index(words[0])
            left = tuple(
                s._replace(word=PARTNERS[words[0]]) if s.word == PARTNER else s for s, _ in production.then
            )
            for tail in iterate_derivations((*left, *rest), words[1:], room - 1):
                yield log(p) + log(production.words.probabilities[rank]) + tail


def sum_min_lengths(pending: tuple[Symbol, ...]) -> int:
    return sum(find_min_length(symbol) for symbol in pending)


def test_a_search_over_all_derivations_finds_one_with_the_stated_probability(hard_sentences):
    for sentence in hard_sentences:
        found = list(iterate_derivations((SENTENCE,), sentence.words, LONGEST_SENTENCE_WORDS))
        assert found == [pytest.approx(sentence.log_probability, rel=1e-12)]


def test_the_words_alone_give_the_probability(hard_sentences):
    for sentence in hard_sentences:
        assert log_probability(sentence.words) == pytest.approx(sentence.log_probability, rel=1e-12)


def test_next_word_probabilities_sum_to_one_and_multiply_to_the_sentence_probability(hard_sentences):
    for sentence in hard_sentences:
        nats = 0.0
        for position, word in enumerate((*sentence.words, END)):
            distribution = next_word_probabilities(sentence.words[:position])
            assert sum(distribution.values()) == pytest.approx(1.0, rel=1e-12)
            nats -= log(distribution[word])
        assert nats == pytest.approx(-sentence.log_probability, rel=1e-12)


def test_a_word_without_a_production_is_impossible():
    prefix = ("the", "teachers")
    for word in set(WORDS) - set(next_word_probabilities(prefix)):
        assert parse_words((*prefix, word)) is None
    assert log_probability((*prefix, "sleep")) == -inf


@pytest.mark.parametrize(
    "words", [(), ("the", "teachers", "wait"), ("the", "teachers", "wait", "daily", "the")]
)
def test_an_unfinished_sentence_is_impossible(words):
    assert log_probability(words) == -inf


def iterate_rewritings(pending: tuple[Symbol, ...], room: int) -> Iterator[tuple[float, float]]:
    """(probability, nats) of every way to rewrite the symbols; words count by their lexicon's entropy."""
    if not pending:
        yield 1.0, 0.0
        return
    for p, production in list_fitting_productions(pending[0], room - sum_min_lengths(pending[1:])):
        lexicon = production.words.probabilities if production.words else ()
        nats = -log(p) - sum(q * log(q) for q in lexicon)
        left = (*(symbol for symbol, _ in production.then), *pending[1:])
        for tail, tail_nats in iterate_rewritings(left, room - bool(lexicon)):
            yield p * tail, nats + tail_nats


@pytest.mark.parametrize("slack", [0, 3, 7, LONGEST_SENTENCE_WORDS])
@pytest.mark.parametrize(
    "symbol",
    [
        Symbol("close"),
        Symbol("phrase", category="people", role="obj"),
        Symbol("modifier", "plural", "animals", links=1, relatives=1),
    ],
    ids=lambda symbol: symbol.kind,
)
def test_the_entropy_of_a_phrase_is_that_of_all_its_derivations(symbol, slack):
    ways = list(iterate_rewritings((symbol,), find_min_length(symbol) + slack))
    assert sum(p for p, _ in ways) == pytest.approx(1.0, rel=1e-12)
    assert compute_moments(symbol).nats[slack] == pytest.approx(sum(p * nats for p, nats in ways), rel=1e-12)


def test_derivations_end_with_probability_one():
    """Every production leaves some slack, so the distribution over sentences is proper."""
    assert compute_moments(SENTENCE).slack.sum(axis=1) == pytest.approx(
        np.ones(LONGEST_SENTENCE_WORDS + 1), rel=1e-12
    )


def is_within_four_standard_errors(sample: list[float], expected: float) -> bool:
    return abs(np.mean(sample) - expected) < 4 * np.std(sample) / sqrt(len(sample))


def test_sampled_sentences_agree_with_the_exact_entropy_and_length(training_sentences):
    assert is_within_four_standard_errors([-s.log_probability for s in training_sentences], entropy())
    assert is_within_four_standard_errors([len(s.words) + 1.0 for s in training_sentences], mean_tokens())


def test_the_perplexity_of_the_sentences_is_near_the_exact_one():
    assert ideal_perplexity("valid") == pytest.approx(exp(entropy() / mean_tokens()), rel=0.03)


def test_an_unknown_word_is_refused_with_the_nearest_known_one():
    with pytest.raises(CorpusError, match='no word "teachr"; did you mean "teacher"'):
        log_probability(["the", "teachr"])


def test_a_text_is_not_a_sequence_of_words():
    with pytest.raises(CorpusError, match="split it"):
        log_probability("the teacher")


def test_an_unknown_split_is_refused():
    with pytest.raises(CorpusError, match='no split "vaild"; did you mean "valid"'):
        generate_sentences("vaild")


def test_a_prefix_of_no_sentence_is_refused():
    with pytest.raises(CorpusError, match='no sentence of the grammar begins with "teacher the"'):
        next_word_probabilities(["teacher", "the"])
