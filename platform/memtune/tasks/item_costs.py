"""The cost of each item of a split: a sentence, a question, a labelled example or a row of a probe.

Models of one task on one corpus have the same items in the same order, so their costs compare in pairs.

The cost of an answer is 1 - credit. A correct choice has credit 1, a tie among k best candidates 1 / k, which
is the expected credit of a choice at random among them, so accuracy does not depend on the order of the
candidates. A tie is a question whose lowest cost belongs to several candidates, compared as floating-point
numbers without a tolerance: equal costs come from equal operations on equal numbers, such as two words that
the model reads as `<unk>`, and the pairs within a tolerance would depend on the scale of the costs.

Shapes: I items, N tokens, Q questions, C candidates, B batch, T time.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from scipy.special import stdtrit
from torch import Tensor

from memtune.corpora.batching.batches import BOUNDARY
from memtune.corpora.batching.protocols import Plan
from memtune.models.architecture import LanguageModel, Model, RecurrentState, find_device
from memtune.seed_statistics import CONFIDENCE_LEVEL
from memtune.storage.folder import Folder
from memtune.values import Value

MIN_ITEMS = 20
"""Items of an interval: the costs of fewer are too skewed for Student's distribution."""


ItemUnit = Literal["sentences", "questions", "examples", "rows"]
STORED_FILE = "valid_costs.json"
"""In the folder of a trial."""


class _StoredCosts(Value):
    """The content of STORED_FILE."""

    unit: ItemUnit
    trial_cost: float
    """The cost of the weights that the items were evaluated with."""
    costs: list[float]
    counts: list[int]


@dataclass(frozen=True)
class ItemCosts:
    """Costs by item, lower is better; the cost of a split is their sum over the sum of the counts."""

    unit: ItemUnit
    costs_I: NDArray[np.float64]
    """Nats of the item's predictions, or 1 - credit of its answers."""
    counts_I: NDArray[np.int64]
    """Predictions of each item."""

    @classmethod
    def read(cls, folder: Folder, trial_cost: float) -> "ItemCosts | None":
        """The stored costs of a trial's validation items; None where its weights of this cost have none."""
        with suppress(ValidationError):
            stored = _StoredCosts.model_validate(folder.read_json(STORED_FILE))
            if stored.trial_cost == trial_cost:
                return cls(stored.unit, np.array(stored.costs), np.array(stored.counts))
        return None

    def store(self, folder: Folder, trial_cost: float) -> None:
        """Store the costs in the folder of the trial whose weights have this cost."""
        content = _StoredCosts(
            unit=self.unit,
            trial_cost=trial_cost,
            costs=self.costs_I.tolist(),
            counts=self.counts_I.tolist(),
        )
        folder.write_json(STORED_FILE, content.model_dump())

    @property
    def cost(self) -> float:
        """The cost of the split."""
        return float(self.costs_I.sum() / self.counts_I.sum())

    def compute_interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the cost over texts of such items; None for fewer than MIN_ITEMS.

        That of a ratio of two sums over independent items (Cochran 1977, section 6.4). Answers, of which all
        may be right, have four more items, half of them wrong: Agresti and Coull (1998), "Approximate Is
        Better than Exact for Interval Estimation of Binomial Proportions". Items of one document that depend
        on each other make it too narrow. It knows nothing of other trainings.
        """
        if len(self.counts_I) < MIN_ITEMS:
            return None
        added_I = self.counts_I.mean() * np.array([] if self.unit == "sentences" else [0, 0, 1, 1])
        costs_I = np.append(self.costs_I, added_I)
        counts_I = np.append(self.counts_I, np.full(len(added_I), self.counts_I.mean()))
        items, center = len(counts_I), float(costs_I.sum() / counts_I.sum())
        squares = ((costs_I - center * counts_I) ** 2).sum()
        deviation = float(np.sqrt(squares * items / (items - 1)) / counts_I.sum())
        half = float(stdtrit(items - 1, (1 + CONFIDENCE_LEVEL) / 2)) * deviation
        return center - half, center + half


def credit_choices(costs_QC: Tensor, answers_Q: Tensor) -> Tensor:
    """Credit of each question, (Q,) float64: 1 / k where the correct candidate is among the k best, else 0.

    Lower costs are better. A cost that is not a number counts as infinite.
    """
    is_best_QC = _find_best(costs_QC)
    is_answer_best_Q = is_best_QC.gather(1, answers_Q.unsqueeze(1)).squeeze(1)
    return is_answer_best_Q.double() / is_best_QC.sum(1)


def count_best_candidates(costs_QC: Tensor) -> Tensor:
    """Number of candidates that share the lowest cost, (Q,) int64: 1 where there is no tie."""
    return _find_best(costs_QC).sum(1)


def _find_best(costs_QC: Tensor) -> Tensor:
    """Whether each candidate has the lowest cost of its question, (Q, C) bool."""
    comparable_QC = costs_QC.nan_to_num(nan=inf, posinf=inf, neginf=-inf)
    return comparable_QC == comparable_QC.amin(1, keepdim=True)


@contextmanager
def evaluation_mode(model: Model) -> Iterator[None]:
    """Put a model into evaluation during the block, without dropout, and then back into its mode."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def compute_sentence_costs(model: LanguageModel, plan: Plan, device: str | torch.device) -> ItemCosts:
    """Nats of each sentence of a plan in the order of the text; `<eos>` is the last word of a sentence."""
    words_N, nats_N = compute_token_nats(model, plan, device)
    is_end_N = words_N == BOUNDARY
    starts_I = np.concatenate(([0], np.flatnonzero(is_end_N)[:-1] + 1))
    lengths_I = np.diff(np.append(starts_I, len(is_end_N)))
    return ItemCosts("sentences", np.add.reduceat(nats_N, starts_I), lengths_I)


@torch.inference_mode()
def compute_text_nats(model: LanguageModel, ids: Sequence[int]) -> NDArray[np.float64]:
    """The nats of each token of one sentence and of its `<eos>`, (N + 1,), from the state before any word.

    The model is in evaluation mode.
    """
    text_BT = torch.tensor([[BOUNDARY, *ids, BOUNDARY]], device=find_device(model))
    asked_BT = torch.ones_like(text_BT[:, 1:], dtype=torch.bool)
    targets_N1 = text_BT[0, 1:, None]
    nats_N1, _ = model.candidate_nats(text_BT[:, :-1], asked_BT, targets_N1, model.initial_state(1))
    nats_N: NDArray[np.float64] = nats_N1[:, 0].double().cpu().numpy()
    return nats_N


@torch.inference_mode()
def compute_token_nats(
    model: LanguageModel, plan: Plan, device: str | torch.device
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The predicted tokens of a plan in the order of the text, (N,), and the nats of each, (N,)."""
    place = torch.device(device)
    state: RecurrentState = {}
    words: list[NDArray[np.int64]] = []
    nats: list[NDArray[np.float64]] = []
    with evaluation_mode(model):
        for index in range(len(plan)):
            batch = plan.batch(index).to(place)
            initial = state if batch.carries_state else model.initial_state(batch.rows)
            counted_BT = batch.get_mask()
            targets_N = batch.targets_BT[counted_BT]
            nats_N1, state = model.candidate_nats(batch.inputs_BT, counted_BT, targets_N[:, None], initial)
            words.append(targets_N.cpu().numpy())
            nats.append(nats_N1[:, 0].double().cpu().numpy())
    return np.concatenate(words), np.concatenate(nats)
