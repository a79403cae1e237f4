"""The dependency recurrent language model: a simple recurrent network that reads down a sentence's tree.

Mirowski and Vlachos (2015), "Dependency Recurrent Neural Language Models for Sentence Completion". A word is
predicted from the words on the path from the root of its sentence's dependency tree to its parent; the root
itself from the boundary of sentences. With w the word above the one to be predicted, s the state that
predicted w, and f the features of dependency labels:

    h = sigmoid(R s + U w + F f)        p = softmax(V h + G f)

Section 2 has no labels (F = G = 0), section 3 adds them (equation 5). There are no biases. The label read
with a word is that of the edge to the child being predicted; a root has none. `label_decay` is g in
f <- g f, f[label] = 1 along a path, as in the code released with the paper, whose hidden layer alone reads
labels and whose states start at ones.

A text without trees is read from left to right, like a tree with one node on each level: the network is then
the sequential one of the paper's table 1 and reads no labels.

Shapes: B batch, T time, N nodes of trees, H width, F width of the input of the output layer, D labels,
V vocabulary.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from memtune.models.architecture import NeuralLanguageModel, NeuralLanguageModelConfig, RecurrentState
from memtune.models.layers.initializers import initialise_uniform
from memtune.models.layers.shared_fields import InitialRange
from memtune.models.layers.tree_levels import Trees, compute_label_features, run_tree_levels
from memtune.models.maximum_entropy import MaximumEntropyConfig, add_ngram_connections


class DependencyRNNConfig(NeuralLanguageModelConfig):
    """A dependency recurrent network; the defaults have neither labels nor n-grams of ancestors."""

    family: Literal["dependency_rnn"] = "dependency_rnn"
    reads_trees: ClassVar[bool] = True
    width: int = Field(100, ge=1, description="Width of the embeddings and of the hidden layer")
    initial_state: Literal["zeros", "ones"] = Field(
        "zeros", description='The state before a root or a text: "zeros" (paper) or "ones" (released code)'
    )
    labels: int = Field(
        0,
        ge=0,
        description="D: number of dependency labels, at least as many as the trees have; 0 reads no labels",
    )
    label_features: Literal["hidden", "output", "both"] = Field(
        "both",
        description='What reads the labels: the "hidden" layer (F, released code), the "output" layer (G) or '
        '"both" (equation 5)',
    )
    label_decay: float = Field(
        0.0, ge=0, description="g: decay of the features of earlier labels from a node to its child"
    )
    maximum_entropy: MaximumEntropyConfig | None = Field(
        None,
        description="Hashed connections from the last ancestors, in a text the last words, to the output "
        "layer (see maximum entropy)",
    )
    initial_range: InitialRange = 0.05

    @override
    def build(self, vocabulary_size: int) -> NeuralLanguageModel:
        return add_ngram_connections(DependencyRNNLanguageModel(self, vocabulary_size), self.maximum_entropy)

    @override
    def parameter_count(self, vocabulary_size: int) -> int:
        body = self.width * (vocabulary_size + self.width + self.hidden_label_count)
        output = self.output.parameter_count(self.output_width, vocabulary_size, bias=False)
        connections = self.maximum_entropy.size if self.maximum_entropy else 0
        return body + output + connections

    @override
    def multiply_adds(self, vocabulary_size: int) -> int:
        body = self.width * (self.width + self.hidden_label_count)
        return body + self.output.multiply_adds(self.output_width, vocabulary_size)

    @override
    def count_extra_activations(self, length: int) -> int:
        return 0

    @override
    def state_size(self) -> int:
        """The hidden state, and the words of the n-gram connections."""
        words = self.maximum_entropy.carried_words if self.maximum_entropy else 0
        return self.width + words

    @override
    def describe(self) -> dict[str, str | int | float]:
        named: dict[str, str | int | float] = {"width": self.width, "initial_state": self.initial_state}
        if self.labels:
            named |= {"labels": self.labels, "label_features": self.label_features}
        if self.labels and self.label_decay:
            named["label_decay"] = self.label_decay
        if self.maximum_entropy:
            named["ancestors"] = self.maximum_entropy.order - 1
        return named

    @property
    def hidden_label_count(self) -> int:
        """Labels that the hidden layer reads."""
        return 0 if self.label_features == "output" else self.labels

    @property
    def output_label_count(self) -> int:
        """Labels that the output layer reads."""
        return 0 if self.label_features == "hidden" else self.labels

    @property
    def output_width(self) -> int:
        """F: the width of h and, if the output layer reads labels, of f."""
        return self.width + self.output_label_count


class DependencyRNNLanguageModel(NeuralLanguageModel):
    """Carried state in a text: hidden, (B, H)."""

    config: DependencyRNNConfig

    def __init__(self, config: DependencyRNNConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.vocabulary_size = vocabulary_size
        self.embedding = nn.Embedding(vocabulary_size, config.width)
        self.recurrent = nn.Linear(config.width, config.width, bias=False)
        if config.hidden_label_count:
            self.label = nn.Linear(config.labels, config.width, bias=False)
        self.output = config.output.build(config.output_width, vocabulary_size, bias=False)
        initialise_uniform(self, config.initial_range)

    @override
    def initial_state(self, batch_size: int) -> RecurrentState:
        start = float(self.config.initial_state == "ones")
        return {"hidden": self.recurrent.weight.new_full((batch_size, self.config.width), start)}

    @override
    def encode(self, tokens_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        rows, steps = tokens_BT.shape
        embedded_NH: Tensor = self.embedding(tokens_BT.t().flatten())
        above_N = torch.arange(-rows, rows * steps, device=tokens_BT.device)
        bounds, branching = range(0, rows * (steps + 2), rows), [rows] * (steps + 1)
        states_NH = run_tree_levels(
            embedded_NH, self.recurrent.weight, state["hidden"], above_N, bounds, branching
        )
        states_BTH = states_NH.view(steps, rows, -1).transpose(0, 1)
        unlabelled_BTD = states_BTH.new_zeros(rows, steps, self.config.output_label_count)
        return torch.cat([states_BTH, unlabelled_BTD], dim=2), {"hidden": states_BTH[:, -1]}

    def read_trees(self, trees: Trees) -> Tensor:
        """hidden_NF, the input of the output layer for each node below level 0."""
        first = trees.bounds[1]
        inputs_NH: Tensor = self.embedding(trees.words_N[trees.parents_N[first:]])
        like, count = self.recurrent.weight, self.config.labels
        if count:
            labels_ND = compute_label_features(trees, count, self.config.label_decay, like.dtype)
        else:
            labels_ND = like.new_empty(len(inputs_NH), 0)
        if self.config.hidden_label_count:
            inputs_NH = inputs_NH + self.label(labels_ND)
        before_AH = self.initial_state(first)["hidden"]
        states_NH = run_tree_levels(
            inputs_NH, self.recurrent.weight, before_AH, trees.parents_N, trees.bounds, trees.branching_counts
        )
        return torch.cat([states_NH, labels_ND], dim=1) if self.config.output_label_count else states_NH

    def tree_nats(self, trees: Trees, weights_N: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The result of `TreeReader.tree_nats`."""
        targets_N = trees.words_N[trees.bounds[1] :]
        return self.output.negative_log_likelihood_by_row(self.read_trees(trees), targets_N, weights_N)
