"""A trainer's milestones, its figures, and how a trial ends."""

import itertools
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from memtune.corpora.batching.protocols import SentenceProtocol
from memtune.errors import ConfigurationError, TrialError
from memtune.models import build_model
from memtune.models.outputs.word_classes import compute_class_borders, compute_zipf_counts
from memtune.tasks import LanguageModelling, Metrics
from memtune.training import GradientTrainer, measure_seconds_per_token, trainers
from memtune.training.memory_footprint import measure_peak_bytes
from memtune.training.trial_report import find_divergence
from memtune.training.weight_files import load_model, save_model
from memtune.trial_state import StopReason, TrialEnd
from tests.presence import require
from tests.unit.training.conftest import LSTM, MEMORY, SENTENCE, STREAM

OPTIMISERS = [
    {"kind": "sgd", "learning_rate": 0.5},
    {"kind": "sgd", "learning_rate": 0.1, "momentum": 0.9, "weight_decay": 1e-5},
    {"kind": "adam", "learning_rate": 0.02},
    {"kind": "adamw", "learning_rate": 0.02},
    {"kind": "rmsprop", "learning_rate": 0.01},
    {"kind": "rmsprop", "learning_rate": 0.005, "momentum": 0.5},
    {"kind": "nt_asgd", "learning_rate": 0.5, "weight_decay": 1e-6},
]


def _run_to_end(trainer: GradientTrainer) -> GradientTrainer:
    while not trainer.is_finished:
        trainer.advance()
    return trainer


def _is_learned(corpus, config) -> bool:
    """Whether the best validation perplexity is below 0.7 times that of the untrained model."""
    trainer = GradientTrainer(config, corpus)
    chance = trainer._task.evaluate(trainer.model, "valid").perplexity
    return require(require(_run_to_end(trainer).best).valid_perplexity) < 0.7 * chance


@pytest.mark.parametrize(
    "optimiser", OPTIMISERS, ids=lambda optimiser: "-".join(map(str, optimiser.values()))
)
def test_every_optimiser_learns_the_text(corpus, make_trial, optimiser):
    model = {"family": "lstm", "width": 16, "initial_range": 0.3}
    assert _is_learned(corpus, make_trial(model, STREAM, optimiser=optimiser, epochs=4))


def test_trainings_in_threads_have_the_figures_of_trainings_one_after_another(corpus, make_trial):
    def train(seed: int) -> list[float | None]:
        curve = _run_to_end(GradientTrainer(make_trial(seed=seed), corpus)).curve
        return [report.valid_loss for report in curve]

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(train, range(4))) == [*map(train, range(4))]


@pytest.mark.parametrize("model", [LSTM, MEMORY], ids=lambda model: model["family"])
def test_every_family_learns_the_text(corpus, make_trial, model):
    optimiser = {"kind": "adam", "learning_rate": 0.02}
    assert _is_learned(corpus, make_trial(model, SENTENCE, optimiser=optimiser, epochs=6))


@pytest.mark.parametrize(
    "fields",
    [
        {"output": {"kind": "class_factored"}},
        {"output": {"kind": "adaptive"}},
        {"output": {"kind": "class_factored"}, "maximum_entropy": {"order": 3, "size": 2000}},
    ],
    ids=["class_factored", "adaptive", "maximum_entropy"],
)
def test_every_output_layer_learns_the_text(corpus, make_trial, fields):
    optimiser = {"kind": "adam", "learning_rate": 0.02}
    config = make_trial({"family": "rnn", "width": 16, **fields}, STREAM, optimiser=optimiser, epochs=4)
    assert _is_learned(corpus, config)


def test_classes_of_words_follow_the_word_counts_and_reload_without_the_corpus(corpus, make_trial, tmp_path):
    trainer = GradientTrainer(
        make_trial({"family": "rnn", "width": 8, "output": {"kind": "class_factored"}}), corpus
    )
    model: Any = trainer.model
    borders = model.output.borders.tolist()
    assert borders == compute_class_borders(corpus.vocabulary.counts, len(borders) - 1, "frequency")
    assert borders != compute_class_borders(compute_zipf_counts(borders[-1]), len(borders) - 1, "frequency")
    save_model(trainer.model, tmp_path)
    loaded: Any = load_model(tmp_path)
    assert loaded.output.borders.tolist() == borders


def test_without_an_interval_each_epoch_reports_once(corpus, make_trial):
    trainer = _run_to_end(GradientTrainer(make_trial(epochs=3), corpus))
    assert [report.epoch for report in trainer.curve] == [1, 2, 3]
    assert [report.tokens for report in trainer.curve] == [
        epoch * corpus["train"].token_count for epoch in (1, 2, 3)
    ]


def test_a_fraction_of_an_epoch_ends_with_a_report(corpus, make_trial):
    trainer = _run_to_end(GradientTrainer(make_trial(epochs=1.5), corpus))
    assert [report.is_finished for report in trainer.curve] == [False, True]
    assert trainer.curve[-1].end == TrialEnd(reason=StopReason.BUDGET)
    # The batch that reaches the budget is the last: it exceeds it by less than 16 sentences of 13 tokens.
    assert 0 <= trainer.tokens - 1.5 * corpus["train"].token_count < 16 * 13


def test_a_budget_in_tokens_reports_at_each_interval_and_at_its_end(corpus, make_trial):
    trainer = _run_to_end(GradientTrainer(make_trial(tokens=2500, report_every=1000), corpus))
    assert [report.tokens // 500 for report in trainer.curve] == [2, 4, 5]
    assert [report.end and report.end.reason for report in trainer.curve] == [None, None, StopReason.BUDGET]


def test_a_finished_trainer_returns_its_last_report_again(corpus, make_trial):
    trainer = _run_to_end(GradientTrainer(make_trial(epochs=1), corpus))
    assert trainer.advance() is trainer.curve[-1]
    assert len(trainer.curve) == 1


def test_patience_ends_a_trial_that_no_longer_improves(corpus, make_trial):
    config = make_trial(
        epochs=50, patience=2, optimiser={"kind": "sgd", "learning_rate": 1e-12}, clip_norm=None
    )
    trainer = _run_to_end(GradientTrainer(config, corpus))
    best = min(range(len(trainer.curve)), key=lambda index: require(trainer.curve[index].valid_loss))
    assert str(trainer.curve[-1].end) == "no improvement in 2 reports"
    assert len(trainer.curve) == best + 3


def test_the_training_loss_is_nats_per_token_since_the_last_report(corpus, make_trial):
    """A tiny rate does not change the weights, so every interval has the loss of the split."""
    optimiser = {"kind": "sgd", "learning_rate": 1e-30}
    trainer = _run_to_end(
        GradientTrainer(
            make_trial(model={"family": "lstm", "width": 8}, optimiser=optimiser, epochs=2), corpus
        )
    )
    model: Any = trainer.model
    expected = LanguageModelling(corpus, SentenceProtocol()).evaluate(model, "train").loss
    for report in trainer.curve:
        assert report.train_loss == pytest.approx(expected, rel=1e-6)
        assert report.train_perplexity == pytest.approx(math.exp(expected), rel=1e-5)


def test_the_gradient_norm_is_the_mean_over_the_steps(corpus, make_trial):
    """A tiny rate does not change the weights, so each batch has one gradient."""
    config = make_trial(
        {"family": "lstm", "width": 8}, epochs=1, optimiser={"kind": "sgd", "learning_rate": 1e-30}
    )
    trainer = GradientTrainer(config, corpus)
    model: Any = trainer.model
    task = LanguageModelling(corpus, config.protocol)
    plan = task.training_plan(config.seed, 0)
    norms = []
    for batch in map(plan.batch, range(len(plan))):
        model.zero_grad()
        (task.loss(model, batch, None)[0] / len(batch.inputs_BT)).backward()
        norms.append(torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm().item())
    assert trainer.advance().gradient_norm == pytest.approx(sum(norms) / len(norms), rel=1e-5)


@pytest.mark.parametrize("reduction", ["tokens", "sentences"])
@pytest.mark.parametrize("protocol", [SENTENCE, STREAM], ids=lambda protocol: protocol["kind"])
def test_one_step_of_sgd_follows_the_reduced_and_clipped_gradient(corpus, make_trial, reduction, protocol):
    """theta - rate * g * min(1, clip / |g|), g of the mean over tokens or rows; the schedule halves 0.6."""
    model = {"family": "lstm", "width": 8, "tie_output": True}
    config = make_trial(
        model=model,
        protocol=protocol,
        tokens=1,
        loss_reduction=reduction,
        clip_norm=0.5,
        optimiser={"kind": "sgd", "learning_rate": 0.6},
        schedule={"kind": "step", "factor": 0.5, "hold_epochs": 0},
    )
    trainer = GradientTrainer(config, corpus)
    plain = build_model(config.model, len(corpus.vocabulary), config.seed)
    task = LanguageModelling(corpus, config.protocol)
    batch = task.training_plan(config.seed, 0).batch(0)
    rows, tokens = len(batch.inputs_BT), batch.token_count
    (task.loss(plain, batch, None)[0] / (tokens if reduction == "tokens" else rows)).backward()
    norm = torch.stack([parameter.grad.norm() for parameter in plain.parameters()]).norm().item()
    report = trainer.advance()
    assert report.gradient_norm == pytest.approx(norm, rel=1e-5)
    for learned, parameter in zip(trainer.model.parameters(), plain.parameters(), strict=True):
        expected = parameter - 0.3 * parameter.grad * min(1.0, 0.5 / norm)
        torch.testing.assert_close(learned, expected, rtol=1e-5, atol=1e-7)


def test_the_learning_rate_follows_the_schedule(corpus, make_trial):
    config = make_trial(
        epochs=4,
        optimiser={"kind": "sgd", "learning_rate": 0.8},
        schedule={"kind": "step", "factor": 0.5, "hold_epochs": 2},
    )
    rates = [report.learning_rate for report in _run_to_end(GradientTrainer(config, corpus)).curve]
    assert rates == pytest.approx([0.8, 0.8, 0.4, 0.2])


def test_inverse_decay_counts_the_steps(corpus, make_trial):
    optimiser, schedule = {"kind": "sgd", "learning_rate": 0.8}, {"kind": "inverse", "decay": 0.5}
    config = make_trial(protocol=STREAM, epochs=1, optimiser=optimiser, schedule=schedule)
    steps = len(config.protocol.training_plan(corpus["train"], config.seed, 0))
    rate = GradientTrainer(config, corpus).advance().learning_rate
    assert rate == pytest.approx(0.8 / (1 + 0.5 * (steps - 1)))


def test_accumulated_batches_are_one_step_on_the_mean_loss_of_their_tokens(corpus, make_trial):
    model, optimiser = {"family": "lstm", "width": 8}, {"kind": "sgd", "learning_rate": 1.0}
    fields = {"clip_norm": None, "loss_reduction": "tokens", "accumulated_batches": 3}
    trainer = GradientTrainer(make_trial(model, STREAM, optimiser=optimiser, **fields), corpus)
    plain: Any = build_model(trainer.config.model, len(corpus.vocabulary), trainer.config.seed)
    protocol: Any = trainer.config.protocol
    plan = LanguageModelling(corpus, protocol).training_plan(trainer.config.seed, 0)
    batches, state = [plan.batch(index) for index in range(3)], None
    for batch in batches:
        nats, state = trainer._task.loss(plain, batch, state)
        (nats / sum(each.token_count for each in batches)).backward()
    trainer.train_for(0.0)
    assert trainer._loop.position.updates == 1
    assert trainer._loop.position.batch == 3
    for own, other in zip(trainer.model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(own, other - require(other.grad), rtol=1e-4, atol=1e-6)  # float32 sums


def test_the_last_step_of_an_epoch_has_the_batches_that_are_left(corpus, make_trial):
    config = make_trial(protocol=STREAM, epochs=1, accumulated_batches=7)
    trainer = GradientTrainer(config, corpus)
    batches = len(config.protocol.training_plan(corpus["train"], config.seed, 0))
    assert batches % 7
    assert trainer.advance().tokens == trainer.epoch_tokens
    assert trainer._loop.position.updates == -(-batches // 7)


def test_a_batch_of_random_length_scales_its_own_rate(corpus, make_trial):
    """The step is scaled by length / protocol length; the report holds the unscaled rate."""
    protocol = STREAM | {"length": 20, "random_lengths": True}
    model, optimiser = {"family": "lstm", "width": 8}, {"kind": "sgd", "learning_rate": 0.6}
    config = make_trial(model, protocol, tokens=1, clip_norm=None, optimiser=optimiser)
    trainer = GradientTrainer(config, corpus)
    plain = build_model(config.model, len(corpus.vocabulary), config.seed)
    task = LanguageModelling(corpus, config.protocol)
    batch = task.training_plan(config.seed, 0).batch(0)
    rows, length = batch.inputs_BT.shape
    assert length != 20
    (task.loss(plain, batch, None)[0] / rows).backward()
    assert trainer.advance().learning_rate == 0.6
    for learned, parameter in zip(trainer.model.parameters(), plain.parameters(), strict=True):
        expected = parameter - 0.6 * length / 20 * parameter.grad
        torch.testing.assert_close(learned, expected, rtol=1e-5, atol=1e-7)


def test_divergence_is_a_finished_report(corpus, make_trial):
    config = make_trial(epochs=30, clip_norm=None, optimiser={"kind": "sgd", "learning_rate": 1e39})
    report = _run_to_end(GradientTrainer(config, corpus)).curve[-1]
    assert report.is_finished
    assert str(report.end) == "diverged: the training loss is not finite"
    assert report.train_loss is None
    assert report.valid_loss is None


def test_a_gradient_that_is_not_finite_ends_the_trial(corpus, make_trial):
    trainer = GradientTrainer(make_trial(), corpus)
    model: Any = trainer.model
    model.output.weight.register_hook(lambda gradient: gradient * math.nan)
    report = trainer.advance()
    assert str(report.end) == "diverged: the gradient is not finite"
    assert report.gradient_norm is None


def test_a_validation_far_worse_than_chance_ends_the_trial(corpus, make_trial):
    config = make_trial(epochs=30, clip_norm=None, optimiser={"kind": "sgd", "learning_rate": 300.0})
    trainer = _run_to_end(GradientTrainer(config, corpus))
    assert str(trainer.curve[-1].end).startswith("diverged: the validation perplexity")
    assert trainer.curve[-1].cost is None
    assert trainer.best is None or require(trainer.best.valid_perplexity) < 10 * len(corpus.vocabulary)


def test_a_validation_that_is_not_a_number_is_told_apart():
    assert find_divergence(Metrics(loss=math.nan, perplexity=math.nan, tokens=1), 2) == (
        "the validation loss is not a number"
    )


def test_best_is_the_report_with_the_lowest_validation_loss(corpus, make_trial):
    trainer = _run_to_end(GradientTrainer(make_trial(MEMORY, epochs=4), corpus))
    assert require(trainer.best).valid_loss == min(require(report.valid_loss) for report in trainer.curve)


def test_training_never_reads_the_test_split(corpus, make_trial):
    without = replace(corpus, splits={name: corpus[name] for name in ("train", "valid")})
    assert _run_to_end(GradientTrainer(make_trial(epochs=1), without)).is_finished


def test_equal_trials_give_equal_bits_whatever_the_process_drew(corpus, make_trial):
    first = _run_to_end(GradientTrainer(make_trial(), corpus))
    torch.rand(7)
    second = _run_to_end(GradientTrainer(make_trial(), corpus))
    for one, other in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_training_does_not_change_the_random_state_of_the_process(corpus, make_trial):
    before = torch.get_rng_state()
    GradientTrainer(make_trial(), corpus).advance()
    assert torch.equal(torch.get_rng_state(), before)


def test_two_trainers_in_one_process_do_not_affect_each_other(corpus, make_trial):
    alone = _run_to_end(GradientTrainer(make_trial(), corpus))
    first, second = GradientTrainer(make_trial(), corpus), GradientTrainer(make_trial(seed=9), corpus)
    while not first.is_finished:
        first.advance()
        second.advance()
    assert [report.valid_loss for report in first.curve] == [report.valid_loss for report in alone.curve]


def test_progress_holds_tokens_and_the_remaining_time(corpus, make_trial, monkeypatch):
    monkeypatch.setattr("memtune.training.training_loop.PROGRESS_SECONDS", 0.0)
    updates: list[Any] = []
    report = GradientTrainer(make_trial(epochs=1), corpus).advance(updates.append)
    assert [update.tokens for update in updates] == sorted(update.tokens for update in updates)
    assert updates[-1].tokens == report.tokens
    assert updates[-1].seconds_left == 0
    assert updates[0].seconds_left > 0
    assert updates[-1].loss == pytest.approx(report.train_loss)


def test_reports_hold_time_and_memory_of_the_trial(corpus, make_trial):
    trainer = _run_to_end(GradientTrainer(make_trial(epochs=2), corpus))
    first, second = trainer.curve
    assert 0 < first.seconds < second.seconds
    assert second.tokens / second.seconds < max(first.tokens_per_second, second.tokens_per_second)
    assert 0 < first.peak_memory_bytes <= second.peak_memory_bytes


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can reset the peak")
def test_peak_memory_excludes_allocations_before_the_trial(corpus, make_trial):
    torch.zeros(2**26)
    before = measure_peak_bytes(torch.device("cpu"))
    assert GradientTrainer(make_trial(epochs=1), corpus).advance().peak_memory_bytes < before - 2**27


def test_a_protocol_that_would_fail_at_the_first_report_is_refused_at_once(corpus, make_trial):
    """The 300 training sentences fill batches of 12 of one length, the 40 of validation do not."""
    protocol = {
        "kind": "sentence",
        "batch_size": 12,
        "variant": "tran2016",
        "min_length": 2,
        "max_length": 9,
    }
    with pytest.raises(ConfigurationError, match='has 12 sentences in "valid"'):
        GradientTrainer(make_trial(protocol=protocol), corpus)


def test_after_an_interruption_the_trainer_must_be_restored(corpus, make_trial, tmp_path, monkeypatch):
    monkeypatch.setattr("memtune.training.training_loop.PROGRESS_SECONDS", 0.0)

    def interrupt(progress):
        raise KeyboardInterrupt

    trainer = GradientTrainer(make_trial(), corpus)
    with pytest.raises(KeyboardInterrupt):
        trainer.advance(interrupt)
    with pytest.raises(TrialError, match="restore the last checkpoint"):
        trainer.advance()
    with pytest.raises(TrialError, match="restore the last checkpoint"):
        trainer.save(tmp_path / "checkpoint")


@pytest.mark.parametrize("option", [{"precision": "float16"}, {"compile": True}])
def test_options_that_need_a_gpu_are_refused_on_a_cpu(corpus, make_trial, option):
    with pytest.raises(ConfigurationError, match=f"{next(iter(option))} = .* needs a CUDA device, not cpu"):
        GradientTrainer(make_trial(**option), corpus)


def test_bfloat16_is_refused_on_a_processor_without_its_instructions(corpus, make_trial, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": False, "amx_bf16": False})
    with pytest.raises(ConfigurationError, match="AMX-BF16 or AVX512-BF16, and this processor has neither"):
        GradientTrainer(make_trial(precision="bfloat16"), corpus)


@pytest.mark.parametrize("device", ["gpu", "mps", "meta"])
def test_an_unknown_device_is_refused(corpus, make_trial, device):
    with pytest.raises(ConfigurationError, match=f'such as "cuda:1", got "{device}"'):
        GradientTrainer(make_trial(), corpus, device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_refused(corpus, make_trial):
    with pytest.raises(ConfigurationError, match="torch finds no GPU"):
        GradientTrainer(make_trial(), corpus, "cuda")


def test_the_estimated_cost_of_a_training_has_its_validations(corpus, make_trial, monkeypatch):
    epoch_tokens = make_trial().task.open(corpus, make_trial().protocol).epoch_tokens
    trainer = SimpleNamespace(tokens=0, epoch_tokens=epoch_tokens)
    trainer.train_for = lambda seconds: setattr(trainer, "tokens", trainer.tokens + 100)
    monkeypatch.setattr(trainers, "GradientTrainer", lambda config, corpus, device: trainer)
    seconds = itertools.count()
    monkeypatch.setattr(trainers, "time", SimpleNamespace(process_time=lambda: next(seconds)))
    often, seldom = (
        measure_seconds_per_token(make_trial(tokens=9_000, report_every=every), corpus) - 0.01
        for every in (300, 3_000)
    )
    assert often == pytest.approx(10 * seldom)
    validated = 0.01 * trainers.VALIDATION_SHARE * corpus["valid"].token_count
    assert often == pytest.approx(validated / 300, rel=0.05)


@pytest.mark.parametrize("budget", [{"epochs": 1, "report_every": 1}, {"tokens": 1}])
def test_the_cost_of_a_training_is_measured_over_its_reports_and_its_budget(
    corpus, make_trial, monkeypatch, budget
):
    """Else one batch in the first step would leave nothing to measure."""
    measured: list[GradientTrainer] = []

    def note(*given: Any) -> GradientTrainer:
        measured.append(GradientTrainer(*given))
        return measured[-1]

    monkeypatch.setattr(trainers, "GradientTrainer", note)
    measure_seconds_per_token(make_trial(**budget), corpus)
    assert measured[0].tokens > 2 * measured[0].epoch_tokens
