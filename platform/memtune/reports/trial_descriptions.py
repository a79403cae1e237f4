"""Configurations of trials in few words."""

from collections.abc import Collection, Iterable

from memtune.models import LanguageModelConfig
from memtune.training import TrialConfig
from memtune.values import flatten


def format_key_parameters(config: LanguageModelConfig) -> str:
    """The fields that distinguish two models of a family, as `name=value` words with three digits."""
    fields = {**config.describe(), **config.describe_output()}
    return " ".join(f"{name}={_round(value)}" for name, value in fields.items())


def describe_trial(config: TrialConfig, searched_fields: Collection[str] = ()) -> str:
    """Family, key parameters and the other searched fields."""
    values = dict(flatten(config.model_dump(mode="json")))
    described = {"model.family", *(f"model.{name}" for name in config.model.describe())}
    described |= {
        f"model.output.{'kind' if name == 'output' else name}" for name in config.model.describe_output()
    }
    more = format_fields(
        (name, values[name]) for name in searched_fields if name in values and name not in described
    )
    return " ".join([config.model.family, format_key_parameters(config.model), *more])


def format_searched_fields(config: TrialConfig, searched_fields: Collection[str]) -> str:
    """The searched fields that this trial has, which distinguish the trials of one study; without any, the
    key parameters. The family is left out where it is not searched."""
    values = dict(flatten(config.model_dump(mode="json")))
    names = [name for name in searched_fields if name in values and name != "model.family"]
    if not names:
        return describe_trial(config)
    family = [config.model.family] if "model.family" in searched_fields else []
    return " ".join([*family, *format_fields((name, values[name]) for name in names)])


def format_fields(fields: Iterable[tuple[str, object]]) -> list[str]:
    """Fields by dotted name as `name=value`, with names as short as they stay unambiguous.

    >>> format_fields([("task.fusion", "deep"), ("training.optimiser.learning_rate", 0.31622)])
    ['fusion=deep', 'learning_rate=0.316']
    """
    return [f"{_shorten_name(name)}={_format_value(value)}" for name, value in fields]


def _shorten_name(name: str) -> str:
    parent, _, last = name.rpartition(".")
    if last == "kind":
        return parent.removeprefix("training.").removeprefix("model.")
    _, _, within = name.partition(".")
    return within.removeprefix("optimiser.") or name


def _round(value: object) -> object:
    """A number with three digits that stays a float, so that 0.0 is not written as 0."""
    return float(f"{value:.3g}") if isinstance(value, float) else value


def _format_value(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
