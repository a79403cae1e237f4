"""The recurrent memory network one sentence and one word at a time, from its equations.

Tran, Bisazza and Monz (2016), sections 3.1 and 3.2.
"""

from typing import Any

import torch
from torch import Tensor

from memtune.models.families.recurrent_memory import RecurrentMemoryConfig
from tests.oracles.cases import EXAMPLE_SIZE, OracleCase
from tests.oracles.lstm import compute_output_logits, run_lstm_stack
from tests.oracles.output_layers import Parameters


def compute_recurrent_memory_logits(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """logits[b][t], a vector over the vocabulary, from a zero state."""
    return [_read_sentence(config, parameters, words.tolist())[0] for words in tokens_BT]


def compute_recurrent_memory_attention(
    config, parameters: Parameters, tokens_BT: Tensor
) -> list[list[Tensor]]:
    """weights[b][t], one weight for each existing word, the oldest first."""
    return [_read_sentence(config, parameters, words.tolist())[1] for words in tokens_BT]


def _read_sentence(config, parameters: Parameters, words: list[int]) -> tuple[list[Tensor], list[Tensor]]:
    embeddings = [parameters["embedding.weight"][word] for word in words]
    hidden = run_lstm_stack(parameters, "below.lstm", config.layers, embeddings)
    composed, attention = [], []
    for t, h in enumerate(hidden):
        window = words[max(0, t + 1 - config.memory_size) : t + 1]
        ahead = words[t + 2 : t + 2 + config.memory_size] if config.bidirectional else []
        s, p = _run_memory_block(config, parameters, h, window, ahead)
        composed.append(compose(config, parameters, s, h))
        attention.append(p)
    if config.layers_above:
        composed = run_lstm_stack(parameters, "above.lstm", config.layers_above, composed)
    return compute_output_logits(config, parameters, composed), attention


def _run_memory_block(
    config, parameters: Parameters, h: Tensor, window: list[int], ahead: list[int]
) -> tuple[Tensor, Tensor]:
    """Equations 1 to 3; later words (section 6) read the second half of T, and id 0 is not a word."""
    M, C = _get_tables(config, parameters)
    first = config.memory_size - len(window) if config.temporal_alignment == "right" else 0
    places = [(first + place, word) for place, word in enumerate(window)]
    places += [(config.memory_size + place, word) for place, word in enumerate(ahead) if word != 0]
    rows, slots = [row for row, _ in places], [word for _, word in places]
    m, c = M[slots], C[slots]
    if config.temporal in ("keys", "both"):
        m = m + parameters["memory.temporal_keys"][rows]
    if config.temporal == "both":
        c = c + parameters["memory.temporal_values"][rows]
    p = (m @ h).softmax(0)
    return p @ c, p


def _get_tables(config, parameters: Parameters) -> tuple[Tensor, Tensor]:
    M = parameters["embedding.weight" if config.tie_memory_input else "memory.input_table.weight"]
    return M, M if config.tie_memory_output else parameters["memory.output_table.weight"]


def compose(config, parameters: Parameters, s: Tensor, h: Tensor) -> Tensor:
    match config.composition:
        case "sum":
            return s + h
        case "projected_sum":
            return s + parameters["memory.composition.hidden.weight"] @ h
        case "gate":
            return _apply_gate(parameters, s, h, torch.zeros(6, len(h), dtype=h.dtype))
        case "gate_biased":
            biases = [
                parameters[f"memory.composition.{name}.bias"] for name in ("context", "hidden", "candidate")
            ]
            return _apply_gate(parameters, s, h, torch.cat(biases).view(6, -1))
        case other:
            raise ValueError(f"the oracle has no composition {other}")


def _apply_gate(parameters: Parameters, s: Tensor, h: Tensor, biases: Tensor) -> Tensor:
    """Equations 4 to 7; one bias for each of the six maps, zero as printed."""
    W_sz, W_sr, W_s = parameters["memory.composition.context.weight"].chunk(3)
    U_hz, U_hr = parameters["memory.composition.hidden.weight"].chunk(2)
    U = parameters["memory.composition.candidate.weight"]
    b_sz, b_sr, b_s, b_hz, b_hr, b = biases
    z = (W_sz @ s + b_sz + U_hz @ h + b_hz).sigmoid()
    r = (W_sr @ s + b_sr + U_hr @ h + b_hr).sigmoid()
    candidate = (W_s @ s + b_s + U @ (r * h) + b).tanh()
    return (1 - z) * h + z * candidate


def make_case(
    lengths: tuple[int, ...] = (),
    float32_lengths: tuple[int, ...] = (),
    cuts: tuple[int, ...] = (),
    rows: int = 2,
    **fields,
) -> OracleCase:
    """Wide initial values make attention uneven, so that reading a wrong slot changes the result."""
    return OracleCase(
        config=RecurrentMemoryConfig(**{"width": 5, "initial_range": 0.8} | fields),
        logits=compute_recurrent_memory_logits,
        lengths=lengths,
        float32_lengths=float32_lengths,
        cuts=cuts,
        cut_length=20,
        rows=rows,
    )


TEMPORAL: dict[str, dict[str, Any]] = {
    f"temporal {temporal}, {alignment}": {"temporal": temporal, "temporal_alignment": alignment}
    for temporal, alignment in (
        ("none", "right"),
        ("keys", "right"),
        ("keys", "left"),
        ("both", "right"),
        ("both", "left"),
    )
}
COMPOSITIONS = ("sum", "projected_sum", "gate", "gate_biased")
IDENTITY = "98992facbf659ef6"
CASES = {
    **{
        f"{name}, {composition}": make_case(
            (9,), memory_size=4, layers_above=1, composition=composition, **fields
        )
        for name, fields in TEMPORAL.items()
        for composition in COMPOSITIONS
    },
    # Lengths around the window of 15 words.
    **{
        f"window of 15, {name}": make_case((1, 2, 15, 16, 20), memory_size=15, **fields)
        for name, fields in TEMPORAL.items()
    },
    **{
        f"layers {layers} below, {layers_above} above": make_case(
            (8,), layers=layers, layers_above=layers_above, memory_size=3
        )
        for layers, layers_above in ((2, 0), (1, 2), (2, 1))
    },
    **{
        f"ties: memory input {memory_input}, memory output {memory_output}, output {output}": make_case(
            (8,),
            memory_size=3,
            tie_memory_input=memory_input,
            tie_memory_output=memory_output,
            tie_output=output,
        )
        for memory_input in (False, True)
        for memory_output in (False, True)
        for output in (False, True)
    },
    **{
        f"single precision, {name}": make_case((), (20,), memory_size=15, composition="gate", **fields)
        for name, fields in TEMPORAL.items()
    },
    "single precision, sum": make_case((), (20,), memory_size=15, temporal="both", composition="sum"),
    # Cuts inside, at the end of and after the first window of 5 words.
    **{
        f"carried, {name}": make_case(cuts=(1, 3, 4, 10, 19), memory_size=5, layers_above=1, **fields)
        for name, fields in TEMPORAL.items()
    },
    # Even and uneven blocks, windows as long as a block, and of one word.
    **{
        f"blocks, window of {memory_size}, {length} words, {alignment}": make_case(
            (length,),
            rows=1,
            width=3,
            memory_size=memory_size,
            temporal="both",
            temporal_alignment=alignment,
            composition="sum",
        )
        for length, memory_size, alignment in (
            (128, 15, "right"),
            (193, 15, "right"),
            (193, 15, "left"),
            (129, 64, "left"),
            (161, 80, "right"),
            (129, 1, "right"),
        )
    },
    # A bidirectional memory reads whole sentences, so no state is carried.
    **{
        f"bidirectional, temporal {temporal}": make_case(
            (1, 2, 3, 16), memory_size=7, temporal=temporal, bidirectional=True
        )
        for temporal in ("none", "keys", "both")
    },
}
EXAMPLES = [
    RecurrentMemoryConfig(**EXAMPLE_SIZE, memory_size=4),
    RecurrentMemoryConfig(**EXAMPLE_SIZE, memory_size=2, composition="sum", temporal="none"),
    RecurrentMemoryConfig(
        **EXAMPLE_SIZE,
        layers_above=2,
        memory_size=5,
        temporal="both",
        temporal_alignment="left",
        composition="gate_biased",
        dropout=0.4,
        dropout_placement="after",
    ),
    RecurrentMemoryConfig(
        **EXAMPLE_SIZE,
        memory_size=3,
        composition="projected_sum",
        tie_memory_input=True,
        tie_memory_output=True,
        tie_output=True,
    ),
]
