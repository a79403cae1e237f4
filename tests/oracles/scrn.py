"""The structurally constrained network a word at a time, as its equations are written.

Mikolov et al. (2015), equations 2 to 4 and the diagonal matrix Q of section 3.3.
"""

import torch
from torch import Tensor

from memtune.models.families.scrn import SCRNConfig
from tests.oracles.cases import EXAMPLE_SIZE, OracleCase
from tests.oracles.output_layers import Parameters


def compute_scrn_logits(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """logits[b][t], a vector over the vocabulary, from a zero state."""
    U, V = parameters["output.weight"].split([config.width, config.context_width], dim=1)
    sentences = []
    for words_T in tokens_BT:
        steps = compute_scrn_steps(config, parameters, words_T.unsqueeze(0))
        sentences.append([U @ h[0] + V @ s[0] for h, s in steps])
    return sentences


def compute_scrn_steps(config, parameters: Parameters, tokens_BT: Tensor) -> list[tuple[Tensor, Tensor]]:
    """(h_t, s_t) of every row, (B, H) and (B, C), after each word."""
    A, B = parameters["hidden_embedding.weight"][tokens_BT], parameters["context_embedding.weight"][tokens_BT]
    P, R = parameters["context_to_hidden.weight"], parameters["recurrent_HH"]
    alpha = parameters["filter.logit_C"].sigmoid() if config.learn_alpha else config.alpha
    h, s = A.new_zeros(len(A), config.width), B.new_zeros(len(B), config.context_width)
    steps = []
    for t in range(tokens_BT.shape[1]):
        before = s
        s = (1 - alpha) * B[:, t] + alpha * s
        read = s if config.hidden_reads == "current" else before
        h = torch.sigmoid(read @ P.T + A[:, t] + h @ R.T)
        steps.append((h, s))
    return steps


def spread_alphas(model) -> None:
    """Give every unit another alpha, so that reading the wrong one changes the result."""
    if model.config.learn_alpha:
        model.filter.logit_C.data += torch.linspace(-2, 2, model.config.context_width)


def make_case(**fields) -> OracleCase:
    """The filter cuts texts into blocks of 64 steps: 131 words are two blocks and three steps."""
    small = {"width": 6, "context_width": 4, "alpha": 0.8, "initial_range": 0.8}
    return OracleCase(
        config=SCRNConfig(**small | fields),
        logits=compute_scrn_logits,
        prepare=spread_alphas,
        lengths=(1, 2, 131),
        float32_lengths=(64,),
    )


IDENTITY = "18657ae0321b2be7"
CASES = {
    "fixed alpha": make_case(),
    "fixed alpha, previous context": make_case(hidden_reads="previous"),
    "learned alphas": make_case(learn_alpha=True),
    "learned alphas, previous context": make_case(learn_alpha=True, hidden_reads="previous"),
    "short memory": make_case(alpha=0.01),
    "half memory": make_case(alpha=0.5),
    "long memory": make_case(alpha=0.999),
}
EXAMPLES = [
    SCRNConfig(**EXAMPLE_SIZE, context_width=3),
    SCRNConfig(**EXAMPLE_SIZE, context_width=3, learn_alpha=True, hidden_reads="previous"),
]
