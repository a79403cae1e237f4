"""Results of other studies: a configuration that one has trained is not trained again.

A trial's identity is the digest of its configuration (with protocol and seed) and its corpus. The study
database tells which study has completed it, and the checkpoint comes from that study's folder. The copy holds
the whole curve, so the director decides on it report by report as if the trial had been trained now.

A shorter training is continued where the longer one would have passed through the same state: under a
constant learning rate, with reports at the same tokens.
"""

import logging
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from memtune.errors import CheckpointError, ConfigurationError, StorageError, StudyError
from memtune.search import StoredStudy, StoredTrial, StudyReader
from memtune.settings import Settings
from memtune.studies.checkpoint_store import Checkpoints
from memtune.studies.seed_repeats import TrialNames
from memtune.training import Checkpoint, TrialConfig
from memtune.training.trial_report import find_stall
from memtune.trial_state import StopReason, TrialState
from memtune.usage import Usage

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainedTrial:
    """A trial of another study that holds a trained configuration."""

    study: StoredStudy
    outcome: StoredTrial
    is_repeat: bool


class ResultCache:
    """The completed trials of the other studies in one study database."""

    def __init__(self, settings: Settings, study: str, corpus_digest: str) -> None:
        """Read the studies; one that completes trials later is not seen."""
        self._settings, self._corpus_digest = settings, corpus_digest
        self._complete: dict[str, list[TrainedTrial]] = defaultdict(list)
        """By family."""
        reader = StudyReader(settings.study_database)
        for other in reader.list_ids():
            if other == study:
                continue
            try:
                stored = reader.read(other)
            except StudyError as error:
                log.warning("no result of another study is reused: %s", error)
                continue
            for number, outcome in enumerate(stored.trials):
                if outcome.state is TrialState.COMPLETE:
                    trained = TrainedTrial(stored, outcome, is_repeat=number >= len(stored.outcomes))
                    self._complete[outcome.family].append(trained)

    def reuse(self, config: TrialConfig, root: str) -> str | None:
        """Give a trial without a checkpoint the trained state of another study's trial; return its name.

        `root` is the folder of the study's checkpoints. A trial whose checkpoint is deleted or damaged is
        skipped.
        """
        own = Checkpoints(root, config.identity(self._corpus_digest))
        if own.exist():
            return None
        for trained in self._list_trained(config):
            folder = self._settings.name_checkpoint_root(trained.study.id)
            try:
                found = Checkpoints(folder, trained.outcome.identity)
                if found.exist():
                    own.store(self._adapt(found.read(), config))
                    return self._name(trained)
            except (CheckpointError, StorageError) as error:
                log.warning("the result of %s is not reused: %s", self._name(trained), error)
        return None

    def _name(self, trained: TrainedTrial) -> str:
        """The name by which commands find the trial, such as `layers-1a2b3c4d#3 seed 1`."""
        study, outcome = trained.study, trained.outcome
        if not trained.is_repeat:
            return f"{study.id}#{outcome.number}"
        try:
            return study.id + TrialNames(study.outcomes).name(outcome.number, outcome.config)
        except ConfigurationError:  # of another version of memtune
            return f"{study.id} (a repeat)"

    def _list_trained(self, config: TrialConfig) -> Iterator[TrainedTrial]:
        """The same trial first, then the shorter ones, the longest first."""
        known, identity = self._complete[config.model.family], config.identity(self._corpus_digest)
        yield from [trained for trained in known if trained.outcome.identity == identity][:1]
        shorter = [(self._count_shorter(trained.outcome, config), trained) for trained in known]
        for tokens, trained in sorted(shorter, key=lambda pair: -pair[0]):
            if tokens:
                yield trained

    def _count_shorter(self, outcome: StoredTrial, config: TrialConfig) -> int:
        """The tokens of a training that `config` continues; 0 for one that it does not."""
        try:
            training, own = outcome.config.training, config.training
        except ConfigurationError:  # of another version of memtune
            return 0
        if not (training and training.tokens and own and own.tokens and training.tokens < own.tokens):
            return 0
        # A longer training passes through its end where the rate is constant and the reports are the same.
        ends_with_report = training.report_every and training.tokens % training.report_every == 0
        lengthened = training.model_copy(update={"tokens": own.tokens})
        is_continued = (
            training.schedule.kind == "constant"
            and ends_with_report
            and outcome.config.model_copy(update={"training": lengthened}) == config
            and outcome.config.identity(self._corpus_digest) == outcome.identity
        )
        return training.tokens if is_continued else 0

    def _adapt(self, checkpoint: Checkpoint, config: TrialConfig) -> Checkpoint:
        """The checkpoint as one of this trial, which has used nothing for it.

        Raises CheckpointError for a shorter training that did not end with its budget.
        """
        record = checkpoint.record
        update = {"config": config, "identity": config.identity(self._corpus_digest), "usage": Usage()}
        if record.identity != update["identity"]:
            *earlier, last = record.curve
            if last.end is None or last.end.reason is not StopReason.BUDGET:
                raise CheckpointError(f"trial {record.identity} ended before its budget")
            costs = [report.cost for report in record.curve if report.cost is not None]
            stall = find_stall(costs, config.gradient_training.patience)
            update["curve"] = (*earlier, last.model_copy(update={"end": stall}))
        return replace(checkpoint, record=record.model_copy(update=update))
