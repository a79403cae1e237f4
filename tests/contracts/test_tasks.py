"""The contract of every task in TASKS. A new task only adds its example and its identity here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from memtune.corpora import Corpus, Example, ImportOptions, import_corpus, open_corpus
from memtune.corpora.batching.protocols import SentenceProtocol
from memtune.corpora.probes.probe_corpora import import_probe
from memtune.tasks import TASKS, TaskConfig, build_task_model
from memtune.training import (
    GradientTrainer,
    TrialConfig,
    evaluate,
    load_model,
    read_checkpoint,
    restore_trainer,
    save_model,
)
from memtune.values import parse
from tests.golden.tiny_corpus import generate_sentences

TEXT = generate_sentences(60, 1)
GUIDE = Path(__file__).parents[2] / "docs" / "tasks.md"


def make_labelled_example(index: int, words: list[str]) -> Example:
    """A sentence with the annotations of all tasks: phrases, verb forms, and pairs for inference."""
    other = TEXT[(7 * index + 3) % len(TEXT)]
    phrases = [(0, 0, len(words), index % 5, True), (0, 0, 1, (index + 2) % 5, False)]
    verb = len(words) - 1
    rows: dict[str, list[tuple[Any, ...]]] = {
        "sentiment": phrases,
        "agreement": [(0, verb, words[verb], "w1" if words[verb] != "w1" else "w2", index % 4)],
        "inference": [(0, 1, index % 3)],
        "completion": [(1, 2, 0, index % 2, str(index))],
    }
    return Example([words, other, [*other[:-1], "w0"]], rows)


EXAMPLES: dict[str, dict[str, Any]] = {
    "language_modelling": {},
    "completion": {"unknown": "skip"},
    "agreement": {"context": "text", "objective": "perplexity"},
    "sentiment": {"classes": 2, "phrases": "all"},
    "inference": {"fusion": "deep"},
    "probe": {"reads_last_state": True},
}
IDENTITIES = {
    "language_modelling": "2ca659713fccff34",
    "completion": "9089078fad87f565",
    "agreement": "3367735423630b88",
    "sentiment": "853674526450bba0",
    "inference": "9ef3aecd94e53db9",
    "probe": "b2fa4a27986352e1",
}
"""Of a trial of the default LSTM, as the stores of users hold it; the failing test prints that of a task."""
COUNTED_IN_EXAMPLES = {"sentiment", "inference", "probe"}
ROWS = "probe-dyck-length-8-depth-6-rows-60-evaluated-20"
MODEL = {"family": "lstmn", "width": 6, "initial_range": 0.5}
TRAINING = {"tokens": 40, "report_every": 20, "optimiser": {"kind": "adam", "learning_rate": 0.02}}

each_task = pytest.mark.parametrize("kind", TASKS)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    examples = [make_labelled_example(index, words) for index, words in enumerate(TEXT)]
    splits = {"train": examples, "valid": examples[:21], "test": examples[21:30]}
    import_corpus("asked", splits, folder, ImportOptions(vocabulary="all"))
    import_probe(ROWS, folder)
    return folder


@pytest.fixture
def corpus(kind: str, store: Path, tmp_path: Path) -> Corpus:
    return open_corpus(ROWS if kind == "probe" else "asked", store, tmp_path / "cache")


def make_trial(kind: str, **changes: Any) -> TrialConfig:
    given = {"task": {"kind": kind, **EXAMPLES[kind]}, "model": MODEL, "training": TRAINING, **changes}
    config: TrialConfig = parse(TrialConfig, given, "trial")
    return config


@pytest.fixture
def make_trainer(corpus: Corpus) -> Callable[[str], GradientTrainer]:
    return lambda kind: GradientTrainer(make_trial(kind), corpus)


def test_every_task_has_an_example():
    assert EXAMPLES.keys() == TASKS.keys()


@each_task
def test_the_identity_of_a_trial_is_that_of_stored_trials(kind):
    config = TrialConfig.model_validate(
        {"task": {"kind": kind}, "model": {"family": "lstm"}, "training": {"epochs": 1}}
    )
    assert config.identity("0" * 64) == IDENTITIES.get(kind)


@each_task
def test_the_guide_has_a_row_for_a_task(kind):
    assert f"\n| `{kind}` |" in GUIDE.read_text()


@each_task
def test_a_classifier_counts_examples_and_another_task_tokens(kind):
    assert TASKS[kind].prediction_unit == ("examples" if kind in COUNTED_IN_EXAMPLES else "tokens")


@each_task
def test_the_formula_counts_the_parameters_of_the_model(kind, corpus):
    config = make_trial(kind)
    model = build_task_model(config.task, config.model, len(corpus.vocabulary), seed=0)
    assert config.parameter_count(len(corpus.vocabulary)) == sum(p.numel() for p in model.parameters())
    assert config.multiply_adds(len(corpus.vocabulary)) > 0


@each_task
def test_equal_seeds_give_equal_models(kind, corpus):
    config = make_trial(kind)
    first, again = (
        build_task_model(config.task, config.model, len(corpus.vocabulary), seed=3) for _ in range(2)
    )
    for one, other in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


@each_task
def test_a_training_is_in_float32_whatever_the_default_type_of_a_program_is(kind, make_trainer, tmp_path):
    curves = []
    for default in (torch.float32, torch.float64):
        torch.set_default_dtype(default)
        try:
            trainer = make_trainer(kind)
            while not trainer.is_finished:
                trainer.advance()
            save_model(trainer.model, tmp_path / str(default), trainer.config.task)
            loaded = load_model(tmp_path / str(default))
            assert torch.get_default_dtype() == default
        finally:
            torch.set_default_dtype(torch.float32)
        for name, weight in loaded.state_dict().items():
            assert torch.equal(weight, trainer.model.state_dict()[name])
        assert {each.dtype for each in loaded.parameters()} == {torch.float32}
        curves.append([report.valid_loss for report in trainer.curve])
    assert curves[1] == pytest.approx(curves[0], rel=1e-6)


@each_task
def test_an_epoch_predicts_everything_once_and_is_a_function_of_seed_and_epoch(kind, corpus):
    config = make_trial(kind)
    task = config.task.open(corpus, config.protocol)
    plans = [task.training_plan(5, 2), task.training_plan(5, 2)]
    for index in range(len(plans[0])):
        first, again = (plan.batch(index) for plan in plans)
        assert (first.token_count, first.rows) == (again.token_count, again.rows)
    counted = sum(plans[0].batch(index).token_count for index in range(len(plans[0])))
    assert counted == plans[0].token_count == task.epoch_tokens


@each_task
def test_an_evaluation_does_not_depend_on_the_batch_size(kind, corpus):
    config = make_trial(kind)
    model = build_task_model(config.task, config.model, len(corpus.vocabulary), seed=1).double()
    found = [
        config.task.open(corpus, SentenceProtocol(batch_size=size)).evaluate(model, "valid")
        for size in (1, 20)
    ]
    assert found[0].loss == pytest.approx(found[1].loss, rel=1e-12)
    assert found[0].accuracy == found[1].accuracy
    assert (found[0].tokens, found[0].questions) == (found[1].tokens, found[1].questions)


@each_task
def test_the_costs_of_items_add_up_to_the_cost_of_an_evaluation(kind, corpus):
    config = make_trial(kind)
    model = build_task_model(config.task, config.model, len(corpus.vocabulary), seed=1).double()
    task = config.task.open(corpus, config.protocol)
    found = task.compute_item_costs(model, "valid")
    assert len(found.costs_I) == len(found.counts_I) > 1
    assert found.cost == pytest.approx(task.evaluate(model, "valid").cost(task.objective), rel=1e-9)


@each_task
def test_trials_are_compared_by_the_objective_of_the_task(kind, make_trainer):
    trainer = make_trainer(kind)
    report = trainer.advance()
    assert report.objective == trainer.config.task.objective
    expected = report.valid_loss if report.objective == "perplexity" else 1 - report.valid_accuracy
    assert report.cost == expected


@each_task
def test_a_resumed_trial_ends_with_the_same_bits(kind, make_trainer, corpus, tmp_path: Path):
    undisturbed, stopped = make_trainer(kind), make_trainer(kind)
    stopped.advance()
    stopped.save(tmp_path / "checkpoint")
    resumed = restore_trainer(read_checkpoint(tmp_path / "checkpoint"), corpus)
    for trainer in (undisturbed, resumed):
        while not trainer.is_finished:
            trainer.advance()
    figures = ("tokens", "train_loss", "valid_loss", "valid_accuracy")
    for one, other in zip(undisturbed.curve, resumed.curve, strict=True):
        assert [getattr(one, name) for name in figures] == [getattr(other, name) for name in figures]


@each_task
def test_a_reloaded_model_gives_the_same_metrics(kind, make_trainer, corpus, tmp_path: Path):
    trainer = make_trainer(kind)
    trainer.advance()
    task, protocol = trainer.config.task, trainer.config.protocol
    before = task.open(corpus, protocol).evaluate(trainer.model, "test")
    save_model(trainer.model, tmp_path / "model", task)
    after = evaluate(load_model(tmp_path / "model"), corpus, protocol, "test", task=task)
    assert before == after


@each_task
def test_trials_of_different_tasks_have_different_identities_and_labels(kind):
    def other(name: str) -> TaskConfig:
        return make_trial(name).task

    for name in TASKS.keys() - {kind}:
        assert make_trial(kind).identity("digest") != make_trial(name).identity("digest")
        assert make_trial(kind).label != make_trial(name).label
        assert other(name) != make_trial(kind).task
