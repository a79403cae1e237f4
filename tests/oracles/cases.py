"""The cases of oracles, as the contract has them, and a case of a model that draws masks."""

from collections.abc import Callable

from memtune.model_checks.oracles import EXAMPLE_SIZE, Oracle, OracleCase, keep_initial_weights
from memtune.models import NeuralLanguageModel, NeuralLanguageModelConfig

__all__ = ["EXAMPLE_SIZE", "OracleCase", "keep_initial_weights", "make_masked_case"]


def make_masked_case(
    config: NeuralLanguageModelConfig,
    bind: Callable[[NeuralLanguageModel], Oracle],
    *,
    is_training: bool,
    float32_lengths: tuple[int, ...] = (),
) -> OracleCase:
    """A case whose oracle has the masks of dropout and zoneout that the model draws.

    Only evaluation cases have cuts: in training the second piece would have other masks.
    """
    return OracleCase(
        config=config,
        bind=bind,
        is_training=is_training,
        lengths=(1, 2, 15, 16, 63) if is_training else (),
        cuts=() if is_training else (1, 7, 15),
        float32_lengths=float32_lengths if is_training else (),
        rows=3,
    )
