"""Language modelling down trees: predict each word of a sentence from the path to it (protocol `tree`).

The probability of a sentence, given its tree without words, is the product over its words given their
ancestors (Mirowski and Vlachos 2015, equation 4).
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from memtune.corpora.protocols import TreeProtocol
from memtune.corpora.store import Corpus
from memtune.corpora.tree_protocol import TreePlan
from memtune.corpora.trees import Treebank, TreeBatch
from memtune.errors import ConfigurationError
from memtune.models.interface import LanguageModel, NeuralLanguageModel, State, TreeReader
from memtune.objective import Objective, figure
from memtune.tasks.interface import Metrics, Task

__all__ = ["TreeModelling", "nats_by_sentence"]


class TreeModelling(Task[LanguageModel, TreeBatch]):
    """A corpus with trees: its batches, their loss, and the metrics of a split.

    Raises CorpusError when training or validation has no trees.
    """

    objective: Objective = "perplexity"

    def __init__(self, corpus: Corpus, protocol: TreeProtocol) -> None:
        self.corpus = corpus
        self.protocol = protocol
        self.choices = len(corpus.vocabulary)
        self._train = Treebank.of(corpus, "train")
        protocol.evaluation_plan(Treebank.of(corpus, "valid"))  # what is lacking is told now

    @property
    @override
    def epoch_tokens(self) -> int:
        return self._train.word_count

    @override
    def prepare(self, model: LanguageModel) -> None:
        """Raises ConfigurationError for a model that tells fewer labels apart than the trees have."""
        known, needed = getattr(model.config, "labels", 0), self._train.label_count
        if 0 < known < needed:
            raise ConfigurationError(
                f'model.labels must be at least the {needed} labels of corpus "{self.corpus.name}", got '
                f"{known}; 0 reads none"
            )
        if isinstance(model, NeuralLanguageModel):
            model.output.learn_counts(self.corpus.vocabulary.counts)

    @override
    def training_plan(self, seed: int, epoch: int) -> TreePlan:
        return self.protocol.training_plan(self._train, seed, epoch)

    @override
    def loss(self, model: LanguageModel, batch: TreeBatch, state: State | None) -> tuple[Tensor, State]:
        return _reader(model).tree_nats(batch, batch.mask_W)[0], {}

    @override
    @torch.inference_mode()
    def evaluate(self, model: LanguageModel, split: str, device: str | torch.device = "cpu") -> Metrics:
        trees = Treebank.of(self.corpus, split)
        total = nats_by_sentence(model, trees, self.protocol, device).sum()
        tokens = self.protocol.evaluation_plan(trees).token_count
        loss = float(total / tokens)
        return Metrics(loss=loss, perplexity=figure("perplexity", loss), tokens=tokens)


@torch.inference_mode()
def nats_by_sentence(
    model: LanguageModel, trees: Treebank, protocol: TreeProtocol, device: str | torch.device = "cpu"
) -> NDArray[np.float64]:
    """-log probability of each sentence of a split given its tree without words, in nats, (sentences,).

    Words that do not count under the protocol are left out of it. The model lies on `device`; raises
    ConfigurationError for one that reads no trees.
    """
    reader, place = _reader(model), torch.device(device)
    plan = protocol.evaluation_plan(trees)
    nats_S = torch.zeros(trees.split.sentence_count, dtype=torch.float64, device=place)
    training = model.training
    model.eval()
    for index in range(len(plan)):
        batch = plan.batch(index).to(place)
        _, nats_W = reader.tree_nats(batch)
        counted_W = nats_W if batch.mask_W is None else nats_W * batch.mask_W
        sentences_W = torch.from_numpy(plan.sentences(index)).to(place)[batch.sentences_W]
        nats_S.index_add_(0, sentences_W, counted_W.double())
    model.train(training)
    return nats_S.cpu().numpy()


def _reader(model: LanguageModel) -> TreeReader:
    if not model.config.reads_trees:
        raise ConfigurationError(
            f'family = "{model.config.family}" reads no trees; take the protocol it was trained under'
        )
    assert isinstance(model, TreeReader), "a family that reads trees is a TreeReader"
    return model
