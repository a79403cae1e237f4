"""Language modelling on trees: counted words, supported families, and the nats of sentences."""

import math
from dataclasses import replace

import numpy as np
import pytest

from memtune.corpora import Corpus, Example, ImportOptions, import_corpus, open_corpus
from memtune.corpora.batching.protocols import SentenceProtocol, TreeProtocol
from memtune.corpora.batching.tree_protocol import Treebank
from memtune.errors import ConfigurationError, CorpusError
from memtune.models import LSTMConfig, build_model
from memtune.models.families.dependency_rnn import DependencyRNNConfig
from memtune.models.maximum_entropy import MaximumEntropyConfig
from memtune.tasks import LanguageModellingConfig, TreeLanguageModelling, nats_by_sentence
from memtune.training import (
    GradientTrainer,
    TrialConfig,
    create_trainer,
    evaluate,
    read_checkpoint,
    restore_trainer,
)
from memtune.training.memory_footprint import estimate_memory, find_longest_row
from memtune.values import parse
from tests.golden.tiny_corpus import make_tiny_corpus
from tests.golden.tiny_trees import make_tree_corpus
from tests.oracles.dependency_rnn import compute_discounted_nats
from tests.presence import require

MODEL = DependencyRNNConfig(
    width=6, labels=40, initial_range=0.5, maximum_entropy=MaximumEntropyConfig(order=3, size=5000)
)
KNOWN_ONLY = TreeProtocol(count_unknown=False)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    return make_tree_corpus(tmp_path_factory.mktemp("trees"))


@pytest.fixture(scope="module")
def model(corpus):
    return build_model(MODEL, len(corpus.vocabulary), seed=1).double().eval()


def open_task(corpus, protocol=KNOWN_ONLY) -> TreeLanguageModelling:
    task = LanguageModellingConfig().open(corpus, protocol)
    assert isinstance(task, TreeLanguageModelling)
    return task


def iterate_sentences(corpus, split):
    """Yield the words, heads and labels of each sentence of a split, read from its tables."""
    table, opened = corpus.annotations["trees"][split].to_pylist(), corpus[split]
    for start, length, row in zip(opened.starts, opened.lengths, table, strict=True):
        labels = [
            -1 if head < 0 else label for head, label in zip(row["heads"], row["relations"], strict=True)
        ]
        yield opened.read_tokens(start, start + length - 1).tolist(), row["heads"], labels


def test_the_nats_of_a_sentence_match_those_of_its_paths(corpus, model):
    found = nats_by_sentence(model, Treebank.from_corpus(corpus, "valid"), TreeProtocol())
    parameters = dict(model.named_parameters())
    expected = [
        compute_discounted_nats(model.config, parameters, [sentence]).item()
        for sentence in iterate_sentences(corpus, "valid")
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_words_that_do_not_count_are_left_out_of_the_nats_of_a_sentence(corpus, model):
    trees = Treebank.from_corpus(corpus, "valid")
    batch = trees.batch(trees.nonempty_sentences)
    _, nats_W = model.tree_nats(batch)
    known_W = batch.words_N[1:] != 1
    assert not known_W.all()
    expected = np.zeros(corpus["valid"].sentence_count)
    np.add.at(expected, batch.sentences_W[known_W].numpy(), nats_W[known_W].numpy())
    np.testing.assert_allclose(nats_by_sentence(model, trees, KNOWN_ONLY), expected, rtol=1e-12)


def test_the_loss_of_an_evaluation_is_the_mean_over_the_words_that_count(corpus, model):
    for protocol, counts in ((TreeProtocol(), True), (KNOWN_ONLY, False)):
        metrics = open_task(corpus, protocol).evaluate(model, "valid")
        words = [word for words, _, _ in iterate_sentences(corpus, "valid") for word in words]
        assert metrics.tokens == sum(counts or word != 1 for word in words)
        total = nats_by_sentence(model, Treebank.from_corpus(corpus, "valid"), protocol).sum()
        assert metrics.loss == pytest.approx(total / metrics.tokens)
        assert metrics.perplexity == pytest.approx(math.exp(metrics.loss))


def test_unknown_words_are_in_the_training_loss(corpus, model):
    task = open_task(corpus)
    plan = task.training_plan(0, 0)
    assert (
        plan.token_count
        == task.epoch_tokens
        == sum(len(words) for words, _, _ in iterate_sentences(corpus, "train"))
    )
    batch = plan.batch(0)
    loss, state = task.loss(model, batch, None)
    assert state == {}
    assert loss.item() == pytest.approx(model.tree_nats(batch)[1].sum().item())


def make_trial(model: dict, **training) -> TrialConfig:
    return parse(
        TrialConfig,
        {
            "model": model,
            "protocol": {"kind": "tree", "batch_size": 8},
            "training": {"optimiser": {"kind": "sgd", "learning_rate": 0.1}, **training},
        },
        "trial",
    )


def test_a_resumed_trial_ends_like_an_uninterrupted_one(corpus, tmp_path):
    config = make_trial(MODEL.model_dump(), epochs=4)
    uninterrupted = GradientTrainer(config, corpus)
    while not uninterrupted.is_finished:
        uninterrupted.advance()
    losses = [require(report.valid_loss) for report in uninterrupted.curve]
    assert losses[-1] < losses[0]
    resumed = create_trainer(config, corpus)
    resumed.advance()
    resumed.advance()
    resumed.save(tmp_path / "checkpoint")
    resumed = restore_trainer(read_checkpoint(tmp_path / "checkpoint"), corpus)
    while not resumed.is_finished:
        resumed.advance()
    assert [report.valid_loss for report in resumed.curve] == losses
    assert evaluate(uninterrupted.model, corpus, config.protocol, "valid").loss == losses[-1]


def test_the_configuration_refuses_a_family_that_cannot_read_trees():
    message = 'protocol.kind = "tree" needs a family that reads trees, not "lstm"; use "dependency_rnn"'
    with pytest.raises(ConfigurationError, match=message):
        make_trial({"family": "lstm"}, epochs=1)


def test_an_evaluation_refuses_a_model_that_cannot_read_trees(corpus):
    model = build_model(LSTMConfig(width=4), len(corpus.vocabulary), seed=0)
    with pytest.raises(ConfigurationError, match='family = "lstm" cannot read trees'):
        evaluate(model, corpus, TreeProtocol(), "valid")


def test_a_tree_model_can_be_evaluated_on_text(corpus, model):
    metrics = evaluate(model, corpus, SentenceProtocol(), "valid")
    assert metrics.tokens == corpus["valid"].token_count


def test_the_error_for_too_few_labels_names_their_number(corpus):
    few = MODEL.model_copy(update={"labels": 3})
    needed = len(corpus.manifest.annotations["trees"].labels)
    message = f'model.labels must be at least the {needed} labels of corpus "trees", got 3'
    with pytest.raises(ConfigurationError, match=message):
        GradientTrainer(make_trial(few.model_dump(), epochs=1), corpus)


def test_the_longest_row_of_the_memory_estimate_is_the_longest_sentence(corpus):
    config = make_trial(MODEL.model_dump(), epochs=1)
    assert find_longest_row(config.protocol, corpus["train"]) == corpus["train"].lengths.max()
    assert estimate_memory(config, len(corpus.vocabulary), 20).total > 0


def test_a_corpus_without_trees_is_refused(tmp_path):
    with pytest.raises(CorpusError, match=r'"tiny" has no dependency trees for "train".*--format conllu'):
        LanguageModellingConfig().open(make_tiny_corpus(tmp_path), TreeProtocol())


def join_question(corpus, tmp_path, words, relations=("nsubj", "root")) -> Corpus:
    """The corpus joined with one question: a tree of two words."""
    store = tmp_path / "store"
    example = Example([words], {"trees": [((1, -1), relations)]})
    import_corpus("asked", {"valid": [example]}, store, ImportOptions(vocabulary="all"), cache=tmp_path)
    questions = open_corpus("asked", store, tmp_path)
    return replace(corpus, name="trees+asked", joined=questions)


def test_questions_are_read_in_the_words_and_labels_of_the_corpus(corpus, model, tmp_path):
    words = [corpus.vocabulary.tokens[number] for number in (5, 9)]
    joined = join_question(corpus, tmp_path, [words[0], words[1].upper()])
    label = corpus.manifest.annotations["trees"].labels.index("nsubj")
    expected = compute_discounted_nats(
        model.config, dict(model.named_parameters()), [([5, 9], [1, -1], [label, -1])]
    )
    found = nats_by_sentence(model, Treebank.from_questions(joined, "valid"), TreeProtocol())
    assert found.tolist() == pytest.approx([expected.item()])


def test_words_and_labels_outside_the_corpus_are_unknown(corpus, model, tmp_path):
    known = corpus.vocabulary.tokens[5]
    joined = join_question(corpus, tmp_path, [known, "xylophone"], ("obscure", "root"))
    trees = Treebank.from_questions(joined, "valid")
    parameters = dict(model.named_parameters())
    expected = compute_discounted_nats(model.config, parameters, [([5, 1], [1, -1], [-1, -1])])
    assert nats_by_sentence(model, trees, TreeProtocol()).tolist() == pytest.approx([expected.item()])
    assert KNOWN_ONLY.evaluation_plan(trees).token_count == 1
