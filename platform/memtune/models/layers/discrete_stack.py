"""A stack of K cells on which each step takes one action: it stays, pushes or pops.

Yogatama et al. (2018), "Memory Architectures in Recurrent Neural Network Language Models", section 2.1. In
training the actions are drawn from the policy, otherwise the most probable one is taken. No gradient passes
through an action; REINFORCE (Williams, 1992) teaches the policy by the likelihood of the actions taken.

Every cell is some vector that was there at the start, was pushed, or is zero. So the steps only move places
in the list of these vectors; once the places are known, all else is computed for all steps together.

Shapes: B batch, T time, H width, K cells (the first is the top), S = K + T + 1 vectors: the cells at the
start, every state that may be pushed, and zeros; P hidden units of the policy, Q = 2 P projections.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from memtune.models.layers.stack_policy import OUTCOMES, StackPolicy

__all__ = ["DiscreteStack", "StackDecisions", "reinforcement"]


class StackDecisions(NamedTuple):
    """What a stack did over a text."""

    top_BTH: Tensor
    """The top cell after each step."""
    cells_BKH: Tensor
    """The cells after the last step."""
    logarithms_BT3: Tensor
    """Log probabilities of `OUTCOMES` at each step."""
    taken_BT: Tensor
    """The outcome taken at each step."""

    def log_likelihood(self) -> Tensor:
        """Log probability (B, T) of each action taken."""
        return self.logarithms_BT3.gather(2, self.taken_BT.unsqueeze(2)).squeeze(2)


class DiscreteStack(nn.Module):
    """One action a step, drawn in training and the most probable one otherwise."""

    def __init__(self, width: int, cells: int, units: int) -> None:
        super().__init__()
        self.policy = StackPolicy(width, units)
        self.cells = cells

    @override
    def forward(self, reading_BTH: Tensor, hidden_BTH: Tensor, cells_BKH: Tensor) -> tuple[Tensor, Tensor]:
        """The top cell after each step (B, T, H), and the cells after the last.

        The policy reads `reading` and the cells before the step; `hidden` is what the step may push.
        """
        decisions = self.decide(reading_BTH, hidden_BTH, cells_BKH)
        return decisions.top_BTH, decisions.cells_BKH

    @torch.no_grad()
    def use(self, reading_BTH: Tensor, hidden_BTH: Tensor, cells_BKH: Tensor) -> tuple[Tensor, Tensor]:
        """The top cell after each step, and probabilities_BT3 of its actions where the stack then stands."""
        decisions = self.decide(reading_BTH, hidden_BTH, cells_BKH)
        return decisions.top_BTH, decisions.logarithms_BT3.exp()

    def action_names(self) -> tuple[str, ...]:
        """stay, push, pop."""
        return OUTCOMES

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def decide(self, reading_BTH: Tensor, hidden_BTH: Tensor, cells_BKH: Tensor) -> StackDecisions:
        """All steps; the gradient of the log probabilities reaches all that the policy reads."""
        values_BSH = functional.pad(torch.cat([cells_BKH, hidden_BTH], dim=1), (0, 0, 0, 1))
        reading_BTP, projected_BSQ = self.policy.reading(reading_BTH), self.policy.cells(values_BSH)
        noise_BT3 = self.noise(reading_BTP.new_zeros(*reading_BTP.shape[:2], len(OUTCOMES)))
        places_BUK, taken_BT = self._walk(reading_BTP, projected_BSQ, noise_BT3)
        units = reading_BTP.shape[2]
        top_BTP = _pick(projected_BSQ[..., :units], places_BUK[:, :-1, 0])
        below_BTP = _pick(projected_BSQ[..., units:], places_BUK[:, :-1, 1])
        logits_BT3 = self.policy.logits(reading_BTP, top_BTP, below_BTP)
        return StackDecisions(
            _pick(values_BSH, places_BUK[:, 1:, 0]),
            _pick(values_BSH, places_BUK[:, -1, : self.cells]),
            logits_BT3.log_softmax(2),
            taken_BT,
        )

    def noise(self, zeros_BT3: Tensor) -> Tensor:
        """What is added to the logits before the largest is taken: in training it makes that a draw."""
        return -torch.empty_like(zeros_BT3).exponential_().log() if self.training else zeros_BT3

    @torch.no_grad()
    def _walk(self, reading_BTP: Tensor, projected_BSQ: Tensor, noise_BT3: Tensor) -> tuple[Tensor, Tensor]:
        """Places of the cells before each step and, last, after all; and the outcome of each step.

        A place more than there are cells holds the zeros below the bottom.
        """
        batch_size, steps, units = reading_BTP.shape
        top_BSP, below_BSP = projected_BSQ[..., :units], projected_BSQ[..., units:]
        zeros = self.cells + steps
        empty_B1 = torch.full((batch_size, 1), zeros, device=reading_BTP.device)
        first_BK = torch.arange(self.cells, device=reading_BTP.device).expand(batch_size, -1)
        places, taken = [torch.cat([first_BK, empty_B1], dim=1)], []
        for step in range(steps):
            before_BK = places[-1]
            top_BP, below_BP = _pick(top_BSP, before_BK[:, :1]), _pick(below_BSP, before_BK[:, 1:2])
            logits_B13 = self.policy.logits(reading_BTP[:, step : step + 1], top_BP, below_BP)
            taken_B1 = (logits_B13[:, 0] + noise_BT3[:, step]).argmax(1, keepdim=True)
            places.append(_moved(before_BK, taken_B1, torch.full_like(empty_B1, self.cells + step), empty_B1))
            taken.append(taken_B1)
        return torch.stack(places, dim=1), torch.cat(taken, dim=1)


def _moved(places_BK: Tensor, taken_B1: Tensor, pushed_B1: Tensor, empty_B1: Tensor) -> Tensor:
    """Places after an action; the last one stays that of the zeros."""
    cells_BK = places_BK[:, :-1]
    outcomes_B3K = torch.stack(
        [
            cells_BK,
            torch.cat([pushed_B1, cells_BK[:, :-1]], dim=1),
            torch.cat([cells_BK[:, 1:], empty_B1], dim=1),
        ],
        dim=1,
    )
    moved_B1K = outcomes_B3K.gather(1, taken_B1.unsqueeze(2).expand(-1, -1, cells_BK.shape[1]))
    return torch.cat([moved_B1K.squeeze(1), empty_B1], dim=1)


def _pick(values_BSH: Tensor, places_BT: Tensor) -> Tensor:
    """The vectors at the places (B, T, H)."""
    return values_BSH.gather(1, places_BT.unsqueeze(2).expand(-1, -1, values_BSH.shape[2]))


def reinforcement(
    costs_BT: Tensor, weights_BT: Tensor, log_likelihood_BT: Tensor, expected_BT: Tensor, discount: float
) -> Tensor:
    """A sum whose gradient teaches a policy to lower the costs, and a baseline to expect them.

    An action is to blame for the costs of its own step and, by `discount` to the power of their distance, of
    those after it, each times its weight; less what the baseline expected (Williams, 1992, section 4). The
    baseline learns the mean cost per unit of weight, by squared error. No gradient reaches the costs.
    """
    steps = torch.arange(costs_BT.shape[1], device=costs_BT.device)
    distance_TT = steps.unsqueeze(1) - steps
    reach_TT = (discount ** distance_TT.clamp(min=0).to(costs_BT.dtype)).tril()
    blame_BT, weight_BT = (costs_BT * weights_BT) @ reach_TT, weights_BT @ reach_TT
    advantage_BT = (blame_BT - weight_BT * expected_BT).detach()
    counted_BT = weight_BT > 0
    mean_BT = blame_BT / weight_BT.where(counted_BT, 1)
    surprise_BT = (expected_BT - mean_BT).where(counted_BT, 0)
    return (log_likelihood_BT * advantage_BT).sum() + 0.5 * surprise_BT.square().sum()
