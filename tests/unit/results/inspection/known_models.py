"""Networks whose memory does what a test says, on corpora of a few sentences."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from memtune.corpora import Corpus, Example, ImportOptions, import_corpus, open_corpus
from memtune.corpora.batching.protocols import Protocol, SentenceProtocol, StreamProtocol
from memtune.models import LanguageModel
from memtune.models.families.recurrent_memory import RecurrentMemoryConfig
from memtune.models.families.stack_lstm import StackLSTMConfig
from memtune.results.loaded_models import TrainedModel
from memtune.settings import Settings
from memtune.training import TrainingConfig, TrialConfig

CERTAIN = 1e4
"""A bias that saturates every gate exactly in float64."""
HIDDEN = math.tanh(1.0)
"""The state of an LSTM that forgets everything and writes 1 at each step."""

Tree = tuple[tuple[int, ...], tuple[str, ...]]


def make_corpus(
    settings: Settings,
    sentences: Sequence[str],
    trees: Sequence[Tree] | None = None,
    name: str = "known",
    training: Sequence[str] | None = None,
) -> Corpus:
    """A corpus with these sentences in every split, without `<unk>`; `training` is another training text."""
    examples = [
        Example([sentence.split()], {} if trees is None else {"trees": [trees[place]]})
        for place, sentence in enumerate(sentences)
    ]
    splits = dict.fromkeys(("train", "valid", "test"), examples)
    if training is not None:
        splits["train"] = [Example([sentence.split()]) for sentence in training]
    options = ImportOptions(vocabulary="all", unknown="refuse")
    import_corpus(name, splits, settings.corpus_store, options)
    return open_corpus(name, settings.corpus_store)


def make_trained_model(
    name: str,
    network: LanguageModel,
    corpus: Corpus,
    settings: Settings,
    protocol: Protocol | None = None,
) -> TrainedModel:
    """A network as if it had been trained on a corpus."""
    config = TrialConfig(
        model=network.config,
        protocol=protocol or SentenceProtocol(),
        training=TrainingConfig(epochs=1) if network.config.is_trained_by_gradient else None,
    )
    return TrainedModel(name, network, config, corpus, "", settings)


def make_attention_model(
    corpus: Corpus,
    settings: Settings,
    word_scores: Mapping[str, float],
    position_scores: Sequence[float],
    *,
    carries_state: bool = False,
) -> TrainedModel:
    """A recurrent memory network with the attention softmax(score of the word + score of its position).

    `position_scores` has one score per slot, that of the current word last. The hidden state is HIDDEN in its
    first unit at every step, so that equation 2 has these scores.
    """
    config = RecurrentMemoryConfig(width=2, memory_size=len(position_scores), temporal="keys")
    network: Any = config.build(len(corpus.vocabulary)).double().eval()
    with torch.no_grad():
        for parameter in network.below.parameters():
            parameter.zero_()
        # Gates in torch's order: input, forget, candidate, output.
        network.below.lstm.bias_ih_l0.copy_(torch.tensor([CERTAIN] * 2 + [-CERTAIN] * 2 + [CERTAIN] * 4))
        network.memory.input_table.weight.zero_()
        network.memory.temporal_keys.zero_()
        for word, score in word_scores.items():
            network.memory.input_table.weight[corpus.vocabulary.get_id(word), 0] = score / HIDDEN
        network.memory.temporal_keys[:, 0] = torch.tensor(position_scores) / HIDDEN
    protocol = StreamProtocol() if carries_state else None
    return make_trained_model("known", network, corpus, settings, protocol)


def predict_words(model: TrainedModel, logits: Mapping[str, float]) -> None:
    """Make the model predict every next word with these logits, and all others with logit 0."""
    output: Any = model.network.output
    with torch.no_grad():
        for parameter in output.parameters():
            parameter.zero_()
        for word, logit in logits.items():
            output.bias[model.corpus.vocabulary.get_id(word)] = logit


def make_stack_model(
    corpus: Corpus, settings: Settings, pushed_words: Sequence[str], **fields
) -> TrainedModel:
    """A stack LSTM that pushes its state after each of these words and stays after any other word."""
    config = StackLSTMConfig(width=3, stack_size=2, policy_width=1, **fields)
    network: Any = config.build(len(corpus.vocabulary)).double().eval()
    policy = network.stack.policy
    with torch.no_grad():
        network.embedding.weight[:, 0] = -1.0
        for word in pushed_words:
            network.embedding.weight[corpus.vocabulary.get_id(word), 0] = 1.0
        for parameter in policy.parameters():
            parameter.zero_()
        policy.reading.weight[0, 0] = CERTAIN
        # Logits of stay, push and pop from a unit that is 1 after a pushed word and -1 after another.
        policy.decision.weight[:, 0] = torch.tensor([-CERTAIN, CERTAIN, 0.0])
    return make_trained_model("known", network, corpus, settings)
