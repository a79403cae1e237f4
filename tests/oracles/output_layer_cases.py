"""The cases and examples of the output layers and the n-gram connections for the contract suites."""

import torch
from torch import Tensor

from memtune.models import LSTMConfig
from memtune.models.families.memory_network import MemoryNetworkConfig
from memtune.models.families.residual_memory import ResidualMemoryConfig
from memtune.models.families.rnn import RNNConfig
from memtune.models.families.scrn import SCRNConfig
from memtune.models.families.stack_lstm import StackLSTMConfig
from memtune.models.maximum_entropy import MaximumEntropyConfig
from memtune.models.outputs.output_config import AdaptiveConfig, ClassFactoredConfig
from tests.oracles.cases import EXAMPLE_SIZE, OracleCase
from tests.oracles.lstm import compute_lstm_logits, run_lstm_stack
from tests.oracles.output_layers import Parameters, predict_with_ngrams
from tests.oracles.rnn import compute_rnn_logits

__all__ = ["CASES", "EXAMPLES"]

WORDS = 29
COMPLETE_LENGTH = 32
"""A text of this length has every word of the vocabulary, and so every cluster and class."""


def make_lstm_case(width: int, output: AdaptiveConfig | ClassFactoredConfig, **fields) -> OracleCase:
    config = LSTMConfig(width=width, initial_range=0.5, output=output, **fields)
    return OracleCase(config=config, logits=compute_lstm_logits, words=WORDS, cut_length=COMPLETE_LENGTH)


def make_rnn_case(width: int, output: AdaptiveConfig | ClassFactoredConfig, **fields) -> OracleCase:
    config = RNNConfig(width=width, initial_range=0.5, output=output, **fields)
    return OracleCase(config=config, logits=compute_rnn_logits, words=WORDS, cut_length=COMPLETE_LENGTH)


def compute_lstm_logits_with_ngrams(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """logits[b][t] of an LSTM with n-gram connections, from a zero state."""
    return [_read_sentence(config, parameters, words.tolist()) for words in tokens_BT]


def _read_sentence(config, parameters: Parameters, words: list[int]) -> list[Tensor]:
    embeddings = [parameters["body.embedding.weight"][word] for word in words]
    hidden = run_lstm_stack(parameters, "body.stack.lstm", config.layers, embeddings)
    return [predict_with_ngrams(config, parameters, words[: t + 1], h) for t, h in enumerate(hidden)]


def fill_ngram_weights(model) -> None:
    """Give weights of n-grams, which start at zero, other values, so that the comparison depends on them."""
    torch.nn.init.uniform_(model.output.table_S, -0.5, 0.5, torch.Generator().manual_seed(2))


def make_ngram_case(connections: MaximumEntropyConfig, **fields) -> OracleCase:
    """Few different words, so that n-grams recur."""
    return OracleCase(
        config=LSTMConfig(width=5, initial_range=0.5, maximum_entropy=connections, **fields),
        logits=compute_lstm_logits_with_ngrams,
        prepare=fill_ngram_weights,
        cuts=(1, 2, 7, 15),
        words_in_text=5,
    )


CASES = {
    "adaptive: default": make_lstm_case(8, AdaptiveConfig()),
    "adaptive: one cluster": make_lstm_case(8, AdaptiveConfig(cutoffs=(7,), factor=1)),
    "adaptive: three clusters, the last of one word": make_lstm_case(
        8, AdaptiveConfig(cutoffs=(2, 11, 28), factor=2)
    ),
    "adaptive: above an RNN": make_rnn_case(8, AdaptiveConfig(factor=2)),
    "class_factored: root of the vocabulary": make_lstm_case(5, ClassFactoredConfig()),
    "class_factored: square roots of counts": make_lstm_case(
        5, ClassFactoredConfig(classes=7, mass="square_root")
    ),
    "class_factored: one class": make_lstm_case(5, ClassFactoredConfig(classes=1)),
    "class_factored: one class for each word": make_lstm_case(5, ClassFactoredConfig(classes=WORDS)),
    "class_factored: tied": make_lstm_case(5, ClassFactoredConfig(), tie_output=True),
    "class_factored: above an RNN": make_rnn_case(6, ClassFactoredConfig(classes=3), layers=2),
    "maximum_entropy: softmax": make_ngram_case(MaximumEntropyConfig(size=400)),
    "maximum_entropy: words alone": make_ngram_case(MaximumEntropyConfig(order=1, size=23)),
    "maximum_entropy: tied words, long n-grams": make_ngram_case(
        MaximumEntropyConfig(order=5, size=60), tie_output=True
    ),
    "maximum_entropy: classes": make_ngram_case(
        MaximumEntropyConfig(order=4, size=150), output=ClassFactoredConfig(classes=6)
    ),
    "maximum_entropy: classes of roots": make_ngram_case(
        MaximumEntropyConfig(size=97),
        layers=2,
        tie_output=True,
        output=ClassFactoredConfig(mass="square_root"),
    ),
}
EXAMPLES = [
    LSTMConfig(**EXAMPLE_SIZE, tie_output=True, output=ClassFactoredConfig()),
    MemoryNetworkConfig(
        **EXAMPLE_SIZE, memory_size=3, output=ClassFactoredConfig(classes=4, mass="square_root")
    ),
    StackLSTMConfig(
        **EXAMPLE_SIZE,
        variant="discrete",
        stack_size=2,
        policy_width=3,
        dropout=0.4,
        output=ClassFactoredConfig(),
    ),
    SCRNConfig(**EXAMPLE_SIZE, context_width=3, output=AdaptiveConfig()),
    ResidualMemoryConfig(**EXAMPLE_SIZE, layers=2, output=AdaptiveConfig(cutoffs=(3, 9, 20), factor=2)),
    LSTMConfig(**EXAMPLE_SIZE, maximum_entropy=MaximumEntropyConfig(order=4, size=500)),
    RNNConfig(
        **EXAMPLE_SIZE,
        maximum_entropy=MaximumEntropyConfig(order=3, size=500),
        output=ClassFactoredConfig(classes=4),
    ),
]
