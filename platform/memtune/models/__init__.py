"""Language models: their interface, the registry of families and the configurations of output layers."""

from memtune.models.architecture import (
    CountingConfig,
    LanguageModel,
    LanguageModelConfig,
    NeuralLanguageModel,
    NeuralLanguageModelConfig,
    RecurrentState,
    TreeReader,
    logits,
    negative_log_likelihood,
)
from memtune.models.families.attention_lstm import AttentionLSTMConfig
from memtune.models.families.awd_lstm import AWDLSTMConfig
from memtune.models.families.dependency_rnn import DependencyRNNConfig
from memtune.models.families.depth_gated_lstm import DepthGatedLSTMConfig
from memtune.models.families.feed_forward import FeedForwardConfig
from memtune.models.families.gated_feedback_lstm import GatedFeedbackLSTMConfig
from memtune.models.families.kneser_ney import KneserNeyConfig
from memtune.models.families.lstm import LSTMConfig
from memtune.models.families.lstmn import LSTMNConfig
from memtune.models.families.memory_network import MemoryNetworkConfig
from memtune.models.families.mixer_blocks import MixerBlocksConfig
from memtune.models.families.recurrent_memory import RecurrentMemoryConfig
from memtune.models.families.residual_memory import ResidualMemoryConfig
from memtune.models.families.rnn import RNNConfig
from memtune.models.families.scrn import SCRNConfig
from memtune.models.families.stack_lstm import StackLSTMConfig
from memtune.models.maximum_entropy import MaximumEntropyConfig
from memtune.models.outputs.output_config import (
    AdaptiveConfig,
    ClassFactoredConfig,
    NoOutputConfig,
    OutputConfig,
    SoftmaxConfig,
)
from memtune.models.registry import MODELS, ModelConfig, build_model, find_model, list_families
