"""A first check of families that are not built in, before a study starts: the model builds and reads text.

`memtune model check` has the whole contract; this takes less than a second per family.
"""

from collections.abc import Iterable

import torch

from memtune.errors import MemtuneError, PluginError
from memtune.models import MODELS, LanguageModelConfig, NeuralLanguageModel, build_model, logits
from memtune.training import TrialConfig

__all__ = ["check_new_families"]

WORDS, ROWS, STEPS = 23, 2, 5


def check_new_families(samples: Iterable[TrialConfig]) -> None:
    """Build and run one model of each family of users and packages among the sampled trials.

    Raises PluginError that names the file and the problem.
    """
    by_family = {sample.model.family: sample.model for sample in samples}
    for family, config in by_family.items():
        source = MODELS.get_source(family)
        if source is None:
            continue
        try:
            problem = _find_problem(config)
        except MemtuneError:
            raise
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        if problem is not None:
            raise PluginError(
                f'{source}: the model family "{family}" does not work: {problem}; memtune model check shows '
                "more"
            )


def _find_problem(config: LanguageModelConfig) -> str | None:
    """What is wrong with a small model of the configuration, or None."""
    model = build_model(config, WORDS, seed=0)
    built = sum(parameter.numel() for parameter in model.parameters())
    if built != config.parameter_count(WORDS):
        return f"it has {built:,} parameters, and parameter_count gives {config.parameter_count(WORDS):,}"
    if not isinstance(model, NeuralLanguageModel):
        return None
    tokens_BT = torch.zeros(ROWS, STEPS, dtype=torch.long)
    with torch.no_grad():
        logits_BTV, state = logits(model.eval(), tokens_BT)
        logits(model, tokens_BT, state)
    if logits_BTV.shape != (ROWS, STEPS, WORDS):
        return f"its logits have shape {tuple(logits_BTV.shape)} instead of {(ROWS, STEPS, WORDS)}"
    if config.multiply_adds(WORDS) < 1 or config.state_size() < 0:
        return "multiply_adds and state_size must not be negative"
    return None
