"""An LSTM with a stack of its previous hidden states, which a policy pushes and pops.

Yogatama et al. (2018), "Memory Architectures in Recurrent Neural Network Language Models", section 2. The
LSTM does not read the stack, so it runs first over all steps. A step can push its hidden state h_t and then
predicts from h_t and the top m_t of the stack.

Shapes: B batch, T time, H width, K cells of the stack (the first is the top), A actions, V vocabulary.
"""

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from memtune.models.architecture import EmbeddingLanguageModel, NeuralLanguageModelConfig, RecurrentState
from memtune.models.layers.initializers import initialise_uniform
from memtune.models.layers.lstm_stack import LSTMStack
from memtune.models.layers.regularisation import Regularisation
from memtune.models.layers.shared_fields import CandidateDropout, InitialRange, InputForgetBias, LayerDropout
from memtune.models.memories.composition import build_linear_combination
from memtune.models.memories.continuous_stack import ContinuousStack, LastPop
from memtune.models.memories.discrete_stack import DiscreteStack, StackDecisions, compute_reinforce_loss
from memtune.models.memories.memory_traces import MemoryTrace, StackUse
from memtune.models.memories.stack_policy import StackPolicy


class StackLSTMConfig(NeuralLanguageModelConfig):
    """A stack-augmented LSTM; the defaults are the paper's multipop stack, without its dropout."""

    family: Literal["stack_lstm"] = "stack_lstm"
    memory_traces: ClassVar[tuple[MemoryTrace, ...]] = ("stack",)
    variant: Literal["multipop", "continuous", "discrete"] = Field(
        "multipop",
        description='"multipop": any number of pops before a push or none, all outcomes mixed (section 2.1); '
        '"continuous": one push, pop or neither a step, mixed; "discrete": one of the three, drawn in '
        "training and taught by REINFORCE, the most probable one in evaluation",
    )
    width: int = Field(
        650, ge=1, description="Width of the embeddings and of the hidden states (section 3.1)"
    )
    layers: int = Field(1, ge=1, description="LSTM layers; the last one's states are pushed")
    stack_size: int = Field(
        10, ge=1, description="K: cells of the stack, zeros at first; a push drops the lowest (section 2.1)"
    )
    policy_width: int = Field(
        64, ge=1, description="Hidden units of the policy; from about 310 the printed size of 26M is exceeded"
    )
    policy_reads: Literal["word", "hidden"] = Field(
        "word",
        description="What the policy reads apart from two cells: the embedded word x_t (section 2.1) or h_t",
    )
    last_pop: LastPop = Field(
        "renormalise",
        description='Of many pops, after the K-th: "renormalise" leaves POP out of the softmax, "stay" gives '
        "its share to STAY (section 2.1 asks only that the probabilities sum to one)",
    )
    discount: float = Field(
        0.9,
        ge=0,
        le=1,
        description="Discount per word of later costs in the return of a discrete action (REINFORCE)",
    )
    dropout: LayerDropout = 0.0
    recurrent_dropout: CandidateDropout = 0.0
    tie_output: bool = Field(True, description="The output layer's weight is the embedding table (section 2)")
    initial_range: InitialRange = 0.05
    forget_bias: InputForgetBias = 1.0

    @property
    @override
    def has_exact_gradients(self) -> bool:
        return self.variant != "discrete"

    @override
    def find_classifier_problem(self) -> str | None:
        if self.variant != "discrete":
            return None
        return (
            'variant = "discrete" learns its actions from words it predicts; use "multipop" or "continuous"'
        )

    @override
    def build(self, vocabulary_size: int) -> "StackLSTMLanguageModel":
        return StackLSTMLanguageModel(self, vocabulary_size)

    @override
    def parameter_count(self, vocabulary_size: int) -> int:
        width = self.width
        tables = vocabulary_size * width
        output = self.output.parameter_count(width, vocabulary_size, self.tie_output)
        recurrence = LSTMStack.count_parameters(width, width, self.layers)
        policy = StackPolicy.count_parameters(width, self.policy_width)
        baseline = width + 1 if self.variant == "discrete" else 0
        return tables + recurrence + policy + baseline + 2 * width * width + output

    @override
    def multiply_adds(self, vocabulary_size: int) -> int:
        width, cells = self.width, self.stack_size
        recurrence = LSTMStack.count_multiply_adds(width, width, self.layers)
        decisions, sources = {
            "multipop": (cells + 1, cells + 1),
            "continuous": (1, 3),
            "discrete": (1, 0),
        }[self.variant]
        policy = StackPolicy.count_multiply_adds(width, self.policy_width, decisions)
        mixing = cells * sources * width
        output = self.output.multiply_adds(width, vocabulary_size)
        return recurrence + policy + mixing + 2 * width * width + output

    @override
    def state_size(self) -> int:
        """The hidden state and the cell of each layer, and the cells of the stack."""
        return (2 * self.layers + self.stack_size) * self.width

    @override
    def describe(self) -> dict[str, str | int | float]:
        policy = self.select_fields("policy_width", "policy_reads")
        sizes = self.select_fields("variant", "width", "layers", "stack_size")
        return sizes | policy | self.select_fields("dropout", "recurrent_dropout")


class StackLSTMLanguageModel(EmbeddingLanguageModel):
    """Carried state: hidden and cell of the LSTM, both (B, layers, H), and the stack, (B, K, H)."""

    config: StackLSTMConfig

    def __init__(self, config: StackLSTMConfig, vocabulary_size: int) -> None:
        width = config.width
        super().__init__(config, vocabulary_size, width)
        within = Regularisation(config.recurrent_dropout)
        self.lstm = LSTMStack(width, width, config.layers, config.dropout, "between", within)
        size = width, config.stack_size, config.policy_width
        self.stack: ContinuousStack | DiscreteStack
        if config.variant == "discrete":
            self.stack = DiscreteStack(*size)
        else:
            self.stack = ContinuousStack(*size, config.last_pop if config.variant == "multipop" else None)
        self.combination = build_linear_combination(width, width, width)
        self.output = self.build_output(width)
        self.baseline = nn.Linear(width, 1) if config.variant == "discrete" else None
        self.dropout = nn.Dropout(config.dropout)
        initialise_uniform(self, config.initial_range)
        self.lstm.set_forget_bias(config.forget_bias)
        # The paper gives no initial baseline; log V is the cost of a word under a uniform distribution.
        if self.baseline is not None:
            nn.init.constant_(self.baseline.bias, math.log(vocabulary_size))

    @override
    def initial_state(self, batch_size: int) -> RecurrentState:
        shape = (batch_size, self.config.stack_size, self.config.width)
        return self.lstm.initial_state(batch_size) | {"stack": self.embedding.weight.new_zeros(shape)}

    @override
    def encode(self, tokens_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        reading_BTH, hidden_BTH, after = self._run_lstm(tokens_BT, state)
        top_BTH, after["stack"] = self.stack(reading_BTH, hidden_BTH, state["stack"])
        combined_BTH: Tensor = self.dropout(self.combination(top_BTH, hidden_BTH))
        return combined_BTH, after

    @override
    def negative_log_likelihood(
        self, inputs_BT: Tensor, targets_BT: Tensor, mask_BT: Tensor | None, state: RecurrentState
    ) -> tuple[Tensor, RecurrentState]:
        """Summed nats; the gradient of a discrete stack includes the REINFORCE gradient of its policy."""
        if not isinstance(self.stack, DiscreteStack) or not torch.is_grad_enabled():
            return super().negative_log_likelihood(inputs_BT, targets_BT, mask_BT, state)
        reading_BTH, hidden_BTH, after = self._run_lstm(inputs_BT, state)
        decisions = self.stack.decide(reading_BTH, hidden_BTH, state["stack"])
        combined_BTH = self.dropout(self.combination(decisions.top_BTH, hidden_BTH))
        weights_BT = torch.ones_like(targets_BT, dtype=torch.bool) if mask_BT is None else mask_BT
        nats, nats_N = self.output.negative_log_likelihood_by_row(
            combined_BTH.flatten(0, 1), targets_BT.flatten(), weights_BT.flatten()
        )
        policy_loss = self._compute_policy_loss(
            nats_N.view(targets_BT.shape), weights_BT, hidden_BTH, decisions
        )
        # The value remains the nats; only the gradient contains the policy loss.
        return nats + (policy_loss - policy_loss.detach()), {**after, "stack": decisions.cells_BKH}

    def _compute_policy_loss(
        self, nats_BT: Tensor, weights_BT: Tensor, hidden_BTH: Tensor, decisions: StackDecisions
    ) -> Tensor:
        """The REINFORCE loss of policy and baseline; the baseline reads only the detached LSTM state."""
        assert self.baseline is not None
        expected_BT = self.baseline(hidden_BTH.detach()).squeeze(2).to(nats_BT.dtype)
        log_likelihood_BT = decisions.log_likelihood().to(nats_BT.dtype)
        weights_BT = weights_BT.to(nats_BT.dtype)
        return compute_reinforce_loss(
            nats_BT, weights_BT, log_likelihood_BT, expected_BT, self.config.discount
        )

    @override
    @torch.no_grad()
    def measure_stack_use(self, tokens_BT: Tensor, state: RecurrentState) -> StackUse:
        """The probabilities of the actions and the stack's contribution after each word."""
        reading_BTH, hidden_BTH, _ = self._run_lstm(tokens_BT, state)
        top_BTH, actions_BTA = self.stack.trace_actions(reading_BTH, hidden_BTH, state["stack"])
        contribution_BT = self.combination.memory(top_BTH).norm(dim=2)
        return StackUse(self.stack.actions(), actions_BTA, contribution_BT)

    def _run_lstm(self, tokens_BT: Tensor, state: RecurrentState) -> tuple[Tensor, Tensor, RecurrentState]:
        """The vectors that the policy reads, the hidden states, and the LSTM's state after the last word."""
        embedded_BTH = self.dropout(self.embedding(tokens_BT))
        hidden_BTH, after = self.lstm(embedded_BTH, state)
        return embedded_BTH if self.config.policy_reads == "word" else hidden_BTH, hidden_BTH, after
