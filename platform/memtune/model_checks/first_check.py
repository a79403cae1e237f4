"""A first check of families that are not built in, before a study starts: the model builds and reads text.

`memtune model check` has the whole contract; this takes less than a second per family.
"""

from collections.abc import Iterable
from numbers import Integral, Real

import torch

from memtune.errors import MemtuneError, PluginError
from memtune.models import MODELS, LanguageModelConfig, NeuralLanguageModel, build_model, logits
from memtune.plugins import list_sources
from memtune.plugins.source_modules import describe_error
from memtune.training import TrialConfig

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
        except (Exception, SystemExit) as error:
            problem = describe_error(error)
        if problem is not None:
            raise PluginError(
                f'{source}: the model family "{family}" does not work: {problem}; memtune model check shows '
                "more"
            )


def find_formula_problem(config: TrialConfig, vocabulary_size: int) -> str | None:
    """Why the sizes or the description of a configuration cannot be computed; None where they can be.

    Only plug-ins are checked, whose formulas may fail for some of their configurations: the driver uses them
    for each trial, and its tables for each trial that has ended.
    """
    if not list_sources(config.model_dump(mode="json")):
        return None
    try:
        sizes: dict[str, object] = {
            "parameter_count": config.parameter_count(vocabulary_size),
            "multiply_adds": config.multiply_adds(vocabulary_size),
            "state_size": config.model.state_size(),
        }
        described: dict[str, object] = {**config.model.describe(), **config.model.describe_output()}
    except MemtuneError:
        raise
    except (Exception, SystemExit) as error:
        return f"its formulas fail: {describe_error(error)}"
    for name, size in sizes.items():
        if not isinstance(size, Integral) or size < 0:
            return f"its {name} is {size!r}, which is not a whole number of at least 0"
    wrong = [name for name, value in described.items() if not isinstance(value, str | Real)]
    return f"it describes {', '.join(wrong)} by other values than texts and numbers" if wrong else None


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
