"""Language models: their interface, and the registry of families."""

from memtune.models.architecture import (
    CountingConfig,
    LanguageModel,
    LanguageModelConfig,
    NeuralLanguageModel,
    NeuralLanguageModelConfig,
    RecurrentState,
    find_device,
    logits,
    negative_log_likelihood,
)
from memtune.models.families.lstm import LSTMConfig
from memtune.models.families.mixer_blocks import MixerBlocksConfig
from memtune.models.registry import (
    MODELS,
    ModelConfig,
    build_model,
    find_model,
    fix_defaults,
    fork_random_states,
    list_families,
)
