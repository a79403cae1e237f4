"""Language modelling: predict each token of a text from those before it, or from its ancestors in a tree.

The loss is the negative log likelihood in nats per predicted token; perplexity is its exponential. Both are
lower for better models. Under the protocol `tree` the probability of a sentence, given its tree without
words, is the product over its words given their ancestors (Mirowski and Vlachos 2015, equation 4).
"""

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from memtune.corpora.batching.batches import TaskPlan, TreeBatch
from memtune.corpora.batching.protocols import Batch, Plan, Protocol, TextProtocol, TreeProtocol
from memtune.corpora.batching.tree_protocol import Treebank
from memtune.corpora.probes.probe_corpora import PREFIX
from memtune.corpora.probes.probe_rows import UNASKED
from memtune.corpora.store.corpus import Corpus
from memtune.errors import ConfigurationError, CorpusError
from memtune.models.architecture import (
    LanguageModel,
    LanguageModelConfig,
    RecurrentState,
    TreeReader,
    negative_log_likelihood,
)
from memtune.number_format import format_count
from memtune.objective import Objective
from memtune.tasks.item_costs import ItemCosts, compute_sentence_costs, evaluation_mode
from memtune.tasks.task import Metrics, Task, TaskConfig


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

    @property
    @override
    def label(self) -> str:
        return ""

    @override
    def open(self, corpus: Corpus, protocol: Protocol) -> "LanguageModelling | TreeLanguageModelling":
        if corpus.name.startswith(PREFIX) and UNASKED in corpus.vocabulary:
            raise CorpusError(f'the corpus "{corpus.name}" has rows of a probe; add task.kind = "probe"')
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
        with evaluation_mode(model):
            for index in range(len(plan)):
                summed, state = self.loss(model, plan.batch(index).to(place), state)
                total += summed
        loss = total.item() / plan.token_count
        return Metrics(loss=loss, perplexity=perplexity(loss), tokens=plan.token_count)

    @override
    def compute_item_costs(
        self, model: LanguageModel, split: str, device: str | torch.device = "cpu"
    ) -> ItemCosts:
        return compute_sentence_costs(model, self.protocol.text_plan(self.corpus[split]), device)


class TreeLanguageModelling(Task[LanguageModel, TreeBatch]):
    """Language modelling along trees. Raises CorpusError where training or validation has none."""

    objective: Objective = Objective.PERPLEXITY

    def __init__(self, corpus: Corpus, protocol: TreeProtocol) -> None:
        self.corpus = corpus
        self.protocol = protocol
        self.outcome_count = len(corpus.vocabulary)
        self._training_trees = Treebank.from_corpus(corpus, "train")
        protocol.evaluation_plan(Treebank.from_corpus(corpus, "valid"))  # raises early if trees are missing

    @property
    @override
    def epoch_tokens(self) -> int:
        return self._training_trees.word_count

    @override
    def initialise_model(self, model: LanguageModel) -> None:
        """Raises ConfigurationError for a model with fewer dependency labels than the trees have."""
        configured, needed = getattr(model.config, "labels", 0), self._training_trees.label_count
        if 0 < configured < needed:
            raise ConfigurationError(
                f"model.labels must be at least the {format_count(needed, 'label')} of corpus "
                f'"{self.corpus.name}", got {configured}; 0 ignores the labels'
            )
        model.set_word_counts(self.corpus.vocabulary.counts)

    @override
    def training_plan(self, seed: int, epoch: int) -> TaskPlan[TreeBatch]:
        return self.protocol.training_plan(self._training_trees, seed, epoch)

    @override
    def loss(
        self, model: LanguageModel, batch: TreeBatch, state: RecurrentState | None
    ) -> tuple[Tensor, RecurrentState]:
        return _require_tree_reader(model).tree_nats(batch, batch.mask_W)[0], {}

    @override
    @torch.inference_mode()
    def evaluate(self, model: LanguageModel, split: str, device: str | torch.device = "cpu") -> Metrics:
        trees = Treebank.from_corpus(self.corpus, split)
        total = nats_by_sentence(model, trees, self.protocol, device).sum()
        tokens = self.protocol.evaluation_plan(trees).token_count
        loss = float(total / tokens)
        return Metrics(loss=loss, perplexity=perplexity(loss), tokens=tokens)

    @override
    def compute_item_costs(
        self, model: LanguageModel, split: str, device: str | torch.device = "cpu"
    ) -> ItemCosts:
        trees = Treebank.from_corpus(self.corpus, split)
        nats_S = nats_by_sentence(model, trees, self.protocol, device)
        plan, counts_S = self.protocol.evaluation_plan(trees), np.zeros(len(nats_S), np.int64)
        for index in range(len(plan)):
            batch = plan.batch(index)
            counted_W = 1 if batch.mask_W is None else batch.mask_W.numpy().astype(np.int64)
            np.add.at(counts_S, plan.get_items(index)[batch.sentences_W.numpy()], counted_W)
        return ItemCosts("sentences", nats_S[counts_S > 0], counts_S[counts_S > 0])


@torch.inference_mode()
def nats_by_sentence(
    model: LanguageModel, trees: Treebank, protocol: TreeProtocol, device: str | torch.device = "cpu"
) -> NDArray[np.float64]:
    """-log probability of each sentence of a split given its tree without words, in nats, (sentences,).

    The product leaves out words that do not count under the protocol. The model is on `device`. Raises
    ConfigurationError for a model that cannot read trees.
    """
    reader, place = _require_tree_reader(model), torch.device(device)
    plan = protocol.evaluation_plan(trees)
    nats_S = torch.zeros(trees.split.sentence_count, dtype=torch.float64, device=place)
    with evaluation_mode(model):
        for index in range(len(plan)):
            batch = plan.batch(index).to(place)
            _, nats_W = reader.tree_nats(batch)
            counted_W = nats_W if batch.mask_W is None else nats_W * batch.mask_W
            sentences_W = torch.from_numpy(plan.get_items(index)).to(place)[batch.sentences_W]
            nats_S.index_add_(0, sentences_W, counted_W.double())
    return nats_S.cpu().numpy()


def _require_tree_reader(model: LanguageModel) -> TreeReader:
    if not model.config.reads_trees:
        raise ConfigurationError(
            f'family = "{model.config.family}" cannot read trees; use the protocol that it was trained with'
        )
    assert isinstance(model, TreeReader), "a family that reads trees is a TreeReader"
    return model
