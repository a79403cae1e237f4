"""What is specific to the mixers of `mixer_blocks`: reductions of one to another, and cases with a known
answer.

The oracles of all mixers are compared in tests/contracts.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from memtune.errors import ConfigurationError
from memtune.library import LIBRARY_ROOT
from memtune.models import MixerBlocksConfig
from memtune.models.mixers.attention import AttentionConfig
from memtune.models.mixers.gated_units import MinGRUConfig, MinLSTMConfig, RGLRUConfig, scan
from memtune.models.mixers.matrix_memory import MatrixMemoryConfig
from memtune.models.mixers.matrix_recurrence import MemorySteps, run_chunks, run_words
from memtune.models.mixers.mesa import MesaConfig
from memtune.models.mixers.mixer import Mixer, MixerConfig
from memtune.models.mixers.mixer_registry import MIXERS, PRESETS, SOURCES
from memtune.models.mixers.slstm import SLSTMConfig
from memtune.spaces import load_space
from memtune.values import parse

WIDTH, HEADS = 6, 2
ALWAYS, NEVER = 1e9, -1e9
"""Inputs of a sigmoid that is 1 or 0."""
EXACT: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-12}  # double precision: only the order of sums may differ


class Computed(nn.Module):
    """A map that a function computes."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, inputs_BTD: Tensor) -> Tensor:
        return self.function(inputs_BTD)


def make_constant(count: int, value: float) -> Computed:
    """A map to `count` equal values."""
    return Computed(lambda inputs_BTD: inputs_BTD.new_full((*inputs_BTD.shape[:2], count), value))


def repeat(map_: nn.Module, count: int) -> Computed:
    """A map whose every value is that of another map `count` times, as numbers per head become vectors."""
    return Computed(lambda inputs_BTD: map_(inputs_BTD).repeat_interleave(count, dim=2))


def build(config: MixerConfig, width: int = WIDTH) -> Any:
    """A mixer in float64 whose parameters follow from their names, so that mixers share what they both
    have.
    """
    mixer = config.build(width, 0.0).double()
    for name, parameter in mixer.named_parameters():
        generator = torch.Generator().manual_seed(sum(map(ord, name)))
        nn.init.uniform_(parameter, -0.8, 0.8, generator)
    return mixer


def build_memory(**fields: Any) -> Any:
    fields = {"keys": "unit", "decay": "none", "erase": "none", "write": "plain"} | fields
    return build(MatrixMemoryConfig(heads=HEADS, key_ratio=1.0, **fields))


def draw_inputs(words: int = 21, width: int = WIDTH) -> Tensor:
    return torch.randn(2, words, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def read(mixer: Mixer, inputs_BTD: Tensor) -> Tensor:
    outputs_BTHV: Tensor = mixer(inputs_BTD, mixer.initial_state(len(inputs_BTD)))[0]
    return outputs_BTHV.flatten(2)


def assert_equal_outputs(special: Mixer, general: Mixer) -> None:
    torch.testing.assert_close(read(special, draw_inputs()), read(general, draw_inputs()), **EXACT)


DECAYS = ("none", "head", "number", "vector")


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("erase", ["delta", "closed_loop", "channel"])
def test_without_strength_a_delta_rule_is_linear_attention(decay, erase):
    delta = build_memory(decay=decay, erase=erase)
    name = "erase" if erase == "channel" else "strength"
    delta.maps[name] = make_constant(WIDTH if erase == "channel" else HEADS, NEVER)
    assert_equal_outputs(build_memory(decay=decay), delta)


def test_removal_at_rate_zero_without_a_blend_is_gated_linear_attention():
    general = build_memory(decay="vector", decay_map="bounded", erase="own_key")
    general.maps["erase"] = make_constant(WIDTH, NEVER)
    general.vectors["blend"].data.zero_()
    assert_equal_outputs(build_memory(decay="vector", decay_map="bounded"), general)


DELTA: dict[str, Any] = {"erase": "delta", "write": "scaled"}


def test_gated_deltanet_without_a_decay_is_deltanet():
    gated = build_memory(**DELTA, decay="number")
    gated.vectors["rate"].data.fill_(-torch.inf)
    assert_equal_outputs(build_memory(**DELTA), gated)


def test_kimi_delta_attention_with_equal_channels_is_gated_deltanet():
    gated, vector = build_memory(**DELTA, decay="number"), build_memory(**DELTA, decay="vector")
    vector.maps["decay"] = repeat(gated.maps["step"], WIDTH // HEADS)
    assert_equal_outputs(gated, vector)


def test_gated_deltanet2_with_one_strength_is_kimi_delta_attention():
    kimi = build_memory(**DELTA, decay="vector")
    general = build_memory(decay="vector", erase="channel", write="channel")
    general.maps["erase"] = general.maps["write"] = repeat(kimi.maps["strength"], WIDTH // HEADS)
    assert_equal_outputs(kimi, general)


def test_a_householder_product_of_one_step_is_deltanet():
    one, two = build_memory(**DELTA), build_memory(**DELTA, steps=2)
    for name in ("key", "value"):
        two.maps[name].weight.data[:WIDTH] = one.maps[name].weight.data
    strength = one.maps["strength"]
    never = make_constant(HEADS, NEVER)
    two.maps["strength"] = Computed(lambda x: torch.cat([strength(x), never(x)], dim=2))
    assert_equal_outputs(one, two)


def test_comba_with_an_open_loop_and_no_correction_is_gated_deltanet():
    general = build_memory(decay="number", erase="closed_loop", write="scaled", read="corrected")
    general.vectors["loop"].data.fill_(ALWAYS)
    general.vectors["correction"].data.zero_()
    assert_equal_outputs(build_memory(**DELTA, decay="number"), general)


def test_a_trapezoid_without_the_last_word_and_without_angles_is_a_step():
    fields: dict[str, Any] = {"decay": "number", "decay_map": "product"}
    general = build_memory(**fields, write="trapezoid", rotation="data")
    general.maps["share"] = make_constant(HEADS, ALWAYS)
    general.maps["angle"] = make_constant(HEADS, 0.0)
    assert_equal_outputs(build_memory(**fields, write="step"), general)


def test_a_mesa_memory_with_a_large_ridge_is_gated_linear_attention():
    mesa = build(MesaConfig(heads=HEADS, key_ratio=1.0))
    mesa.vectors["ridge"].data.fill_(1e12)
    linear = build_memory(decay="number", decay_map="sigmoid", decay_power=1.0, write="scaled")
    linear.maps["decay"], linear.maps["strength"] = mesa.maps["decay"], mesa.maps["strength"]
    torch.testing.assert_close(read(linear, draw_inputs()), read(mesa, draw_inputs()) * 1e12, **EXACT)


def test_exponential_inputs_of_any_size_give_finite_outputs():
    """The read is a ratio: with all inputs larger by a number it does not change once its floor is passed."""
    small, large = build_memory(write="exponential"), build_memory(write="exponential")
    for memory, value in ((small, 30.0), (large, 3000.0)):
        memory.maps["input"] = make_constant(HEADS, value)
    torch.testing.assert_close(read(large, draw_inputs()), read(small, draw_inputs()), **EXACT)


@pytest.mark.parametrize("gate", [-200.0, -110.0, 0.0])
def test_the_first_word_of_an_slstm_is_its_candidate_however_closed_its_input_gate_is(gate):
    """The cell and its normaliser have the input gate as a factor, which float32 rounds to 0."""
    mixer = build(SLSTMConfig(heads=HEADS)).float()
    sums_BTHGV = torch.full((1, 1, HEADS, 4, WIDTH // HEADS), 0.5)
    sums_BTHGV[..., 0, :] = gate
    mixer.maps["gates"] = Computed(lambda inputs_BTD: sums_BTHGV.flatten(2))
    expected = torch.full((1, 1, WIDTH), 0.5).tanh() * torch.full((1, 1, WIDTH), 0.5).sigmoid()
    torch.testing.assert_close(read(mixer, torch.zeros(1, 1, WIDTH)), expected)


def test_a_closed_recurrence_gate_of_an_rg_lru_has_a_finite_gradient():
    """Its decay is rounded to 1, where the root of 1 - a^2 has no gradient."""
    mixer = build(RGLRUConfig()).float()
    inputs_BTD = draw_inputs(3).float()
    mixer.maps["recurrence"].weight.data.zero_()
    mixer.maps["recurrence"].bias.data.fill_(-110.0)
    read(mixer, inputs_BTD).square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in mixer.parameters())


def test_what_was_written_at_full_strength_is_read_back():
    memory = build_memory(**DELTA)
    memory.maps["strength"] = make_constant(HEADS, ALWAYS)
    memory.maps["query"] = memory.maps["key"]
    torch.testing.assert_close(read(memory, draw_inputs()), memory.maps["value"](draw_inputs()), **EXACT)


def test_reflections_solve_parity_at_any_length():
    """Words are a start, zeros and ones; each one reflects the memory, which the start has set to 1."""
    config = MatrixMemoryConfig(
        heads=1, keys="unit", decay="none", erase="delta", write="plain", negative_eigenvalues=True
    )
    memory: Any = config.build(3, 0.0).double()
    for name, weights in (
        ("query", [[1.0, 1.0, 1.0]]),
        ("key", [[1.0, 1.0, 1.0]]),
        ("value", [[1.0, 0.0, 0.0]]),
        ("strength", [[0.0, NEVER, ALWAYS]]),
    ):
        memory.maps[name].weight.data = torch.zeros_like(memory.maps[name].weight.data)
        memory.maps[name].weight.data[:1] = torch.tensor(weights, dtype=torch.float64)
    bits_T = torch.randint(2, (1000,), generator=torch.Generator().manual_seed(0))
    words_T = torch.cat([torch.tensor([0]), bits_T + 1])
    outputs_1TX = read(memory, nn.functional.one_hot(words_T, 3).double().unsqueeze(0))
    is_odd_T = bits_T.cumsum(0) % 2 == 1
    assert torch.equal(outputs_1TX[0, 1:, 0] < 0, is_odd_T)


def draw_steps(words: int, per_word: int, channels: int, strongest: float) -> MemorySteps:
    generator = torch.Generator().manual_seed(words)
    shape = (2, HEADS, words * per_word)

    def draw(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64).requires_grad_()

    decays = -strongest * torch.rand(*shape, channels, generator=generator, dtype=torch.float64)
    keys = nn.functional.normalize(draw(*shape, 3), dim=3)
    return MemorySteps(
        keys,
        draw(*shape, 4),
        draw(2, HEADS, words, 3),
        decays.requires_grad_() if channels else None,
        0.9 * keys,
    )


@pytest.mark.parametrize("words_per_chunk", [1, 2, 7, 16, 64])
@pytest.mark.parametrize(
    ("per_word", "channels", "strongest"),
    [(1, 0, 0.0), (1, 1, 0.1), (2, 1, 400.0), (1, 3, 0.1), (3, 3, 400.0)],
)
def test_chunks_of_any_length_give_the_recurrence_and_its_gradients(
    words_per_chunk, per_word, channels, strongest
):
    """Also with decays over which the products of a chunk would overflow or vanish."""
    steps = draw_steps(20, per_word, channels, strongest)
    memory = torch.randn(2, HEADS, 3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    leaves = [each for each in (steps.values, steps.queries, steps.log_decays) if each is not None]
    results = []
    for outputs, last in (run_words(steps, memory), run_chunks(steps, memory, words_per_chunk)):
        loss = outputs.square().sum() + last.square().sum()
        results.append([outputs, last, *torch.autograd.grad(loss, leaves, retain_graph=True)])
    torch.testing.assert_close(results[1], results[0], **EXACT)


def test_strong_decays_are_finite_in_float32():
    steps = MemorySteps(
        *(None if each is None else each.detach().float() for each in draw_steps(64, 1, 3, 1e4))  # type: ignore[arg-type]
    )
    outputs, last = run_chunks(steps, torch.ones(2, HEADS, 3, 4))
    assert outputs.isfinite().all()
    assert last.isfinite().all()


@pytest.mark.parametrize("strongest", [0.6, 0.7, 2.4, 2.6])
def test_factored_decays_are_nearly_as_exact_in_float32_as_word_by_word(strongest):
    """Over 32 or 8 words of these decays, factors come near the strongest that is used, or just pass it."""
    exact = MemorySteps(*(each.detach() for each in draw_steps(64, 1, 3, 0.0) if each is not None))
    decays = torch.full_like(exact.keys, -strongest)
    exact = exact._replace(log_decays=decays)
    rough = MemorySteps(*(each.float() for each in exact if each is not None))
    memory = torch.ones(2, HEADS, 3, 4)
    truth = run_words(exact, memory.double())
    errors = [
        max(float((a - b).abs().max()) for a, b in zip(run(rough, memory), truth, strict=True))
        for run in (run_words, run_chunks)
    ]
    assert errors[1] <= 8 * errors[0]


def test_the_scan_has_the_gradient_of_its_differences():
    draws = [torch.rand(2, 5, 3, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    before = torch.rand(2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(scan, (*draws, before))


def test_a_min_lstm_with_opposite_gates_is_a_min_gru():
    gru, lstm = build(MinGRUConfig()), build(MinLSTMConfig())
    gate = gru.maps["gate"]
    lstm.maps["input"], lstm.maps["candidate"] = gate, gru.maps["candidate"]
    lstm.maps["forget"] = Computed(lambda inputs_BTD: -gate(inputs_BTD))
    assert_equal_outputs(gru, lstm)


PLAIN = {"heads": HEADS, "positions": "none", "window": None}


def build_attention(**fields: Any) -> Any:
    return build(AttentionConfig(**PLAIN | fields))


def test_householder_products_without_strength_are_attention_without_positions():
    path = build_attention(positions="path")
    path.maps["strength"] = make_constant(HEADS, NEVER)
    assert_equal_outputs(build_attention(), path)


def test_an_open_forget_gate_forgets_nothing():
    gated = build_attention(positions="rotary", forget_gate=True)
    gated.maps["forget"] = make_constant(HEADS, ALWAYS)
    assert_equal_outputs(build_attention(positions="rotary"), gated)


def test_a_closed_forget_gate_leaves_the_current_word():
    gated = build_attention(forget_gate=True)
    gated.maps["forget"] = make_constant(HEADS, NEVER)
    torch.testing.assert_close(read(gated, draw_inputs()), gated.maps["value"](draw_inputs()), **EXACT)


def test_a_window_as_long_as_the_text_is_the_whole_context():
    whole, window = (build_attention(positions="path", window=size) for size in (None, 21))
    assert_equal_outputs(whole, window)


def test_a_rotation_depends_on_distances_alone():
    """Words that repeat with a period are read alike one period later, within a window."""
    attention = build_attention(positions="rotary", window=5)
    outputs_BTX = read(attention, draw_inputs(7).repeat(1, 3, 1))
    torch.testing.assert_close(outputs_BTX[:, 7:14], outputs_BTX[:, 14:], **EXACT)


FORGETTING = {"positions": "none", "forget_gate": True}


@pytest.mark.parametrize("name", PRESETS)
def test_a_published_mixer_can_be_named(name):
    named = parse(MixerBlocksConfig, {"mixer": name, "alternate": name}, "test")
    assert named.mixer == named.alternate == PRESETS[name]
    assert named.describe()["mixer"] == name


@pytest.mark.parametrize("kind", MIXERS.built_in)
def test_a_kind_can_be_named_and_has_its_defaults(kind):
    named = parse(MixerBlocksConfig, {"mixer": kind}, "test")
    assert named == parse(MixerBlocksConfig, {"mixer": {"kind": kind}}, "test")


@pytest.mark.parametrize("width", [64, 65, 66, 67])
@pytest.mark.parametrize("name", PRESETS)
def test_a_published_mixer_reads_at_a_width_that_its_heads_do_not_divide(name, width):
    """Fitting a width to a number of parameters gives any width."""
    model = parse(MixerBlocksConfig, {"mixer": name, "layers": 1, "width": width}, "test").build(5)
    values_BTD, _ = model.encode(torch.zeros(1, 3, dtype=torch.long), model.initial_state(1))
    assert values_BTD.shape == (1, 3, width)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("attention window=64", {"kind": "attention", "window": 64}),
        ("attention window=null", {"kind": "attention", "window": None}),
        ("forgetting_attention heads=2", {"kind": "attention", "heads": 2, **FORGETTING}),
        (
            "gated_deltanet key_ratio=0.25 skip=true",
            {"kind": "matrix_memory", "key_ratio": 0.25, "skip": True},
        ),
        ("lstm forget_bias=2.5", {"kind": "lstm", "forget_bias": 2.5}),
    ],
)
def test_a_name_may_have_fields_as_a_description_has_them(text, fields):
    named = parse(MixerBlocksConfig, {"mixer": text}, "test")
    assert named == parse(MixerBlocksConfig, {"mixer": fields}, "test")
    assert named.describe()["mixer"] == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kda hads=2", 'unknown name "mixer.hads" \\(matrix_memory\\); did you mean "heads"'),
        ("kda heads=x", "mixer.heads \\(matrix_memory\\): Input should be a valid integer, got 'x'"),
        ("kda heads", '"kda heads" has "heads"; a mixer is a name with fields, as in "attention window=64"'),
        ("kda kind=mesa", 'has "kind=mesa"'),
        ("kda heads=2 heads=4", '"kda heads=2 heads=4" has two values of heads'),
        ("", 'no mixer ""; known: attention'),
    ],
)
def test_wrong_fields_of_a_named_mixer_are_refused(text, message):
    with pytest.raises(ConfigurationError, match=message):
        parse(MixerBlocksConfig, {"mixer": text}, "test")


def test_an_unknown_mixer_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigurationError, match='no mixer "delta_net"; did you mean "deltanet"'):
        parse(MixerBlocksConfig, {"mixer": "delta_net"}, "test")


OF_FAMILIES = {"lstm", "rnn", "recurrent_memory"}
"""Mixers whose papers have a space of their own."""


def test_every_published_mixer_is_a_point_of_the_space():
    points = load_space(LIBRARY_ROOT / "search_spaces" / "mixer_blocks.toml").paper_points
    named = {
        name
        for name, preset in PRESETS.items()
        for point in points
        if preset.kind == point["model.mixer.kind"]
        and all(
            getattr(preset, field.removeprefix("model.mixer.")) == value
            for field, value in point.items()
            if field.startswith("model.mixer.")
        )
    }
    assert named == PRESETS.keys() - OF_FAMILIES


def test_every_published_mixer_names_authors_a_year_and_where_its_equations_are():
    place = r"(section|equation)s? \d|figure \d"
    assert [
        name for name, source in SOURCES.items() if not re.search(rf"\(\d{{4}}\), .*({place})", source)
    ] == []


def test_a_pattern_repeats_over_the_blocks():
    config = MixerBlocksConfig(layers=6, pattern="mmma", mixer="min_gru")
    assert [mixer.kind for mixer in config.mixers] == [*["min_gru"] * 3, "attention", *["min_gru"] * 2]


def test_sizes_of_one_block_by_hand():
    """Width 8, one head of keys of 4: the maps, the decay's rate and bias, norms, gate and projection."""
    config = MixerBlocksConfig(width=8, layers=1, mixer=MatrixMemoryConfig(heads=1), channel_ratio=2.0)
    maps = 8 * (4 + 4 + 8 + 1 + 1)
    assert config.parameter_count(10) - (10 * 8 + 10 * 9 + 8) == (
        8 + 4 * 8 + maps + 1 + 1 + 8 + 2 * 8 * 8 + 8 + 3 * 8 * 16
    )
    assert config.state_size() == 4 * 8 + 3 * 8
    assert config.multiply_adds(10) - 80 == 4 * 8 + maps + 3 * 4 * 8 + 2 * 8 * 8 + 3 * 8 * 16


BARE: dict[str, Any] = {"convolution": 0, "head_norm": False, "output_gate": "none"}


@pytest.mark.parametrize(
    ("billions", "width", "layers", "inner"),
    [(6.7, 4096, 32, 11008), (13.0, 5120, 40, 13824), (32.5, 6656, 60, 17920), (65.2, 8192, 80, 22016)],
)
def test_blocks_of_attention_have_the_parameters_of_llama(billions, width, layers, inner):
    """Touvron et al. (2023), table 2; the widths within are 8/3 of the width, rounded up to 256."""
    config = MixerBlocksConfig(
        width=width, layers=layers, mixer=AttentionConfig(heads=32), channel_ratio=inner / width, **BARE
    )
    # The paper cuts 65.29 off after its first digit.
    assert config.parameter_count(32_000) / 1e9 == pytest.approx(billions, abs=0.1)


@pytest.mark.parametrize(
    ("mixer", "fields", "inner"),
    [
        (AttentionConfig(), BARE, 2816),
        (PRESETS["gla"], {"convolution": 0}, 2816),
        (PRESETS["deltanet"].model_copy(update={"key_ratio": 1.0}), {"output_gate": "none"}, 2816),
        (
            PRESETS["retnet"].model_copy(update={"key_ratio": 1.0, "value_ratio": 2.0}),
            {"convolution": 0},
            1536,
        ),
    ],
    ids=["Transformer++", "GLA", "DeltaNet", "RetNet"],
)
def test_blocks_have_the_parameters_of_the_models_of_340m(mixer, fields, inner):
    """Yang et al. (2024), 2312.06635 and 2406.06484, with the settings that their code names for 340M: tied
    embeddings of 32,000 words and 24 blocks of width 1,024.
    """
    config = MixerBlocksConfig(
        width=1024, layers=24, mixer=mixer, channel_ratio=inner / 1024, tie_output=True, **fields
    )
    assert config.parameter_count(32_000) == pytest.approx(340e6, rel=0.025)


@pytest.mark.parametrize(
    ("mixer", "layer", "per_cent"),
    [("min_gru", nn.GRU, 33), ("min_lstm", nn.LSTM, 38)],
    ids=["minGRU", "minLSTM"],
)
def test_minimal_units_have_the_share_of_the_parameters_that_their_paper_prints(mixer, layer, per_cent):
    """Feng et al. (2024), sections 3.1 and 3.2, for a state as wide as the input."""
    usual = sum(parameter.numel() for parameter in layer(64, 64).parameters())
    assert round(100 * PRESETS[mixer].parameter_count(64) / usual) == per_cent
