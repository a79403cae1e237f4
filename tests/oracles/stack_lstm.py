"""The stack-augmented LSTM step by step, its stack as the sum over the states it could be in.

Yogatama et al. (2018), sections 2 and 2.1. A stack is a tensor (..., K, d) whose first cell is the top; what
leads the other dimensions, nothing or a batch, is free.
"""

import torch
from torch import Tensor

from tests.oracles.lstm import Parameters, lstm_stack, output_logits

STAY, PUSH, POP = range(3)


def stack_lstm_logits(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """logits[b][t], a vector over the vocabulary, from a zero state and a stack of zeros."""
    return [_sentence(config, parameters, words.tolist())[0] for words in tokens_BT]


def stack_lstm_actions(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """Probabilities [b][t] of stay and push after 0, 1, ... K pops, or of stay, push and pop."""
    return [_sentence(config, parameters, words.tolist())[1] for words in tokens_BT]


def reinforce_objective(config, parameters: Parameters, inputs_BT, targets_BT, actions_BT=None) -> Tensor:
    """A scalar with the gradient that teaches a discrete stack; without actions the most probable are taken.

    Each action's log probability times what its step and the later ones cost, discounted, less the baseline;
    and half the square of the baseline's error on the discounted mean of those costs.
    """
    objective = 0
    for b, (words, targets) in enumerate(zip(inputs_BT.tolist(), targets_BT.tolist(), strict=True)):
        actions = None if actions_BT is None else actions_BT[b].tolist()
        costs, logarithms, baselines = _discrete_sentence(config, parameters, words, targets, actions)
        for t in range(len(words)):
            later = range(t, len(words))
            blame = sum(config.discount ** (s - t) * costs[s].detach() for s in later)
            weight = sum(config.discount ** (s - t) for s in later)
            advantage = blame - weight * baselines[t].detach()
            objective = objective + costs[t] + logarithms[t] * advantage
            objective = objective + 0.5 * (baselines[t] - blame / weight) ** 2
    return objective


def _discrete_sentence(config, parameters: Parameters, words, targets, actions):
    """Cost of each target, log probability of each action taken, and the baseline before it."""
    embeddings = [parameters["embedding.weight"][word] for word in words]
    hidden = lstm_stack(parameters, "lstm.lstm", config.layers, embeddings)
    M = torch.zeros(config.stack_size, config.width, dtype=hidden[0].dtype)
    combined, logarithms, baselines = [], [], []
    for t, (x, h) in enumerate(zip(embeddings, hidden, strict=True)):
        decision = _decisions(config, parameters, M, x if config.policy_reads == "word" else h)[0]
        action = decision.argmax().item() if actions is None else actions[t]
        M = apply_action(action, M, h)
        combined.append(
            parameters["combination.hidden.weight"] @ h + parameters["combination.memory.weight"] @ M[0]
        )
        logarithms.append(decision[action].log())
        baselines.append(parameters["baseline.weight"][0] @ h.detach() + parameters["baseline.bias"][0])
    logits = output_logits(config, parameters, combined)
    costs = [-row.log_softmax(0)[target] for row, target in zip(logits, targets, strict=True)]
    return costs, logarithms, baselines


def stack_lstm_contributions(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """Norm [b][t] of what the stack adds."""
    return [_sentence(config, parameters, words.tolist())[2] for words in tokens_BT]


def _sentence(config, parameters: Parameters, words: list[int]):
    embeddings = [parameters["embedding.weight"][word] for word in words]
    hidden = lstm_stack(parameters, "lstm.lstm", config.layers, embeddings)
    W_hm = parameters["combination.memory.weight"]
    W_hh = parameters["combination.hidden.weight"]
    M = torch.zeros(config.stack_size, config.width, dtype=W_hm.dtype)
    combined, actions, contributions = [], [], []
    for x, h in zip(embeddings, hidden, strict=True):
        M, probabilities = next_stack(config, parameters, M, x, h)
        combined.append(W_hh @ h + W_hm @ M[0])
        actions.append(probabilities)
        contributions.append((W_hm @ M[0]).norm())
    return output_logits(config, parameters, combined), actions, contributions


def next_stack(config, parameters: Parameters, M: Tensor, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """The stack after a step, and the probabilities of its actions."""
    decisions = _decisions(config, parameters, M, x if config.policy_reads == "word" else h)
    match config.variant:
        case "multipop":
            return _multipop(decisions, M, h)
        case "continuous":
            return _single(decisions[..., 0, :], M, h)
        case "discrete":
            decision = decisions[..., 0, :]
            return apply_action(decision.argmax().item(), M, h), decision


def _decisions(config, parameters: Parameters, M: Tensor, reading: Tensor) -> Tensor:
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


def _multipop(decisions: Tensor, M: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """Equation 1."""
    size = M.shape[-2]
    reached = torch.ones_like(decisions[..., 0, 0])
    result, probabilities = torch.zeros_like(M), []
    for k in range(size + 1):
        popped = popped_by(M, k)
        stay, push = reached * decisions[..., k, STAY], reached * decisions[..., k, PUSH]
        result = result + stay[..., None, None] * popped + push[..., None, None] * pushed(popped, h)
        probabilities += [stay, push]
        reached = reached * decisions[..., k, POP]
    return result, torch.stack(probabilities, dim=-1)


def _single(decision: Tensor, M: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    stay, push, pop = (decision[..., action, None, None] for action in (STAY, PUSH, POP))
    return stay * M + push * pushed(M, h) + pop * popped_by(M, 1), decision


def apply_action(action: int, M: Tensor, h: Tensor) -> Tensor:
    return {STAY: M, PUSH: pushed(M, h), POP: popped_by(M, 1)}[action]


def popped_by(M: Tensor, pops: int) -> Tensor:
    return torch.cat([M[..., pops:, :], torch.zeros_like(M[..., :pops, :])], dim=-2)


def pushed(M: Tensor, h: Tensor) -> Tensor:
    return torch.cat([h.unsqueeze(-2), M[..., :-1, :]], dim=-2)
