"""Language modelling: predict each token of a text from those before it.

The loss is the negative log likelihood in nats per predicted token; perplexity is its exponential. Both are
lower for better models.
"""

from typing import Literal

import torch
from torch import Tensor
from typing_extensions import override

from memtune.corpora.batching.protocols import Batch, Plan, Protocol, TextProtocol
from memtune.corpora.store.corpus import Corpus
from memtune.errors import CorpusError
from memtune.models.architecture import (
    LanguageModel,
    LanguageModelConfig,
    RecurrentState,
    negative_log_likelihood,
)
from memtune.objective import Objective
from memtune.tasks.item_costs import ItemCosts, compute_sentence_costs
from memtune.tasks.task import Metrics, Task, TaskConfig
from memtune.tasks.tree_language_modelling import TreeLanguageModelling


def perplexity(loss: float) -> float:
    """exp of nats per token, lower is better; infinite where exp overflows."""
    return Objective.PERPLEXITY.compute_figure(loss)


class TextTaskConfig(TaskConfig):
    """A task whose language model is trained on a text."""

    prediction_unit = "tokens"

    @override
    def is_evaluable(self, corpus: Corpus, protocol: Protocol, split: str) -> bool:
        has_trees = split in corpus.annotations.get("trees", {})
        return split in corpus.splits and (has_trees or not protocol.reads_trees)

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
    objective: Literal[Objective.PERPLEXITY] = Objective.PERPLEXITY
    """The figure that compares trials of the task."""

    @property
    @override
    def label(self) -> str:
        return ""

    @override
    def open(self, corpus: Corpus, protocol: Protocol) -> "LanguageModelling | TreeLanguageModelling":
        for split in ("train", "valid"):
            if split not in corpus.splits:
                raise CorpusError(
                    f'corpus "{corpus.name}" has no {split} split to train on; name a text first, as in '
                    f'"ptb+{corpus.name}"'
                )
        if protocol.reads_trees:
            return TreeLanguageModelling(corpus, protocol)
        protocol.evaluation_plan(corpus["valid"])  # raises early for a split that it cannot read
        return LanguageModelling(corpus, protocol)


class LanguageModelling(Task[LanguageModel, Batch]):
    """A corpus read through a protocol: its batches, their loss, and the metrics of a split."""

    objective: Objective = Objective.PERPLEXITY

    def __init__(self, corpus: Corpus, protocol: TextProtocol) -> None:
        self.corpus = corpus
        self.protocol = protocol
        self.outcome_count = len(corpus.vocabulary)

    @property
    @override
    def epoch_tokens(self) -> int:
        return self.corpus["train"].token_count

    @override
    def initialise_model(self, model: LanguageModel) -> None:
        model.set_word_counts(self.corpus.vocabulary.counts)

    @override
    def training_plan(self, seed: int, epoch: int) -> Plan:
        return self.protocol.training_plan(self.corpus["train"], seed, epoch)

    @override
    def loss(
        self, model: LanguageModel, batch: Batch, state: RecurrentState | None
    ) -> tuple[Tensor, RecurrentState]:
        carried = state if batch.carries_state else None
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
        state: RecurrentState | None = None
        training = model.training
        model.eval()
        for index in range(len(plan)):
            summed, state = self.loss(model, plan.batch(index).to(place), state)
            total += summed
        model.train(training)
        loss = total.item() / plan.token_count
        return Metrics(loss=loss, perplexity=perplexity(loss), tokens=plan.token_count)

    @override
    def compute_item_costs(
        self, model: LanguageModel, split: str, device: str | torch.device = "cpu"
    ) -> ItemCosts:
        return compute_sentence_costs(model, self.protocol.text_plan(self.corpus[split]), device)
