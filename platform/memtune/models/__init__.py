"""Architecture families, one module each; MODELS maps a family's name to its configuration class."""

from typing import Annotated, get_args, overload

import torch
from pydantic import Field

from memtune.models.attention_lstm import AttentionLSTMConfig
from memtune.models.awd_lstm import AWDLSTMConfig
from memtune.models.dependency_rnn import DependencyRNNConfig
from memtune.models.depth_gated_lstm import DepthGatedLSTMConfig
from memtune.models.feed_forward import FeedForwardConfig
from memtune.models.gated_feedback_lstm import GatedFeedbackLSTMConfig
from memtune.models.interface import (
    Architecture,
    Attentive,
    CountingConfig,
    LanguageModel,
    LanguageModelConfig,
    NeuralLanguageModel,
    State,
    TreeReader,
    logits,
    negative_log_likelihood,
)
from memtune.models.kneser_ney import KneserNeyConfig
from memtune.models.lstm import LSTMConfig
from memtune.models.lstmn import LSTMNConfig
from memtune.models.maximum_entropy import MaximumEntropyConfig
from memtune.models.memory_network import MemoryNetworkConfig
from memtune.models.outputs import (
    AdaptiveConfig,
    ClassFactoredConfig,
    NoOutputConfig,
    OutputConfig,
    SoftmaxConfig,
)
from memtune.models.recurrent_memory import RecurrentMemoryConfig
from memtune.models.residual_memory import ResidualMemoryConfig
from memtune.models.rnn import RNNConfig
from memtune.models.scrn import SCRNConfig
from memtune.models.stack_lstm import StackLSTMConfig

__all__ = [
    "MODELS",
    "AWDLSTMConfig",
    "AdaptiveConfig",
    "Architecture",
    "AttentionLSTMConfig",
    "Attentive",
    "ClassFactoredConfig",
    "CountingConfig",
    "DependencyRNNConfig",
    "DepthGatedLSTMConfig",
    "FeedForwardConfig",
    "GatedFeedbackLSTMConfig",
    "KneserNeyConfig",
    "LSTMConfig",
    "LSTMNConfig",
    "LanguageModel",
    "LanguageModelConfig",
    "MaximumEntropyConfig",
    "MemoryNetworkConfig",
    "ModelConfig",
    "NeuralLanguageModel",
    "NoOutputConfig",
    "OutputConfig",
    "RNNConfig",
    "RecurrentMemoryConfig",
    "ResidualMemoryConfig",
    "SCRNConfig",
    "SoftmaxConfig",
    "StackLSTMConfig",
    "State",
    "TreeReader",
    "build_model",
    "logits",
    "negative_log_likelihood",
]

Families = (
    LSTMConfig
    | RecurrentMemoryConfig
    | RNNConfig
    | SCRNConfig
    | AttentionLSTMConfig
    | LSTMNConfig
    | ResidualMemoryConfig
    | FeedForwardConfig
    | MemoryNetworkConfig
    | StackLSTMConfig
    | DepthGatedLSTMConfig
    | GatedFeedbackLSTMConfig
    | AWDLSTMConfig
    | DependencyRNNConfig
    | KneserNeyConfig
)
ModelConfig = Annotated[Families, Field(discriminator="family")]
MODELS: dict[str, type[LanguageModelConfig]] = {
    config.model_fields["family"].default: config for config in get_args(Families)
}


@overload
def build_model(config: Architecture, vocabulary_size: int, seed: int) -> NeuralLanguageModel: ...


@overload
def build_model(config: LanguageModelConfig, vocabulary_size: int, seed: int) -> LanguageModel: ...


def build_model(config: LanguageModelConfig, vocabulary_size: int, seed: int) -> LanguageModel:
    """A new model of the configuration; equal arguments give equal parameters, on any machine.

    Torch's default generator is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return config.build(vocabulary_size)
