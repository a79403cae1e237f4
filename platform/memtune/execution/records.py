"""Trials on their way to the tracking store: what is said of each, and when."""

from collections.abc import Mapping, Sequence
from typing import Any

from memtune.corpora import Corpus
from memtune.execution.checkpoints import Checkpoints
from memtune.execution.director import Trial
from memtune.execution.study import ReadyStudy
from memtune.search import Outcome
from memtune.spaces import Space
from memtune.tracking import CorpusInput, Recorder, Status
from memtune.training import Report, TrialConfig
from memtune.values import flatten

__all__ = ["StudyRecords", "corpus_input", "trial_parameters", "trial_tags"]

STATUS: Mapping[str, Status] = {
    "done": "FINISHED",
    "complete": "FINISHED",
    "stopped": "FINISHED",
    "pruned": "FINISHED",
    "failed": "FAILED",
    "interrupted": "KILLED",
}


class StudyRecords:
    """Tells the recorder what the director hears."""

    def __init__(self, recorder: Recorder, ready: ReadyStudy) -> None:
        """Open the study's run, or go on with it."""
        self._recorder, self._ready = recorder, ready
        study = ready.study
        self._tags = {"space": " ".join(study.spaces), "name": study.name}
        tags = {**self._tags, "question": study.question}
        recorder.start_study(ready.id, study.name, study.model_dump(mode="json"), tags)

    def resume(self, ended: Sequence[Outcome]) -> None:
        """After a driver that did not end in order: nothing stays open that is over, nothing is missing.

        Every trial that has ended is told again, from its checkpoint; what the store holds already stays.
        """
        self._recorder.reconcile({outcome.identity: STATUS[outcome.state] for outcome in ended})
        for outcome in ended:
            checkpoints = Checkpoints(self._ready.checkpoints, outcome.identity)
            self._open(outcome.number, outcome.identity, TrialConfig.model_validate(outcome.configuration))
            curve = checkpoints.curve()
            reason = outcome.reason or (curve[-1].reason if curve else None) or ""
            self._recorder.log_reports(outcome.identity, curve)
            self._recorder.finish_trial(outcome.identity, STATUS[outcome.state], reason)

    def start(self, trial: Trial) -> None:
        """Open the trial's run, with every parameter the study searches."""
        self._open(trial.proposal.number, trial.proposal.identity, trial.config)

    def _open(self, number: int, identity: str, config: TrialConfig) -> None:
        corpus = self._ready.corpus
        parameters = {
            **unsearched(self._ready.space, config),
            **trial_parameters(config, len(corpus.vocabulary)),
        }
        seed = "" if config.seed == self._ready.study.seed else f" seed {config.seed}"
        self._recorder.start_trial(
            identity,
            f"{config.model.family} #{number}{seed}",
            parameters,
            {**self._tags, **trial_tags(config)},
            corpus_input(corpus, self._ready.settings.store),
        )
        self._recorder.log_files(identity, {"configuration.json": config.model_dump_json(indent=1)})

    def report(self, trial: Trial, reports: Sequence[Report]) -> None:
        """Record new reports."""
        self._recorder.log_reports(trial.proposal.identity, reports)

    def remark(self, trial: Trial) -> None:
        """Keep what happened to the trial on its way."""
        remarks = "".join(f"{remark}\n" for remark in trial.remarks)
        self._recorder.log_files(trial.proposal.identity, {"remarks.txt": remarks})

    def finish(self, trial: Trial) -> None:
        """Close the trial's run with how it ended and why."""
        self._recorder.finish_trial(trial.proposal.identity, STATUS[trial.state], trial.reason or "")

    def close(self, interrupted: bool) -> None:
        """Close the study's run."""
        self._recorder.finish_study("KILLED" if interrupted else "FINISHED")


def trial_parameters(config: TrialConfig, vocabulary_size: int) -> dict[str, Any]:
    """Every field of a configuration by dotted name, with the model's size and cost."""
    return {
        **dict(flatten(config.model_dump(mode="json"))),
        "parameters": config.parameter_count(vocabulary_size),
        "multiply_adds": config.multiply_adds(vocabulary_size),
    }


def trial_tags(config: TrialConfig) -> dict[str, str]:
    """What runs are filtered by."""
    task = {"task": config.task.kind, "objective": config.task.objective}
    return {"family": config.model.family, "protocol": config.label, **task}


def unsearched(space: Space, config: TrialConfig) -> dict[str, Any]:
    """A neutral value for each field other families of the space search: charts drop runs that lack one."""
    own = dict(flatten(config.model_dump(mode="json")))
    others = {
        leaf.field: next(iter(leaf.leaf.probes()), 0) for leaf in space.leaves() if leaf.field not in own
    }
    return {field: "none" if isinstance(value, str) else 0 for field, value in others.items()}


def corpus_input(corpus: Corpus, store: str) -> CorpusInput:
    """The corpus as a trial's lineage."""
    splits = {
        name: {"tokens": split.tokens, "sentences": split.sentences}
        for name, split in corpus.manifest.splits.items()
    }
    return CorpusInput(
        name=corpus.name,
        digest=corpus.digest,
        store=store,
        vocabulary_size=len(corpus.vocabulary),
        splits=splits,
    )
