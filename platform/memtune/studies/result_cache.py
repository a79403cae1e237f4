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
from memtune.search import StoredTrial, StudyReader
from memtune.settings import Settings
from memtune.studies.checkpoint_store import Checkpoints
from memtune.studies.seed_repeats import TrialNames
from memtune.training import Checkpoint, TrialConfig
from memtune.training.trial_report import find_stall
from memtune.trial_state import StopReason, TrialState
from memtune.usage import Usage
from memtune.values import digest, parse

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainedTrial:
    """A trial of another study that holds a trained configuration."""

    study: str
    outcome: StoredTrial
    is_repeat: bool


class ResultCache:
    """The completed trials of the other studies in one study database."""

    def __init__(self, settings: Settings, study: str, corpus_digest: str) -> None:
        """Read the studies; one that completes trials later is not seen."""
        self._settings, self._corpus_digest = settings, corpus_digest
        self._trained: dict[str, TrainedTrial] = {}
        self._complete: dict[str, list[TrainedTrial]] = defaultdict(list)
        self._by_terms: dict[str, dict[str, list[tuple[TrainedTrial, int]]]] = {}
        self._repeated: dict[str, list[StoredTrial]] = {}
        """The trials of each study with repeats."""
        reader = StudyReader(settings.study_database)
        for other in [other for other in reader.list_ids() if other != study]:
            try:
                stored = reader.read(other)
            except StudyError as error:
                log.warning("no result of another study is reused: %s", error)
                continue
            self._add_outcomes(other, stored.outcomes)
            self._add_outcomes(other, stored.repeats, are_repeats=True)
            if stored.repeats:
                self._repeated[other] = stored.outcomes

    def _add_outcomes(self, study: str, outcomes: list[StoredTrial], *, are_repeats: bool = False) -> None:
        for outcome in outcomes:
            if outcome.state is TrialState.COMPLETE:
                trained = TrainedTrial(study, outcome, are_repeats)
                self._trained.setdefault(outcome.identity, trained)
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
            folder = self._settings.name_checkpoint_root(trained.study)
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
        if not trained.is_repeat:
            return f"{trained.study}#{trained.outcome.number}"
        try:
            config = trained.outcome.config
            name = TrialNames(self._repeated[trained.study]).name(trained.outcome.number, config)
        except ConfigurationError:  # of another version of memtune
            return f"{trained.study} (a repeat)"
        return trained.study + name

    def _list_trained(self, config: TrialConfig) -> Iterator[TrainedTrial]:
        """The same trial first, then the shorter ones, the longest first."""
        same = self._trained.get(config.identity(self._corpus_digest))
        if same is not None:
            yield same
        if config.training is not None and config.training.tokens is not None:
            found = self._group_by_terms(config.model.family).get(_digest_terms(config), [])
            shorter = [(tokens, trained) for trained, tokens in found if tokens < config.training.tokens]
            yield from (trained for _, trained in sorted(shorter, key=lambda pair: -pair[0]))

    def _group_by_terms(self, family: str) -> dict[str, list[tuple[TrainedTrial, int]]]:
        """The extendable trials of a family with their tokens, by everything but their length; read once."""
        if family not in self._by_terms:
            groups = self._by_terms[family] = defaultdict(list)
            for trained in self._complete[family]:
                outcome = trained.outcome
                try:
                    config: TrialConfig = parse(TrialConfig, outcome.configuration, trained.study)
                except ConfigurationError:  # of another version of memtune
                    continue
                is_same_corpus = config.identity(self._corpus_digest) == outcome.identity
                if is_same_corpus and _can_be_extended(config):
                    groups[_digest_terms(config)].append((trained, config.gradient_training.tokens or 0))
        return self._by_terms[family]

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


def _digest_terms(config: TrialConfig) -> str:
    """A digest of everything in a configuration except the length of its training."""
    terms = config.model_dump(mode="json")
    return digest({**terms, "training": {**(terms["training"] or {}), "tokens": None}})


def _can_be_extended(config: TrialConfig) -> bool:
    """Whether a longer training of the same terms passes through the end of this one."""
    training = config.training
    if training is None or training.tokens is None or training.report_every is None:
        return False
    return training.schedule.kind == "constant" and training.tokens % training.report_every == 0
