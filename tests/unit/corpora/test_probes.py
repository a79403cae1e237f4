"""Rows of probes: what they ask, that a solver answers all of it, and the corpora that hold them."""

from collections import defaultdict

import pytest

from memtune.corpora import open_corpus
from memtune.corpora.probes import (
    PROBES,
    SETS,
    UNASKED,
    import_probe,
    name_corpus,
    parse_corpus_name,
    select_probes,
)
from memtune.corpora.probes.probe_rows import Row
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
        list(PROBES["parity"].draw_rows("probe-parity-length-4", {"length": 4}))


def test_a_corpus_has_the_settings_of_its_name():
    name = name_corpus("noisy_recall", {"noise": 0.4, "length": 128})
    assert name == "probe-noisy_recall-noise-0.4-length-128"
    assert parse_corpus_name(name) == ("noisy_recall", {"noise": 0.4, "length": 128})
    with pytest.raises(CorpusError, match="its settings are length, pairs, keys, values, rows, evaluated"):
        parse_corpus_name("probe-mqar-pair-3")
    with pytest.raises(CorpusError, match='no probe or set "mquar"; did you mean "mqar"'):
        parse_corpus_name("probe-mquar")


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
