import math
from typing import Any

import numpy as np
import pytest
import torch

from memtune.model_checks.oracles import assert_near, assert_same_gradients
from memtune.models import build_model
from memtune.models.families.dependency_rnn import DependencyRNNConfig
from memtune.models.maximum_entropy import MaximumEntropyConfig
from memtune.models.outputs.output_config import ClassFactoredConfig
from tests.golden.tiny_trees import LABEL_COUNT, Sentence, make_treebank, make_trees_of_every_shape
from tests.oracles.dependency_rnn import compute_discounted_nats, compute_path_nats

WORDS = 23
WIDE = {"width": 6, "initial_range": 0.8}
UNLABELLED = {
    "plain": DependencyRNNConfig(**WIDE),
    "from ones": DependencyRNNConfig(**WIDE, initial_state="ones"),
    "classes": DependencyRNNConfig(**WIDE, output=ClassFactoredConfig(classes=5)),
    "one ancestor": DependencyRNNConfig(**WIDE, maximum_entropy=MaximumEntropyConfig(order=2, size=300)),
    "three ancestors, classes": DependencyRNNConfig(
        **WIDE,
        output=ClassFactoredConfig(mass="square_root"),
        maximum_entropy=MaximumEntropyConfig(order=4, size=300),
    ),
}
LABELLED = {
    "labels to the hidden layer": DependencyRNNConfig(**WIDE, labels=LABEL_COUNT, label_features="hidden"),
    "labels to the output layer": DependencyRNNConfig(**WIDE, labels=LABEL_COUNT, label_features="output"),
    "more labels than there are, to both": DependencyRNNConfig(**WIDE, labels=LABEL_COUNT + 2),
    "decaying labels": DependencyRNNConfig(**WIDE, labels=LABEL_COUNT, label_decay=0.5),
    "everything": DependencyRNNConfig(
        **WIDE,
        initial_state="ones",
        labels=LABEL_COUNT,
        label_decay=1.1,
        output=ClassFactoredConfig(classes=4),
        maximum_entropy=MaximumEntropyConfig(order=3, size=300),
    ),
}
CONFIGS = UNLABELLED | LABELLED
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
unlabelled = pytest.mark.parametrize("config", UNLABELLED.values(), ids=UNLABELLED)


def make_model(config):
    """A model whose n-gram weights, which start at zero, have random values."""
    model = build_model(config, WORDS, seed=1)
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        if not parameter.any():
            torch.nn.init.uniform_(parameter, -0.5, 0.5, generator)
    return model


def make_batch(sentences: list[Sentence]):
    trees = make_treebank(sentences)
    return trees.batch(trees.nonempty_sentences)


def assert_agreement_on_trees(model, sentences: list[Sentence], tolerance: float) -> None:
    parameters = {name: value.detach().double().requires_grad_() for name, value in model.named_parameters()}
    expected = compute_discounted_nats(model.config, parameters, sentences)
    nats, _ = model.tree_nats(make_batch(sentences))
    assert_near(nats, expected, tolerance, "loss")
    assert_same_gradients(model, nats, parameters, expected, tolerance)


@every_config
def test_the_model_agrees_with_its_paths_and_their_discount(config):
    assert_agreement_on_trees(make_model(config).double(), make_trees_of_every_shape(WORDS), tolerance=1e-12)


@every_config
def test_the_model_agrees_with_its_paths_in_single_precision(config):
    assert_agreement_on_trees(make_model(config), make_trees_of_every_shape(WORDS), tolerance=1e-6)


@unlabelled
def test_a_sentence_is_a_chain_shaped_tree(config):
    """Each word depends on the one before it: the sequential network without the end of the sentence."""
    words = torch.randint(1, WORDS, (9,), generator=torch.Generator().manual_seed(0))
    model = make_model(config).double()
    chain = make_batch([(words.tolist(), list(range(-1, 8)), [-1] * 9)])
    inputs_BT = torch.cat([torch.zeros(1, dtype=torch.int64), words[:-1]]).unsqueeze(0)
    nats, _ = model.negative_log_likelihood(inputs_BT, words.unsqueeze(0), None, model.initial_state(1))
    torch.testing.assert_close(model.tree_nats(chain)[0], nats)


@every_config
def test_a_node_has_the_nats_of_each_of_its_paths(config):
    sentences = make_trees_of_every_shape(WORDS)
    model = make_model(config).double()
    parameters = dict(model.named_parameters())
    for sentence in sentences[-3:]:
        _, nats_N = model.tree_nats(batch := make_batch([sentence]))
        leaf = len(sentence[0]) - 1
        path = [leaf]
        while sentence[1][path[0]] >= 0:
            path.insert(0, sentence[1][path[0]])
        expected = compute_path_nats(model.config, parameters, sentence, path)[-1]
        same_word = batch.words_N[1:] == sentence[0][leaf]
        assert (nats_N[same_word] - expected).abs().min() < 1e-9


@every_config
def test_the_other_sentences_of_a_batch_change_no_state(config):
    sentences = make_trees_of_every_shape(WORDS)
    model = make_model(config).double()
    batch = make_batch(sentences)
    _, nats_N = model.tree_nats(batch)
    together = torch.zeros(len(sentences), dtype=torch.float64).index_add_(0, batch.sentences_W, nats_N)
    alone = [model.tree_nats(make_batch([sentence]))[0].item() for sentence in sentences]
    assert together.tolist() == pytest.approx(alone, rel=1e-12)


@every_config
def test_weights_of_nodes_scale_their_loss_and_gradients(config):
    model, batch = make_model(config).double(), make_batch(make_trees_of_every_shape(WORDS))
    weights_N = torch.rand(len(batch.words_N) - 1, generator=torch.Generator().manual_seed(3)).double()
    weighted, nats_N = model.tree_nats(batch, weights_N)
    torch.testing.assert_close(weighted.detach(), nats_N @ weights_N)
    torch.testing.assert_close(nats_N, model.tree_nats(batch)[1])


@pytest.mark.parametrize("config", LABELLED.values(), ids=LABELLED)
def test_a_label_affects_its_own_word_and_its_descendants(config):
    """Words 0 and 1 depend on the root, 2 on word 1: another label of word 1 does not change word 0."""
    model = make_model(config).double()
    nats = []
    for label in (0, 1):
        batch = make_batch([([5, 6, 7, 8], [3, 3, 1, -1], [2, label, 3, -1])])
        _, nats_N = model.tree_nats(batch)
        nats.append(dict(zip(batch.words_N[1:].tolist(), nats_N.tolist(), strict=True)))
    unchanged = {word for word in nats[0] if nats[0][word] == nats[1][word]}
    reaches_descendants = config.label_decay or config.label_features != "output"
    assert unchanged == ({5, 8} if reaches_descendants else {5, 7, 8})


def test_a_word_with_an_unknown_label_is_read_without_a_label():
    config = LABELLED["more labels than there are, to both"]
    model = make_model(config).double()
    sentences = [(words, heads, [-1] * len(words)) for words, heads, _ in make_trees_of_every_shape(WORDS)]
    expected = compute_discounted_nats(config, dict(model.named_parameters()), sentences)
    assert_near(model.tree_nats(make_batch(sentences))[0], expected, 1e-12, "loss")


def test_two_levels_by_hand():
    """One unit, R = 1/2, every vector 1: sigmoid(1), then sigmoid(1 + sigmoid(1) / 2), for both children."""
    model: Any = build_model(DependencyRNNConfig(width=1), WORDS, seed=1).double()
    for parameter in model.parameters():
        parameter.data.fill_(1.0)
    model.recurrent.weight.data.fill_(0.5)
    hidden_NF = model.read_trees(make_batch([([4, 9, 5], [-1, 0, 0], [-1, 0, 0])]))
    first = 1 / (1 + math.exp(-1))
    second = 1 / (1 + math.exp(-1 - first / 2))
    assert hidden_NF.flatten().tolist() == pytest.approx([first, second, second], rel=1e-12)


def test_a_sentence_of_640_words_is_read_in_any_shape():
    words = np.arange(640) % (WORDS - 1) + 1
    model: Any = build_model(DependencyRNNConfig(**WIDE), WORDS, seed=1).double()
    for heads in (range(-1, 639), [-1] + [0] * 639):
        _, nats_N = model.tree_nats(make_batch([(words.tolist(), list(heads), [-1] * 640)]))
        assert len(nats_N) == 640
        assert nats_N.isfinite().all()


def test_sizes_by_hand():
    """Two 10,000 x 100 tables and R; 40 labels add F, and G to the output's rows; no biases."""
    assert DependencyRNNConfig().parameter_count(10_000) == 2 * 1_000_000 + 10_000
    both = DependencyRNNConfig(labels=40).parameter_count(10_000)
    assert both == 2 * 1_000_000 + 10_000 + 40 * 100 + 40 * 10_000
    assert DependencyRNNConfig(labels=40, label_features="hidden").parameter_count(10_000) == 2_014_000


@every_config
def test_the_formula_counts_the_built_model(config):
    built = sum(parameter.numel() for parameter in build_model(config, WORDS, seed=0).parameters())
    assert config.parameter_count(WORDS) == built
