"""A stack of LSTM layers over whole sequences, on the fused kernels of the device (oneDNN, cuDNN).

The cell is the standard one: sigmoid on input, forget and output gates, tanh on the candidate. Equations for
j and o in Tran et al. (2016), section 2, swap two of them; the code released with the paper does not.

Shapes: B batch, T time, E input width, L layers, H width.
"""

from typing import Literal

import torch
from torch import Tensor, nn

__all__ = ["DropoutPlacement", "LSTMStack", "lstm_multiply_adds", "lstm_parameter_count"]

DropoutPlacement = Literal["between", "after"]
"""Dropout on the input of every layer but the first, or after every layer, the last one too."""


class LSTMStack(nn.Module):
    """`layers` LSTM layers of one width, with dropout between them or after each."""

    def __init__(
        self, input_width: int, width: int, layers: int, dropout: float, placement: DropoutPlacement
    ) -> None:
        super().__init__()
        between = dropout if layers > 1 else 0.0
        self.lstm = nn.LSTM(input_width, width, layers, dropout=between, batch_first=True)
        self.dropout = nn.Dropout(dropout if placement == "after" else 0.0)

    @torch.no_grad()
    def set_forget_bias(self, value: float) -> None:
        """Writes the forget gate's slice of every input bias; the recurrent bias stays as it is."""
        width = self.lstm.hidden_size
        for layer in range(self.lstm.num_layers):
            bias_4H = getattr(self.lstm, f"bias_ih_l{layer}")
            bias_4H[width : 2 * width] = value

    def initial_state(self, batch_size: int) -> tuple[Tensor, Tensor]:
        """Zeros: hidden_BLH and cell_BLH."""
        shape = (batch_size, self.lstm.num_layers, self.lstm.hidden_size)
        parameter = next(self.parameters())
        return parameter.new_zeros(shape), parameter.new_zeros(shape)

    def forward(
        self, inputs_BTE: Tensor, hidden_BLH: Tensor, cell_BLH: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """outputs_BTH of the last layer, dropout applied, and hidden_BLH and cell_BLH after the last step."""
        state = hidden_BLH.transpose(0, 1).contiguous(), cell_BLH.transpose(0, 1).contiguous()
        outputs_BTH, (hidden_LBH, cell_LBH) = self.lstm(inputs_BTE, state)
        return self.dropout(outputs_BTH), hidden_LBH.transpose(0, 1), cell_LBH.transpose(0, 1)


def lstm_parameter_count(input_width: int, width: int, layers: int) -> int:
    """Parameters of a stack: four gates a layer, each with two weight matrices and two biases."""
    first = 4 * width * (input_width + width + 2)
    return first + (layers - 1) * 4 * width * (2 * width + 2)


def lstm_multiply_adds(input_width: int, width: int, layers: int) -> int:
    """Multiply-adds of a stack's matrix products for one token."""
    return 4 * width * (input_width + width) + (layers - 1) * 8 * width * width
