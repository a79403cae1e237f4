"""Classes of phrases and of pairs of sentences, one example, one word and one slot at a time.

Cheng, Dong and Lapata (2016), sections 4, 5.2 and 5.3. Rows of the gates: output, input, forget, candidate.
"""

import torch
from torch import Tensor
from torch.nn import functional

from tests.oracles.output_layers import Parameters


def compute_pair_logits(
    reading, parameters: Parameters, premises: list[list[int]], hypotheses: list[list[int]]
) -> Tensor:
    """logits_BC of pairs given as lists of words; LSTM-networks of one layer read them."""
    last = "readers.0" if reading.shared_reader else "readers.1"
    pairs = zip(premises, hypotheses, strict=True)
    return torch.stack([_read_pair(reading, parameters, last, premise, other) for premise, other in pairs])


def compute_phrase_logits(
    parameters: Parameters, sentences: list[list[int]], spans: list[tuple[int, int, int]]
) -> Tensor:
    """logits_NC of spans (sentence, start, stop) of sentences that an LSTM-network of one layer reads."""
    hidden = [_read(parameters, "readers.0", words)[0] for words in sentences]
    means = [_average(hidden[sentence][start:stop]) for sentence, start, stop in spans]
    return torch.stack([classify(parameters, mean) for mean in means])


def classify(parameters: Parameters, mean: Tensor) -> Tensor:
    """ReLU layers and a linear one; `head` numbers its parts, of which only linear ones have weights."""
    names = sorted(
        {name.rsplit(".", 1)[0] for name in parameters if name.startswith("head.")},
        key=lambda name: int(name.split(".")[1]),
    )
    for name in names:
        if name != names[0]:
            mean = mean.clamp(min=0)
        mean = parameters[f"{name}.weight"] @ mean + parameters[f"{name}.bias"]
    return mean


def _read_pair(
    reading, parameters: Parameters, last: str, premise: list[int], hypothesis: list[int]
) -> Tensor:
    Y, A = _read(parameters, "readers.0", premise)
    zeros = torch.zeros_like(Y[0])
    first = (Y[-1], A[-1]) if reading.first_slot == "premise" and reading.fusion != "none" else (zeros, zeros)
    source = (reading, Y, A) if reading.fusion != "none" else None
    H, _ = _read(parameters, last, hypothesis, first, source)
    return classify(parameters, torch.cat([_average(Y), _average(H)]))


def _average(vectors: list[Tensor]) -> Tensor:
    return torch.stack(vectors).mean(0)


def _read(
    parameters: Parameters, reader: str, words: list[int], first: tuple | None = None, source=None
) -> tuple[list[Tensor], list[Tensor]]:
    """h and c after each word; with a source, each word also attends to it."""
    layer = f"{reader}.layers.0"
    W_x, W_h = parameters[f"{layer}.gates_input.weight"], parameters[f"{layer}.gates_attended.weight"]
    width = W_h.shape[1]
    zeros = W_x.new_zeros(width)
    h_0, c_0 = first or (zeros, zeros)
    H, C, h_tilde, gamma_tilde = [h_0], [c_0], zeros, zeros
    for word in words:
        x = parameters[f"{reader}.embedding.weight"][word]
        s = _compute_weights(parameters, layer, H, x, h_tilde)  # equations 4 and 5
        h_tilde = sum(weight * h for weight, h in zip(s, H, strict=True))  # equation 6
        c_tilde = sum(weight * c for weight, c in zip(s, C, strict=True))
        read, from_source = h_tilde, zeros
        if source is not None:
            reading, Y, A = source
            before = gamma_tilde if reading.has_recurrent_attention else zeros
            p = _compute_weights(parameters, "source", Y, x, before)  # equations 10 and 11
            gamma_tilde = sum(weight * y for weight, y in zip(p, Y, strict=True))  # equation 12
            alpha_tilde = sum(weight * a for weight, a in zip(p, A, strict=True))
            if reading.fusion == "deep":
                r = _apply_linear(parameters, "gate", torch.cat([gamma_tilde, x])).sigmoid()  # equation 13
                from_source = r * alpha_tilde
            else:
                read = h_tilde + gamma_tilde
        gates = W_x @ x + W_h @ read + parameters[f"{layer}.gates_input.bias"]  # equation 7
        o, i, f, c_hat = gates.split(width)
        c = from_source + f.sigmoid() * c_tilde + i.sigmoid() * c_hat.tanh()  # equations 8 and 14
        H, C = [*H, o.sigmoid() * c.tanh()], [*C, c]  # equations 9 and 15
    return H[1:], C[1:]


def _compute_weights(
    parameters: Parameters, name: str, slots: list[Tensor], x: Tensor, before: Tensor
) -> Tensor:
    query = parameters[f"{name}.query_input.weight"] @ x
    if f"{name}.query_attended.weight" in parameters:
        query = query + parameters[f"{name}.query_attended.weight"] @ before
    scores = [
        parameters[f"{name}.score"] @ (parameters[f"{name}.key.weight"] @ slot + query).tanh()
        for slot in slots
    ]
    return torch.stack(scores).softmax(0)


def _apply_linear(parameters: Parameters, name: str, vector: Tensor) -> Tensor:
    return parameters[f"{name}.weight"] @ vector + parameters[f"{name}.bias"]


def compute_reference_fusion(model, premises_BS: Tensor, hypotheses_BT: Tensor) -> Tensor:
    """logits_BC of a `FusedPairClassifier` for pairs without padding: section 4 for a whole batch.

    The slow reference of the benchmark: it computes no terms before the loop and keeps only the tapes.
    """
    first, last = model.readers[0], model.readers[-1]
    gammas, alphas = _compute_reference_tapes(first.layers[0], first.embedding(premises_BS))
    inputs_BTE = last.embedding(hypotheses_BT)
    hidden, _ = _compute_reference_tapes(last.layers[0], inputs_BTE, model, gammas, alphas)
    means = [torch.stack(states, dim=1).mean(1) for states in (gammas, hidden)]
    return model.head(torch.cat(means, dim=1))


def _compute_reference_tapes(layer, inputs_BTE: Tensor, model=None, gammas=None, alphas=None):
    """Equations 4 to 9, or with a model and the tapes of a source 4 to 15; the slot of zeros left out."""
    zeros_BH = inputs_BTE.new_zeros(len(inputs_BTE), layer.width)
    hidden, memory, attended_BH, found_BH = [zeros_BH], [zeros_BH], zeros_BH, zeros_BH
    W = torch.cat([layer.gates_attended.weight, layer.gates_input.weight], dim=1)
    for x_BE in inputs_BTE.unbind(1):
        attended_BH, remembered_BH = _compute_reference_attention(layer, hidden, memory, x_BE, attended_BH)
        read_BH, added_BH = attended_BH, zeros_BH
        if model is not None:
            found_BH, alpha_BH = _compute_reference_attention(model.source, gammas, alphas, x_BE, found_BH)
            if model.gate is None:
                read_BH = attended_BH + found_BH
            else:
                added_BH = model.gate(torch.cat([found_BH, x_BE], dim=1)).sigmoid() * alpha_BH
        gates_BF = functional.linear(torch.cat([read_BH, x_BE], dim=1), W, layer.gates_input.bias)
        o, i, f, candidate = gates_BF.chunk(4, dim=1)
        memory.append(added_BH + f.sigmoid() * remembered_BH + i.sigmoid() * candidate.tanh())
        hidden.append(o.sigmoid() * memory[-1].tanh())
    return hidden[1:], memory[1:]


def _compute_reference_attention(
    weights, hidden, memory, x_BE: Tensor, before_BH: Tensor
) -> tuple[Tensor, Tensor]:
    tape_BSH = torch.stack(hidden, dim=1)
    query_BH = weights.query_input(x_BE)
    if weights.query_attended is not None:
        query_BH = query_BH + weights.query_attended(before_BH)
    scores_BS = (weights.key(tape_BSH) + query_BH.unsqueeze(1)).tanh() @ weights.score
    s_BS1 = scores_BS.softmax(1).unsqueeze(2)
    return (s_BS1 * tape_BSH).sum(1), (s_BS1 * torch.stack(memory, dim=1)).sum(1)
