"""The protocol `tree`: each word once, below its head, and plans that are functions of their arguments."""

import numpy as np
import pytest
import torch

from memtune.corpora.batching.batches import TaskPlan, TreeBatch
from memtune.corpora.batching.tree_protocol import Treebank, TreeProtocol
from memtune.errors import ConfigurationError, CorpusError
from tests.golden.tiny_trees import Sentence, make_treebank, make_trees_of_every_shape
from tests.presence import require

WORDS = 23
UNKNOWN = 1
SENTENCES = [*make_trees_of_every_shape(WORDS), *make_trees_of_every_shape(WORDS, seed=1)]
PROTOCOLS = [TreeProtocol(batch_size=1), TreeProtocol(batch_size=7), TreeProtocol(batch_size=500)]
each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS, ids=str)


@pytest.fixture
def trees() -> Treebank:
    return make_treebank(SENTENCES, UNKNOWN)


def list_batches(plan: TaskPlan[TreeBatch]) -> list[TreeBatch]:
    return [plan.batch(index) for index in range(len(plan))]


def list_nodes(batch: TreeBatch) -> list[tuple[int, int, int, int]]:
    """(sentence, word, its head's word, its label) of each node but the boundary."""
    words, parents, labels = (values.tolist() for values in (batch.words_N, batch.parents_N, batch.labels_N))
    return [
        (sentence, words[node], words[parents[node]], labels[node])
        for node, sentence in enumerate(batch.sentences_W.tolist(), start=1)
    ]


def list_expected_nodes(sentences: list[Sentence]) -> list[tuple[int, int, int, int]]:
    return [
        (index, word, words[head] if head >= 0 else 0, label)
        for index, (words, heads, labels) in enumerate(sentences)
        for word, head, label in zip(words, heads, labels, strict=True)
    ]


def test_a_batch_holds_every_word_once_with_its_head_and_label(trees):
    batch = trees.batch(trees.nonempty_sentences)
    assert sorted(list_nodes(batch)) == sorted(list_expected_nodes(SENTENCES))
    assert batch.rows == len(SENTENCES)


def test_a_parent_is_in_the_level_above_in_the_same_sentence(trees):
    batch = trees.batch(trees.nonempty_sentences)
    level_N = np.repeat(np.arange(len(batch.bounds) - 1), np.diff(batch.bounds))
    sentence_N = np.concatenate(([-1], batch.sentences_W))
    parents_N = batch.parents_N.numpy()
    assert parents_N[0] == 0
    np.testing.assert_array_equal(level_N[parents_N[1:]], level_N[1:] - 1)
    below_roots = level_N > 1
    np.testing.assert_array_equal(sentence_N[parents_N[below_roots]], sentence_N[below_roots])


def test_words_with_children_come_first_in_their_level(trees):
    batch = trees.batch(trees.nonempty_sentences)
    inner = set(batch.parents_N.tolist())
    for first, stop, branching in zip(
        batch.bounds[:-1], batch.bounds[1:], batch.branching_counts, strict=True
    ):
        assert {node for node in range(first, stop) if node in inner} == set(range(first, first + branching))


def test_only_the_boundary_is_above_the_roots(trees):
    batch = trees.batch(trees.nonempty_sentences)
    assert batch.bounds[:3] == (0, 1, 1 + len(SENTENCES))
    assert (batch.words_N[0], batch.labels_N[0]) == (0, -1)
    assert batch.labels_N[1 : 1 + len(SENTENCES)].eq(-1).all()


@each_protocol
def test_an_epoch_predicts_every_word_once(trees, protocol):
    expected = np.bincount([word for words, _, _ in SENTENCES for word in words])
    for plan in (protocol.training_plan(trees, 3, 1), protocol.evaluation_plan(trees, 20)):
        words = torch.cat([batch.words_N[1:] for batch in list_batches(plan)])
        np.testing.assert_array_equal(np.bincount(words), expected)
        assert plan.token_count == expected.sum() == sum(batch.token_count for batch in list_batches(plan))


@each_protocol
def test_no_training_batch_has_more_sentences_than_the_batch_size(trees, protocol):
    rows = [batch.rows for batch in list_batches(protocol.training_plan(trees, 0, 0))]
    assert max(rows) <= protocol.batch_size
    assert max(rows) - min(rows) <= 1


def test_the_same_seed_and_epoch_give_the_same_batches_and_others_do_not(trees):
    protocol = TreeProtocol(batch_size=7)
    plans = [protocol.training_plan(trees, *order) for order in [(5, 2), (5, 2), (5, 3), (6, 2)]]
    first, again, *others = ([batch.words_N.tolist() for batch in list_batches(plan)] for plan in plans)
    assert first == again
    assert all(first != other for other in others)


def test_an_evaluation_reads_the_sentences_in_order(trees):
    plan = TreeProtocol().evaluation_plan(trees, 20)
    assert len(plan) > 3
    read = np.concatenate([plan.get_items(index) for index in range(len(plan))])
    np.testing.assert_array_equal(read, np.arange(len(SENTENCES)))


def test_unknown_words_count_in_training_and_optionally_not_in_an_evaluation(trees):
    protocol = TreeProtocol(count_unknown=False)
    unknown = sum(words.count(UNKNOWN) for words, _, _ in SENTENCES)
    assert unknown > 0
    evaluation, training = protocol.evaluation_plan(trees), protocol.training_plan(trees, 0, 0)
    assert training.token_count - evaluation.token_count == unknown
    assert sum(batch.token_count for batch in list_batches(evaluation)) == evaluation.token_count
    for batch in list_batches(evaluation):
        assert torch.equal(require(batch.mask_W), batch.words_N[1:] != UNKNOWN)
    assert all(batch.mask_W is None for batch in list_batches(training))


def test_without_an_unknown_word_every_word_counts():
    trees = make_treebank(SENTENCES, unknown=None)
    assert TreeProtocol(count_unknown=False).evaluation_plan(trees).token_count == trees.word_count


def test_a_sentence_without_words_is_in_no_batch():
    trees = make_treebank([([], [], []), SENTENCES[0], ([], [], []), SENTENCES[1]])
    assert [batch.rows for batch in list_batches(TreeProtocol().evaluation_plan(trees))] == [2]


def test_a_sentence_may_have_several_roots():
    batch = make_treebank([([5, 6, 7], [-1, -1, 1], [-1, -1, 2])]).batch(np.array([0]))
    assert sorted(list_nodes(batch)) == [(0, 5, 0, -1), (0, 6, 0, -1), (0, 7, 6, 2)]


def test_heads_that_form_a_cycle_are_refused():
    with pytest.raises(CorpusError, match="heads form a cycle"):
        make_treebank([([5, 6, 7], [-1, 2, 1], [-1, 0, 0])]).batch(np.array([0]))


def test_trees_of_other_words_are_refused():
    split = make_treebank([([5, 6, 7, 8], [-1, 0, 0, 0], [0] * 4)]).split
    with pytest.raises(CorpusError, match='"train" has 4 words, but trees of 3'):
        Treebank(split, np.zeros(3, int), np.zeros(3, int), 1, None)


def test_a_text_without_words_is_refused():
    with pytest.raises(CorpusError, match="no words to predict"):
        TreeProtocol().evaluation_plan(make_treebank([([], [], [])]))


def test_results_compare_only_if_the_same_words_count():
    assert TreeProtocol(batch_size=3).label == TreeProtocol().label
    assert TreeProtocol(count_unknown=False).label != TreeProtocol().label


def test_a_tree_has_no_text_in_its_order():
    message = r'a cache needs a text in its order, and protocol.kind = "tree" has none'
    with pytest.raises(ConfigurationError, match=message):
        TreeProtocol().require_text("a cache")
