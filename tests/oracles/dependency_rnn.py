"""The dependency recurrent language model path by path, one word at a time, as its paper describes it.

A sentence is (words, heads, labels): heads as positions, -1 for a root's; label -1 for none.
"""

import torch
from torch import Tensor

from memtune.models.families.dependency_rnn import DependencyRNNConfig
from memtune.models.maximum_entropy import MaximumEntropyConfig
from memtune.models.outputs.output_config import ClassFactoredConfig
from tests.oracles.cases import EXAMPLE_SIZE, OracleCase
from tests.oracles.output_layers import Parameters, predict, predict_with_ngrams

Sentence = tuple[list[int], list[int], list[int]]
BOUNDARY = 0


def compute_dependency_rnn_logits(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """logits[b][t] of a text read from left to right, from the state before a text and without labels."""
    rows = []
    for words in tokens_BT.tolist():
        labels = [-1] * len(words)
        rows.append(
            [
                _compute_logits(config, parameters, words[: t + 1], h, f)
                for t, (h, f) in enumerate(_run_steps(config, parameters, words, labels))
            ]
        )
    return rows


def compute_discounted_nats(config, parameters: Parameters, sentences: list[Sentence]) -> Tensor:
    """-log p of each word summed over all paths, each time discounted by the number of paths through it."""
    total = torch.zeros((), dtype=torch.float64)
    for sentence in sentences:
        paths = find_paths(sentence[1])
        for path in paths:
            for word, nats in zip(path, compute_path_nats(config, parameters, sentence, path), strict=True):
                total = total + nats / sum(word in other for other in paths)
    return total


def compute_path_nats(config, parameters: Parameters, sentence: Sentence, path: list[int]) -> list[Tensor]:
    """-log p of each word of a path from root to leaf, the root's given the boundary."""
    words, _, labels = sentence
    read = [BOUNDARY, *(words[place] for place in path[:-1])]
    steps = _run_steps(config, parameters, read, [labels[place] for place in path])
    return [
        -_compute_logits(config, parameters, read[: t + 1], h, f).log_softmax(0)[words[place]]
        for t, (place, (h, f)) in enumerate(zip(path, steps, strict=True))
    ]


def find_paths(heads: list[int]) -> list[list[int]]:
    """The positions of the words on every path from a root to a leaf."""
    leaves = [place for place in range(len(heads)) if place not in heads]
    paths = []
    for leaf in leaves:
        path = [leaf]
        while heads[path[0]] >= 0:
            path.insert(0, heads[path[0]])
        paths.append(path)
    return paths


def _run_steps(
    config, parameters: Parameters, read: list[int], labels: list[int]
) -> list[tuple[Tensor, Tensor]]:
    """h and f after each word; labels[t] is the label of the edge to the word predicted after word t."""
    own = {name.removeprefix("body."): value for name, value in parameters.items()}
    start = 1.0 if config.initial_state == "ones" else 0.0
    h = own["embedding.weight"].new_full((config.width,), start)
    f = h.new_zeros(config.labels)
    steps = []
    for word, label in zip(read, labels, strict=True):
        f = config.label_decay * f
        if config.labels and label >= 0:
            f = f.clone()
            f[label] = 1
        a = own["recurrent.weight"] @ h + own["embedding.weight"][word]
        if config.labels and config.label_features in ("hidden", "both"):
            a = a + own["label.weight"] @ f
        h = 1 / (1 + torch.exp(-a))
        steps.append((h, f))
    return steps


def _compute_logits(config, parameters: Parameters, read: list[int], h: Tensor, f: Tensor) -> Tensor:
    if config.labels and config.label_features in ("output", "both"):
        h = torch.cat([h, f])
    if config.maximum_entropy is not None:
        return predict_with_ngrams(config, parameters, read, h)
    return predict(config, parameters, h)


def fill_zero_parameters(model) -> None:
    """Weights of n-grams start at zero; other values make them count."""
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        if not parameter.any():
            torch.nn.init.uniform_(parameter, -0.5, 0.5, generator)


def make_case(**fields) -> OracleCase:
    """Texts from left to right; trees are in tests/unit/models/test_dependency_rnn.py."""
    return OracleCase(
        config=DependencyRNNConfig(width=6, initial_range=0.8, **fields),
        logits=compute_dependency_rnn_logits,
        prepare=fill_zero_parameters,
    )


IDENTITY = "f8c9d3a2aa4855ba"
CASES = {
    "plain": make_case(),
    "from ones": make_case(initial_state="ones"),
    "classes": make_case(output=ClassFactoredConfig(classes=5)),
    "one ancestor": make_case(maximum_entropy=MaximumEntropyConfig(order=2, size=300)),
    "three ancestors, classes": make_case(
        output=ClassFactoredConfig(mass="square_root"),
        maximum_entropy=MaximumEntropyConfig(order=4, size=300),
    ),
}
EXAMPLES = [
    DependencyRNNConfig(**EXAMPLE_SIZE),
    DependencyRNNConfig(
        **EXAMPLE_SIZE,
        initial_state="ones",
        output=ClassFactoredConfig(classes=4, mass="square_root"),
        maximum_entropy=MaximumEntropyConfig(order=4, size=500),
    ),
]
