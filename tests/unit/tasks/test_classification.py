"""Sentiment and inference: labels, batches, metrics, pretrained vectors and exact resumption."""

import math
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from memtune.corpora import Example, import_corpus, open_corpus
from memtune.corpora.batching.protocols import SentenceProtocol, StreamProtocol
from memtune.corpora.store.vocabulary import Vectors
from memtune.errors import ConfigurationError, CorpusError
from memtune.models import LSTMConfig
from memtune.models.families.kneser_ney import KneserNeyConfig
from memtune.models.families.lstmn import LSTMNConfig
from memtune.tasks import InferenceConfig, SentimentConfig, build_task_model
from memtune.training import (
    GradientTrainer,
    TrialConfig,
    create_trainer,
    evaluate,
    read_checkpoint,
    restore_trainer,
)
from memtune.values import parse
from tests.golden.tiny_corpus import make_tiny_corpus
from tests.presence import require
from tests.unit.tasks.labelled_corpora import make_inference_corpus, make_sentiment_corpus

READER = LSTMNConfig(width=6, embedding_width=4, initial_range=0.5)
PROTOCOL = SentenceProtocol(batch_size=4)
SENTIMENTS = [
    SentimentConfig(classes=classes, phrases=phrases) for classes in (5, 2) for phrases in ("root", "all")
]
INFERENCES = [InferenceConfig(fusion=fusion) for fusion in ("none", "shallow", "deep")]
each_task = pytest.mark.parametrize(
    "task",
    [*SENTIMENTS, *INFERENCES],
    ids=lambda task: " ".join(map(str, task.model_dump(exclude_defaults=True).values())) or task.kind,
)


@pytest.fixture(scope="module")
def sentiment_corpus(tmp_path_factory):
    return make_sentiment_corpus(tmp_path_factory.mktemp("sentiment"))


@pytest.fixture(scope="module")
def inference_corpus(tmp_path_factory):
    return make_inference_corpus(tmp_path_factory.mktemp("pairs"))


@pytest.fixture
def find_corpus(sentiment_corpus, inference_corpus):
    return lambda task: sentiment_corpus if task.kind == "sentiment" else inference_corpus


def read_sentence(corpus, split, number) -> list[int]:
    text = corpus[split]
    start = text.starts[number]
    return text.read_tokens(start, start + text.lengths[number] - 1).tolist()


def list_expected_examples(task, corpus, split, training) -> Counter:
    """Examples from the tables, row by row: words, the second sentence or the span, and the class."""
    rows = corpus.annotations[task.kind][split].to_pylist()
    if task.kind == "inference":
        return Counter(
            (
                tuple(read_sentence(corpus, split, row["premise"])),
                tuple(read_sentence(corpus, split, row["hypothesis"])),
                row["label"],
            )
            for row in rows
        )
    if task.classes == 2:
        neutral = {row["sentence"] for row in rows if row["root"] and row["label"] == 2}
        rows = [row for row in rows if row["label"] != 2 and row["sentence"] not in neutral]
    if task.phrases == "root" or not training:
        rows = [row for row in rows if row["root"]]
    return Counter(
        (
            tuple(read_sentence(corpus, split, row["sentence"])),
            (row["start"], row["stop"]),
            row["label"] if task.classes == 5 else int(row["label"] > 2),
        )
        for row in rows
    )


def list_examples(task, batch) -> list:
    """The examples of a batch in the same form, without padding."""
    labels = batch.labels_N.tolist()
    if task.kind == "inference":
        premises, premise_lengths, hypotheses, lengths = (tensor.tolist() for tensor in batch.arguments)
        return [
            (tuple(p[:m]), tuple(h[:n]), label)
            for p, m, h, n, label in zip(premises, premise_lengths, hypotheses, lengths, labels, strict=True)
        ]
    words, rows, starts, stops = (tensor.tolist() for tensor in batch.arguments)
    lengths = {row: max(stop for r, stop in zip(rows, stops, strict=True) if r == row) for row in rows}
    return [
        (tuple(words[row][: lengths[row]]), (start, stop), label)
        for row, start, stop, label in zip(rows, starts, stops, labels, strict=True)
    ]


def list_batches(plan) -> list:
    return [plan.batch(index) for index in range(len(plan))]


@each_task
def test_chance_is_the_share_of_the_most_frequent_validation_label(task, find_corpus) -> None:
    corpus = find_corpus(task)
    labels = Counter[int]()
    for example, count in list_expected_examples(task, corpus, "valid", training=False).items():
        labels[example[-1]] += count
    assert task.open(corpus, PROTOCOL).chance == max(labels.values()) / labels.total()


@each_task
def test_an_epoch_reads_every_example_once(task, find_corpus):
    corpus = find_corpus(task)
    opened = task.open(corpus, PROTOCOL)
    expected = list_expected_examples(task, corpus, "train", training=True)
    for seed, epoch in ((0, 0), (0, 1), (1, 0)):
        plan = opened.training_plan(seed, epoch)
        read = Counter(example for batch in list_batches(plan) for example in list_examples(task, batch))
        assert read == expected
        assert (
            plan.token_count == opened.epoch_tokens == sum(batch.token_count for batch in list_batches(plan))
        )


@each_task
@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_an_evaluation_reads_each_whole_sentence_once(task, split, find_corpus):
    corpus = find_corpus(task)
    model = build_task_model(task, READER, len(corpus.vocabulary), seed=1).double()
    nats, correct, expected = 0.0, 0, list_expected_examples(task, corpus, split, training=False)
    model.eval()
    for *example, label in expected.elements():
        logits_C = model(*make_single_batch(task, example))[0]
        nats -= logits_C.log_softmax(0)[label].item()
        correct += int(logits_C.argmax()) == label
    count = expected.total()
    metrics = task.open(corpus, PROTOCOL).evaluate(model.train(), split)
    assert model.training
    assert metrics.loss == pytest.approx(nats / count, rel=1e-12)
    assert metrics.perplexity == pytest.approx(math.exp(nats / count))
    assert (metrics.accuracy, metrics.questions, metrics.tokens) == (correct / count, count, count)


def make_single_batch(task, example) -> tuple[torch.Tensor, ...]:
    first, second = example
    if task.kind == "inference":
        return (
            torch.tensor([first]),
            torch.tensor([len(first)]),
            torch.tensor([second]),
            torch.tensor([len(second)]),
        )
    return torch.tensor([first]), torch.tensor([0]), torch.tensor([second[0]]), torch.tensor([second[1]])


@each_task
def test_the_loss_is_the_cross_entropy_of_the_labels(task, find_corpus):
    corpus = find_corpus(task)
    opened = task.open(corpus, PROTOCOL)
    model: Any = build_task_model(task, READER, len(corpus.vocabulary), seed=1).eval()
    batch = opened.training_plan(0, 0).batch(0)
    nats, state = opened.loss(model, batch, None)
    expected = functional.cross_entropy(model(*batch.arguments), batch.labels_N, reduction="sum")
    torch.testing.assert_close(nats, expected)
    assert state == {}


def test_batches_hold_examples_of_similar_length_in_an_order_given_by_the_seed(tmp_path):
    corpus = make_sentiment_corpus(tmp_path, train=300)
    opened = SentimentConfig().open(corpus, SentenceProtocol(batch_size=5))
    lengths = [batch.arguments[3].tolist() for batch in list_batches(opened.training_plan(0, 0))]
    assert {len(batch) for batch in lengths} == {5}
    assert max(max(batch) - min(batch) for batch in lengths) <= 1
    longest = [max(batch) for batch in lengths]
    assert longest != sorted(longest)
    again, other = (opened.training_plan(0, epoch).batch(7) for epoch in (0, 1))
    assert torch.equal(again.arguments[0], opened.training_plan(0, 0).batch(7).arguments[0])
    assert not (
        again.arguments[0].shape == other.arguments[0].shape
        and torch.equal(again.arguments[0], other.arguments[0])
    )


def make_trial(task, epochs: float = 3, seed: int = 3, **optimiser) -> TrialConfig:
    data = {
        "task": task.model_dump(mode="json"),
        "model": {"family": "lstmn", "width": 8, "embedding_width": 6, "initial_range": 0.5},
        "protocol": {"kind": "sentence", "batch_size": 4},
        "training": {
            "epochs": epochs,
            "loss_reduction": "tokens",
            "optimiser": {"kind": "adam", "learning_rate": 0.02} | optimiser,
        },
        "seed": seed,
    }
    return parse(TrialConfig, data, "trial")


LEARNABLE_TASKS = [
    SentimentConfig(classes=2, dropout=0.1),
    SentimentConfig(phrases="all", dropout=0.1),
    InferenceConfig(dropout=0.0),
    InferenceConfig(fusion="shallow", dropout=0.0),
    InferenceConfig(fusion="deep", dropout=0.1),
]


@pytest.mark.parametrize(
    "task", LEARNABLE_TASKS, ids=lambda task: f"{task.kind} {getattr(task, 'fusion', '')}"
)
def test_a_trainer_beats_chance_and_its_model_is_evaluated(task, find_corpus, tmp_path):
    corpus = find_corpus(task)
    trainer = GradientTrainer(make_trial(task, epochs=8), corpus)
    while not trainer.is_finished:
        trainer.advance()
    chance = 1 / trainer._task.outcome_count
    best, accuracy = require(trainer.best), require(require(trainer.best).valid_accuracy)
    assert accuracy > chance + 0.2
    assert best.cost == pytest.approx(1 - accuracy)
    assert require(trainer.curve[-1].train_loss) < 0.7 * require(trainer.curve[0].train_loss)
    metrics = evaluate(trainer.model, corpus, PROTOCOL, "test", task=task)
    assert metrics.questions == list_expected_examples(task, corpus, "test", training=False).total()


@pytest.mark.parametrize("task", [SENTIMENTS[1], INFERENCES[2]], ids=lambda task: task.kind)
def test_a_trial_resumed_between_epochs_ends_with_the_same_bits(task, find_corpus, tmp_path):
    corpus = find_corpus(task)
    config = make_trial(task, epochs=2.5)
    config = config.model_copy(
        update={"training": require(config.training).model_copy(update={"report_every": 37})}
    )
    uninterrupted = GradientTrainer(config, corpus)
    while not uninterrupted.is_finished:
        uninterrupted.advance()
    resumed = create_trainer(config, corpus)
    while not resumed.is_finished:
        resumed.advance()
        resumed.save(tmp_path / "checkpoint")
        resumed = restore_trainer(read_checkpoint(tmp_path / "checkpoint"), corpus)
    assert [report.train_loss for report in resumed.curve] == [
        report.train_loss for report in uninterrupted.curve
    ]
    for name, tensor in uninterrupted.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], tensor), name


def add_vectors(corpus, width: int):
    """The corpus with a pretrained vector for every other word."""
    random = np.random.default_rng(0)
    values_VE = random.normal(size=(len(corpus.vocabulary), width)).astype(np.float32)
    vectors = Vectors(values_VE, np.arange(len(values_VE)) % 2 == 0)
    return replace(corpus, vectors=vectors)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("task", [SENTIMENTS[0], INFERENCES[0]], ids=lambda task: task.kind)
def test_gradients_of_pretrained_words_are_scaled_only_in_the_first_epoch(task, find_corpus, sparse):
    corpus = add_vectors(find_corpus(task), width=4)
    task = task.model_copy(update={"first_epoch_scale": 0.25})
    opened = task.open(corpus, PROTOCOL)
    model: Any = build_task_model(task, READER, len(corpus.vocabulary), seed=1).eval()
    opened.initialise_model(model)
    (table,), vectors = model.find_embedding_tables(), corpus.vectors
    assert np.array_equal(table.weight.detach().numpy(), vectors.values_VE)
    table.sparse = sparse

    def compute_gradient(epoch):
        opened.on_epoch_start(model, epoch)
        model.zero_grad()
        for batch in list_batches(opened.training_plan(0, 0)):
            opened.loss(model, batch, None)[0].backward()
        return table.weight.grad.to_dense() if sparse else table.weight.grad.clone()

    first, second = compute_gradient(0), compute_gradient(1)
    assert second[vectors.known_V].ne(0).any()
    torch.testing.assert_close(first[vectors.known_V], 0.25 * second[vectors.known_V])
    torch.testing.assert_close(first[~vectors.known_V], second[~vectors.known_V])
    torch.testing.assert_close(compute_gradient(0), first)


def test_pretrained_words_are_trained_in_float32_whatever_the_default_type_of_a_program_is(sentiment_corpus):
    corpus = add_vectors(sentiment_corpus, width=6)
    config = make_trial(SENTIMENTS[0].model_copy(update={"first_epoch_scale": 0.25}))
    weights = []
    for default in (torch.float32, torch.float64):
        torch.set_default_dtype(default)
        try:
            trainer = GradientTrainer(config, corpus)
            trainer.advance()
        finally:
            torch.set_default_dtype(torch.float32)
        weights.append(trainer.model.state_dict())
    torch.testing.assert_close(weights[1], weights[0], rtol=0, atol=0)


def test_vectors_of_another_width_are_refused(sentiment_corpus):
    with pytest.raises(ConfigurationError, match="embedding_width = 7"):
        GradientTrainer(make_trial(SENTIMENTS[0]), add_vectors(sentiment_corpus, width=7))


def test_pretrained_vectors_can_be_switched_off(sentiment_corpus):
    task = SentimentConfig(pretrained_vectors=False)
    plain, with_unused_vectors = (
        GradientTrainer(make_trial(task), corpus)
        for corpus in (sentiment_corpus, add_vectors(sentiment_corpus, width=7))
    )
    models: list[Any] = [plain.model, with_unused_vectors.model]
    tables = [model.find_embedding_tables()[0] for model in models]
    assert torch.equal(tables[0].weight, tables[1].weight)


@pytest.mark.parametrize("shared", [True, False])
def test_inference_freezes_pretrained_words_in_the_first_epoch(shared, inference_corpus, tmp_path):
    """They stay frozen after a restart within the epoch, and train in later epochs."""
    corpus = add_vectors(inference_corpus, width=6)
    config = make_trial(InferenceConfig(shared_reader=shared), epochs=2)
    every = require(config.training).model_copy(update={"report_every": 30})
    trainer = create_trainer(config.model_copy(update={"training": every}), corpus)
    trainer.advance()
    trainer.save(tmp_path / "checkpoint")
    trainer = restore_trainer(read_checkpoint(tmp_path / "checkpoint"), corpus)
    known_V = corpus.vectors.known_V
    model: Any = trainer.model
    while trainer.tokens < 60:
        trainer.advance()
    for table in model.find_embedding_tables():
        moved_V = (table.weight.detach().numpy() != corpus.vectors.values_VE).any(1)
        assert not moved_V[known_V].any()
        assert moved_V[~known_V].any()
    while not trainer.is_finished:
        trainer.advance()
    for table in model.find_embedding_tables():
        assert (table.weight.detach().numpy() != corpus.vectors.values_VE).any(1)[known_V].any()


@each_task
def test_the_parameter_count_matches_the_formula(task, find_corpus):
    words = len(find_corpus(task).vocabulary)
    built = sum(parameter.numel() for parameter in build_task_model(task, READER, words, seed=0).parameters())
    assert task.parameter_count(READER, words) == built
    assert task.multiply_adds(READER, words) == task.multiply_adds(READER, 10 * words) > 0


@pytest.mark.parametrize(
    ("task", "other"),
    [(SentimentConfig(), "inference"), (InferenceConfig(), "sentiment")],
    ids=["sentiment", "inference"],
)
def test_a_corpus_without_the_labels_is_refused(task, other, find_corpus, tmp_path):
    for corpus in (find_corpus(SimpleNamespace(kind=other)), make_tiny_corpus(tmp_path)):
        with pytest.raises(
            CorpusError, match=f'"{corpus.name}" has no {task.kind} labels in its train split'
        ):
            task.open(corpus, PROTOCOL)


@pytest.mark.parametrize(
    "protocol", [StreamProtocol(), SentenceProtocol(variant="tran2016")], ids=lambda p: p.kind
)
def test_a_protocol_without_complete_sentences_is_refused(protocol, sentiment_corpus):
    with pytest.raises(ConfigurationError, match=r'set protocol\.kind = "sentence"'):
        SentimentConfig().open(sentiment_corpus, protocol)


def test_an_evaluation_of_a_split_without_labels_names_it(sentiment_corpus):
    opened = SentimentConfig().open(sentiment_corpus, PROTOCOL)
    model: Any = build_task_model(SentimentConfig(), READER, len(sentiment_corpus.vocabulary), seed=1)
    with pytest.raises(CorpusError, match='no labels for "held"; it has train, valid, test'):
        opened.evaluate(model, "held")


def test_a_pair_without_words_is_refused(tmp_path):
    examples = [Example([["a", "b"], []], {"inference": [(0, 1, 0)]})]
    import_corpus("gap", {"train": examples, "valid": examples}, tmp_path, cache=tmp_path / "cache")
    with pytest.raises(CorpusError, match="sentence 1 of train has a label but no words"):
        InferenceConfig().open(open_corpus("gap", tmp_path, tmp_path / "cache"), PROTOCOL)


@pytest.mark.parametrize("task", [SentimentConfig(), InferenceConfig()], ids=lambda task: task.kind)
def test_an_n_gram_model_is_refused(task):
    with pytest.raises(ConfigurationError, match='family = "kneser_ney" learns by counting'):
        task.build(KneserNeyConfig(), 10)


def test_any_network_reads_the_two_sentences_separately(inference_corpus):
    task = InferenceConfig()
    model: Any = build_task_model(task, LSTMConfig(width=5), len(inference_corpus.vocabulary), seed=1)
    metrics = task.open(inference_corpus, PROTOCOL).evaluate(model, "valid")
    assert 0 <= require(metrics.accuracy) <= 1


@pytest.mark.parametrize("split", ["train", "valid"])
def test_a_split_of_neutral_sentences_is_refused_in_two_classes(split, tmp_path):
    examples = {
        each: [Example([["film"]], {"sentiment": [(0, 0, 1, 2 if each == split else 4, True)]})]
        for each in ("train", "valid", "test")
    }
    import_corpus("neutral", examples, tmp_path)
    with pytest.raises(CorpusError, match=f"no label of the {split} split counts: neutral sentences"):
        SentimentConfig(classes=2).open(open_corpus("neutral", tmp_path), PROTOCOL)
