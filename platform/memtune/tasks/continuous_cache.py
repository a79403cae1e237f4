"""The continuous cache: recent words become more probable after similar hidden states.

Grave, Joulin and Usunier (2017), "Improving Neural Language Models with a Continuous Cache", sections 3, 4.
The cache has no trained parameters. It holds the last hidden states h_i, each with its next word x_{i+1}.
A softmax over the similarities of the states gives the probability of each next word:

    p(w | h_t) = (1 - weight) p_model(w | h_t) + weight p_cache(w | h_t),
    p_cache(w | h_t) = sum of exp(flatness h_t . h_i) where x_{i+1} is w / sum of exp(flatness h_t . h_i).

A split is read as one text in its order. Under the protocol `stream` the model's state is carried through
the whole text; under `sentence` it is reset at each sentence, and only the cache is carried over. The cache
is empty before the first word, which the model predicts alone.

Shapes: B batch, T time, N words of a block, M cache slots, H hidden width, F flatnesses, W weights.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from memtune.corpora.batching.protocols import Plan, Protocol
from memtune.corpora.store.corpus import Corpus
from memtune.models.architecture import LanguageModel, NeuralLanguageModel, RecurrentState
from memtune.tasks.item_costs import evaluation_mode
from memtune.tasks.language_modelling import perplexity
from memtune.tasks.task import Metrics
from memtune.values import UserValue

BLOCK_WORDS = 256
"""Smallest number of words in a block; one matrix product compares a block with all cache slots."""

Size = Annotated[int, Field(ge=1, lt=2**63, description="number of words in the cache")]
Flatness = Annotated[
    float,
    Field(
        ge=0,
        allow_inf_nan=False,
        description="factor of the similarities in the softmax; 0 weights all slots equally",
    ),
]
Weight = Annotated[float, Field(ge=0, lt=1, description="weight of the cache in the mixed probability")]


class ContinuousCache(UserValue):
    """A cache and its settings."""

    size: Size = 2000
    flatness: Flatness = 0.3
    weight: Weight = 0.1

    @property
    def label(self) -> str:
        """Name of the settings in records of evaluations; different settings have different names."""
        parts = [f"{each:g}" for each in (self.flatness, self.weight)]
        if tuple(map(float, parts)) != (self.flatness, self.weight):  # six digits are not the numbers
            parts = [str(self.flatness), str(self.weight)]
        return "_".join(["cache", str(self.size), *parts])


class CacheGrid(UserValue):
    """Grid of settings for `tune_cache`."""

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
    """The metrics of a split under a cache, every predicted token counted once; the model is on `device`.

    Raises ConfigurationError for a model without hidden states.
    """
    plan = protocol.require_text("a cache").text_plan(corpus[split])
    grid = CacheGrid(size=cache.size, flatnesses=(cache.flatness,), weights=(cache.weight,))
    ((loss,),) = _compute_losses(model, plan, grid, device)
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
    plan = protocol.require_text("a cache").text_plan(corpus["valid"])
    losses = _compute_losses(model, plan, grid, device)
    settings = (
        (loss, flatness, weight)
        for row, flatness in zip(losses, grid.flatnesses, strict=True)
        for loss, weight in zip(row, grid.weights, strict=True)
    )
    _, flatness, weight = min(settings)
    return ContinuousCache(size=grid.size, flatness=flatness, weight=weight)


@torch.inference_mode()
def _compute_losses(
    model: LanguageModel, plan: Plan, grid: CacheGrid, device: str | torch.device
) -> list[list[float]]:
    """Nats per token for each flatness (outer list) and each weight (inner lists)."""
    network, place = model.require_network("a cache"), torch.device(device)
    weights_W = torch.tensor(grid.weights, dtype=torch.float64, device=place)
    total_FW = torch.zeros(len(grid.flatnesses), len(weights_W), dtype=torch.float64, device=place)
    with evaluation_mode(network):
        for hidden_MH, words_M, new, read in _iterate_blocks(network, plan, grid.size, place):
            block = hidden_MH[-new:], words_M[-new:]
            _, nats_N = network.output.negative_log_likelihood_by_row(*block, **read)
            probabilities_FN = _compute_cache_probabilities(hidden_MH, words_M, new, grid)
            for total_W, cache_N in zip(total_FW, probabilities_FN, strict=True):
                total_W += _mix_losses(nats_N.double(), cache_N.double(), weights_W)
    losses: list[list[float]] = (total_FW / plan.token_count).tolist()
    return losses


def _mix_losses(nats_N: Tensor, cache_N: Tensor, weights_W: Tensor) -> Tensor:
    """Summed nats of the mixture for each weight, (W,); p_cache is NaN where the cache is empty."""
    weights_W1 = weights_W.unsqueeze(1)
    mixed_WN = torch.logaddexp((-weights_W1).log1p() - nats_N, weights_W1.log() + cache_N.log())
    return torch.where(cache_N.isnan(), nats_N, -mixed_WN).sum(1)


def _iterate_blocks(
    model: NeuralLanguageModel, plan: Plan, cache_size: int, place: torch.device
) -> Iterator[tuple[Tensor, Tensor, int, dict[str, Tensor]]]:
    """The states and next words of the cache and then of a block, (M, H) and (M,), the block's length, and
    what the output layer reads of its words besides (`collect_contexts`).
    """
    hidden: list[Tensor] = []
    words: list[Tensor] = []
    contexts: defaultdict[str, list[Tensor]] = defaultdict(list)
    new = 0
    state: RecurrentState | None = None
    for index in range(len(plan)):
        batch = plan.batch(index).to(place)
        initial = state if batch.carries_state and state else model.initial_state(batch.rows)
        mask_BT = batch.get_mask()
        hidden_BTH, state = model.encode(batch.inputs_BT, initial)
        hidden.append(hidden_BTH[mask_BT])
        words.append(batch.targets_BT[mask_BT])
        for name, values in model.collect_contexts(batch.inputs_BT, initial).items():
            contexts[name].append(values[mask_BT])
        new += len(words[-1])
        if new >= BLOCK_WORDS or index == len(plan) - 1:
            hidden_MH, words_M = torch.cat(hidden), torch.cat(words)
            yield hidden_MH, words_M, new, {name: torch.cat(found) for name, found in contexts.items()}
            hidden, words, new = [hidden_MH[-cache_size:]], [words_M[-cache_size:]], 0
            contexts.clear()


def _compute_cache_probabilities(
    hidden_MH: Tensor, words_M: Tensor, new: int, grid: CacheGrid
) -> Iterator[Tensor]:
    """Yield p_cache of each of the `new` last words, (N,), for each flatness.

    A word reads the slots of the `size` words before it; p_cache is NaN while the cache is empty. All N words
    share one matrix product with the M slots that at least one of them reads.
    """
    slots_M = torch.arange(len(words_M), device=words_M.device)
    position_N1 = slots_M[-new:].unsqueeze(1)
    hidden_slot_NM = (slots_M >= position_N1) | (slots_M < position_N1 - grid.size)
    other_NM = words_M != words_M[-new:].unsqueeze(1)
    similarity_NM = hidden_MH[-new:] @ hidden_MH.t()
    for flatness in grid.flatnesses:
        scores_NM = (similarity_NM * flatness).masked_fill_(hidden_slot_NM, -math.inf)
        yield scores_NM.softmax(1).masked_fill_(other_NM, 0.0).sum(1)
