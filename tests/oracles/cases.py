"""Cases of oracles: configurations of the families, and the texts over which they are compared."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from memtune.model_checks.check_run import CUT_LENGTH, CUTS, WORDS
from memtune.model_checks.oracles import EXAMPLE_SIZE, Oracle
from memtune.models import NeuralLanguageModel, NeuralLanguageModelConfig, build_model

__all__ = ["EXAMPLE_SIZE", "MASKED_LENGTHS", "OracleCase", "keep_initial_weights", "make_masked_case"]

MASKED_LENGTHS = (1, 2, 16)
"""Lengths of texts whose masks are drawn at random, which are not cut."""


def keep_initial_weights(model: NeuralLanguageModel) -> None:
    """Change nothing."""


@dataclass(frozen=True, kw_only=True)
class OracleCase:
    """One configuration, the oracle of its models, and the texts over which the two are compared.

    `lengths`, `float32_lengths` and `cut_length` are numbers of predicted words. Each of `cuts` is the number
    of words after which the state is carried over, in a text of `cut_length`, which is read whole, too.
    """

    config: NeuralLanguageModelConfig
    logits: Oracle | None = None
    """logits[b][t] from a configuration, its parameters in float64 and words."""
    bind: Callable[[NeuralLanguageModel], Oracle] | None = None
    """Instead of `logits` where an oracle needs more of the model than its parameters, such as its masks."""
    prepare: Callable[[NeuralLanguageModel], None] = keep_initial_weights
    """Changes to the parameters of a new model without which the comparison would miss errors."""
    is_training: bool = True
    lengths: tuple[int, ...] = (1, 2)
    float32_lengths: tuple[int, ...] = (CUT_LENGTH,)
    cuts: tuple[int, ...] = CUTS
    cut_length: int = CUT_LENGTH
    rows: int = 2
    words: int = WORDS
    """Size of the vocabulary."""
    words_in_text: int | None = None
    """Number of different words in the texts; the whole vocabulary by default."""

    def build(self, dtype: torch.dtype) -> NeuralLanguageModel:
        """A model with the prepared parameters."""
        model = build_model(self.config, self.words, seed=1).to(dtype)
        self.prepare(model)
        return model.train(self.is_training)

    def get_oracle(self, model: NeuralLanguageModel) -> Oracle:
        """The oracle of this model."""
        oracle = self.bind(model) if self.bind else self.logits
        assert oracle is not None, "a case has `logits` or `bind`"
        return oracle

    def draw_text(self, length: int) -> Tensor:
        """words_BT with T = length + 1."""
        generator = torch.Generator().manual_seed(length)
        return torch.randint(self.words_in_text or self.words, (self.rows, length + 1), generator=generator)


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
        lengths=MASKED_LENGTHS if is_training else (),
        cuts=() if is_training else CUTS,
        float32_lengths=float32_lengths if is_training else (),
    )
