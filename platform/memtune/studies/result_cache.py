"""Results of other studies: a configuration that one has trained is not trained again.

A trial's identity is the digest of its configuration (with protocol and seed) and its corpus. The study
database tells which study has completed it, and the checkpoint comes from that study's folder. The copy holds
the whole curve, so the director decides on it report by report as if the trial had been trained now.

A shorter training is continued where the longer one would have passed through the same state: under a
constant learning rate, with reports at the same tokens.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace

from memtune.errors import CheckpointError, ConfigurationError, StorageError, StudyError
from memtune.search import CompleteTrial, StudyReader
from memtune.settings import Settings
from memtune.studies.checkpoint_store import Checkpoints
from memtune.studies.seed_repeats import TrialNames
from memtune.training import Checkpoint, TrialConfig
from memtune.training.trial_report import find_stall
from memtune.trial_state import StopReason
from memtune.usage import Usage

log = logging.getLogger(__name__)


class ResultCache:
    """The completed trials of the other studies in one study database."""

    def __init__(self, settings: Settings, study: str, corpus_digest: str) -> None:
        """List the trials; one that another study completes later is not seen."""
        self._settings, self._corpus_digest = settings, corpus_digest
        complete = StudyReader(settings.study_database).list_complete()
        others = [trial for trial in complete if trial.study != study]
        self._trained = {trial.identity: trial for trial in reversed(others)}
        """The first one of each identity."""
        self._lengths = sorted({trial.tokens for trial in others if trial.tokens}, reverse=True)
        """In tokens, the longest first."""

    def reuse(self, config: TrialConfig, root: str) -> str | None:
        """Give a trial without a checkpoint the trained state of another study's trial; return its name.

        `root` is the folder of the study's checkpoints. A trial whose checkpoint is deleted or damaged is
        skipped.
        """
        own = Checkpoints(root, config.identity(self._corpus_digest))
        if own.exist():
            return None
        for trained in self._list_trained(config):
            folder = self._settings.name_checkpoint_root(trained.study)
            try:
                found = Checkpoints(folder, trained.identity)
                if found.exist():
                    own.store(self._adapt(found.read(), config))
                    return self._name(trained)
            except (CheckpointError, StorageError) as error:
                log.warning("the result of %s is not reused: %s", self._name(trained), error)
        return None

    def _name(self, trained: CompleteTrial) -> str:
        """The name by which commands find the trial, such as `layers-1a2b3c4d#3 seed 1`."""
        if not trained.is_repeat:
            return f"{trained.study}#{trained.number}"
        try:
            stored = StudyReader(self._settings.study_database).read(trained.study)
            config = next(each.config for each in stored.repeats if each.number == trained.number)
            return trained.study + TrialNames(stored.outcomes).name(trained.number, config)
        except (ConfigurationError, StorageError, StudyError):  # perhaps of another version of memtune
            return f"{trained.study} (a repeat)"

    def _list_trained(self, config: TrialConfig) -> Iterator[CompleteTrial]:
        """The same trial first, then the shorter ones that it continues, the longest first."""
        for wanted in (config, *self._shorten(config)):
            if trained := self._trained.get(wanted.identity(self._corpus_digest)):
                yield trained

    def _shorten(self, config: TrialConfig) -> Iterator[TrialConfig]:
        """The configuration under each shorter length that its training passes through."""
        training = config.training
        if training is None or training.tokens is None or training.report_every is None:
            return
        for tokens in self._lengths if training.schedule.kind == "constant" else ():
            if tokens < training.tokens and tokens % training.report_every == 0:
                shorter = training.model_copy(update={"tokens": tokens})
                yield config.model_copy(update={"training": shorter})

    def _adapt(self, checkpoint: Checkpoint, config: TrialConfig) -> Checkpoint:
        """The checkpoint as one of this trial, which has used nothing for it.

        Raises CheckpointError for a shorter training that did not end with its budget.
        """
        record = checkpoint.record
        free = {"cpu_seconds": 0.0, "gpu_seconds": 0.0}
        curve = tuple(report.model_copy(update=free) for report in record.curve)
        identity = config.identity(self._corpus_digest)
        update = {"config": config, "identity": identity, "usage": Usage(), "curve": curve}
        if record.identity != identity:
            *earlier, last = curve
            if last.end is None or last.end.reason is not StopReason.BUDGET:
                raise CheckpointError(f"trial {record.identity} ended before its budget")
            costs = [report.cost for report in record.curve if report.cost is not None]
            stall = find_stall(costs, config.gradient_training.patience)
            update["curve"] = (*earlier, last.model_copy(update={"end": stall}))
        return replace(checkpoint, record=record.model_copy(update=update))
