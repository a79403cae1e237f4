"""The policy of a stack: logits of stay, push and pop from a vector of the text and the top two cells.

Yogatama et al. (2018), "Memory Architectures in Recurrent Neural Network Language Models", section 2.1: a
feed-forward network. The paper does not give its layers; here it has one hidden layer of tanh units. That
layer is linear in each of the three vectors it reads, so every vector is projected once, wherever it moves in
the stack.

Shapes: H width, P hidden units; leading dimensions are free.
"""

from torch import Tensor, nn

from memtune.models.memories.memory_traces import StackAction

OUTCOMES = ("stay", "push", "pop")
STAY, PUSH, POP = range(len(OUTCOMES))
SINGLE_ACTIONS = tuple(StackAction(name, int(name == "pop"), name == "push") for name in OUTCOMES)
"""The actions of a stack that takes one outcome a step."""


class StackPolicy(nn.Module):
    """logits = decision(tanh(reading(x) + a(top cell) + b(cell below it))).

    `cells` stacks a over b, so that one product projects a vector for both places.
    """

    def __init__(self, width: int, units: int) -> None:
        super().__init__()
        self.reading = nn.Linear(width, units)
        self.cells = nn.Linear(width, 2 * units, bias=False)
        self.decision = nn.Linear(units, len(OUTCOMES))

    @staticmethod
    def count_parameters(width: int, units: int) -> int:
        """Number of parameters of a policy."""
        return units * (3 * width + 1) + len(OUTCOMES) * (units + 1)

    @staticmethod
    def count_multiply_adds(width: int, units: int, decisions: int) -> int:
        """Multiply-adds of the matrix products for one token, with this number of decisions per step."""
        return 3 * width * units + decisions * len(OUTCOMES) * units

    def logits(self, reading_P: Tensor, top_P: Tensor, below_P: Tensor) -> Tensor:
        """Logits of `OUTCOMES` from the three projected vectors."""
        logits_3: Tensor = self.decision((reading_P + top_P + below_P).tanh())
        return logits_3
