"""The embedded corpus: one derivation per sentence, exact probabilities, and long dependencies."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple
from functools import cache
from hashlib import sha256
from itertools import islice
from math import exp, inf, log, sqrt
from typing import Any

import numpy as np
import pytest

from memtune.corpora import open_corpus
from memtune.corpora.grammar import (
    LONGEST_SENTENCE_WORDS,
    SHORTEST_SENTENCE_WORDS,
    SPLIT_SIZES,
    WORDS,
    Sentence,
    entropy,
    generate_sentences,
    ideal_perplexity,
    import_grammar,
    log_probability,
    mean_tokens,
    next_word_probabilities,
)
from memtune.corpora.grammar.derivation import parse_words
from memtune.corpora.grammar.entropy import compute_moments
from memtune.corpora.grammar.lexicon import NAMES, NOUNS, PARTNERS
from memtune.corpora.grammar.productions import PARTNER, SENTENCE, Production, Symbol, list_productions
from memtune.errors import CorpusError
from tests.presence import require

END = ""
NAME_WORDS = {name for lexicon in NAMES.values() for name in lexicon.words}
NOUN_NUMBER = {
    noun: number for forms in NOUNS.values() for number, lexicon in forms.items() for noun in lexicon.words
} | dict.fromkeys(NAME_WORDS, "singular")


@pytest.fixture(scope="module")
def train() -> list[Sentence]:
    return list(generate_sentences("train"))


@pytest.fixture(scope="module")
def sentences(train: list[Sentence]) -> list[Sentence]:
    """A few hundred sentences, and the hardest ones to parse: the longest, and those with most attractors."""
    longest = sorted(train[:20_000], key=lambda sentence: -len(sentence.words))[:40]
    hardest = [s for s in train if s.agreement and s.agreement.attractors >= 4][:40]
    return [*train[:300], *longest, *hardest]


# The grammar as rules


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


# Probabilities


@cache
def find_min_length(symbol: Symbol) -> int:
    return min(count_min_words(production) for production in list_productions(symbol))


def count_min_words(production: Production) -> int:
    return (production.words is not None) + sum(find_min_length(symbol) for symbol, _ in production.then)


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


def test_a_search_over_all_derivations_finds_one_with_the_stated_probability(sentences):
    for sentence in sentences:
        found = list(iterate_derivations((SENTENCE,), sentence.words, LONGEST_SENTENCE_WORDS))
        assert found == [pytest.approx(sentence.log_probability, rel=1e-12)]


def test_the_words_alone_give_the_probability(sentences):
    for sentence in sentences:
        assert log_probability(sentence.words) == pytest.approx(sentence.log_probability, rel=1e-12)


def test_next_word_probabilities_sum_to_one_and_multiply_to_the_sentence_probability(sentences):
    for sentence in sentences:
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


def test_sampled_sentences_agree_with_the_exact_entropy_and_length(train):
    assert is_within_four_standard_errors([-s.log_probability for s in train], entropy())
    assert is_within_four_standard_errors([len(s.words) + 1.0 for s in train], mean_tokens())


def test_ideal_perplexities_are_those_of_the_sentences_and_near_the_exact_one():
    valid = list(generate_sentences("valid"))
    nats = -sum(sentence.log_probability for sentence in valid)
    assert ideal_perplexity("valid") == pytest.approx(exp(nats / sum(len(s.words) + 1 for s in valid)))
    assert ideal_perplexity("valid") == pytest.approx(exp(entropy() / mean_tokens()), rel=0.03)


# The sentences


def test_the_sentences_never_change():
    """A change here changes every embedded corpus: state it in the changelog."""
    text = "\n".join(" ".join(s.words) for split in SPLIT_SIZES for s in generate_sentences(split, 500))
    assert (
        sha256(text.encode()).hexdigest()
        == "2516cf00590049a99d191c3e6c525cefd48f7fe4365d8947e36a098bb827dcac"
    )


def test_fewer_sentences_are_the_first_of_more():
    assert list(generate_sentences("valid", 20)) == list(islice(generate_sentences("valid"), 20))


def test_splits_are_different_sentences(train):
    known = {sentence.words for sentence in train if len(sentence.words) > 12}
    others = [s for split in ("valid", "test") for s in generate_sentences(split) if len(s.words) > 12]
    assert sum(sentence.words in known for sentence in others) < 0.001 * len(others)


def test_every_sentence_length_occurs(train):
    lengths = {len(sentence.words) for sentence in train}
    assert (min(lengths), max(lengths)) == (SHORTEST_SENTENCE_WORDS, LONGEST_SENTENCE_WORDS) == (4, 40)
    assert lengths == set(range(SHORTEST_SENTENCE_WORDS, LONGEST_SENTENCE_WORDS + 1))


def test_training_has_every_word_with_zipf_frequencies(train):
    counts = Counter(word for sentence in train for word in sentence.words)
    assert set(counts) == set(WORDS)
    ranks = np.arange(1, len(counts) + 1)
    frequencies = np.array(sorted(counts.values(), reverse=True))
    slope, _ = np.polyfit(np.log(ranks), np.log(frequencies), 1)
    assert -1.4 < slope < -0.8


def describe_dependencies(text: str) -> list[str]:
    """Each word as relation:head."""
    words = text.split()
    heads, relations = require(parse_words(words)).dependencies()
    return [f"{relation}:{words[head]}" for head, relation in zip(heads, relations, strict=True) if head >= 0]


def test_modifiers_depend_on_their_noun_and_the_particle_on_its_verb():
    found = describe_dependencies("the dogs that Anna feeds dig the old rose near this king up")
    expected = (
        "det:dogs nsubj:dig mark:feeds nsubj:feeds acl:relcl:dogs det:rose amod:rose obj:dig case:king "
        "det:king nmod:rose compound:prt:dig"
    )
    assert found == expected.split()


def test_replies_are_main_clauses():
    found = describe_dependencies(
        "when Anna meets Paul near the rose , Paul thanks Anna because the lion sleeps daily"
    )
    expected = (
        "mark:meets nsubj:meets advcl:thanks obj:meets case:rose det:rose nmod:Paul punct:thanks "
        "nsubj:thanks obj:thanks mark:sleeps det:lion nsubj:sleeps advcl:thanks advmod:sleeps"
    )
    assert found == expected.split()


def test_dependencies_are_trees(train):
    for sentence in train[:5000]:
        assert sentence.heads.count(-1) == 1
        for position in range(len(sentence.words)):
            steps = 0
            while position >= 0:
                position, steps = sentence.heads[position], steps + 1
                assert steps <= len(sentence.words)


# Long dependencies


def test_agreement_names_the_verb_with_most_attractors(train):
    for sentence in train[:5000]:
        counts = {}
        for subject, (verb, relation) in enumerate(zip(sentence.heads, sentence.relations, strict=True)):
            if relation == "nsubj" and sentence.words[subject] not in NAME_WORDS:
                number = NOUN_NUMBER[sentence.words[subject]]
                between = sentence.words[subject + 1 : verb]
                counts[verb] = sum(NOUN_NUMBER.get(word, number) != number for word in between)
        if not counts:
            assert sentence.agreement is None
            continue
        most = max(counts.values())
        verb = min(verb for verb in counts if counts[verb] == most)
        assert (sentence.agreement.verb, sentence.agreement.attractors) == (verb, most)
        assert sentence.words[verb] == sentence.agreement.right


def test_training_has_every_number_of_attractors_up_to_five(train):
    counts = Counter(s.agreement.attractors for s in train if s.agreement)
    assert sorted(counts) == [0, 1, 2, 3, 4, 5]
    assert counts[5] >= 10


def replace_word(sentence: Sentence, position: int, word: str) -> tuple[str, ...]:
    return (*sentence.words[:position], word, *sentence.words[position + 1 :])


def test_the_wrong_form_is_impossible(sentences):
    for sentence in sentences:
        if sentence.agreement:
            wrong = replace_word(sentence, sentence.agreement.verb, sentence.agreement.wrong)
            assert log_probability(wrong) == -inf


def test_particles_match_their_verbs_at_distances_of_three_to_fifteen_words(train):
    distances: Counter[Any] = Counter()
    for sentence in train:
        for position, relation in enumerate(sentence.relations):
            if relation == "compound:prt":
                verb = sentence.heads[position]
                assert sentence.words[position] == PARTNERS[sentence.words[verb]]
                distances[position - verb] += 1
    assert min(distances) == 3
    assert 12 <= max(distances) <= 15


def test_brackets_close_by_kind_and_nest(train):
    deepest = 0
    closers = {PARTNERS[opener]: opener for opener in "([{«"}
    for sentence in train:
        open_now: list[Any] = []
        for word in sentence.words:
            if word in closers:
                assert open_now.pop() == closers[word]
            elif word in closers.values():
                open_now.append(word)
                deepest = max(deepest, len(open_now))
        assert not open_now
    assert deepest == 2


def test_half_of_the_sentences_repeat_a_name_and_no_other_name_is_possible(train):
    returning = [s for s in train if s.relations.count("conj") or s.relations[0] == "mark"]
    assert len(returning) > len(train) / 2
    for sentence in returning[:200]:
        names = [position for position, word in enumerate(sentence.words) if word in NAME_WORDS]
        comma = sentence.words.index(",")
        position = next(position for position in names if position > comma)
        assert sentence.words[position] in sentence.words[:comma]
        for other in ("Anna", "Paul"):
            if other != sentence.words[position]:
                assert log_probability(replace_word(sentence, position, other)) == -inf


def test_relative_clauses_nest_up_to_three_deep(train):
    def depth(sentence: Sentence, position: int) -> int:
        deep = 0
        while position >= 0:
            deep += sentence.relations[position] == "acl:relcl"
            if sentence.relations[position] in ("advcl", "ccomp", "parataxis", "conj"):
                return deep
            position = sentence.heads[position]
        return deep

    depths = Counter(max(depth(s, position) for position in range(len(s.words))) for s in train[:20_000])
    assert sorted(depths) == [0, 1, 2, 3]


# Invalid requests


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


# The corpus


def test_the_import_stores_every_sentence_and_the_ideal_perplexity(tmp_path, train):
    imported = import_grammar("grammar", tmp_path / "store", cache=tmp_path / "cache")
    assert not imported.warnings
    corpus = open_corpus("grammar", tmp_path / "store", cache=tmp_path / "cache")
    assert set(corpus.vocabulary.tokens) == {"<eos>", *WORDS}
    assert {name: split.sentence_count for name, split in corpus.splits.items()} == SPLIT_SIZES
    split = corpus["train"]
    starts = random.Random(0).sample(range(len(train) - 1), 50)
    for index in starts:
        start, stop = split.starts[index], split.starts[index + 1]
        assert corpus.vocabulary.decode(split.read_tokens(start, stop)) == [*train[index].words, "<eos>"]
    assert require(corpus.manifest.ideal)["test"] == pytest.approx(ideal_perplexity("test"))
    labels = corpus.manifest.annotations["trees"].labels
    trees = corpus.annotations["trees"]["train"]
    agreement = corpus.annotations["agreement"]["train"].to_pylist()
    assert len(agreement) == sum(sentence.agreement is not None for sentence in train)
    asked = {row["sentence"]: row for row in agreement}
    for index in starts:
        tree = trees.slice(index, 1).to_pylist()[0]
        assert tuple(tree["heads"]) == train[index].heads
        assert tuple(labels[relation] for relation in tree["relations"]) == train[index].relations
        if expected := train[index].agreement:
            row = asked[index]
            forms = corpus.vocabulary.decode([row["right"], row["wrong"]])
            assert [row["verb"], *forms, row["attractors"]] == list(astuple(expected))
