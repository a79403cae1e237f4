"""A stack of LSTM layers over whole sequences, on the fused kernels of the device (oneDNN, cuDNN).

The cell is the standard one: sigmoid on input, forget and output gates, tanh on the candidate. Deviation from
the paper: the equations of j and o in Tran et al. (2016), section 2, swap sigmoid and tanh. The code released
with the paper does not, so the equations are taken as a misprint.

Shapes: B batch, T time, E input width, L layers, H width.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from memtune.models.layers.placed_dropout import DropoutPlacement, PlacedDropout
from memtune.models.layers.regularisation import Regularisation, apply_mask, run_lstm_steps


class LSTMStack(nn.Module):
    """`layers` LSTM layers of one width, with dropout between or after the layers, and within them.

    Without an active `regularisation` one call of the fused kernels runs all layers; with one, layers run
    one after the other, on the fused kernels unless a mask applies between two steps. So they do on a GPU
    with dropout between layers: its random state in cuDNN is not that of torch.
    """

    def __init__(
        self,
        input_width: int,
        width: int,
        layers: int,
        dropout: float,
        placement: DropoutPlacement,
        regularisation: Regularisation | None = None,
    ) -> None:
        super().__init__()
        between = dropout if layers > 1 else 0.0
        self.lstm = nn.LSTM(input_width, width, layers, dropout=between, batch_first=True)
        self.dropout = PlacedDropout(dropout, placement)
        self.regularisation = regularisation or Regularisation()

    @torch.no_grad()
    def set_forget_bias(self, value: float) -> None:
        """Set the forget gate's slice of every input bias; the recurrent bias does not change."""
        width = self.lstm.hidden_size
        for layer in range(self.lstm.num_layers):
            bias_4H = getattr(self.lstm, f"bias_ih_l{layer}")
            bias_4H[width : 2 * width] = value

    @staticmethod
    def count_parameters(input_width: int, width: int, layers: int) -> int:
        """Parameters of a stack: four gates a layer, each with two weight matrices and two biases."""
        return LSTMStack.count_multiply_adds(input_width, width, layers) + layers * 8 * width

    @staticmethod
    def count_multiply_adds(input_width: int, width: int, layers: int) -> int:
        """Multiply-adds of a stack's matrix products for one token."""
        return 4 * width * (input_width + width) + (layers - 1) * 8 * width * width

    def initial_state(self, batch_size: int) -> dict[str, Tensor]:
        """Zeros: hidden and cell, both (B, L, H)."""
        shape = (batch_size, self.lstm.num_layers, self.lstm.hidden_size)
        return {name: next(self.parameters()).new_zeros(shape) for name in ("hidden", "cell")}

    def forward(self, inputs_BTE: Tensor, state: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """outputs_BTH of the last layer, dropout applied, and hidden and cell after the last step."""
        inputs_BTE = self.dropout.input(inputs_BTE)
        has_cudnn_masks = self.training and self.lstm.dropout > 0 and inputs_BTE.is_cuda
        if has_cudnn_masks or self.regularisation.is_active(self.training):
            return self._run_layers_separately(inputs_BTE, state["hidden"], state["cell"])
        before = tuple(state[name].transpose(0, 1).contiguous() for name in ("hidden", "cell"))
        outputs_BTH, (hidden_LBH, cell_LBH) = self.lstm(inputs_BTE, before)
        after = {"hidden": hidden_LBH.transpose(0, 1), "cell": cell_LBH.transpose(0, 1)}
        return self.dropout.output(outputs_BTH), after

    def _run_layers_separately(
        self, values_BTE: Tensor, hidden_BLH: Tensor, cell_BLH: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        masks, output_B1H = self.regularisation.draw_stack_masks(
            values_BTE, self.lstm.hidden_size, self.lstm.num_layers, self.training
        )
        states = []
        for layer, weights in enumerate(self.lstm.all_weights):
            if layer:
                values_BTE = self.dropout.between(values_BTE)
            values_BTE = apply_mask(values_BTE, masks[layer].input_B1E)
            operands = values_BTE, hidden_BLH[:, layer], cell_BLH[:, layer], weights
            if masks[layer].has_step_masks:
                values_BTE, *after = run_lstm_steps(*operands, masks[layer])
            else:
                values_BTE, *after = run_fused_lstm(*operands)
            states.append(after)
        hidden_BLH, cell_BLH = (torch.stack(tensors, dim=1) for tensors in zip(*states, strict=True))
        outputs_BTH = self.dropout.output(apply_mask(values_BTE, output_B1H))
        return outputs_BTH, {"hidden": hidden_BLH, "cell": cell_BLH}


def run_fused_lstm(
    inputs_BTE: Tensor, hidden_BH: Tensor, cell_BH: Tensor, weights: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """outputs_BTH of one layer, and hidden_BH and cell_BH after the last step, on the fused kernels.

    `weights` are those of torch.nn.LSTM, in its order, possibly masked.
    """
    state = [hidden_BH.unsqueeze(0).contiguous(), cell_BH.unsqueeze(0).contiguous()]
    options = (True, 1, 0.0, torch.is_grad_enabled(), False, True)  # biases, layers, ..., batch first
    outputs_BTH, hidden_1BH, cell_1BH = torch.lstm(inputs_BTE, state, list(weights), *options)
    return outputs_BTH, hidden_1BH.squeeze(0), cell_1BH.squeeze(0)
