"""Language modelling: predict each token of a text from those before it.

The loss is the negative log likelihood in nats; the metric is its mean over every predicted token of a split
and the exponential of that, the perplexity.
"""

from typing import Literal

import torch
from torch import Tensor
from typing_extensions import override

from memtune.corpora.protocols import Batch, Plan, Protocol, TextProtocol, TreeProtocol
from memtune.corpora.store import Corpus
from memtune.errors import CorpusError
from memtune.models.interface import (
    LanguageModel,
    LanguageModelConfig,
    NeuralLanguageModel,
    State,
    negative_log_likelihood,
)
from memtune.objective import Objective, figure
from memtune.tasks.interface import Metrics, Task, TaskConfig
from memtune.tasks.tree_modelling import TreeModelling

__all__ = ["LanguageModelling", "LanguageModellingConfig", "TextTaskConfig", "perplexity"]


def perplexity(loss: float) -> float:
    """exp of nats per token; infinite where that overflows."""
    return figure("perplexity", loss)


class TextTaskConfig(TaskConfig):
    """What is asked of a language model, which a text trains."""

    @override
    def build(self, model: LanguageModelConfig, vocabulary_size: int) -> LanguageModel:
        return model.build(vocabulary_size)

    @override
    def parameter_count(self, model: LanguageModelConfig, vocabulary_size: int) -> int:
        return model.parameter_count(vocabulary_size)

    @override
    def multiply_adds(self, model: LanguageModelConfig, vocabulary_size: int) -> int:
        return model.multiply_adds(vocabulary_size)


class LanguageModellingConfig(TextTaskConfig):
    """Predict each token of a text."""

    kind: Literal["language_modelling"] = "language_modelling"
    objective: Literal["perplexity"] = "perplexity"

    @property
    @override
    def label(self) -> str:
        return ""

    @override
    def open(self, corpus: Corpus, protocol: Protocol) -> "LanguageModelling | TreeModelling":
        for split in ("train", "valid"):
            if split not in corpus.splits:
                raise CorpusError(
                    f'corpus "{corpus.name}" has no {split} split to model; name a text first, as in '
                    f'"ptb+{corpus.name}"'
                )
        if isinstance(protocol, TreeProtocol):
            return TreeModelling(corpus, protocol)
        protocol.evaluation_plan(corpus["valid"])  # what it refuses, it refuses now
        return LanguageModelling(corpus, protocol)


class LanguageModelling(Task[LanguageModel, Batch]):
    """A corpus read through a protocol: its batches, their loss, and the metrics of a split."""

    objective: Objective = "perplexity"

    def __init__(self, corpus: Corpus, protocol: TextProtocol) -> None:
        self.corpus = corpus
        self.protocol = protocol
        self.choices = len(corpus.vocabulary)

    @property
    @override
    def epoch_tokens(self) -> int:
        return self.corpus["train"].token_count

    @override
    def prepare(self, model: LanguageModel) -> None:
        if isinstance(model, NeuralLanguageModel):
            model.output.learn_counts(self.corpus.vocabulary.counts)

    @override
    def training_plan(self, seed: int, epoch: int) -> Plan:
        return self.protocol.training_plan(self.corpus["train"], seed, epoch)

    @override
    def loss(self, model: LanguageModel, batch: Batch, state: State | None) -> tuple[Tensor, State]:
        carried = state if batch.carried else None
        summed, after = negative_log_likelihood(
            model, batch.inputs_BT, batch.targets_BT, batch.mask_BT, carried
        )
        return summed, {name: tensor.detach() for name, tensor in after.items()}

    @override
    @torch.inference_mode()
    def evaluate(self, model: LanguageModel, split: str, device: str | torch.device = "cpu") -> Metrics:
        plan = self.protocol.evaluation_plan(self.corpus[split])
        place = torch.device(device)
        total = torch.zeros((), dtype=torch.float64, device=place)
        state: State | None = None
        training = model.training
        model.eval()
        for index in range(len(plan)):
            summed, state = self.loss(model, plan.batch(index).to(place), state)
            total += summed
        model.train(training)
        loss = total.item() / plan.token_count
        return Metrics(loss=loss, perplexity=perplexity(loss), tokens=plan.token_count)
