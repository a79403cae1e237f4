"""Dropout and zoneout within recurrent layers, and the LSTM loop that applies them step by step.

Recurrent dropout: Semeniuta, Severyn and Barth (2016), "Recurrent Dropout without Memory Loss", drop units of
the candidate with a new mask at each step and never units of the memory. Variational dropout: Gal and
Ghahramani (2016), "A Theoretically Grounded Application of Dropout in Recurrent Neural Networks", section 4,
drop the same units at all steps of a sequence and for all gates. Zoneout: Krueger et al. (2017), "Zoneout:
Regularizing RNNs by Randomly Preserving Hidden Activations", section 3, keep the previous value of random
units. A sequence is one row of a forward pass.

All masks are drawn before the first step from torch's default generator. Dropout masks are divided by the
share of units that are kept, so evaluation needs no mask. Zoneout masks are 0 or 1, and evaluation uses their
mean.

Shapes: B batch, T time, E input width, H width, G = 4 H gates.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class LayerMasks:
    """Factors of the values of a layer; None stands for 1."""

    input_B1E: Tensor | None = None
    """The factor of the inputs, the same at every step."""
    state_BH: Tensor | None = None
    """The factor of the previous hidden state that the gates read."""
    candidate_TBH: Tensor | None = None
    """The factor of each step's candidate."""
    kept_cell_TBH: Tensor | None = None
    """The share of the previous cell that zoneout keeps; here None stands for 0."""
    kept_hidden_TBH: Tensor | None = None
    """The share of the previous hidden state that zoneout keeps; here None stands for 0."""

    @property
    def has_step_masks(self) -> bool:
        """Whether a fused kernel cannot compute the layer."""
        within = (self.state_BH, self.candidate_TBH, self.kept_cell_TBH, self.kept_hidden_TBH)
        return any(mask is not None for mask in within)


@dataclass(frozen=True)
class Regularisation:
    """Probabilities that a unit is dropped or, for zoneout, keeps its previous value."""

    recurrent_dropout: float = 0.0
    variational_dropout: float = 0.0
    variational_recurrent_dropout: float = 0.0
    zoneout_cell: float = 0.0
    zoneout_hidden: float = 0.0

    def is_active(self, training: bool) -> bool:
        """Whether the forward pass needs masks; in evaluation only zoneout does."""
        if training:
            return bool(self.collect_nonzero())
        return self.zoneout_cell > 0 or self.zoneout_hidden > 0

    def collect_nonzero(self) -> dict[str, str | int | float]:
        """The probabilities that are not 0, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value}

    def draw_stack_masks(
        self, inputs_BTE: Tensor, width: int, layers: int, training: bool
    ) -> tuple[list[LayerMasks], Tensor | None]:
        """New masks of each of the `layers` above these inputs, and output_B1H of the last one's outputs."""
        like, (rows, steps, input_width) = inputs_BTE, inputs_BTE.shape
        state, series = (rows, width), (steps, rows, width)
        masks = [
            LayerMasks(
                draw_dropout_mask(like, (rows, 1, read), self.variational_dropout, training),
                draw_dropout_mask(like, state, self.variational_recurrent_dropout, training),
                draw_dropout_mask(like, series, self.recurrent_dropout, training),
                _draw_zoneout_mask(like, series, self.zoneout_cell, training),
                _draw_zoneout_mask(like, series, self.zoneout_hidden, training),
            )
            for read in (input_width, *[width] * (layers - 1))
        ]
        return masks, draw_dropout_mask(like, (rows, 1, width), self.variational_dropout, training)


def draw_dropout_mask(
    like: Tensor, shape: tuple[int, ...], probability: float, training: bool
) -> Tensor | None:
    """A mask of 0 with this probability and 1 / (1 - probability) otherwise; None if nothing is dropped."""
    if not training or not probability:
        return None
    kept = 1 - probability
    return like.new_empty(shape).bernoulli_(kept).div_(kept)


def _draw_zoneout_mask(
    like: Tensor, shape: tuple[int, ...], probability: float, training: bool
) -> Tensor | None:
    if not probability:
        return None
    if not training:
        return like.new_full((1,), probability).expand(shape)
    return like.new_empty(shape).bernoulli_(probability)


def apply_mask(values: Tensor, mask: Tensor | None, step: int | None = None) -> Tensor:
    """The product of values and a mask, or its row of a step; None stands for a mask of 1."""
    if mask is None:
        return values
    return values * (mask if step is None else mask[step])


def run_lstm_steps(
    inputs_BTE: Tensor, hidden_BH: Tensor, cell_BH: Tensor, weights: Sequence[Tensor], masks: LayerMasks
) -> tuple[Tensor, Tensor, Tensor]:
    """outputs_BTH of an LSTM layer, and hidden_BH and cell_BH after the last step.

    One matrix product covers the inputs of all steps. `weights` are those of torch.nn.LSTM, in its order. The
    caller applies the mask of the inputs.
    """
    weight_GE, recurrent_GH, bias_G, recurrent_bias_G = weights
    gates_TBG = functional.linear(inputs_BTE.transpose(0, 1), weight_GE, bias_G + recurrent_bias_G)
    recurrent_HG = recurrent_GH.t()
    outputs = []
    for step, gates_BG in enumerate(gates_TBG.unbind()):
        read_BH = apply_mask(hidden_BH, masks.state_BH)
        input_BH, forget_BH, candidate_BH, output_BH = torch.addmm(gates_BG, read_BH, recurrent_HG).chunk(
            4, dim=1
        )
        update_BH = apply_mask(candidate_BH.tanh(), masks.candidate_TBH, step)
        new_cell_BH = forget_BH.sigmoid() * cell_BH + input_BH.sigmoid() * update_BH
        new_hidden_BH = output_BH.sigmoid() * new_cell_BH.tanh()
        cell_BH = apply_zoneout(new_cell_BH, cell_BH, masks.kept_cell_TBH, step)
        hidden_BH = apply_zoneout(new_hidden_BH, hidden_BH, masks.kept_hidden_TBH, step)
        outputs.append(hidden_BH)
    return torch.stack(outputs, dim=1), hidden_BH, cell_BH


def apply_zoneout(reached_BH: Tensor, before_BH: Tensor, kept_TBH: Tensor | None, step: int) -> Tensor:
    """reached + kept * (before - reached): the old value where `kept` is 1, the new value where it is 0."""
    if kept_TBH is None:
        return reached_BH
    # Under autocast the new value is in a lower precision than the state, and lerp takes one dtype.
    return torch.lerp(reached_BH.to(before_BH.dtype), before_BH, kept_TBH[step])
