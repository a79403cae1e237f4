"""Dropout within recurrent layers, and the layers that it makes one step through.

Recurrent dropout: Semeniuta, Severyn and Barth (2016), "Recurrent Dropout without Memory Loss", drop what a
step is about to write to the memory and never the memory, anew at each step. Variational dropout: Gal and
Ghahramani (2016), "A Theoretically Grounded Application of Dropout in Recurrent Neural Networks", section 4,
drop one set of units from all steps of a sequence, the same for all gates. Zoneout: Krueger et al. (2017),
"Zoneout: Regularizing RNNs by Randomly Preserving Hidden Activations", section 3, keep units as they were a
step before. A sequence is a row of what is read at once.

Masks are drawn before the first step from torch's default generator and are divided by the share that is
kept, so that evaluation drops nothing; zoneout's are 0 or 1, and evaluation takes their mean.

Shapes: B batch, T time, E input width, H width, G = 4 H gates.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["LayerMasks", "Regularisation", "dropout_mask", "lstm_steps", "mask_at", "masked", "zoned_out"]


@dataclass(frozen=True)
class LayerMasks:
    """What the values of a layer are multiplied by; None stands for 1."""

    input_B1E: Tensor | None = None
    """The inputs, at every step."""
    state_BH: Tensor | None = None
    """The state before, where the gates read it."""
    candidate_TBH: Tensor | None = None
    """What is about to be written."""
    kept_cell_TBH: Tensor | None = None
    """The share of a cell that stays as it was a step before; None for nothing."""
    kept_hidden_TBH: Tensor | None = None
    """The same of the hidden state."""

    @property
    def within_steps(self) -> bool:
        """Whether a fused kernel cannot compute the layer."""
        within = (self.state_BH, self.candidate_TBH, self.kept_cell_TBH, self.kept_hidden_TBH)
        return any(mask is not None for mask in within)


@dataclass(frozen=True)
class Regularisation:
    """Probabilities that a unit is dropped or, in zoneout, kept as it was."""

    recurrent_dropout: float = 0.0
    variational_dropout: float = 0.0
    variational_recurrent_dropout: float = 0.0
    zoneout_cell: float = 0.0
    zoneout_hidden: float = 0.0

    def acts(self, training: bool) -> bool:
        """Whether it changes anything: in evaluation only zoneout does."""
        if training:
            return bool(self.in_use())
        return self.zoneout_cell > 0 or self.zoneout_hidden > 0

    def in_use(self) -> dict[str, str | int | float]:
        """The probabilities that are not 0, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value}

    def masks(self, like: Tensor, shape_BTE: tuple[int, int, int], width: int, training: bool) -> LayerMasks:
        """The masks of a layer of `width` units over inputs of this shape; drawn anew in training."""
        rows, steps, input_width = shape_BTE
        state, series = (rows, width), (steps, rows, width)
        return LayerMasks(
            dropout_mask(like, (rows, 1, input_width), self.variational_dropout, training),
            dropout_mask(like, state, self.variational_recurrent_dropout, training),
            dropout_mask(like, series, self.recurrent_dropout, training),
            _kept(like, series, self.zoneout_cell, training),
            _kept(like, series, self.zoneout_hidden, training),
        )


def dropout_mask(like: Tensor, shape: tuple[int, ...], probability: float, training: bool) -> Tensor | None:
    """0 with this probability, else 1 over the share that is kept; None where nothing is dropped."""
    if not training or not probability:
        return None
    kept = 1 - probability
    return like.new_empty(shape).bernoulli_(kept).div_(kept)


def _kept(like: Tensor, shape: tuple[int, ...], probability: float, training: bool) -> Tensor | None:
    if not probability:
        return None
    if not training:
        return like.new_full((1,), probability).expand(shape)
    return like.new_empty(shape).bernoulli_(probability)


def masked(values: Tensor, mask: Tensor | None) -> Tensor:
    """Their product."""
    return values if mask is None else values * mask


def lstm_steps(
    inputs_BTE: Tensor, hidden_BH: Tensor, cell_BH: Tensor, weights: Sequence[Tensor], masks: LayerMasks
) -> tuple[Tensor, Tensor, Tensor]:
    """outputs_BTH of an LSTM layer, and hidden_BH and cell_BH after the last step; one product of all inputs.

    `weights` are those of torch.nn.LSTM, in its order; the inputs are masked already.
    """
    weight_GE, recurrent_GH, bias_G, recurrent_bias_G = weights
    gates_TBG = functional.linear(inputs_BTE.transpose(0, 1), weight_GE, bias_G + recurrent_bias_G)
    recurrent_HG = recurrent_GH.t()
    outputs = []
    for step, gates_BG in enumerate(gates_TBG.unbind()):
        read_BH = masked(hidden_BH, masks.state_BH)
        input_BH, forget_BH, candidate_BH, output_BH = torch.addmm(gates_BG, read_BH, recurrent_HG).chunk(
            4, dim=1
        )
        update_BH = masked(candidate_BH.tanh(), mask_at(masks.candidate_TBH, step))
        reached_BH = forget_BH.sigmoid() * cell_BH + input_BH.sigmoid() * update_BH
        shown_BH = output_BH.sigmoid() * reached_BH.tanh()
        cell_BH = zoned_out(reached_BH, cell_BH, mask_at(masks.kept_cell_TBH, step))
        hidden_BH = zoned_out(shown_BH, hidden_BH, mask_at(masks.kept_hidden_TBH, step))
        outputs.append(hidden_BH)
    return torch.stack(outputs, dim=1), hidden_BH, cell_BH


def mask_at(mask_TBH: Tensor | None, step: int) -> Tensor | None:
    """The mask of one step."""
    return None if mask_TBH is None else mask_TBH[step]


def zoned_out(reached_BH: Tensor, before_BH: Tensor, kept_BH: Tensor | None) -> Tensor:
    """Each unit as it was before, to the share that is kept, and else as it is reached."""
    return reached_BH if kept_BH is None else torch.lerp(reached_BH, before_BH, kept_BH)
