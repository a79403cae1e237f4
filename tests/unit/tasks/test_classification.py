"""Sentiment and inference: which labels count, batches, metrics, pretrained vectors, and exact resumes."""

import math
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional

from memtune.corpora import Example, import_corpus, open_corpus
from memtune.corpora.protocols import SentenceProtocol, StreamProtocol
from memtune.corpora.vectors import Vectors
from memtune.errors import ConfigurationError, CorpusError
from memtune.models import LSTMConfig, LSTMNConfig
from memtune.models.kneser_ney import KneserNeyConfig
from memtune.tasks import InferenceConfig, SentimentConfig, build
from memtune.training import Learner, TrialConfig, evaluate
from memtune.values import parse
from tests.golden.tiny_corpus import tiny_corpus
from tests.unit.tasks.labelled_corpora import inference_corpus, sentiment_corpus

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
def mood(tmp_path_factory):
    return sentiment_corpus(tmp_path_factory.mktemp("mood"))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    return inference_corpus(tmp_path_factory.mktemp("pairs"))


@pytest.fixture
def corpus_of(mood, pairs):
    return lambda task: mood if task.kind == "sentiment" else pairs


def sentence(corpus, split, number) -> list[int]:
    held = corpus[split]
    start = held.starts[number]
    return held.tokens(start, start + held.lengths[number] - 1).tolist()


def expected_examples(task, corpus, split, training) -> Counter:
    """What is asked, read from the tables row by row: words, where they stand, and the class."""
    rows = corpus.annotations[task.kind][split].to_pylist()
    if task.kind == "inference":
        return Counter(
            (
                tuple(sentence(corpus, split, row["premise"])),
                tuple(sentence(corpus, split, row["hypothesis"])),
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
            tuple(sentence(corpus, split, row["sentence"])),
            (row["start"], row["stop"]),
            row["label"] if task.classes == 5 else int(row["label"] > 2),
        )
        for row in rows
    )


def examples_of(task, batch) -> list:
    """The same from a batch, padding removed."""
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


def batches(plan) -> list:
    return [plan.batch(index) for index in range(len(plan))]


@each_task
def test_an_epoch_asks_every_example_once(task, corpus_of):
    corpus = corpus_of(task)
    opened = task.open(corpus, PROTOCOL)
    wanted = expected_examples(task, corpus, "train", training=True)
    for seed, epoch in ((0, 0), (0, 1), (1, 0)):
        plan = opened.training_plan(seed, epoch)
        asked = Counter(example for batch in batches(plan) for example in examples_of(task, batch))
        assert asked == wanted
        assert plan.token_count == opened.epoch_tokens == sum(batch.token_count for batch in batches(plan))


@each_task
@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_an_evaluation_asks_for_whole_sentences_once(task, split, corpus_of):
    corpus = corpus_of(task)
    model = build(task, READER, len(corpus.vocabulary), seed=1).double()
    nats, right, wanted = 0.0, 0, expected_examples(task, corpus, split, training=False)
    model.eval()
    for *example, label in wanted.elements():
        logits_C = model(*alone(task, example))[0]
        nats -= logits_C.log_softmax(0)[label].item()
        right += int(logits_C.argmax()) == label
    count = wanted.total()
    metrics = task.open(corpus, PROTOCOL).evaluate(model.train(), split)
    assert model.training
    assert metrics.loss == pytest.approx(nats / count, rel=1e-12)
    assert metrics.perplexity == pytest.approx(math.exp(nats / count))
    assert (metrics.accuracy, metrics.questions, metrics.tokens) == (right / count, count, count)


def alone(task, example) -> tuple[torch.Tensor, ...]:
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
def test_the_loss_is_the_cross_entropy_of_the_labels(task, corpus_of):
    corpus = corpus_of(task)
    opened, model = task.open(corpus, PROTOCOL), build(task, READER, len(corpus.vocabulary), seed=1).eval()
    batch = opened.training_plan(0, 0).batch(0)
    nats, state = opened.loss(model, batch, None)
    expected = functional.cross_entropy(model(*batch.arguments), batch.labels_N, reduction="sum")
    torch.testing.assert_close(nats, expected)
    assert state == {}


def test_batches_hold_examples_of_like_length_in_an_order_of_the_seed(tmp_path):
    corpus = sentiment_corpus(tmp_path, train=300)
    opened = SentimentConfig().open(corpus, SentenceProtocol(batch_size=5))
    lengths = [batch.arguments[3].tolist() for batch in batches(opened.training_plan(0, 0))]
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


def trial(task, epochs: float = 3, seed: int = 3, **optimiser) -> TrialConfig:
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


LEARNT = [
    SentimentConfig(classes=2, dropout=0.1),
    SentimentConfig(phrases="all", dropout=0.1),
    InferenceConfig(dropout=0.0),
    InferenceConfig(fusion="shallow", dropout=0.0),
    InferenceConfig(fusion="deep", dropout=0.1),
]


@pytest.mark.parametrize("task", LEARNT, ids=lambda task: f"{task.kind} {getattr(task, 'fusion', '')}")
def test_a_learner_learns_and_its_best_model_is_evaluated(task, corpus_of, tmp_path):
    corpus = corpus_of(task)
    learner = Learner(trial(task, epochs=12), corpus)
    while not learner.finished:
        learner.advance()
    chance = 1 / learner._task.choices
    assert learner.best.valid_accuracy > chance + 0.2
    assert learner.best.cost == pytest.approx(1 - learner.best.valid_accuracy)
    assert learner.curve[-1].train_loss < 0.7 * learner.curve[0].train_loss
    found = evaluate(learner.model, corpus, PROTOCOL, "test", task=task)
    assert found.questions == expected_examples(task, corpus, "test", training=False).total()


@pytest.mark.parametrize("task", [SENTIMENTS[1], INFERENCES[2]], ids=lambda task: task.kind)
def test_a_trial_resumed_between_epochs_ends_with_the_same_bits(task, corpus_of, tmp_path):
    corpus, through = corpus_of(task), None
    config = trial(task, epochs=2.5)
    config = config.model_copy(update={"training": config.training.model_copy(update={"report_every": 37})})
    through = Learner(config, corpus)
    while not through.finished:
        through.advance()
    stopped = Learner(config, corpus)
    while not stopped.finished:
        stopped.advance()
        stopped.save(tmp_path / "checkpoint")
        stopped = Learner.restore(tmp_path / "checkpoint", corpus)
    assert [report.train_loss for report in stopped.curve] == [report.train_loss for report in through.curve]
    for name, tensor in through.model.state_dict().items():
        assert torch.equal(stopped.model.state_dict()[name], tensor), name


def with_vectors(corpus, width: int):
    """Every other word pretrained."""
    random = np.random.default_rng(0)
    values_VE = random.normal(size=(len(corpus.vocabulary), width)).astype(np.float32)
    vectors = Vectors(values_VE, np.arange(len(values_VE)) % 2 == 0)
    return replace(corpus, vectors=vectors)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("task", [SENTIMENTS[0], INFERENCES[0]], ids=lambda task: task.kind)
def test_gradients_of_known_words_are_scaled_in_the_first_epoch_alone(task, corpus_of, sparse):
    corpus = with_vectors(corpus_of(task), width=4)
    task = task.model_copy(update={"first_epoch_scale": 0.25})
    opened, model = task.open(corpus, PROTOCOL), build(task, READER, len(corpus.vocabulary), seed=1).eval()
    opened.prepare(model)
    (table,), vectors = model.tables(), corpus.vectors
    assert np.array_equal(table.weight.detach().numpy(), vectors.values_VE)
    table.sparse = sparse

    def gradient(epoch):
        opened.enter_epoch(model, epoch)
        model.zero_grad()
        for batch in batches(opened.training_plan(0, 0)):
            opened.loss(model, batch, None)[0].backward()
        return table.weight.grad.to_dense() if sparse else table.weight.grad.clone()

    first, second = gradient(0), gradient(1)
    assert second[vectors.known_V].ne(0).any()
    torch.testing.assert_close(first[vectors.known_V], 0.25 * second[vectors.known_V])
    torch.testing.assert_close(first[~vectors.known_V], second[~vectors.known_V])
    torch.testing.assert_close(gradient(0), first)


def test_vectors_of_another_width_are_refused(mood):
    with pytest.raises(ConfigurationError, match="embedding_width = 7"):
        Learner(trial(SENTIMENTS[0]), with_vectors(mood, width=7))


def test_vectors_can_be_left_alone(mood):
    task = SentimentConfig(pretrained_vectors=False)
    plain, beside = (Learner(trial(task), corpus) for corpus in (mood, with_vectors(mood, width=7)))
    assert torch.equal(plain.model.tables()[0].weight, beside.model.tables()[0].weight)


@pytest.mark.parametrize("shared", [True, False])
def test_pretrained_words_stay_as_they_are_in_the_first_epoch_of_inference(shared, pairs, tmp_path):
    """Through a restart within the epoch too; later they learn like the others."""
    corpus = with_vectors(pairs, width=6)
    config = trial(InferenceConfig(shared_reader=shared), epochs=2)
    every = config.training.model_copy(update={"report_every": 30})
    learner = Learner(config.model_copy(update={"training": every}), corpus)
    learner.advance()
    learner.save(tmp_path / "checkpoint")
    learner = Learner.restore(tmp_path / "checkpoint", corpus)
    known_V = corpus.vectors.known_V
    while learner.tokens < 60:
        learner.advance()
    for table in learner.model.tables():
        moved_V = (table.weight.detach().numpy() != corpus.vectors.values_VE).any(1)
        assert not moved_V[known_V].any()
        assert moved_V[~known_V].any()
    while not learner.finished:
        learner.advance()
    for table in learner.model.tables():
        assert (table.weight.detach().numpy() != corpus.vectors.values_VE).any(1)[known_V].any()


@each_task
def test_the_size_is_that_of_the_formula(task, corpus_of):
    words = len(corpus_of(task).vocabulary)
    built = sum(parameter.numel() for parameter in build(task, READER, words, seed=0).parameters())
    assert task.parameter_count(READER, words) == built
    assert task.multiply_adds(READER, words) == task.multiply_adds(READER, 10 * words) > 0


@pytest.mark.parametrize(
    ("task", "other"),
    [(SentimentConfig(), "inference"), (InferenceConfig(), "sentiment")],
    ids=["sentiment", "inference"],
)
def test_a_corpus_without_the_labels_is_refused(task, other, corpus_of, tmp_path):
    for corpus in (corpus_of(SimpleNamespace(kind=other)), tiny_corpus(tmp_path)):
        with pytest.raises(
            CorpusError, match=f'"{corpus.name}" has no {task.kind} labels in its train split'
        ):
            task.open(corpus, PROTOCOL)


@pytest.mark.parametrize(
    "protocol", [StreamProtocol(), SentenceProtocol(variant="tran2016")], ids=lambda p: p.kind
)
def test_what_is_no_sentence_read_from_its_start_is_refused(protocol, mood):
    with pytest.raises(ConfigurationError, match=r'take protocol\.kind = "sentence"'):
        SentimentConfig().open(mood, protocol)


def test_a_split_without_labels_is_named(mood):
    opened = SentimentConfig().open(mood, PROTOCOL)
    with pytest.raises(CorpusError, match='no labels for "held"; it has train, valid, test'):
        opened.evaluate(build(SentimentConfig(), READER, len(mood.vocabulary), seed=1), "held")


def test_a_pair_without_words_is_refused(tmp_path):
    examples = [Example([["a", "b"], []], {"inference": [(0, 1, 0)]})]
    import_corpus("gap", {"train": examples, "valid": examples}, tmp_path, cache=tmp_path / "cache")
    with pytest.raises(CorpusError, match="sentence 1 of train has labels and no words"):
        InferenceConfig().open(open_corpus("gap", tmp_path, tmp_path / "cache"), PROTOCOL)


@pytest.mark.parametrize("task", [SentimentConfig(), InferenceConfig()], ids=lambda task: task.kind)
def test_a_family_that_counts_is_refused(task):
    with pytest.raises(ConfigurationError, match='family = "kneser_ney" counts'):
        task.build(KneserNeyConfig(), 10)


def test_any_family_reads_pairs_apart(pairs):
    task = InferenceConfig()
    model = build(task, LSTMConfig(width=5), len(pairs.vocabulary), seed=1)
    assert 0 <= task.open(pairs, PROTOCOL).evaluate(model, "valid").accuracy <= 1
