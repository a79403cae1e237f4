"""The residual memory network: a deep feed-forward network in which higher layers read earlier words.

Beneš, Baskar and Burget (2017), "Residual Memory Networks in Language Modeling: Improving the Reputation of
Feed-Forward Networks", section 2. Layer l = 1 to L at step t is, by equations 2 and 3,

    h_t^l = ReLU(C^l h_t^{l-1} + P^l h_{t-D(l)}^{l-1} + b^l + h_t^{l-3}),   D(l) = 1 + floor((l - 1) / phi)

with the last term in every third layer only; equation 1 has P C^l in place of P^l, one P for all layers. h^0
are the embeddings, and every layer is zero before the text. A text is read as a whole: a layer is two matrix
products over all steps, one of them over rows D(l) steps earlier. Windows would compute each row again for
every word whose prediction depends on it.

Batch norm comes before every ReLU, after the residual is added (section 3), with b^l as its learned shift. In
training its means and variances are over all words of a batch, so the output for a word depends on the other
texts of the batch and on later words. Evaluation uses running averages, and each output depends only on the
words before it; without batch norm this holds in training too. The paper's batches are windows drawn from the
whole text (`shuffled_windows = true`). Others are segments of a text or sentences of one length, whose
statistics differ more between batches, so that the running averages are further from those of one batch.

Shapes: B batch, T time, K time and the earlier words that a layer still needs, H width, N = K * B rows.
"""

from itertools import accumulate
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from memtune.models.architecture import NeuralLanguageModelConfig, RecurrentState, WindowLanguageModel
from memtune.models.layers.initializers import initialise_uniform
from memtune.models.memories.recent_words import keep_recent_words

BATCH_NORM_MOMENTUM = 0.01
"""Weight of a batch in the running mean and variance; the paper gives none. With torch's default of 0.1, a
few short batches under the sentence protocol change them so much that validation diverges."""
VARIANCE_EPSILON = 1e-3
"""Added to every variance; the variance of a batch of equal words is zero."""


class ResidualMemoryConfig(NeuralLanguageModelConfig):
    """A residual memory network; the defaults are the small one of table 1."""

    family: Literal["residual_memory"] = "residual_memory"
    width: int = Field(100, ge=1, description="Width of the embeddings and of every layer (section 3.1)")
    layers: int = Field(15, ge=1, description="L: hidden layers (section 3.1)")
    phi: int = Field(4, ge=1, description="Layers that share a delay D before it grows by one (section 2.2)")
    past: Literal["per_layer", "shared"] = Field(
        "per_layer",
        description='Matrix of the delayed state: P^l (equation 2), or "shared", P C^l (equation 1)',
    )
    residual_interval: int = Field(
        3, ge=0, description="Every n-th layer adds the output of the layer n below; 0 for no residual"
    )
    batch_norm: bool = Field(
        True, description="Batch norm before every ReLU; couples the words of a training batch (section 3)"
    )
    initial_range: float = Field(
        0.05, ge=0, le=100, description="Every parameter but those of batch norm starts in U(-range, range)"
    )

    @property
    def delays(self) -> list[int]:
        """D(1) to D(L), in words (section 2.2)."""
        return [1 + layer // self.phi for layer in range(self.layers)]

    @property
    def context_words(self) -> int:
        """Words that a prediction depends on, the current one included."""
        return 1 + sum(self.delays)

    @override
    def find_classifier_problem(self) -> str | None:
        if not self.batch_norm:
            return None
        return "batch_norm would include the padding of sentences; set batch_norm = false"

    @override
    def build(self, vocabulary_size: int) -> "ResidualMemoryLanguageModel":
        return ResidualMemoryLanguageModel(self, vocabulary_size)

    @override
    def parameter_count(self, vocabulary_size: int) -> int:
        matrices = 2 * self.layers if self.past == "per_layer" else self.layers + 1
        vectors = 2 * self.layers if self.batch_norm else self.layers
        body = matrices * self.width * self.width + vectors * self.width
        output = self.output.parameter_count(self.width, vocabulary_size)
        return self.width * vocabulary_size + body + output

    @override
    def multiply_adds(self, vocabulary_size: int) -> int:
        body = 2 * self.layers * self.width * self.width
        return body + self.output.multiply_adds(self.width, vocabulary_size)

    @override
    def state_size(self) -> int:
        """The words before the present one."""
        return self.context_words - 1

    @override
    def describe(self) -> dict[str, str | int | float]:
        return self.select_fields(
            "width", "layers", "phi", "context_words", "past", "residual_interval", "batch_norm"
        )


class ResidualMemoryLanguageModel(WindowLanguageModel):
    """Carried state: the last words, (B, at most `context_words` - 1); their layers are computed again."""

    config: ResidualMemoryConfig

    def __init__(self, config: ResidualMemoryConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.vocabulary_size = vocabulary_size
        self.max_history_words = config.context_words - 1
        width = config.width
        self.embedding = nn.Embedding(vocabulary_size, width)
        shared_HH = nn.Parameter(torch.empty(width, width)) if config.past == "shared" else None
        self.layers = nn.ModuleList(
            _Layer(width, delay, shared_HH, config.batch_norm) for delay in config.delays
        )
        self.output = config.output.build(width, vocabulary_size)
        initialise_uniform(self, config.initial_range)
        for module in self.modules():
            if isinstance(module, _BatchNorm):
                module.reset_parameters()

    @override
    def encode(self, tokens_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        words_BK = torch.cat([state["words"], tokens_BT], dim=1)
        hidden_TBH = self._run_layers(self.embedding(words_BK.t()), tokens_BT.shape[1])
        return hidden_TBH.transpose(0, 1), {"words": keep_recent_words(words_BK, self.max_history_words)}

    def _run_layers(self, hidden_KBH: Tensor, steps: int) -> Tensor:
        """The last layer over the last `steps` words; each layer computes only the rows that are read."""
        history = len(hidden_KBH) - steps
        interval = self.config.residual_interval
        residual_KBH = hidden_KBH
        reaches = list(accumulate(reversed(self.config.delays[1:]), initial=0))
        for number, (layer, reach) in enumerate(zip(self.layers, reversed(reaches), strict=True), start=1):
            length = steps + min(history, reach)
            joins = interval > 0 and number % interval == 0
            hidden_KBH = layer(hidden_KBH, length, residual_KBH if joins else None)
            if joins:
                residual_KBH = hidden_KBH
        return hidden_KBH


class _Layer(nn.Module):
    """One layer of equations 1 to 3; `shared` is the P of equation 1."""

    def __init__(self, width: int, delay: int, shared_HH: nn.Parameter | None, batch_norm: bool) -> None:
        super().__init__()
        self.delay = delay
        self.current_HH = nn.Parameter(torch.empty(width, width))
        self.past_HH = nn.Parameter(torch.empty(width, width)) if shared_HH is None else shared_HH
        self.shared = shared_HH is not None
        self.normalise: _BatchNorm | _Bias = _BatchNorm(width) if batch_norm else _Bias(width)

    @override
    def forward(self, below_KBH: Tensor, length: int, residual_KBH: Tensor | None) -> Tensor:
        """The layer at the last `length` steps of the layer below, which is zero before its first step."""
        if self.shared:
            current_KBH = below_KBH @ self.current_HH.t()
            current_NH = current_KBH[-length:].flatten(0, 1)
            past_NH = self._delay_rows(current_KBH, length).flatten(0, 1)
        else:
            current_NH = below_KBH[-length:].flatten(0, 1) @ self.current_HH.t()
            past_NH = self._delay_rows(below_KBH, length).flatten(0, 1)
        sum_NH = torch.addmm(current_NH, past_NH, self.past_HH.t())
        if residual_KBH is not None:
            sum_NH = sum_NH + residual_KBH[-length:].flatten(0, 1)
        hidden_NH: Tensor = self.normalise(sum_NH).relu_()
        return hidden_NH.view(length, *below_KBH.shape[1:])

    def _delay_rows(self, rows_KBH: Tensor, length: int) -> Tensor:
        """The rows `delay` steps before each of the last `length` rows; zero before the start of the text."""
        end = max(0, len(rows_KBH) - self.delay)
        there_KBH = rows_KBH[max(0, end - length) : end]
        missing = length - len(there_KBH)
        return functional.pad(there_KBH, (0, 0, 0, 0, missing, 0)) if missing else there_KBH


class _Bias(nn.Module):
    """The bias b^l, for a layer without batch norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.shift_H = nn.Parameter(torch.empty(width))

    @override
    def forward(self, values_NH: Tensor) -> Tensor:
        return values_NH + self.shift_H


class _BatchNorm(nn.Module):
    """Batch norm: each unit is normalised over all rows of a batch, scaled and shifted.

    Evaluation uses the running averages of training; so does a training batch of one row, whose variance is
    zero.
    """

    mean_H: Tensor
    variance_H: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale_H = nn.Parameter(torch.empty(width))
        self.shift_H = nn.Parameter(torch.empty(width))
        self.register_buffer("mean_H", torch.zeros(width))
        self.register_buffer("variance_H", torch.ones(width))

    def reset_parameters(self) -> None:
        """A scale of 1 and a shift of 0."""
        nn.init.ones_(self.scale_H)
        nn.init.zeros_(self.shift_H)

    @override
    def forward(self, values_NH: Tensor) -> Tensor:
        of_batch = self.training and len(values_NH) > 1
        statistics = self.mean_H, self.variance_H, self.scale_H, self.shift_H
        return functional.batch_norm(values_NH, *statistics, of_batch, BATCH_NORM_MOMENTUM, VARIANCE_EPSILON)
