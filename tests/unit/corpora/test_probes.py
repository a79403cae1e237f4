"""Rows of probes: what they ask, that a solver answers all of it, and the corpora that hold them."""

from collections import defaultdict
from random import Random

import pytest

from memtune.corpora import open_corpus
from memtune.corpora.probes.probe_corpora import (
    PROBES,
    SETS,
    check_settings,
    import_probe,
    name_corpus,
    parse_corpus_name,
    select_probes,
)
from memtune.corpora.probes.probe_rows import UNASKED, Row
from memtune.errors import CorpusError
from tests.oracles.probe_solvers import SOLVERS

each_probe = pytest.mark.parametrize("name", PROBES)


def draw(name: str, rows: int = 20, evaluated: int = 10, seed: str = "rows") -> dict[str, list[Row]]:
    found = defaultdict(list)
    for split, row in PROBES[name].draw_rows(seed, {"rows": rows, "evaluated": evaluated}):
        found[split].append(row)
    return found


@each_probe
def test_a_solver_made_by_hand_answers_every_asked_word(name):
    """So that the ceiling of every probe is 1."""
    rows = draw(name, rows=256 if name == "memorisation" else 20)
    asked = 0
    for inputs, answers in rows["valid"] + rows["test"]:
        solved = SOLVERS[name](inputs, rows["train"], {"probe": name})
        for place, answer in enumerate(answers):
            if answer != UNASKED:
                assert solved[place] == answer, (inputs, place)
                asked += 1
    assert asked >= len(rows["valid"] + rows["test"])


@each_probe
def test_no_inputs_are_in_two_rows_and_a_name_draws_the_same_rows_again(name):
    rows = draw(name)
    inputs = [tuple(row[0]) for split in rows.values() for row in split]
    assert len(set(inputs)) == len(inputs)
    assert draw(name) == rows
    assert draw(name, seed="other")["train"] != rows["train"]


@each_probe
def test_longer_test_rows_ask_beyond_the_trained_length(name):
    rows = draw(name)
    lengths = {len(inputs) for inputs, _ in rows["test"]}
    trained = max(len(inputs) for inputs, _ in rows["train"])
    if not PROBES[name].tests_longer:
        assert len(lengths) == 1 or "length" not in PROBES[name].settings
        return
    assert lengths == {trained, 2 * trained, 4 * trained}
    for inputs, answers in rows["test"]:
        if len(inputs) > trained:
            assert set(answers[:trained]) == {UNASKED} != set(answers[trained:])


@pytest.mark.parametrize("name", ["in_context_recall", "noisy_recall", "fuzzy_recall"])
def test_training_rows_of_recall_ask_for_each_next_word_as_in_mad(name):
    rows = draw(name)
    for inputs, answers in rows["train"]:
        assert list(answers[:-1]) == list(inputs[1:])
    assert any(UNASKED in answers for _, answers in rows["valid"])


def test_settings_with_too_few_different_rows_are_refused():
    with pytest.raises(CorpusError, match="parity-length-4 has too few different rows"):
        list(PROBES["parity"].draw_rows("probe-parity-length-4", {"length": 4, "rows": 100}))


@pytest.mark.parametrize(
    ("corpus", "problem"),
    [
        ("mqar-pairs-32", "mqar has no rows: length = 64 .* pairs = 32 .*; set length to 96 or more"),
        ("mqar-keys-4", "mqar has no rows: keys = 4 .* pairs = 8 .*; set keys to 8 or more"),
        ("mqar-pairs-0", "mqar has pairs = 0; give a whole number from 1"),
        ("parity-length-2.5", "parity has length = 2.5; give a whole number from 1"),
        ("parity-rows-0.5", "parity has rows = 0.5; give a whole number from 1"),
        ("dyck-depth-0", "dyck has depth = 0; give a whole number from 1"),
        ("mqar-length-99999999999999999999", "length = 1e.20; give a whole number from 1 to 10,000,000"),
        ("noisy_recall-noise-2", "noisy_recall has noise = 2; give a number from 0 to 1"),
        ("noisy_recall-vocabulary-17", "vocabulary = 17 .*; set vocabulary to 18 or more"),
        ("in_context_recall-length-3", "length = 3 .*; set length to 4 or more"),
        ("fuzzy_recall-length-10", "length = 10 .*; set length to 11 or more"),
        ("fuzzy_recall-vocabulary-6", "vocabulary = 6 .*; set vocabulary to 7 or more"),
        ("selective_copying-copied-64", "length = 64 .* copied = 64 .*; set length to 129 or more"),
        ("selective_copying-vocabulary-2", "vocabulary = 2 .*; set vocabulary to 3 or more"),
        ("compression-length-1", "length = 1 .*; set length to 2 or more"),
        ("memorisation-vocabulary-2", "vocabulary = 2 .*; set vocabulary to 3 or more"),
        ("induction-length-2", "length = 2 .*; set length to 3 or more"),
        ("modular_arithmetic-length-1", "length = 1 .*; set length to 2 or more"),
    ],
)
def test_settings_that_allow_no_row_are_refused_with_what_to_set(corpus, problem):
    with pytest.raises(CorpusError, match=problem):
        parse_corpus_name(f"probe-{corpus}")


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("mqar", {"length": 24}),
        ("in_context_recall", {"length": 4, "vocabulary": 2}),
        ("noisy_recall", {"length": 4, "vocabulary": 18, "noise": 1.0}),
        ("fuzzy_recall", {"length": 11, "vocabulary": 7}),
        ("selective_copying", {"length": 17, "vocabulary": 3}),
        ("compression", {"length": 2, "vocabulary": 2}),
        ("memorisation", {"length": 2, "vocabulary": 3}),
        ("induction", {"length": 3, "vocabulary": 2}),
        ("modular_arithmetic", {"length": 2}),
    ],
)
def test_rows_of_the_least_settings_have_as_many_answers_as_inputs(name, least):
    own = {**PROBES[name].settings, **check_settings(name, least)}
    own.pop("rows")
    for seed in range(30):
        for is_training in (True, False):
            row = PROBES[name].draw(Random(seed), is_training, **own)
            assert row is not None
            inputs, answers = row
            assert 0 < len(inputs) == len(answers) <= own["length"]


def test_a_corpus_has_the_settings_of_its_name():
    name = name_corpus("noisy_recall", {"noise": 0.4, "length": 128})
    assert name == "probe-noisy_recall-length-128-noise-0.4"
    assert name == name_corpus("noisy_recall", {"length": 128, "noise": 0.4, "noise_words": 16})
    assert parse_corpus_name(name) == ("noisy_recall", {"noise": 0.4, "length": 128})
    assert parse_corpus_name(name_corpus("noisy_recall", {"noise": 1e-5}))[1] == {"noise": 1e-5}
    with pytest.raises(CorpusError, match='no setting "pair" of the rows of mqar; did you mean "pairs"'):
        parse_corpus_name("probe-mqar-pair-3")
    with pytest.raises(CorpusError, match="pairs needs a number, such as pairs-8"):
        parse_corpus_name("probe-mqar-pairs")
    with pytest.raises(CorpusError, match="it is a set, whose rows have no settings"):
        parse_corpus_name("probe-state-length-8")
    for other in ("probe-mqar-rows-9-length-32", "probe-mqar-length-32-rows-9-pairs-8"):
        with pytest.raises(CorpusError, match="has the rows of probe-mqar-length-32-rows-9; use this name"):
            parse_corpus_name(other)
    with pytest.raises(CorpusError, match='no probe or set "mquar"; did you mean "mqar"'):
        parse_corpus_name("probe-mquar")


def test_rows_that_would_take_gigabytes_are_refused():
    with pytest.raises(CorpusError, match="parity would have 640,000,000 inputs, more than 100,000,000"):
        check_settings("parity", {"length": 10_000_000, "rows": 64})


def test_the_corpus_of_a_probe_holds_inputs_and_answers(tmp_path):
    name = "probe-dyck-rows-20-evaluated-10"
    import_probe(name, tmp_path)
    corpus = open_corpus(name, tmp_path)
    ids = corpus["train"].read_tokens(0, 64)
    words = [corpus.vocabulary.tokens[word] for word in ids]
    expected = next(row for _, row in PROBES["dyck"].draw_rows(f"{name} dyck", {"rows": 20, "evaluated": 10}))
    assert words == [*expected[0], *expected[1]]
    assert import_probe(name, tmp_path).unchanged


def test_a_set_is_a_corpus_of_its_probes_with_words_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setitem(SETS, "mad", ("compression", "memorisation"))
    monkeypatch.setitem(SETS, "recall", ("memorisation",))
    import_probe("probe-mad", tmp_path)
    words = open_corpus("probe-mad", tmp_path).vocabulary.tokens
    assert {word.partition(":")[0] for word in words if ":" in word} == {"memorisation"}
    assert UNASKED in words


def test_every_set_names_probes():
    assert {name for probes in SETS.values() for name in probes} == PROBES.keys()
    assert select_probes("parity") == ("parity",)
    assert len(select_probes("mad")) == 6
