"""The recurrent memory network one sentence, one word and one slot at a time, from its equations.

Tran, Bisazza and Monz (2016), sections 3.1 and 3.2.
"""

import torch
from torch import Tensor

from tests.oracles.lstm import Parameters, lstm_stack, output_logits


def recurrent_memory_logits(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """logits[b][t], a vector over the vocabulary, from a zero state."""
    return [_sentence(config, parameters, words.tolist())[0] for words in tokens_BT]


def recurrent_memory_attention(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """weights[b][t], one weight for each word there is, the oldest first."""
    return [_sentence(config, parameters, words.tolist())[1] for words in tokens_BT]


def _sentence(config, parameters: Parameters, words: list[int]) -> tuple[list[Tensor], list[Tensor]]:
    embeddings = [parameters["embedding.weight"][word] for word in words]
    hidden = lstm_stack(parameters, "below.lstm", config.layers, embeddings)
    composed, attention = [], []
    for t, h in enumerate(hidden):
        window = words[max(0, t + 1 - config.memory_size) : t + 1]
        ahead = words[t + 2 : t + 2 + config.memory_size] if config.bidirectional else []
        s, p = _memory_block(config, parameters, h, window, ahead)
        composed.append(_compose(config, parameters, s, h))
        attention.append(p)
    if config.layers_above:
        composed = lstm_stack(parameters, "above.lstm", config.layers_above, composed)
    return output_logits(config, parameters, composed), attention


def _memory_block(
    config, parameters: Parameters, h: Tensor, window: list[int], ahead: list[int]
) -> tuple[Tensor, Tensor]:
    """Equations 1 to 3; words ahead (section 6) have the second half of T, and id 0 is none."""
    M, C = _tables(config, parameters)
    scores, outputs = [], []
    first = config.memory_size - len(window) if config.temporal_alignment == "right" else 0
    places = [(first + place, word) for place, word in enumerate(window)]
    places += [(config.memory_size + place, word) for place, word in enumerate(ahead) if word != 0]
    for row, word in places:
        m, c = M[word], C[word]
        if config.temporal in ("keys", "both"):
            m = m + parameters["memory.temporal_keys"][row]
        if config.temporal == "both":
            c = c + parameters["memory.temporal_values"][row]
        scores.append(m @ h)
        outputs.append(c)
    p = torch.stack(scores).softmax(0)
    s = sum(weight * c for weight, c in zip(p, outputs, strict=True))
    return s, p


def _tables(config, parameters: Parameters) -> tuple[Tensor, Tensor]:
    M = parameters["embedding.weight" if config.tie_memory_input else "memory.input_table.weight"]
    return M, M if config.tie_memory_output else parameters["memory.output_table.weight"]


def _compose(config, parameters: Parameters, s: Tensor, h: Tensor) -> Tensor:
    match config.composition:
        case "sum":
            return s + h
        case "projected_sum":
            return s + parameters["memory.composition.hidden.weight"] @ h
        case "gate":
            return _gate(parameters, s, h, torch.zeros(6, len(h), dtype=h.dtype))
        case "gate_biased":
            biases = [
                parameters[f"memory.composition.{name}.bias"] for name in ("context", "hidden", "candidate")
            ]
            return _gate(parameters, s, h, torch.cat(biases).view(6, -1))


def _gate(parameters: Parameters, s: Tensor, h: Tensor, biases: Tensor) -> Tensor:
    """Equations 4 to 7; one bias for each of the six maps, zero as printed."""
    W_sz, W_sr, W_s = parameters["memory.composition.context.weight"].chunk(3)
    U_hz, U_hr = parameters["memory.composition.hidden.weight"].chunk(2)
    U = parameters["memory.composition.candidate.weight"]
    b_sz, b_sr, b_s, b_hz, b_hr, b = biases
    z = (W_sz @ s + b_sz + U_hz @ h + b_hz).sigmoid()
    r = (W_sr @ s + b_sr + U_hr @ h + b_hr).sigmoid()
    candidate = (W_s @ s + b_s + U @ (r * h) + b).tanh()
    return (1 - z) * h + z * candidate
