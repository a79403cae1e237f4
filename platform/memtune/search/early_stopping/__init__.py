"""Early-stopping rules: which trials of a study train on their whole budget. One rule per module."""

from typing import Annotated

from memtune.plugins import ConfigRegistry
from memtune.search.early_stopping.hyperband import Hyperband, HyperbandConfig
from memtune.search.early_stopping.pause_and_promotion import Promotion, PromotionConfig
from memtune.search.early_stopping.rule import (
    CONTINUE,
    Action,
    Decision,
    EarlyStopping,
    NoEarlyStopping,
    NoEarlyStoppingConfig,
    Rule,
)
from memtune.search.early_stopping.successive_halving import SuccessiveHalving, SuccessiveHalvingConfig

RULES: ConfigRegistry[EarlyStopping] = ConfigRegistry(
    "early-stopping rule",
    "memtune.rules",
    "kind",
    EarlyStopping,  # type: ignore[type-abstract]
    (NoEarlyStoppingConfig, SuccessiveHalvingConfig, PromotionConfig, HyperbandConfig),
)
"""Kind in the study file -> the rule's settings."""
AnyEarlyStopping = Annotated[EarlyStopping, RULES]
"""The settings of a rule of the registry, chosen by `kind`."""
