"""One trial file trained under several seeds, to see by how much a seed alone changes the figures."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from memtune.corpora import open_corpus
from memtune.errors import TrialError
from memtune.results.single_trial import TrialFile, load_trial
from memtune.settings import Settings
from memtune.storage.scratch_folder import open_scratch_folder
from memtune.tracking import record_test_access
from memtune.training import GradientTrainer, evaluate, load_best_model


@dataclass(frozen=True)
class SeedFigures:
    """The figures of one seed: perplexities, lower is better, or accuracies in percent, higher is better."""

    best_epoch: float
    """The epoch of the best validation report, whose weights are evaluated."""
    valid: float
    test: float


@dataclass(frozen=True)
class SeedSpread:
    """The figures of one trial file by seed."""

    name: str
    parameter_count: int
    seeds: list[SeedFigures]


def train_seeds(path: Path, seeds: Iterable[int], settings: Settings) -> SeedSpread:
    """Train the configuration in `path` once for each seed; only accesses to the test split are recorded.

    Raises StudyError or ConfigurationError for a file that cannot be read, CorpusError for a missing corpus,
    and TrialError for a seed without a finite validation.
    """
    files = [load_trial(path, {"seed": seed}) for seed in seeds]
    words = len(open_corpus(files[0].corpus, settings.corpus_store).vocabulary)
    figures = [_train_seed(path, file, settings) for file in files]
    return SeedSpread(path.stem, files[0].trial.parameter_count(words), figures)


def compute_mean_deviation(values: Sequence[float]) -> tuple[float, float]:
    """The mean and the sample standard deviation; a single value has the deviation 0."""
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def _train_seed(path: Path, file: TrialFile, settings: Settings) -> SeedFigures:
    corpus = open_corpus(file.corpus, settings.corpus_store)
    trainer = GradientTrainer(file.trial, corpus)
    while not trainer.is_finished:
        trainer.advance()
    best, task = trainer.best, file.trial.task
    if best is None or best.cost is None:
        raise TrialError(f"{path} reached no validation with seed {file.trial.seed}: {trainer.curve[-1].end}")
    with open_scratch_folder() as folder:
        trainer.save(folder / "trial")
        model = load_best_model(folder / "trial")
    record_test_access(settings.tracking_uri, corpus.name)
    test = evaluate(model, corpus, file.trial.protocol, "test", task=task)
    scale = task.objective.scale
    return SeedFigures(
        best_epoch=best.epoch,
        valid=scale * task.objective.compute_figure(best.cost),
        test=scale * task.objective.compute_figure(test.cost(task.objective)),
    )
