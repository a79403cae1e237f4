"""Language modelling: predict each token of a text from those before it.

The loss is the negative log likelihood in nats; the metric is its mean over every predicted token of a split
and the exponential of that, the perplexity.
"""

import math
from typing import ClassVar

import torch
from torch import Tensor

from memtune.corpora.protocols import Batch, Plan, Protocol
from memtune.corpora.store import Corpus
from memtune.models.interface import LanguageModel, State, negative_log_likelihood
from memtune.values import Value

__all__ = ["LanguageModelling", "Metrics", "perplexity"]


class Metrics(Value):
    """What an evaluation found."""

    loss: float
    """Nats per predicted token, lower is better."""
    perplexity: float
    """exp(loss): per predicted token, lower is better."""
    tokens: int
    """Predicted tokens that counted."""


def perplexity(loss: float) -> float:
    """exp of nats per token; infinite where that overflows."""
    return math.exp(loss) if loss < 700 else math.inf


class LanguageModelling:
    """A corpus read through a protocol: its batches, their loss, and the metrics of a split."""

    objective: ClassVar[str] = "perplexity"
    direction: ClassVar[str] = "minimize"

    def __init__(self, corpus: Corpus, protocol: Protocol) -> None:
        self.corpus = corpus
        self.protocol = protocol

    def training_plan(self, seed: int, epoch: int) -> Plan:
        """The batches of one epoch over the training split, a function of (seed, epoch)."""
        return self.protocol.training_plan(self.corpus["train"], seed, epoch)

    def loss(self, model: LanguageModel, batch: Batch, state: State | None) -> tuple[Tensor, State]:
        """Summed nats of the batch's targets (a scalar), and the state after it, cut from the graph.

        `state` is what the batch before returned; it is read only by a batch that is carried on.
        """
        carried = state if batch.carried else None
        summed, after = negative_log_likelihood(
            model, batch.inputs_BT, batch.targets_BT, batch.mask_BT, carried
        )
        return summed, {name: tensor.detach() for name, tensor in after.items()}

    @torch.inference_mode()
    def evaluate(self, model: LanguageModel, split: str, device: str | torch.device = "cpu") -> Metrics:
        """The metrics of a split, every predicted token counted once; the model lies on `device`."""
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
