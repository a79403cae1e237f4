"""Records of a study's trials in the tracking store."""

import logging
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import cycle
from pathlib import Path
from typing import Any

from memtune.corpora import Corpus
from memtune.errors import CheckpointError, StorageError
from memtune.number_format import format_count
from memtune.plugins import list_sources
from memtune.search import StoredTrial
from memtune.settings import Settings
from memtune.spaces import FAMILY_FIELD
from memtune.studies.budgets import StudyCost, StudyProgress
from memtune.studies.checkpoint_store import Checkpoints
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.studies.definition.study_terms import name_alternative
from memtune.studies.director import DirectedTrial
from memtune.studies.seed_repeats import TrialNames
from memtune.tracking import CorpusInput, Recorder
from memtune.tracking.runs.run_store import RecordedTrial
from memtune.tracking.runs.run_tags import ALTERNATIVE_PARAMETER, COLOUR, COLOURS, MONEY_METRIC
from memtune.training import Report, TrialConfig, make_report
from memtune.trial_state import TrialState
from memtune.usage import Usage
from memtune.values import flatten

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
        objective = resolved.task.objective
        self._tags = {"space": " ".join(study.spaces), "name": study.name}
        self._progress = StudyProgress(objective, study.prices)
        tags = {**self._tags, "question": study.question, "objective": objective}
        recorder.start_study(
            resolved.id,
            study.name,
            study.model_dump(mode="json"),
            tags,
            make_corpus_input(resolved.corpus, resolved.settings),
            describe_open_study(resolved),
        )

    @cached_property
    def _colours(self) -> dict[str, str]:
        """By alternative, as far as the spaces list them; only trials that start need it."""
        return dict(zip(sorted(self._resolved.alternatives), cycle(COLOURS), strict=False))

    def resume(self, outcomes: Sequence[StoredTrial]) -> None:
        """Make the tracking store agree with the study database after a driver that was killed.

        Trials whose end the store holds with the same state and tokens are not sent again. The others are
        sent from their checkpoints, up to the last report that the study database holds. Open trials lose
        the reports that the study database lacks when they start: they may be stopped earlier this time.
        Does nothing for a study without trials.
        """
        if not outcomes:
            return
        recorded = self._recorder.list_recorded_trials()
        states = {
            outcome.identity: outcome.state for outcome in outcomes if outcome.state.has_ended_or_paused
        }
        self._recorder.reconcile(states)
        self.resend(outcomes, recorded)

    def resend(
        self, outcomes: Sequence[StoredTrial], recorded: Mapping[str, RecordedTrial] | None = None
    ) -> None:
        """Record the ended trials that the tracking store lacks or holds with another end; see `resume`."""
        if not outcomes:  # the store is not asked
            return
        recorded = self._recorder.list_recorded_trials() if recorded is None else recorded
        self._progress.add_outcomes(outcomes)
        for outcome in outcomes:
            if not outcome.state.has_ended_or_paused:
                self._stored_tokens[outcome.identity] = max(outcome.curve, default=0)
                continue
            found = recorded.get(outcome.identity)
            expected = outcome.state, max(outcome.curve, default=0)
            if found is None or (found.state, found.validated_tokens) != expected:
                self._record_ended(outcome)

    def _record_ended(self, outcome: StoredTrial) -> None:
        """Record an ended trial with the curve that the study database holds."""
        config, tokens = outcome.config, max(outcome.curve, default=0)
        self._open_run(outcome.number, outcome.identity, config, max_tokens=tokens)
        # A worker that outlives its driver stores further reports, which are left out. The last report of a
        # trial that failed or diverged has no validation, so the study database has no point for it.
        lacks_last = outcome.state is TrialState.FAILED or outcome.has_diverged
        reports = [
            each
            for each in self._read_curve(outcome)
            if each.tokens in outcome.curve or (lacks_last and each.cost is None)
        ]
        validated = {report.tokens for report in reports}
        missing = {tokens: cost for tokens, cost in outcome.curve.items() if tokens not in validated}
        objective = config.task.objective
        self._recorder.log_reports(
            outcome.identity, [make_report(tokens, cost, objective) for tokens, cost in missing.items()]
        )
        self._recorder.log_reports(outcome.identity, reports)
        end = outcome.end or (reports[-1].end if reports else None)
        figures = self._compute_cost(outcome.usage)
        self._recorder.finish_trial(outcome.identity, outcome.state, end, tokens, figures)

    def _read_curve(self, outcome: StoredTrial) -> tuple[Report, ...]:
        """The curve in an ended trial's checkpoint; empty with a warning when it cannot be read."""
        try:
            return Checkpoints(self._resolved.checkpoint_root, outcome.identity).read_curve()
        except (CheckpointError, StorageError) as error:
            log.warning("trial %d is recorded without its checkpoint: %s", outcome.number, error)
            return ()

    def start(self, trial: DirectedTrial) -> None:
        """Open the trial's run, with the parameters that its model has."""
        identity = trial.proposal.identity
        # Only at its first start by this driver, which has recorded the trial's reports since.
        max_tokens = None if trial.reports else self._stored_tokens.get(identity)
        self._open_run(trial.proposal.number, identity, trial.config, max_tokens)
        self._record_progress(trial, TrialState.RUNNING)

    def _open_run(
        self, number: int, identity: str, config: TrialConfig, max_tokens: int | None = None
    ) -> None:
        corpus, compared = self._resolved.corpus, self._resolved.study.compare
        name, alternative = self.names.name(number, config), name_alternative(config, compared)
        tags = {**self._tags, **make_trial_tags(config, corpus, compared), "number": name.removeprefix("#")}
        colour = self._colours.setdefault(alternative, COLOURS[len(self._colours) % len(COLOURS)])
        self._recorder.start_trial(
            identity,
            f"{alternative} {name}",
            collect_trial_parameters(config, len(corpus.vocabulary), compared),
            {**tags, COLOUR: colour},
            make_corpus_input(corpus, self._resolved.settings),
            max_tokens,
            describe_trial_run(
                config, len(corpus.vocabulary), f"{self._resolved.id}{name}", self._resolved.searched_fields
            ),
        )
        self._recorder.log_files(identity, collect_trial_files(config))

    def report(self, trial: DirectedTrial, reports: Sequence[Report]) -> None:
        """Record new reports, and the study's progress where one of them is the study's best."""
        self._recorder.log_reports(trial.proposal.identity, reports)
        if self._progress.is_improved_by(trial):
            self._record_progress(trial, trial.state)

    def _record_progress(self, trial: DirectedTrial, state: TrialState) -> None:
        self._progress.add_trial(trial, state)
        self._recorder.log_reports(None, [{"tokens": self._progress.tokens, **self._progress.list_figures()}])

    def remark(self, trial: DirectedTrial) -> None:
        """Record the trial's remarks."""
        remarks = "".join(f"{remark}\n" for remark in trial.remarks)
        self._recorder.log_files(trial.proposal.identity, {"remarks.txt": remarks})

    def finish(self, trial: DirectedTrial) -> None:
        """End the trial's run with its state and the reason, and clean up after workers that were killed."""
        tokens = max((report.tokens for report in trial.reports if report.cost is not None), default=0)
        self._recorder.finish_trial(
            trial.proposal.identity, trial.state, trial.end, tokens, self._compute_cost(trial.usage)
        )
        self._record_progress(trial, trial.state)
        was_restored = trial.remarks or trial.proposal.identity in self._stored_tokens
        if was_restored and trial.state is not TrialState.INTERRUPTED:
            Checkpoints(self._resolved.checkpoint_root, trial.proposal.identity).delete_leftovers()

    def _compute_cost(self, usage: Usage) -> dict[str, float]:
        """The money that a trial cost, in the digits that fit a table, where the study has prices."""
        prices = self._resolved.study.prices
        return {} if prices is None else {MONEY_METRIC: float(f"{prices.compute_usage_money(usage):.3g}")}

    def mark_reused(self, trial: DirectedTrial, origin: str) -> None:
        """Record the trial of another study that has trained this one, as a tag and as a remark."""
        identity = trial.proposal.identity
        self._recorder.log_reports(identity, [{"tokens": 0, "reused_from": origin}])
        trial.remarks.append(f"reuses the training of {origin}")
        self.remark(trial)

    def record_cost(self, cost: StudyCost) -> None:
        """Record what the study has spent; its conclusion comes later, and its margin is the last one."""
        # The progress again: a driver may have been killed between the end of the last trial and its record.
        tokens = max(cost.total.tokens, self._progress.tokens)
        figures = {**self._progress.list_figures(), **cost.list_figures()}
        self._recorder.log_reports(None, [{"tokens": tokens, **figures}])

    def close(self, interrupted: bool) -> None:
        """End the study's run."""
        self._recorder.finish_trial(None, TrialState.INTERRUPTED if interrupted else TrialState.COMPLETE)


def describe_open_study(resolved: ResolvedStudy) -> str:
    """The question and the terms of a study that has not ended, as Markdown."""
    study = resolved.study
    return "\n\n".join(
        [
            f"**Question.** {study.question}",
            "**Answer.** The study is open: its answer and the best trial of each family are written here "
            "when it ends. The metrics follow its progress.",
            f"{format_count(resolved.max_trials, 'trial')} over {', '.join(study.spaces)} on the corpus "
            f"{resolved.corpus.name}; `memtune study show {resolved.id}` shows each.",
        ]
    )


def collect_trial_files(config: TrialConfig) -> dict[str, bytes | str | Path]:
    """The artifacts of a trial: its configuration, and the source of what is not built in."""
    configuration = config.model_dump(mode="json")
    files: dict[str, bytes | str | Path] = {"configuration.json": config.model_dump_json(indent=1)}
    for source in list_sources(configuration):
        files |= {f"source/{name}": text for name, text in source.files.items()}
    return files


def collect_trial_parameters(
    config: TrialConfig, vocabulary_size: int, compared: str = FAMILY_FIELD
) -> dict[str, Any]:
    """Every field of a configuration by dotted name, with the model's size and cost, and its alternative.

    Fields that only other families, schedules or variants of a protocol have are left out: "none" and 0 are
    values of some.
    """
    unused = {"protocol": set(config.protocol.unused_fields)}
    fields = dict(flatten(config.model_dump(mode="json", exclude=unused)))
    if config.training is None:
        del fields["training"]
    return {
        **fields,
        ALTERNATIVE_PARAMETER: name_alternative(config, compared),
        "parameters": config.parameter_count(vocabulary_size),
        "multiply_adds": config.multiply_adds(vocabulary_size),
        "carried_state": config.model.state_size(),
    }


def make_trial_tags(config: TrialConfig, corpus: Corpus, compared: str = FAMILY_FIELD) -> dict[str, str]:
    """The tags by which runs are filtered, and the ideal perplexity where it is known."""
    task = {"task": config.task.kind, "objective": config.task.objective}
    names = {"family": config.model.family, "alternative": name_alternative(config, compared)}
    kind = {**names, "configuration": config.configuration_identity}
    ideal = (corpus.manifest.ideal or {}).get("valid") if config.task.objective.has_ideal else None
    known = {} if ideal is None else {"ideal_perplexity": repr(ideal)}
    return {**kind, "protocol": config.label, **task, **known}


def describe_trial_run(
    config: TrialConfig, vocabulary_size: int, name: str, searched_fields: Collection[str] = ()
) -> str:
    """A trial in a table of Markdown: its model, its size, the searched fields, and how to evaluate it.

    `name` is the name by which commands find the trial, such as `layers#3`; "" for that of its run.
    """
    values = dict(flatten(config.model_dump(mode="json")))
    searched = {
        field: values[field] for field in searched_fields if field in values and field != FAMILY_FIELD
    }
    rows = {
        "family": config.model.family,
        **{field: format_value(value) for field, value in config.model.describe().items()},
        "parameters": f"{config.parameter_count(vocabulary_size):,}",
        "carried state": f"{config.model.state_size():,}",
        **{f"`{field}` (searched)": format_value(value) for field, value in searched.items()},
        "protocol": config.label,
        "seed": str(config.seed),
        "evaluate": f"`memtune evaluate '{name}'`" if name else "`memtune evaluate` with this run's id",
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {field} | {text} |" for field, text in rows.items())])


def format_value(value: object) -> str:
    """A value of a configuration in a table; fractions with four significant digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def make_corpus_input(corpus: Corpus, settings: Settings) -> CorpusInput:
    """The corpus as a trial's lineage; a store within the home is named from there, so that homes move."""
    splits = {
        name: {"tokens": split.tokens, "sentences": split.sentences}
        for name, split in corpus.manifest.splits.items()
    }
    store = settings.corpus_store
    if Path(store).is_relative_to(settings.home):
        store = str(Path(store).relative_to(settings.home))
    return CorpusInput(
        name=corpus.name,
        digest=corpus.digest,
        store=store,
        vocabulary_size=len(corpus.vocabulary),
        splits=splits,
    )
