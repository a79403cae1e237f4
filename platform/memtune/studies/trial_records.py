"""Records of a study's trials in the tracking store."""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from memtune.corpora import Corpus
from memtune.errors import CheckpointError, StorageError
from memtune.search import Outcome
from memtune.spaces import Space
from memtune.studies.budgets.study_cost import StudyCost
from memtune.studies.checkpoint_store import Checkpoints
from memtune.studies.director import Trial
from memtune.studies.result_cache import Source
from memtune.studies.seed_repeats import TrialNames
from memtune.studies.study import ResolvedStudy
from memtune.tracking import CorpusInput, Recorder
from memtune.tracking.runs.run_store import RecordedTrial
from memtune.training import Report, TrialConfig
from memtune.trial_state import TrialState
from memtune.values import flatten

__all__ = ["StudyRecords", "collect_trial_parameters", "make_corpus_input", "make_trial_tags"]

log = logging.getLogger(__name__)


class StudyRecords:
    """Records the director's trials in the tracking store."""

    def __init__(self, recorder: Recorder, resolved: ResolvedStudy) -> None:
        """Open the study's run, or continue it."""
        self._recorder, self._resolved = recorder, resolved
        self._stored_tokens: dict[str, int] = {}
        """Of each trial that an earlier driver left open: tokens at the last report in the study database."""
        self.names = TrialNames()
        """Names of the trials that are recorded next."""
        study = resolved.study
        self._tags = {"space": " ".join(study.spaces), "name": study.name}
        tags = {**self._tags, "question": study.question}
        recorder.start_study(resolved.id, study.name, study.model_dump(mode="json"), tags)

    def resume(self, outcomes: Sequence[Outcome]) -> None:
        """Make the tracking store agree with the study database after a driver that was killed.

        Trials whose end the store holds with the same state and tokens are not sent again. The others are
        sent from their checkpoints, up to the last report that the study database holds. Open trials lose
        the reports that the study database lacks when they start: they may be stopped earlier this time.
        """
        recorded = self._recorder.list_recorded_trials()
        states = {outcome.identity: outcome.state for outcome in outcomes if has_ended(outcome)}
        self._recorder.reconcile(states)
        self._record_missing(outcomes, recorded)

    def resend(self, outcomes: Sequence[Outcome]) -> None:
        """Record the ended trials that the tracking store lacks or holds with another end; see `resume`."""
        self._record_missing(outcomes, self._recorder.list_recorded_trials())

    def _record_missing(self, outcomes: Sequence[Outcome], recorded: Mapping[str, RecordedTrial]) -> None:
        for outcome in outcomes:
            if not has_ended(outcome):
                self._stored_tokens[outcome.identity] = _find_last_tokens(outcome)
                continue
            found = recorded.get(outcome.identity)
            expected = outcome.state, _find_last_tokens(outcome)
            if found is None or (found.state, found.validated_tokens) != expected:
                self._record_ended(outcome)

    def _record_ended(self, outcome: Outcome) -> None:
        """Record an ended trial with the curve that the study database holds."""
        config, tokens = TrialConfig.model_validate(outcome.configuration), _find_last_tokens(outcome)
        self._open_run(outcome.number, outcome.identity, config, max_tokens=tokens)
        reports = select_recorded_reports(self._read_curve(outcome), outcome)
        validated = {report.tokens for report in reports}
        missing = {tokens: cost for tokens, cost in outcome.curve.items() if tokens not in validated}
        self._recorder.log_reports(outcome.identity, make_reports(missing, config.task.objective))
        self._recorder.log_reports(outcome.identity, reports)
        end = outcome.end or (reports[-1].end if reports else None)
        self._recorder.finish_trial(outcome.identity, outcome.state, end, tokens)

    def _read_curve(self, outcome: Outcome) -> tuple[Report, ...]:
        """The curve in an ended trial's checkpoint; empty with a warning when it cannot be read."""
        try:
            return Checkpoints(self._resolved.checkpoint_root, outcome.identity).read_curve()
        except (CheckpointError, StorageError) as error:
            log.warning("trial %d is recorded without its checkpoint: %s", outcome.number, error)
            return ()

    def start(self, trial: Trial) -> None:
        """Open the trial's run, with every parameter the study searches."""
        identity = trial.proposal.identity
        self._open_run(trial.proposal.number, identity, trial.config, self._stored_tokens.get(identity))

    def _open_run(
        self, number: int, identity: str, config: TrialConfig, max_tokens: int | None = None
    ) -> None:
        corpus = self._resolved.corpus
        parameters = {
            **make_placeholder_values(self._resolved.space, config),
            **collect_trial_parameters(config, len(corpus.vocabulary)),
        }
        name = self.names.name(number, config)
        self._recorder.start_trial(
            identity,
            f"{config.model.family} {name}",
            parameters,
            {**self._tags, **make_trial_tags(config), "number": name.removeprefix("#")},
            make_corpus_input(corpus, self._resolved.settings.corpus_store),
            max_tokens,
        )
        self._recorder.log_files(identity, {"configuration.json": config.model_dump_json(indent=1)})

    def report(self, trial: Trial, reports: Sequence[Report]) -> None:
        """Record new reports."""
        self._recorder.log_reports(trial.proposal.identity, reports)

    def remark(self, trial: Trial) -> None:
        """Record the trial's remarks."""
        remarks = "".join(f"{remark}\n" for remark in trial.remarks)
        self._recorder.log_files(trial.proposal.identity, {"remarks.txt": remarks})

    def finish(self, trial: Trial) -> None:
        """End the trial's run with its state and the reason, and clean up after workers that were killed."""
        tokens = max((report.tokens for report in trial.reports if report.cost is not None), default=0)
        self._recorder.finish_trial(trial.proposal.identity, trial.state, trial.end, tokens)
        was_restored = trial.remarks or trial.proposal.identity in self._stored_tokens
        if was_restored and trial.state is not TrialState.INTERRUPTED:
            self._delete_leftovers(trial.proposal.identity)

    def _delete_leftovers(self, identity: str) -> None:
        try:
            Checkpoints(self._resolved.checkpoint_root, identity).delete_leftovers()
        except (CheckpointError, StorageError) as error:
            log.warning("files of killed workers remain: %s", error)

    def mark_reused(self, trial: Trial, source: Source) -> None:
        """Record that the trial's state comes from another study: as a tag of its run and as a remark."""
        identity, origin = trial.proposal.identity, str(source)
        self._recorder.log_reports(identity, [{"tokens": 0, "reused_from": origin}])
        trial.remarks.append(f"reuses the training of {origin}")
        self.remark(trial)

    def close(self, interrupted: bool, cost: StudyCost) -> None:
        """End the study's run with what the study has spent."""
        self._recorder.log_study_figures(cost.list_figures(), cost.total.tokens)
        self._recorder.finish_study(TrialState.INTERRUPTED if interrupted else TrialState.COMPLETE)


def has_ended(outcome: Outcome) -> bool:
    """Whether a trial has ended in the study database."""
    return outcome.state is not TrialState.RUNNING


def _find_last_tokens(outcome: Outcome) -> int:
    """Tokens at the last report that the study database holds."""
    return max(outcome.curve, default=0)


def select_recorded_reports(curve: Sequence[Report], outcome: Outcome) -> list[Report]:
    """The reports of a checkpoint that belong to an ended trial: those in the study database's curve.

    A worker that outlives its driver stores further ones, which are left out. The last report of a failed
    trial has no validation, so the study database has no point for it.
    """
    failed = outcome.state is TrialState.FAILED
    return [report for report in curve if report.tokens in outcome.curve or (failed and report.cost is None)]


def make_reports(costs: Mapping[int, float], objective: str) -> list[dict[str, float]]:
    """Reports with the validation figures that follow from costs by tokens."""
    if objective == "accuracy":
        return [{"tokens": tokens, "valid_accuracy": 1 - cost} for tokens, cost in costs.items()]
    return [
        {"tokens": tokens, "valid_loss": cost, "valid_perplexity": math.exp(cost)}
        for tokens, cost in costs.items()
    ]


def collect_trial_parameters(config: TrialConfig, vocabulary_size: int) -> dict[str, Any]:
    """Every field of a configuration by dotted name, with the model's size and cost."""
    return {
        **dict(flatten(config.model_dump(mode="json"))),
        "parameters": config.parameter_count(vocabulary_size),
        "multiply_adds": config.multiply_adds(vocabulary_size),
    }


def make_trial_tags(config: TrialConfig) -> dict[str, str]:
    """The tags by which runs are filtered."""
    task = {"task": config.task.kind, "objective": config.task.objective}
    kind = {"family": config.model.family, "configuration": config.configuration_identity}
    return {**kind, "protocol": config.label, **task}


def make_placeholder_values(space: Space, config: TrialConfig) -> dict[str, Any]:
    """A neutral value for each field other families of the space search: charts drop runs that lack one."""
    own = dict(flatten(config.model_dump(mode="json")))
    others = {
        leaf.field: next(iter(leaf.leaf.test_values()), 0)
        for leaf in space.parameters()
        if leaf.field not in own
    }
    return {field: "none" if isinstance(value, str) else 0 for field, value in others.items()}


def make_corpus_input(corpus: Corpus, corpus_store: str) -> CorpusInput:
    """The corpus as a trial's lineage."""
    splits = {
        name: {"tokens": split.tokens, "sentences": split.sentences}
        for name, split in corpus.manifest.splits.items()
    }
    return CorpusInput(
        name=corpus.name,
        digest=corpus.digest,
        store=corpus_store,
        vocabulary_size=len(corpus.vocabulary),
        splits=splits,
    )
