"""The continuous cache: words said shortly before are more probable where they were said in a like place.

Grave, Joulin and Usunier (2017), "Improving Neural Language Models with a Continuous Cache", sections 3, 4.
Nothing is trained. The cache holds the last hidden states h_i, each with the word x_{i+1} that came after it;
that word gets the share of h_i in a softmax over all of them:

    p(w | h_t) = (1 - weight) p_model(w | h_t) + weight p_cache(w | h_t),
    p_cache(w | h_t) = sum of exp(flatness h_t . h_i) where x_{i+1} is w / sum of exp(flatness h_t . h_i).

A split is read as one text, in its order, whatever the protocol of training: in `stream` the model's state
goes on and on, in `sentence` it starts anew with each sentence while the cache is carried over. Before the
first word the cache is empty, and the model alone predicts.

Shapes: N words of a block, M slots they see, H hidden width, F flatnesses, W weights.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from memtune.corpora.protocols import Plan, Protocol, TreeProtocol
from memtune.corpora.store import Corpus, Split
from memtune.errors import ConfigurationError
from memtune.models.interface import LanguageModel, NeuralLanguageModel, State
from memtune.tasks.interface import Metrics
from memtune.tasks.language_modelling import perplexity
from memtune.values import Value

__all__ = ["CacheGrid", "ContinuousCache", "evaluate_with_cache", "tune_cache"]

BLOCK = 256
"""Words whose products with the cache are computed at once, at least: all slots are read once for so many."""

Size = Annotated[int, Field(ge=1, description="words remembered")]
Flatness = Annotated[float, Field(ge=0, description="how much likeness counts; at 0 every slot counts alike")]
Weight = Annotated[float, Field(ge=0, lt=1, description="share of the cache in the probability")]


class ContinuousCache(Value):
    """A cache and its settings."""

    size: Size = 2000
    flatness: Flatness = 0.3
    weight: Weight = 0.1

    @property
    def label(self) -> str:
        """A name in which records of evaluations under other settings differ."""
        return f"cache_{self.size}_{self.flatness:g}_{self.weight:g}"


class CacheGrid(Value):
    """Settings to choose from, on validation."""

    size: Size = 2000
    flatnesses: tuple[Flatness, ...] = Field((0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.7, 1.0), min_length=1)
    weights: tuple[Weight, ...] = Field((0.0, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3), min_length=1)


def evaluate_with_cache(
    model: LanguageModel,
    corpus: Corpus,
    protocol: Protocol,
    split: str,
    cache: ContinuousCache,
    device: str | torch.device = "cpu",
) -> Metrics:
    """The metrics of a split under a cache, every predicted token counted once; the model lies on `device`.

    Raises ConfigurationError for a model without hidden states.
    """
    plan = _text_plan(protocol, corpus[split])
    ((loss,),) = _losses(_network(model), plan, cache.size, [cache.flatness], [cache.weight], device)
    return Metrics(loss=loss, perplexity=perplexity(loss), tokens=plan.token_count)


def tune_cache(
    model: LanguageModel,
    corpus: Corpus,
    protocol: Protocol,
    grid: CacheGrid,
    device: str | torch.device = "cpu",
) -> ContinuousCache:
    """The settings of the grid with the lowest loss on the validation split, read once for all of them.

    Raises ConfigurationError for a model without hidden states.
    """
    plan = _text_plan(protocol, corpus["valid"])
    losses = _losses(_network(model), plan, grid.size, grid.flatnesses, grid.weights, device)
    settings = (
        (loss, flatness, weight)
        for row, flatness in zip(losses, grid.flatnesses, strict=True)
        for loss, weight in zip(row, grid.weights, strict=True)
    )
    _, flatness, weight = min(settings)
    return ContinuousCache(size=grid.size, flatness=flatness, weight=weight)


def _text_plan(protocol: Protocol, split: Split) -> Plan:
    if isinstance(protocol, TreeProtocol):
        raise ConfigurationError("a cache remembers a text in its order; the protocol tree has none")
    return protocol.text_plan(split)


def _network(model: LanguageModel) -> NeuralLanguageModel:
    if isinstance(model, NeuralLanguageModel):
        return model
    raise ConfigurationError(
        f'a cache remembers hidden states, and family = "{model.config.family}" has none; evaluate it without'
    )


@torch.inference_mode()
def _losses(
    model: NeuralLanguageModel,
    plan: Plan,
    size: int,
    flatnesses: Sequence[float],
    weights: Sequence[float],
    device: str | torch.device,
) -> list[list[float]]:
    """Nats per token for each flatness and, within it, each weight."""
    place = torch.device(device)
    weights_W = torch.tensor(weights, dtype=torch.float64, device=place)
    total_FW = torch.zeros(len(flatnesses), len(weights), dtype=torch.float64, device=place)
    memory = _Memory(size)
    training = model.training
    model.eval()
    for hidden_NH, words_N in _blocks(model, plan, place):
        _, nats_N = model.output.negative_log_likelihood_by_row(hidden_NH, words_N)
        shares_FN = memory.shares(hidden_NH, words_N, flatnesses)
        for total_W, share_N in zip(total_FW, shares_FN, strict=True):
            total_W += _mixed(nats_N.double(), share_N.double(), weights_W)
    model.train(training)
    losses: list[list[float]] = (total_FW / plan.token_count).tolist()
    return losses


def _mixed(nats_N: Tensor, share_N: Tensor, weights_W: Tensor) -> Tensor:
    """Summed nats for each weight; a share that is not a number tells of an empty cache."""
    weights_W1 = weights_W.unsqueeze(1)
    mixed_WN = torch.logaddexp((-weights_W1).log1p() - nats_N, weights_W1.log() + share_N.log())
    return torch.where(share_N.isnan(), nats_N, -mixed_WN).sum(1)


def _blocks(model: NeuralLanguageModel, plan: Plan, place: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """What the output layer reads, (N, H), and the words that come, (N,), in the order of the text."""
    hidden: list[Tensor] = []
    words: list[Tensor] = []
    state: State | None = None
    for index in range(len(plan)):
        batch = plan.batch(index).to(place)
        before = state if batch.carried and state else model.initial_state(len(batch.inputs_BT))
        hidden_BTH, state = model.encode(batch.inputs_BT, before)
        counts_BT = (
            torch.ones_like(batch.inputs_BT, dtype=torch.bool) if batch.mask_BT is None else batch.mask_BT
        )
        hidden.append(hidden_BTH[counts_BT])
        words.append(batch.targets_BT[counts_BT])
        if sum(map(len, words)) >= BLOCK or index == len(plan) - 1:
            yield torch.cat(hidden), torch.cat(words)
            hidden, words = [], []


class _Memory:
    """The last hidden states, each with the word after it."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._hidden: Tensor | None = None
        self._words: Tensor | None = None

    def shares(self, hidden_NH: Tensor, words_N: Tensor, flatnesses: Sequence[float]) -> Iterator[Tensor]:
        """p_cache of each word for each flatness, not a number while the cache is empty; then remember them.

        All N words share one product with the M slots that any of them sees; each sees those of the `size`
        words before it.
        """
        hidden_MH, words_M = hidden_NH, words_N
        if self._hidden is not None and self._words is not None:
            hidden_MH, words_M = torch.cat([self._hidden, hidden_NH]), torch.cat([self._words, words_N])
        self._hidden, self._words = hidden_MH[-self._size :], words_M[-self._size :]
        slots_M = torch.arange(len(words_M), device=words_M.device)
        own_N1 = slots_M[-len(words_N) :].unsqueeze(1)
        unseen_NM = (slots_M >= own_N1) | (slots_M < own_N1 - self._size)
        other_NM = words_M != words_N.unsqueeze(1)
        likeness_NM = hidden_NH @ hidden_MH.t()
        for flatness in flatnesses:
            scores_NM = (likeness_NM * flatness).masked_fill_(unseen_NM, -math.inf)
            yield scores_NM.softmax(1).masked_fill_(other_NM, 0.0).sum(1)
