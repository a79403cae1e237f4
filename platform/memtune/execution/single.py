"""One configuration trained in this process, without Ray, and recorded like a trial of a study."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memtune.corpora import Corpus, open_corpus
from memtune.errors import StudyError
from memtune.execution.champions import is_evaluable, register
from memtune.execution.checkpoints import Checkpoints
from memtune.execution.documents import read_toml
from memtune.execution.records import corpus_input, trial_parameters, trial_tags
from memtune.execution.settings import Settings
from memtune.tracking import ALONE, Decision, Recorder, check_tracking
from memtune.training import AnyLearner, Progress, Report, TrialConfig, new_learner
from memtune.values import Value, parse

__all__ = ["Trained", "TrialFile", "load_trial", "train"]


class TrialFile(Value):
    """A trial as a file: a question, a corpus, and one configuration."""

    question: str = ""
    corpus: str
    trial: TrialConfig


@dataclass(frozen=True)
class Trained:
    """What training came to."""

    name: str
    identity: str
    curve: list[Report]
    best: Report | None
    begun_at: int
    """Tokens seen before this call: 0 for a new trial, all of them for one that had ended before."""
    crowning: Decision | None
    test: bool
    """Whether the corpus has a test split for such a trial."""


def load_trial(path: Path, overrides: Mapping[str, Any] | None = None) -> TrialFile:
    """The trial in a TOML file, `overrides` (corpus, seed) put over it.

    Raises StudyError when the file cannot be read or holds a study, ConfigurationError when it says something
    unknown.
    """
    document = read_toml(path)
    if overrides:
        document.update(overrides)
    if "spaces" in document:
        raise StudyError(f"{path} is a study, for it names search spaces; run: memtune search {path}")
    named: dict[str, Any] = {name: document.pop(name) for name in ("question", "corpus") if name in document}
    config = parse(TrialConfig, document, str(path))
    named["trial"] = config
    return TrialFile.model_validate(parse(TrialFile, named, str(path)))


def train(
    path: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    device: str = "cpu",
    replace_champion: bool = False,
    settings: Settings | None = None,
    progress: Callable[[Progress], None] | None = None,
    report: Callable[[Report], None] | None = None,
) -> Trained:
    """Train the configuration in `path`, from its last checkpoint when there is one.

    `progress` is called a few times a second, `report` at each milestone. The model is registered when it is
    the best of its corpus, or whatever it is with `replace_champion`. Raises a MemtuneError before training
    when something it names is missing.
    """
    path, settings = Path(path), settings or Settings.read()
    file = load_trial(path, overrides)
    corpus = open_corpus(file.corpus, settings.store)
    check_tracking(settings.tracking)
    checkpoints = Checkpoints(f"{settings.studies}/single/checkpoints", file.trial.identity(corpus.digest))
    learner = checkpoints.restore(corpus, device) or new_learner(file.trial, corpus, device)
    begun_at = learner.tokens
    with Recorder(settings.tracking, corpus.name) as recorder:
        _open_run(recorder, path.stem, learner, corpus, settings)
        _learn(learner, checkpoints, recorder, progress, report)
        crowning = (
            register(settings, corpus, recorder, ALONE, checkpoints, replace_champion)
            if learner.best
            else None
        )
    test = is_evaluable(corpus, learner.config, "test")
    return Trained(path.stem, learner.identity, learner.curve, learner.best, begun_at, crowning, test)


def _open_run(recorder: Recorder, name: str, learner: AnyLearner, corpus: Corpus, settings: Settings) -> None:
    config = learner.config
    recorder.start_trial(
        learner.identity,
        f"{name} seed {config.seed}",
        trial_parameters(config, len(corpus.vocabulary)),
        {**trial_tags(config), "name": name},
        corpus_input(corpus, settings.store),
    )
    recorder.log_files(learner.identity, {"configuration.json": config.model_dump_json(indent=1)})
    recorder.log_reports(learner.identity, learner.curve)


def _learn(
    learner: AnyLearner,
    checkpoints: Checkpoints,
    recorder: Recorder,
    progress: Callable[[Progress], None] | None,
    report: Callable[[Report], None] | None,
) -> None:
    try:
        while not learner.finished:
            latest = learner.advance(progress)
            checkpoints.save(learner)
            recorder.log_reports(learner.identity, [latest])
            if report is not None:
                report(latest)
    except BaseException as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        recorder.finish_trial(
            learner.identity, "KILLED" if interrupted else "FAILED", str(error) or "interrupted"
        )
        raise
    recorder.finish_trial(learner.identity, "FINISHED", learner.curve[-1].reason or "")
