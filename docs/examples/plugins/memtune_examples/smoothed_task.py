"""A task: language modelling that trains with label smoothing and is judged by its exact perplexity.

Szegedy et al. (2016), "Rethinking the Inception Architecture for Computer Vision", section 7.

Shapes: B batch, T time, V vocabulary.
"""

from typing import Literal

from pydantic import Field
from torch import Tensor
from typing_extensions import override

from memtune.corpora import Corpus
from memtune.corpora.batching.protocols import Batch, Protocol, TreeProtocol
from memtune.errors import ConfigurationError
from memtune.models import LanguageModel, RecurrentState, logits
from memtune.objective import Objective
from memtune.tasks import LanguageModelling
from memtune.tasks.language_modelling import TextTaskConfig

__all__ = ["SmoothedLanguageModelling", "SmoothedLanguageModellingConfig"]


class SmoothedLanguageModellingConfig(TextTaskConfig):
    """Predict each token of a text, in training with a share of the uniform distribution as target."""

    kind: Literal["smoothed_language_modelling"] = "smoothed_language_modelling"
    objective: Literal[Objective.PERPLEXITY] = Objective.PERPLEXITY
    smoothing: float = Field(0.1, ge=0, lt=1, description="Share of the uniform distribution in the targets")

    @property
    @override
    def label(self) -> str:
        """None: the figures are perplexities of the text, which compare with those of any training."""
        return ""

    @override
    def open(self, corpus: Corpus, protocol: Protocol) -> "SmoothedLanguageModelling":
        if isinstance(protocol, TreeProtocol):
            raise ConfigurationError('label smoothing reads texts; set protocol.kind = "sentence"')
        return SmoothedLanguageModelling(corpus, protocol, self.smoothing)


class SmoothedLanguageModelling(LanguageModelling):
    """The loss of training; everything else is that of language modelling."""

    def __init__(self, corpus: Corpus, protocol: "Protocol", smoothing: float) -> None:
        super().__init__(corpus, protocol)  # type: ignore[arg-type]  # `open` refuses trees
        self.smoothing = smoothing

    @override
    def loss(
        self, model: LanguageModel, batch: Batch, state: RecurrentState | None
    ) -> tuple[Tensor, RecurrentState]:
        exact, after = super().loss(model, batch, state)
        if not model.training:
            return exact, after
        carried = state if batch.carries_state else None
        logits_BTV, _ = logits(model.require_network("label smoothing"), batch.inputs_BT, carried)
        uniform_BT = -logits_BTV.log_softmax(2).mean(2)
        counted_BT = uniform_BT if batch.mask_BT is None else uniform_BT[batch.mask_BT]
        return (1 - self.smoothing) * exact + self.smoothing * counted_BT.sum(), after
