"""A stack of K cells on which each step takes one action: stay, push or pop.

Yogatama et al. (2018), "Memory Architectures in Recurrent Neural Network Language Models", section 2.1.
Training samples the actions from the policy, evaluation takes the most probable one. No gradient passes
through an action; REINFORCE (Williams, 1992) trains the policy through the log-likelihood of its actions.

Every cell is one of the initial cells, a pushed vector, or zero. The steps therefore only move indices into
the list of these vectors. Once the indices are known, everything else is computed for all steps together.

Shapes: B batch, T time, H width, K cells (the first is the top), S = K + T + 1 vectors: the initial cells,
one candidate push per step, and zeros; P hidden units of the policy, Q = 2 P projections.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from memtune.models.compilation import leave_uncompiled
from memtune.models.memories.memory_traces import StackAction
from memtune.models.memories.stack_policy import OUTCOMES, SINGLE_ACTIONS, StackPolicy


class StackDecisions(NamedTuple):
    """The actions of a stack over a text and their results."""

    top_BTH: Tensor
    """The top cell after each step."""
    cells_BKH: Tensor
    """The cells after the last step."""
    logarithms_BT3: Tensor
    """Log probabilities of `OUTCOMES` at each step."""
    taken_BT: Tensor
    """The index in `OUTCOMES` of the action at each step."""

    def log_likelihood(self) -> Tensor:
        """Log probability (B, T) of the action at each step."""
        return self.logarithms_BT3.gather(2, self.taken_BT.unsqueeze(2)).squeeze(2)


class DiscreteStack(nn.Module):
    """One action per step, sampled in training and the most probable one in evaluation."""

    def __init__(self, width: int, cells: int, units: int) -> None:
        super().__init__()
        self.policy = StackPolicy(width, units)
        self.cells = cells

    @override
    def forward(self, reading_BTH: Tensor, hidden_BTH: Tensor, cells_BKH: Tensor) -> tuple[Tensor, Tensor]:
        """The top cell after each step (B, T, H), and the cells after the last.

        The policy reads `reading` and the cells before the step; `hidden` is the vector that the step pushes.
        """
        decisions = self.decide(reading_BTH, hidden_BTH, cells_BKH)
        return decisions.top_BTH, decisions.cells_BKH

    @torch.no_grad()
    def trace_actions(
        self, reading_BTH: Tensor, hidden_BTH: Tensor, cells_BKH: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The top cell after each step, and probabilities_BT3 of its actions given the actions before it."""
        decisions = self.decide(reading_BTH, hidden_BTH, cells_BKH)
        return decisions.top_BTH, decisions.logarithms_BT3.exp()

    def actions(self) -> tuple[StackAction, ...]:
        """stay, push, pop."""
        return SINGLE_ACTIONS

    @leave_uncompiled
    def decide(self, reading_BTH: Tensor, hidden_BTH: Tensor, cells_BKH: Tensor) -> StackDecisions:
        """Run all steps; the log probabilities have a gradient to everything that the policy reads."""
        values_BSH = functional.pad(torch.cat([cells_BKH, hidden_BTH], dim=1), (0, 0, 0, 1))
        reading_BTP, projected_BSQ = self.policy.reading(reading_BTH), self.policy.cells(values_BSH)
        noise_BT3 = self.noise(reading_BTP.new_zeros(*reading_BTP.shape[:2], len(OUTCOMES)))
        places_BUK, taken_BT = self._choose_actions(reading_BTP, projected_BSQ, noise_BT3)
        units = reading_BTP.shape[2]
        top_BTP = _gather_vectors(projected_BSQ[..., :units], places_BUK[:, :-1, 0])
        below_BTP = _gather_vectors(projected_BSQ[..., units:], places_BUK[:, :-1, 1])
        logits_BT3 = self.policy.logits(reading_BTP, top_BTP, below_BTP)
        return StackDecisions(
            _gather_vectors(values_BSH, places_BUK[:, 1:, 0]),
            _gather_vectors(values_BSH, places_BUK[:, -1, : self.cells]),
            logits_BT3.log_softmax(2),
            taken_BT,
        )

    def noise(self, zeros_BT3: Tensor) -> Tensor:
        """Gumbel noise for the logits in training, so that their argmax samples from the policy."""
        return -torch.empty_like(zeros_BT3).exponential_().log() if self.training else zeros_BT3

    @torch.no_grad()
    def _choose_actions(
        self, reading_BTP: Tensor, projected_BSQ: Tensor, noise_BT3: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Indices of the cells before each step and after the last, and the action of each step.

        One index more than there are cells refers to the zeros below the bottom.
        """
        batch_size, steps, units = reading_BTP.shape
        top_BSP, below_BSP = projected_BSQ[..., :units], projected_BSQ[..., units:]
        zeros = self.cells + steps
        empty_B1 = torch.full((batch_size, 1), zeros, device=reading_BTP.device)
        initial_BK = torch.arange(self.cells, device=reading_BTP.device).expand(batch_size, -1)
        indices, taken = [torch.cat([initial_BK, empty_B1], dim=1)], []
        for step in range(steps):
            before_BK = indices[-1]
            top_BP = _gather_vectors(top_BSP, before_BK[:, :1])
            below_BP = _gather_vectors(below_BSP, before_BK[:, 1:2])
            logits_B13 = self.policy.logits(reading_BTP[:, step : step + 1], top_BP, below_BP)
            taken_B1 = (logits_B13[:, 0] + noise_BT3[:, step]).argmax(1, keepdim=True)
            cells_BK, pushed_B1 = before_BK[:, :-1], torch.full_like(empty_B1, self.cells + step)
            pushed_BK = torch.cat([pushed_B1, cells_BK[:, :-1]], dim=1)
            popped_BK = torch.cat([cells_BK[:, 1:], empty_B1], dim=1)
            outcomes_B3K = torch.stack([cells_BK, pushed_BK, popped_BK], dim=1)
            moved_BK = torch.take_along_dim(outcomes_B3K, taken_B1.unsqueeze(2), dim=1).squeeze(1)
            indices.append(torch.cat([moved_BK, empty_B1], dim=1))
            taken.append(taken_B1)
        return torch.stack(indices, dim=1), torch.cat(taken, dim=1)


def _gather_vectors(values_BSH: Tensor, indices_BT: Tensor) -> Tensor:
    """The vectors at the indices, (B, T, H)."""
    return values_BSH.gather(1, indices_BT.unsqueeze(2).expand(-1, -1, values_BSH.shape[2]))


def compute_reinforce_loss(
    costs_BT: Tensor, weights_BT: Tensor, log_likelihood_BT: Tensor, expected_BT: Tensor, discount: float
) -> Tensor:
    """A loss whose gradient is the REINFORCE gradient of a policy and the gradient of its baseline.

    The return of an action is the weighted sum of the costs of its step and all later steps, each discounted
    by `discount` to the power of its distance, minus the prediction of the baseline (Williams, 1992, section
    4). The baseline learns the mean cost per unit of weight by squared error. No gradient reaches the costs.
    """
    steps = torch.arange(costs_BT.shape[1], device=costs_BT.device)
    distance_TT = steps.unsqueeze(1) - steps
    discount_TT = (discount ** distance_TT.clamp(min=0).to(costs_BT.dtype)).tril()
    return_BT, weight_BT = (costs_BT * weights_BT) @ discount_TT, weights_BT @ discount_TT
    advantage_BT = (return_BT - weight_BT * expected_BT).detach()
    counted_BT = weight_BT > 0
    mean_BT = return_BT / weight_BT.where(counted_BT, 1)
    error_BT = (expected_BT - mean_BT).where(counted_BT, 0)
    return (log_likelihood_BT * advantage_BT).sum() + 0.5 * error_BT.square().sum()
