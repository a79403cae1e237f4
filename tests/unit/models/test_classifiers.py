from itertools import product
from typing import Any

import pytest
import torch
from torch.nn import functional

from memtune.errors import ConfigurationError
from memtune.model_checks.oracles import assert_near
from memtune.models import MODELS, LSTMConfig, NeuralLanguageModelConfig
from memtune.models.classifiers import ClassifierConfig, SentenceClassifier, average_spans, strip_output_layer
from memtune.models.families.awd_lstm import AWDLSTMConfig
from memtune.models.families.lstmn import LSTMNConfig
from memtune.models.families.residual_memory import ResidualMemoryConfig
from memtune.models.families.stack_lstm import StackLSTMConfig
from memtune.models.fused_pairs import PairReadingConfig
from memtune.models.maximum_entropy import MaximumEntropyConfig
from memtune.models.outputs.output_config import AdaptiveConfig
from tests.low_precision import autocast_to_bfloat16
from tests.oracles.classifiers import compute_pair_logits, compute_phrase_logits, compute_reference_fusion

WORDS = 23
EXACT: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-12}  # double precision: only the order of sums may differ
HEAD = ClassifierConfig(classes=3)
READINGS = {
    "apart": PairReadingConfig(),
    "apart, two readers": PairReadingConfig(shared_reader=False),
    "shallow": PairReadingConfig(fusion="shallow"),
    "shallow, two readers": PairReadingConfig(fusion="shallow", shared_reader=False),
    "shallow, recurrent": PairReadingConfig(fusion="shallow", previous_source_attention=True),
    "deep": PairReadingConfig(fusion="deep"),
    "deep, two readers": PairReadingConfig(fusion="deep", shared_reader=False, first_slot="premise"),
    "deep, no recurrence": PairReadingConfig(fusion="deep", previous_source_attention=False),
    "deep, from the premise": PairReadingConfig(fusion="deep", first_slot="premise"),
}
every_reading = pytest.mark.parametrize("reading", READINGS.values(), ids=READINGS)


def make_config(**fields) -> LSTMNConfig:
    """Wide initial values make attention uneven, so that reading a wrong slot changes the result."""
    return LSTMNConfig(**{"width": 5, "embedding_width": 4, "initial_range": 0.8, **fields})


def build_seeded(build):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return build()


def make_pair_model(
    reading: PairReadingConfig, config: NeuralLanguageModelConfig | None = None, head: ClassifierConfig = HEAD
):
    return (
        build_seeded(lambda: reading.build_classifier(config or make_config(), WORDS, head)).double().eval()
    )


def make_sentence_model(config: NeuralLanguageModelConfig | None = None, head: ClassifierConfig = HEAD):
    return build_seeded(lambda: SentenceClassifier(config or make_config(), WORDS, head)).double().eval()


def draw_sentences(lengths: list[int], seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(WORDS, (length,), generator=generator).tolist() for length in lengths]


def pad_rows(rows: list[list[int]], beyond: int = 0, filler: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """words_BT and lengths_B, padded to the longest row plus `beyond`."""
    lengths_B = torch.tensor([len(row) for row in rows])
    longest = int(lengths_B.max()) + beyond
    words_BT = torch.tensor([row + [filler] * (longest - len(row)) for row in rows])
    return words_BT, lengths_B


def compute_gradients(loss, parameters) -> list[torch.Tensor]:
    """Gradients; zeros for a parameter without one."""
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    return [
        torch.zeros_like(parameter) if gradient is None else gradient
        for gradient, parameter in zip(found, parameters, strict=True)
    ]


def assert_agreement(model, logits, oracle, tolerance: float) -> None:
    """Logits, loss and every gradient, the oracle in float64."""
    doubles = {name: value.detach().double().requires_grad_() for name, value in model.named_parameters()}
    expected = oracle(doubles)
    labels = torch.arange(len(expected)) % expected.shape[1]
    assert_near(logits, expected, tolerance, "logits")
    loss, wanted = (
        functional.cross_entropy(values, labels, reduction="sum") for values in (logits, expected)
    )
    assert_near(loss, wanted, tolerance, "loss")
    own = compute_gradients(loss, list(model.parameters()))
    for name, gradient, reference in zip(
        doubles, own, compute_gradients(wanted, list(doubles.values())), strict=True
    ):
        assert_near(gradient, reference, tolerance, f"gradient of {name}")


@pytest.mark.parametrize("lengths", [([1], [1]), ([2, 7, 1], [5, 1, 3]), ([16, 15], [15, 16])], ids=str)
@every_reading
def test_every_reading_of_a_pair_agrees_with_its_equations(reading, lengths):
    model, (premises, hypotheses) = (
        make_pair_model(reading),
        (draw_sentences(lengths[0]), draw_sentences(lengths[1], seed=1)),
    )
    logits = model(*pad_rows(premises), *pad_rows(hypotheses))
    assert_agreement(
        model, logits, lambda p: compute_pair_logits(reading, p, premises, hypotheses), tolerance=1e-9
    )


@every_reading
def test_single_precision_agrees_to_rounding(reading):
    model = make_pair_model(reading).float()
    premises, hypotheses = draw_sentences([16, 3]), draw_sentences([5, 12], seed=1)
    logits = model(*pad_rows(premises), *pad_rows(hypotheses))
    assert_agreement(
        model, logits, lambda p: compute_pair_logits(reading, p, premises, hypotheses), tolerance=1e-5
    )


SPANS = [(0, 0, 7), (0, 3, 4), (1, 0, 1), (2, 1, 4), (0, 2, 6), (2, 0, 4)]


@pytest.mark.parametrize(("tolerance", "kind"), [(1e-9, torch.double), (1e-5, torch.float)], ids=str)
def test_phrases_agree_with_their_equations(tolerance, kind):
    model, rows = make_sentence_model().to(kind), draw_sentences([7, 1, 4])
    logits = model(pad_rows(rows)[0], *torch.tensor(SPANS).t())
    assert_agreement(model, logits, lambda p: compute_phrase_logits(p, rows, SPANS), tolerance)


@pytest.mark.parametrize("side", [0, 1], ids=["premises", "hypotheses"])
def test_dropout_around_the_layers_drops_from_the_embeddings_of_both_sentences(side):
    model: Any = make_pair_model(
        READINGS["shallow, two readers"], make_config(dropout=0.5, dropout_placement="around")
    ).train()
    for index, reader in enumerate(model.readers):
        reader.dropout.output.p = 0.0
        reader.dropout.input.p *= index == side
    sentences = *pad_rows(draw_sentences([9, 9])), *pad_rows(draw_sentences([6, 6], seed=1))
    assert not torch.equal(model(*sentences), model(*sentences))


@pytest.mark.parametrize("fusion", ["shallow", "deep"])
def test_the_reference_of_the_benchmark_computes_the_same_model(fusion):
    model = make_pair_model(PairReadingConfig(fusion=fusion, previous_source_attention=True))
    premises, hypotheses = pad_rows(draw_sentences([9, 9])), pad_rows(draw_sentences([6, 6], seed=1))
    slow_BC = compute_reference_fusion(model, premises[0], hypotheses[0])
    assert_near(model(*premises, *hypotheses), slow_BC, 1e-12, "logits")


def compute_loss_and_gradients(model, logits_BC):
    labels_B = torch.arange(len(logits_BC)) % logits_BC.shape[1]
    loss = functional.cross_entropy(logits_BC, labels_B, reduction="sum")
    return loss, compute_gradients(loss, list(model.parameters()))


@pytest.mark.parametrize(("beyond", "other"), [(1, 0), (0, 1), (3, 40), (40, 3)])
@every_reading
def test_padding_changes_no_logit_of_a_pair(reading, beyond, other):
    """Padding is not attended to and not averaged, whatever its words."""
    model = make_pair_model(reading)
    premises, hypotheses = draw_sentences([4, 9, 1]), draw_sentences([6, 1, 3], seed=1)
    plain = compute_loss_and_gradients(model, model(*pad_rows(premises), *pad_rows(hypotheses)))
    more = pad_rows(premises, beyond, filler=7), pad_rows(hypotheses, other, filler=9)
    torch.testing.assert_close(compute_loss_and_gradients(model, model(*more[0], *more[1])), plain, **EXACT)


BODIES: list[Any] = [
    MODELS[family](**{"width": 6, "initial_range": 0.5} | more)
    for family, more in {
        "lstm": {"layers": 2},
        "rnn": {},
        "lstmn": {"layers": 2, "tape_size": 3},
        "scrn": {"context_width": 3},
        "recurrent_memory": {"memory_size": 3},
        "attention_lstm": {"memory_size": 3},
        "stack_lstm": {"stack_size": 3, "policy_width": 3},
        "depth_gated_lstm": {},
        "gated_feedback_lstm": {},
        "awd_lstm": {"embedding_width": 4},
        "residual_memory": {"layers": 2, "batch_norm": False},
        "memory_network": {"memory_size": 3},
    }.items()
]
every_body = pytest.mark.parametrize("config", BODIES, ids=[body.family for body in BODIES])


@pytest.mark.parametrize("beyond", [1, 33])
@every_body
def test_padding_changes_no_logit_of_a_sentence(config, beyond):
    model, rows = make_sentence_model(config), draw_sentences([7, 1, 4])
    spans = torch.tensor(SPANS).t()
    plain = compute_loss_and_gradients(model, model(pad_rows(rows)[0], *spans))
    more = compute_loss_and_gradients(model, model(pad_rows(rows, beyond, filler=8)[0], *spans))
    torch.testing.assert_close(more, plain, **EXACT)


@every_body
def test_the_other_examples_of_a_batch_change_no_logit(config):
    model, (premises, hypotheses) = (
        make_pair_model(PairReadingConfig(), config),
        (draw_sentences([6, 1]), draw_sentences([2, 9], 1)),
    )
    together_BC = model(*pad_rows(premises), *pad_rows(hypotheses))
    alone = [
        model(*pad_rows([premise]), *pad_rows([other]))
        for premise, other in zip(premises, hypotheses, strict=True)
    ]
    torch.testing.assert_close(together_BC, torch.cat(alone), **EXACT)


@every_body
def test_the_formula_counts_the_parameters_of_a_classifier_over_any_body(config):
    width = config.hidden_width
    model = make_sentence_model(config)
    expected = strip_output_layer(config).parameter_count(WORDS) + HEAD.parameter_count(width, width)
    assert sum(parameter.numel() for parameter in model.parameters()) == expected
    assert (
        model.readers[0].encode(torch.tensor([[1]]), model.readers[0].initial_state(1))[0].shape[2] == width
    )


@every_reading
def test_the_formula_counts_the_parameters_of_a_pair_classifier(reading):
    config = make_config()
    built = sum(parameter.numel() for parameter in make_pair_model(reading, config).parameters())
    assert reading.pair_parameter_count(config, WORDS, HEAD) == built


PRINTED = {"shallow": (280e3, 1.4e6, 2.8e6), "deep": (330e3, 1.7e6, 3.4e6)}


@pytest.mark.parametrize(("fusion", "row"), [*product(PRINTED, range(3))])
def test_sizes_of_the_papers_fusions(fusion, row):
    """Table 3 to the digits printed; matrices of 10 d^2 + 6 d E and 12 d^2 + 7 d E, E = 300."""
    d, printed = (100, 300, 450)[row], PRINTED[fusion][row]
    config, reading = LSTMNConfig(width=d, embedding_width=300), PairReadingConfig(fusion=fusion)
    size = reading.pair_parameter_count(config, 0, HEAD)
    matrices = {"shallow": 10 * d * d + 6 * d * 300, "deep": 12 * d * d + 7 * d * 300}[fusion]
    vectors = 4 * d + d + d + d * (fusion == "deep") + 2 * d + d * 3 + 3  # biases, v, u and the last layer
    assert size == matrices + vectors
    digits = 1e4 if row == 0 else 1e5
    assert round(size / digits) * digits == printed


@pytest.mark.parametrize(("d", "size"), [(100, 541e3), (300, 2.70e6), (450, 5.27e6)])
def test_two_readers_do_not_have_the_printed_sizes(d, size):
    config = LSTMNConfig(width=d, embedding_width=300)
    reading = PairReadingConfig(fusion="deep", shared_reader=False)
    assert reading.pair_parameter_count(config, 0, HEAD) == pytest.approx(size, rel=2e-3)


@pytest.mark.parametrize("fusion", ["none", "shallow", "deep"])
def test_long_and_short_sentences_are_read(fusion):
    model = make_pair_model(PairReadingConfig(fusion=fusion)).float()
    logits_BC = model(*pad_rows(draw_sentences([640, 1])), *pad_rows(draw_sentences([1, 640], seed=1)))
    loss, gradients = compute_loss_and_gradients(model, logits_BC)
    assert loss.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients)


@every_reading
def test_reduced_precision_agrees_to_rounding_and_trains(reading):
    model = make_pair_model(reading).float()
    premises, hypotheses = pad_rows(draw_sentences([16, 3])), pad_rows(draw_sentences([5, 12], seed=1))
    with autocast_to_bfloat16():
        reduced_BC = model(*premises, *hypotheses)
    torch.testing.assert_close(reduced_BC.float(), model(*premises, *hypotheses), rtol=0.05, atol=0.02)
    assert all(
        gradient.isfinite().all() for gradient in compute_loss_and_gradients(model, reduced_BC.float())[1]
    )


@pytest.mark.parametrize("fusion", ["shallow", "deep"])
def test_alignment_is_a_distribution_over_the_words_of_the_premise(fusion):
    model = make_pair_model(PairReadingConfig(fusion=fusion))
    premises, hypotheses = pad_rows(draw_sentences([4, 9, 1])), pad_rows(draw_sentences([6, 1, 3], seed=1))
    attended: list[torch.Tensor] = []
    model.source.register_forward_hook(lambda module, inputs, output: attended.append(output[1]))
    model(*premises, *hypotheses)
    (weights_BTS,) = attended
    assert weights_BTS.shape == (3, 6, 9)
    torch.testing.assert_close(weights_BTS.sum(2), torch.ones(3, 6, dtype=torch.float64))
    assert weights_BTS[0, :, 4:].eq(0).all()
    assert weights_BTS[2, :, 0].eq(1).all()


@pytest.mark.parametrize("fusion", ["shallow", "deep"])
def test_a_hypothesis_depends_on_its_premise_only_in_fusion(fusion):
    """The state after a hypothesis changes with the premise where they are fused, and only there."""
    model = make_pair_model(PairReadingConfig(fusion=fusion), head=ClassifierConfig(classes=5, layers=0))
    with torch.no_grad():
        model.head[-1].weight[:, :5] = 0  # only the mean of the hypothesis counts
    hypothesis = pad_rows(draw_sentences([4], seed=1))
    one, other = (model(*pad_rows(draw_sentences([6], seed=seed)), *hypothesis) for seed in (2, 3))
    assert not torch.allclose(one, other)


def test_a_mean_of_one_word_at_the_end_of_a_long_sentence_keeps_its_digits():
    hidden_BTH = torch.rand(1, 640, 4, generator=torch.Generator().manual_seed(0))
    means_NH = average_spans(hidden_BTH, *torch.tensor([[0, 639, 640], [0, 0, 640]]).t())
    torch.testing.assert_close(means_NH[0], hidden_BTH[0, 639], rtol=1e-6, atol=0)
    torch.testing.assert_close(means_NH[1], hidden_BTH[0].double().mean(0).float(), rtol=1e-6, atol=0)


@pytest.mark.parametrize(("layers", "dropout"), [(0, 0.0), (1, 0.3), (3, 0.5)])
def test_a_head_has_the_configured_layers_and_dropout(layers, dropout):
    head = ClassifierConfig(classes=4, layers=layers, dropout=dropout).build(6, 5)
    assert [type(part).__name__ for part in head] == ["Linear", "ReLU"] * layers + ["Dropout", "Linear"]
    assert head[-2].p == dropout


def test_head_dropout_applies_only_in_training():
    model = make_sentence_model(head=ClassifierConfig(classes=3, dropout=0.5))
    words_BT, lengths_B = pad_rows(draw_sentences([5]))
    spans = torch.zeros_like(lengths_B), torch.zeros_like(lengths_B), lengths_B
    assert torch.equal(model(words_BT, *spans), model(words_BT, *spans))
    model.train()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        drawn = [model(words_BT, *spans) for _ in range(20)]
    assert any(not torch.equal(drawn[0], other) for other in drawn[1:])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (LSTMConfig(output=AdaptiveConfig()), 'output.kind = "adaptive" predicts words'),
        (LSTMConfig(maximum_entropy=MaximumEntropyConfig()), "maximum_entropy"),
        (StackLSTMConfig(variant="discrete"), "learns its actions from words"),
        (ResidualMemoryConfig(), "batch_norm = false"),
    ],
    ids=lambda value: "" if isinstance(value, str) else value.family,
)
def test_fields_that_a_classifier_does_not_use_are_refused(config, message):
    with pytest.raises(ConfigurationError, match=message):
        SentenceClassifier(config, WORDS, HEAD)


@pytest.mark.parametrize("config", [LSTMConfig(), LSTMNConfig(layers=2)], ids=["lstm", "two layers"])
def test_fusion_requires_lstm_networks_of_one_layer(config):
    with pytest.raises(ConfigurationError, match='use family = "lstmn" with layers = 1, or fusion = "none"'):
        PairReadingConfig(fusion="deep").build_classifier(config, WORDS, HEAD)


def test_a_body_without_output_predicts_no_words():
    body = strip_output_layer(AWDLSTMConfig(width=4, embedding_width=4)).build(WORDS)
    words_BT = torch.tensor([[1, 2]])
    with pytest.raises(ConfigurationError, match="leave output out"):
        body.logits(words_BT, body.initial_state(1))


def test_a_classifier_finds_the_embedding_tables_of_its_readers():
    two = make_pair_model(PairReadingConfig(shared_reader=False))
    assert [table.weight.shape for table in two.find_embedding_tables()] == [(WORDS, 4), (WORDS, 4)]
    with pytest.raises(ConfigurationError, match="no single table of word embeddings"):
        make_sentence_model(BODIES[-1]).find_embedding_tables()


def test_a_classifier_is_no_language_model_but_has_a_network():
    model = make_pair_model(PairReadingConfig())
    assert model.require_network("inspection") is model.readers[0]
    with pytest.raises(ConfigurationError, match="scoring sentences needs a language model"):
        model.require_language_model("scoring sentences")
