"""The sentences of the embedded corpus: splits, words, dependencies, and long-distance structure."""

import random
from collections import Counter
from dataclasses import astuple
from hashlib import sha256
from itertools import islice
from math import inf
from typing import Any

import numpy as np
import pytest

from memtune.corpora import open_corpus
from memtune.corpora.grammar.derivation import LONGEST_SENTENCE_WORDS, parse_words
from memtune.corpora.grammar.embedded_corpus import (
    SPLIT_SIZES,
    Sentence,
    generate_sentences,
    import_grammar,
    log_probability,
)
from memtune.corpora.grammar.lexicon import NAMES, NOUNS, PARTNERS, WORDS
from tests.presence import require
from tests.unit.corpora.grammar_moments import SHORTEST_SENTENCE_WORDS, ideal_perplexity

NAME_WORDS = {name for lexicon in NAMES.values() for name in lexicon.words}


NOUN_NUMBER = {
    noun: number for forms in NOUNS.values() for number, lexicon in forms.items() for noun in lexicon.words
} | dict.fromkeys(NAME_WORDS, "singular")


def test_the_sentences_never_change():
    """A change here changes every embedded corpus: state it in the changelog."""
    text = "\n".join(" ".join(s.words) for split in SPLIT_SIZES for s in generate_sentences(split, 500))
    assert (
        sha256(text.encode()).hexdigest()
        == "2516cf00590049a99d191c3e6c525cefd48f7fe4365d8947e36a098bb827dcac"
    )


def test_fewer_sentences_are_the_first_of_more():
    assert list(generate_sentences("valid", 20)) == list(islice(generate_sentences("valid"), 20))


def test_splits_are_different_sentences(training_sentences):
    known = {sentence.words for sentence in training_sentences if len(sentence.words) > 12}
    others = [s for split in ("valid", "test") for s in generate_sentences(split) if len(s.words) > 12]
    assert sum(sentence.words in known for sentence in others) < 0.001 * len(others)


def test_every_sentence_length_occurs(training_sentences):
    lengths = {len(sentence.words) for sentence in training_sentences}
    assert (min(lengths), max(lengths)) == (SHORTEST_SENTENCE_WORDS, LONGEST_SENTENCE_WORDS) == (4, 40)
    assert lengths == set(range(SHORTEST_SENTENCE_WORDS, LONGEST_SENTENCE_WORDS + 1))


def test_training_has_every_word_with_zipf_frequencies(training_sentences):
    counts = Counter(word for sentence in training_sentences for word in sentence.words)
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


def test_dependencies_are_trees(training_sentences):
    for sentence in training_sentences[:5000]:
        assert sentence.heads.count(-1) == 1
        for position in range(len(sentence.words)):
            steps = 0
            while position >= 0:
                position, steps = sentence.heads[position], steps + 1
                assert steps <= len(sentence.words)


def test_agreement_names_the_verb_with_most_attractors(training_sentences):
    for sentence in training_sentences[:5000]:
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


def test_training_has_every_number_of_attractors_up_to_five(training_sentences):
    counts = Counter(s.agreement.attractors for s in training_sentences if s.agreement)
    assert sorted(counts) == [0, 1, 2, 3, 4, 5]
    assert counts[5] >= 10


def replace_word(sentence: Sentence, position: int, word: str) -> tuple[str, ...]:
    return (*sentence.words[:position], word, *sentence.words[position + 1 :])


def test_the_wrong_form_is_impossible(hard_sentences):
    for sentence in hard_sentences:
        if sentence.agreement:
            wrong = replace_word(sentence, sentence.agreement.verb, sentence.agreement.wrong)
            assert log_probability(wrong) == -inf


def test_particles_match_their_verbs_at_distances_of_three_to_fifteen_words(training_sentences):
    distances: Counter[Any] = Counter()
    for sentence in training_sentences:
        for position, relation in enumerate(sentence.relations):
            if relation == "compound:prt":
                verb = sentence.heads[position]
                assert sentence.words[position] == PARTNERS[sentence.words[verb]]
                distances[position - verb] += 1
    assert min(distances) == 3
    assert 12 <= max(distances) <= 15


def test_brackets_close_by_kind_and_nest(training_sentences):
    deepest = 0
    closers = {PARTNERS[opener]: opener for opener in "([{«"}
    for sentence in training_sentences:
        open_now: list[Any] = []
        for word in sentence.words:
            if word in closers:
                assert open_now.pop() == closers[word]
            elif word in closers.values():
                open_now.append(word)
                deepest = max(deepest, len(open_now))
        assert not open_now
    assert deepest == 2


def test_half_of_the_sentences_repeat_a_name_and_no_other_name_is_possible(training_sentences):
    returning = [s for s in training_sentences if s.relations.count("conj") or s.relations[0] == "mark"]
    assert len(returning) > len(training_sentences) / 2
    for sentence in returning[:200]:
        names = [position for position, word in enumerate(sentence.words) if word in NAME_WORDS]
        comma = sentence.words.index(",")
        position = next(position for position in names if position > comma)
        assert sentence.words[position] in sentence.words[:comma]
        for other in ("Anna", "Paul"):
            if other != sentence.words[position]:
                assert log_probability(replace_word(sentence, position, other)) == -inf


def test_relative_clauses_nest_up_to_three_deep(training_sentences):
    def measure_depth(sentence: Sentence, position: int) -> int:
        deep = 0
        while position >= 0:
            deep += sentence.relations[position] == "acl:relcl"
            if sentence.relations[position] in ("advcl", "ccomp", "parataxis", "conj"):
                return deep
            position = sentence.heads[position]
        return deep

    depths = Counter(
        max(measure_depth(s, position) for position in range(len(s.words)))
        for s in training_sentences[:20_000]
    )
    assert sorted(depths) == [0, 1, 2, 3]


def test_the_import_stores_every_sentence_and_the_ideal_perplexity(
    tmp_path, cache, training_sentences, monkeypatch
):
    for name, size in {"train": 10_000, "valid": 500, "test": 500}.items():
        monkeypatch.setitem(SPLIT_SIZES, name, size)
    training_sentences = training_sentences[: SPLIT_SIZES["train"]]
    imported = import_grammar("grammar", tmp_path / "store")
    assert not imported.warnings
    corpus = open_corpus("grammar", tmp_path / "store", cache)
    assert set(corpus.vocabulary.tokens) == {"<eos>", *WORDS}
    assert {name: split.sentence_count for name, split in corpus.splits.items()} == SPLIT_SIZES
    split = corpus["train"]
    starts = random.Random(0).sample(range(len(training_sentences) - 1), 50)
    for index in starts:
        start, stop = split.starts[index], split.starts[index + 1]
        assert corpus.vocabulary.decode(split.read_tokens(start, stop)) == [
            *training_sentences[index].words,
            "<eos>",
        ]
    assert require(corpus.manifest.ideal)["test"] == pytest.approx(ideal_perplexity("test"))
    labels = corpus.manifest.annotations["trees"].labels
    trees = corpus.annotations["trees"]["train"]
    agreement = corpus.annotations["agreement"]["train"].to_pylist()
    assert len(agreement) == sum(sentence.agreement is not None for sentence in training_sentences)
    asked = {row["sentence"]: row for row in agreement}
    for index in starts:
        tree = trees.slice(index, 1).to_pylist()[0]
        assert tuple(tree["heads"]) == training_sentences[index].heads
        assert (
            tuple(labels[relation] for relation in tree["relations"]) == training_sentences[index].relations
        )
        if expected := training_sentences[index].agreement:
            row = asked[index]
            forms = corpus.vocabulary.decode([row["right"], row["wrong"]])
            assert [row["verb"], *forms, row["attractors"]] == list(astuple(expected))
