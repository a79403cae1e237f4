"""Probes as a task: what a batch asks, accuracy by length, and what is refused."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from memtune.corpora import Corpus, ImportOptions, TextFile, import_corpus, open_corpus
from memtune.corpora.probes.probe_corpora import import_probe
from memtune.errors import ConfigurationError, CorpusError
from memtune.models.classifiers import AnswerClassifier
from memtune.tasks import LanguageModellingConfig, ProbeConfig, ProbeTask, build_task_model
from memtune.training import TrialConfig
from memtune.values import parse

ROWS = [
    ["a", "b", "_", "x"],  # inputs a b, answers _ x
    ["a", "c", "b", "a", "y", "_", "x", "_"],
    ["c", "z"],
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("probes")
    for name, sentences in (("rows", ROWS), ("text", [["a", "b"]]), ("odd", [["a", "b", "_"]])):
        import_corpus(name, {"train": sentences, "valid": sentences, "test": sentences}, folder)
    return folder


@pytest.fixture
def rows(store: Path) -> Corpus:
    return open_corpus("rows", store)


def test_a_text_file_of_rows_is_a_probe(tmp_path: Path) -> None:
    text = tmp_path / "rows.txt"
    text.write_text("d d a _ _ d\nc a b _ _ c\n")
    import_corpus("first_word", dict.fromkeys(("train", "valid", "test"), TextFile(text)), tmp_path)
    corpus = open_corpus("first_word", tmp_path)
    task = ProbeConfig().open(corpus, make_trial().protocol)
    assert (task.epoch_tokens, task.outcome_count) == (2, 2)


def make_trial(**model: Any) -> TrialConfig:
    model = {"family": "lstm", "width": 4} | model
    given = {"task": {"kind": "probe"}, "model": model, "training": {"epochs": 1}}
    config: TrialConfig = parse(TrialConfig, given, "trial")
    return config


def open_rows(corpus: Corpus) -> ProbeTask:
    config = make_trial()
    task = config.task.open(corpus, config.protocol)
    assert isinstance(task, ProbeTask)
    return task


def build_probed(config: TrialConfig, corpus: Corpus) -> AnswerClassifier:
    model = build_task_model(config.task, config.model, len(corpus.vocabulary), seed=0)
    assert isinstance(model, AnswerClassifier)
    return model


def test_a_batch_asks_at_the_places_of_the_answers_and_nowhere_else(rows):
    task = open_rows(rows)
    batch = task.rows["train"].batch(np.array([0, 1, 2]))
    words_BT, last_B, rows_N, places_N = batch.arguments
    names = rows.vocabulary.tokens
    assert [
        [names[word] for word in row[:length]] for row, length in zip(words_BT, (2, 4, 1), strict=True)
    ] == [
        ["a", "b"],
        ["a", "c", "b", "a"],
        ["c"],
    ]
    assert last_B.tolist() == [1, 3, 0]
    asked = zip(rows_N.tolist(), places_N.tolist(), (names[label] for label in batch.labels_N), strict=True)
    assert list(asked) == [(0, 1, "x"), (1, 0, "y"), (1, 2, "x"), (2, 0, "z")]
    assert task.epoch_tokens == 4
    assert task.outcome_count == 3


def test_the_accuracy_of_a_split_is_that_of_its_lengths(rows):
    task, config = open_rows(rows), make_trial()
    model = build_probed(config, rows)
    output = model.head[-1]
    assert isinstance(output, torch.nn.Linear)
    with torch.no_grad():  # the model always answers x
        output.weight.zero_()
        output.bias.copy_(torch.eye(len(rows.vocabulary))[rows.vocabulary.get_id("x")])
    assert task.compute_accuracy_by_length(model, "test") == {1: 0.0, 2: 1.0, 4: 0.5}
    assert task.evaluate(model, "test").accuracy == 0.5
    items = task.compute_item_costs(model, "test")
    assert (items.unit, items.costs_I.tolist(), items.counts_I.tolist()) == (
        "rows",
        [1.0, 0.0, 1.0],
        [1, 1, 2],
    )


def test_answers_from_the_last_state_depend_on_their_places(rows):
    config = parse(ProbeConfig, {"reads_last_state": True}, "task")
    model = build_task_model(config, make_trial().model, len(rows.vocabulary), seed=0)
    words_BT, last_B = torch.tensor([[1, 2, 3]]), torch.tensor([2])
    first, second = model(words_BT, last_B, torch.tensor([0, 0]), torch.tensor([0, 1]))
    assert not torch.allclose(first, second)
    changed = model(torch.tensor([[2, 2, 3]]), last_B, torch.tensor([0]), torch.tensor([0]))
    assert not torch.allclose(first, changed[0])


@pytest.mark.parametrize(
    ("corpus", "problem"),
    [
        ("text", 'corpus "text" has no rows of a probe'),
        ("odd", "row 1 of train has 3 words; a row has its inputs and then as many answers"),
    ],
)
def test_a_corpus_without_rows_is_refused(corpus, problem, store):
    with pytest.raises(CorpusError, match=problem):
        open_rows(open_corpus(corpus, store))


def test_rows_of_a_probe_are_no_text(store):
    import_probe("probe-parity-length-12-rows-20-evaluated-4", store)
    corpus = open_corpus("probe-parity-length-12-rows-20-evaluated-4", store)
    with pytest.raises(CorpusError, match=r'4" has rows of a probe; add task.kind = "probe"'):
        LanguageModellingConfig().open(corpus, make_trial().protocol)


def test_rows_that_are_read_from_the_last_state_are_not_read_word_by_word(store):
    """Read after each word, the rows of compression ask for the word just read."""
    corpus = "probe-compression-length-12-rows-20-evaluated-4"
    import_probe(corpus, store)
    with pytest.raises(ConfigurationError, match=r"write task\.reads_last_state = true"):
        open_rows(open_corpus(corpus, store))


def test_chance_is_the_best_constant_answer_of_each_probe(rows, tmp_path):
    counts = Counter(word for row in ROWS for word in row[len(row) // 2 :] if word != "_")
    assert open_rows(rows).chance == max(counts.values()) / counts.total()
    both = [
        ["parity:0", "parity:1"],
        ["parity:0", "parity:0"],
        ["parity:1", "parity:1"],
        ["dyck:(", "dyck:)"],
        ["dyck:)", "_"],
    ]
    import_corpus("both", {"train": both, "valid": both, "test": both}, tmp_path)
    assert open_rows(open_corpus("both", tmp_path)).chance == 3 / 4


def test_the_ceiling_is_the_share_of_answers_for_which_training_asks(tmp_path):
    rows = {"train": [["a", "b"], ["b", "_"], ["c", "_"]], "valid": [["a", "b"], ["b", "c"], ["c", "b"]]}
    rows["test"] = rows["valid"]
    import_corpus("some", rows, tmp_path, ImportOptions(vocabulary="all"))
    assert open_rows(open_corpus("some", tmp_path)).ceiling == 2 / 3


@pytest.mark.parametrize("silent", ["train", "valid", "test"])
def test_a_split_that_asks_nothing_is_refused(silent, tmp_path):
    rows = {split: [["a", "_" if split == silent else "b"]] for split in ("train", "valid", "test")}
    import_corpus("silent", rows, tmp_path, ImportOptions(vocabulary="all"))
    corpus = open_corpus("silent", tmp_path)
    with pytest.raises(CorpusError, match=f"no label of the {silent} split counts"):
        open_rows(corpus).evaluate(build_probed(make_trial(), corpus), "test")


def test_a_model_that_reads_ahead_is_refused():
    config = make_trial(family="recurrent_memory", memory_size=3, bidirectional=True)
    with pytest.raises(ConfigurationError, match="reads ahead; choose a configuration that reads from left"):
        config.task.build(config.model, 4)


def test_the_rows_of_a_longer_test_are_told_apart(store):
    import_probe("probe-parity-length-16-rows-40-evaluated-8", store)
    corpus = open_corpus("probe-parity-length-16-rows-40-evaluated-8", store)
    model = build_probed(make_trial(), corpus)
    task = open_rows(corpus)
    assert set(task.compute_accuracy_by_length(model, "test")) == {16, 32, 64}
    assert set(task.compute_accuracy_by_length(model, "valid")) == {16}
