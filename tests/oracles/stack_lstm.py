"""The stack-augmented LSTM step by step, its stack as the sum over all outcomes of its actions.

Yogatama et al. (2018), sections 2 and 2.1. A stack is a tensor (..., K, d) whose first cell is the top; the
leading dimensions are free.
"""

from typing import Any

import torch
from torch import Tensor

from memtune.models.families.stack_lstm import StackLSTMConfig
from tests.oracles.cases import EXAMPLE_SIZE, OracleCase
from tests.oracles.lstm import compute_output_logits, run_lstm_stack
from tests.oracles.output_layers import Parameters

STAY, PUSH, POP = range(3)


def compute_stack_lstm_logits(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """logits[b][t], a vector over the vocabulary, from a zero state and a stack of zeros."""
    return [_read_sentence(config, parameters, words.tolist())[0] for words in tokens_BT]


def compute_stack_lstm_actions(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """Probabilities [b][t] of stay and push after 0, 1, ... K pops, or of stay, push and pop."""
    return [_read_sentence(config, parameters, words.tolist())[1] for words in tokens_BT]


def compute_reinforce_objective(
    config, parameters: Parameters, inputs_BT, targets_BT, actions_BT=None
) -> Tensor:
    """A scalar with the gradient of a discrete stack; without actions the most probable ones are taken.

    It sums the costs, the log probability of each action times its discounted return minus the baseline, and
    half the squared error of the baseline on the discounted mean cost.
    """
    objective = torch.zeros(())
    for b, (words, targets) in enumerate(zip(inputs_BT.tolist(), targets_BT.tolist(), strict=True)):
        actions = None if actions_BT is None else actions_BT[b].tolist()
        costs, logarithms, baselines = _read_discrete_sentence(config, parameters, words, targets, actions)
        for t in range(len(words)):
            later = range(t, len(words))
            discounted_return = sum(config.discount ** (s - t) * costs[s].detach() for s in later)
            weight = sum(config.discount ** (s - t) for s in later)
            advantage = discounted_return - weight * baselines[t].detach()
            objective = objective + costs[t] + logarithms[t] * advantage
            objective = objective + 0.5 * (baselines[t] - discounted_return / weight) ** 2
    return objective


def _read_discrete_sentence(config, parameters: Parameters, words, targets, actions):
    """Cost of each target, log probability of each action taken, and the baseline before it."""
    embeddings = [parameters["embedding.weight"][word] for word in words]
    hidden = run_lstm_stack(parameters, "lstm.lstm", config.layers, embeddings)
    M = torch.zeros(config.stack_size, config.width, dtype=hidden[0].dtype)
    combined, logarithms, baselines = [], [], []
    for t, (x, h) in enumerate(zip(embeddings, hidden, strict=True)):
        decision = _compute_action_probabilities(
            config, parameters, M, x if config.policy_reads == "word" else h
        )[0]
        action = int(decision.argmax()) if actions is None else actions[t]
        M = apply_action(action, M, h)
        combined.append(
            parameters["combination.hidden.weight"] @ h + parameters["combination.memory.weight"] @ M[0]
        )
        logarithms.append(decision[action].log())
        baselines.append(parameters["baseline.weight"][0] @ h.detach() + parameters["baseline.bias"][0])
    logits = compute_output_logits(config, parameters, combined)
    costs = [-row.log_softmax(0)[target] for row, target in zip(logits, targets, strict=True)]
    return costs, logarithms, baselines


def compute_stack_lstm_contributions(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """Norm [b][t] of the term of the stack."""
    return [_read_sentence(config, parameters, words.tolist())[2] for words in tokens_BT]


def _read_sentence(config, parameters: Parameters, words: list[int]):
    embeddings = [parameters["embedding.weight"][word] for word in words]
    hidden = run_lstm_stack(parameters, "lstm.lstm", config.layers, embeddings)
    W_hm = parameters["combination.memory.weight"]
    W_hh = parameters["combination.hidden.weight"]
    M = torch.zeros(config.stack_size, config.width, dtype=W_hm.dtype)
    combined, actions, contributions = [], [], []
    for x, h in zip(embeddings, hidden, strict=True):
        M, probabilities = compute_next_stack(config, parameters, M, x, h)
        combined.append(W_hh @ h + W_hm @ M[0])
        actions.append(probabilities)
        contributions.append((W_hm @ M[0]).norm())
    return compute_output_logits(config, parameters, combined), actions, contributions


def compute_next_stack(
    config, parameters: Parameters, M: Tensor, x: Tensor, h: Tensor
) -> tuple[Tensor, Tensor]:
    """The stack after a step, and the probabilities of its actions."""
    decisions = _compute_action_probabilities(
        config, parameters, M, x if config.policy_reads == "word" else h
    )
    match config.variant:
        case "multipop":
            return _step_multipop(decisions, M, h)
        case "continuous":
            return _step_continuous(decisions[..., 0, :], M, h)
        case "discrete":
            decision = decisions[..., 0, :]
            return apply_action(int(decision.argmax()), M, h), decision
        case other:
            raise ValueError(f"the oracle has no variant {other}")


def _compute_action_probabilities(config, parameters: Parameters, M: Tensor, reading: Tensor) -> Tensor:
    """Probabilities (..., K + 1, 3) of stay, push and pop after k = 0 ... K pops."""
    empty = torch.zeros_like(M[..., :1, :])
    cells = torch.cat([M, empty, empty], dim=-2)
    top, below = cells[..., :-1, :], cells[..., 1:, :]
    W_top, W_below = parameters["stack.policy.cells.weight"].chunk(2)
    from_text = (
        reading @ parameters["stack.policy.reading.weight"].T + parameters["stack.policy.reading.bias"]
    )
    features = (from_text.unsqueeze(-2) + top @ W_top.T + below @ W_below.T).tanh()
    logits = (
        features @ parameters["stack.policy.decision.weight"].T + parameters["stack.policy.decision.bias"]
    )
    if config.variant != "multipop":
        return logits.softmax(-1)
    last = logits[..., -1:, :]
    if config.last_pop == "renormalise":
        last = torch.cat([last[..., :POP].softmax(-1), torch.zeros_like(last[..., POP:])], dim=-1)
    else:
        stay, push, pop = last.softmax(-1).split(1, dim=-1)
        last = torch.cat([stay + pop, push, torch.zeros_like(pop)], dim=-1)
    return torch.cat([logits[..., :-1, :].softmax(-1), last], dim=-2)


def _step_multipop(decisions: Tensor, M: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """Equation 1."""
    size = M.shape[-2]
    reached = torch.ones_like(decisions[..., 0, 0])
    result, probabilities = torch.zeros_like(M), []
    for k in range(size + 1):
        popped = pop_cells(M, k)
        stay, push = reached * decisions[..., k, STAY], reached * decisions[..., k, PUSH]
        result = result + stay[..., None, None] * popped + push[..., None, None] * push_cell(popped, h)
        probabilities += [stay, push]
        reached = reached * decisions[..., k, POP]
    return result, torch.stack(probabilities, dim=-1)


def _step_continuous(decision: Tensor, M: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    stay, push, pop = (decision[..., action, None, None] for action in (STAY, PUSH, POP))
    return stay * M + push * push_cell(M, h) + pop * pop_cells(M, 1), decision


def apply_action(action: int, M: Tensor, h: Tensor) -> Tensor:
    return {STAY: M, PUSH: push_cell(M, h), POP: pop_cells(M, 1)}[action]


def pop_cells(M: Tensor, pops: int) -> Tensor:
    return torch.cat([M[..., pops:, :], torch.zeros_like(M[..., :pops, :])], dim=-2)


def push_cell(M: Tensor, h: Tensor) -> Tensor:
    return torch.cat([h.unsqueeze(-2), M[..., :-1, :]], dim=-2)


def make_case(
    lengths: tuple[int, ...] = (),
    float32_lengths: tuple[int, ...] = (),
    cuts: tuple[int, ...] = (),
    rows: int = 2,
    **fields,
) -> OracleCase:
    """Wide initial values make the policy uneven, so that reading a wrong cell changes the result.

    tests/unit/models/test_discrete_stack.py compares the variant "discrete", whose gradient differs.
    """
    size = {"width": 5, "stack_size": 4, "policy_width": 3, "initial_range": 0.8}
    return OracleCase(
        config=StackLSTMConfig(**size | fields),
        logits=compute_stack_lstm_logits,
        lengths=lengths,
        float32_lengths=float32_lengths,
        cuts=cuts,
        cut_length=20,
        is_training=False,
        rows=rows,
    )


OPTIONS: dict[str, dict[str, Any]] = {
    f"{variant}, last pop {last_pop}, policy reads {policy_reads}": {
        "variant": variant,
        "last_pop": last_pop,
        "policy_reads": policy_reads,
    }
    for variant, last_pop in (
        ("multipop", "renormalise"),
        ("multipop", "stay"),
        ("continuous", "renormalise"),
    )
    for policy_reads in ("word", "hidden")
}
IDENTITY = "063e87383a413589"
CASES = {
    **{name: make_case((1, 2), (), (1, 3, 11), **options) for name, options in OPTIONS.items()},
    **{
        f"ten cells, {name}": make_case((), (24,), stack_size=10, **options)
        for name, options in OPTIONS.items()
    },
    "three layers": make_case((8,), layers=3),
    "untied": make_case((8,), tie_output=False),
    "wide policy": make_case((8,), policy_width=9),
    **{
        f"{variant}, {size} cells": make_case((12,), variant=variant, stack_size=size, last_pop="stay")
        for variant in ("multipop", "continuous")
        for size in (1, 2, 10, 20)
    },
    # Texts of one block of 64 steps, and of one step more than two blocks.
    "blocks": make_case((64, 129), rows=1, width=3),
}
EXAMPLES = [
    StackLSTMConfig(**EXAMPLE_SIZE, stack_size=3, policy_width=5, recurrent_dropout=0.2),
    StackLSTMConfig(
        **EXAMPLE_SIZE, stack_size=4, policy_width=3, policy_reads="hidden", last_pop="stay", dropout=0.4
    ),
    StackLSTMConfig(
        **EXAMPLE_SIZE, variant="continuous", stack_size=2, policy_width=3, layers=2, tie_output=False
    ),
    StackLSTMConfig(**EXAMPLE_SIZE, variant="discrete", stack_size=3, policy_width=7, dropout=0.4),
]
