"""The initial model of a trial, with the factors of its learning rates."""

from memtune.models.architecture import Model
from memtune.tasks import build_model
from memtune.training.optimisation.width_scaling import find_rate_scales, rescale_initial_values
from memtune.training.trial_config import TrialConfig

__all__ = ["build_trial_model"]


def build_trial_model(config: TrialConfig, vocabulary_size: int) -> tuple[Model, dict[str, float]]:
    """The model, and the factors of learning rates by parameter; there are none without a base width."""
    model = build_model(config.task, config.model, vocabulary_size, config.seed)
    if config.base_model is None:
        return model, {}
    base = build_model(config.task, config.base_model, vocabulary_size, config.seed)
    rescale_initial_values(model, base)
    return model, find_rate_scales(model, base)
