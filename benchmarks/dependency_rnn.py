"""The dependency network level by level against padded paths: forward and backward of one batch of trees.

Both sides compute the loss of a step and every gradient, output layer included. Paths are rows of one padded
batch and are read like texts; only words reach the output layer, each weighted by 1 / (number of paths
through it). The trees are those of the embedded grammar, the words follow Zipf's law.

    python -m benchmarks.dependency_rnn [--sentences 100] [--repeats 15]
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.side_by_side import compare_times, describe_machine, make_refusal
from memtune.corpora.grammar.embedded_corpus import generate_sentences
from memtune.model_checks.oracles import assert_near, assert_same_gradients
from memtune.models import build_model
from memtune.models.families.dependency_rnn import DependencyRNNConfig, DependencyRNNLanguageModel
from memtune.models.outputs.output_config import ClassFactoredConfig
from memtune.models.outputs.word_classes import compute_zipf_counts
from tests.golden.tiny_trees import Sentence, make_treebank
from tests.oracles.dependency_rnn import BOUNDARY, compute_discounted_nats, find_paths

WORDS, CHECKED_WORDS = 10_000, 300
CONFIGS = {
    "softmax": DependencyRNNConfig(),
    "250 classes": DependencyRNNConfig(output=ClassFactoredConfig(classes=250)),
}
MUST, GOAL = 2.0, 2.7

Step = Callable[[], Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sentences", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(describe_machine())
    for name, config in CONFIGS.items():
        try:
            require_agreement(config)
        except AssertionError as error:
            raise make_refusal(error) from None
        sentences = make_sentences(arguments.sentences, WORDS)
        ratio = compare_times(
            make_path_step(config, WORDS, sentences),
            make_level_step(config, WORDS, sentences),
            arguments.repeats,
        )
        print(ratio.format_measure(f"padded paths time / levels time, {name}", GOAL, MUST), flush=True)


def require_agreement(config: DependencyRNNConfig) -> None:
    """Compare loss and gradients of both sides with the paths read word by word in float64."""
    sentences = make_sentences(3, CHECKED_WORDS)
    model = build_model(config, CHECKED_WORDS, seed=0)
    assert isinstance(model, DependencyRNNLanguageModel)
    parameters = {name: value.detach().double().requires_grad_() for name, value in model.named_parameters()}
    expected = compute_discounted_nats(config, parameters, sentences)
    for side in (make_level_step, make_path_step):
        nats = side(config, CHECKED_WORDS, sentences)()
        assert_near(nats, expected, 1e-6, side.__name__)
    batch = make_treebank(sentences)
    nats, _ = model.tree_nats(batch.batch(batch.nonempty_sentences))
    assert_same_gradients(model, nats, parameters, expected, 1e-6)


def make_sentences(count: int, words: int) -> list[Sentence]:
    """Trees of the grammar with words from a vocabulary of `words` types."""
    heads = [list(sentence.heads) for sentence in generate_sentences("train", count)]
    places = sum(map(len, heads))
    shares = torch.tensor(compute_zipf_counts(words - 1))
    drawn = torch.multinomial(shares, places, True, generator=torch.Generator().manual_seed(0))
    ids = iter((1 + drawn).tolist())
    return [([next(ids) for _ in tree], tree, [-1] * len(tree)) for tree in heads]


def make_level_step(config: DependencyRNNConfig, words: int, sentences: list[Sentence]) -> Step:
    """A step of the model, which reads trees level by level."""
    model, trees = build_model(config, words, seed=0), make_treebank(sentences)
    assert isinstance(model, DependencyRNNLanguageModel)
    batch = trees.batch(trees.nonempty_sentences)

    def step() -> Tensor:
        model.zero_grad()
        nats, _ = model.tree_nats(batch)
        nats.backward()
        return nats

    return step


def make_path_step(config: DependencyRNNConfig, words: int, sentences: list[Sentence]) -> Step:
    """A step of the same network along every path from a root to a leaf."""
    model = build_model(config, words, seed=0)
    inputs_PT, targets_PT, discounts_PT = pad_paths(sentences)
    counted_PT = discounts_PT > 0

    def step() -> Tensor:
        model.zero_grad()
        hidden_PTH, _ = model.encode(inputs_PT, model.initial_state(len(inputs_PT)))
        nats = model.output.negative_log_likelihood(
            hidden_PTH[counted_PT], targets_PT[counted_PT], discounts_PT[counted_PT]
        )
        nats.backward()
        return nats

    return step


def pad_paths(sentences: list[Sentence]) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs and targets of all paths, and the discount of each target, 0 in the padding."""
    rows = []
    for words, heads, _ in sentences:
        paths = find_paths(heads)
        through = [sum(place in path for path in paths) for place in range(len(words))]
        for path in paths:
            targets = [words[place] for place in path]
            rows.append(([BOUNDARY, *targets[:-1]], targets, [1 / through[place] for place in path]))
    inputs_PT, targets_PT, discounts_PT = (
        torch.nn.utils.rnn.pad_sequence([torch.tensor(value) for value in column], batch_first=True)
        for column in zip(*rows, strict=True)
    )
    return inputs_PT, targets_PT, discounts_PT


if __name__ == "__main__":
    main()
