"""The rows of a paper's table, trained under its protocol, with the difference from the published values."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from statistics import fmean
from typing import Any

from pydantic import Field

from memtune.corpora import Corpus
from memtune.corpora.probes.probe_corpora import open_or_draw_corpus
from memtune.errors import ConfigurationError, CorpusError, MemtuneError
from memtune.experiments.published_tables import PublishedRow, PublishedTable, ScaleName, has_printed_size
from memtune.experiments.single_trial import (
    TrainResult,
    TrialFile,
    open_checkpoints,
    read_test_figure,
    train_at_best_rate,
    train_trial,
)
from memtune.objective import Objective
from memtune.seed_statistics import estimate_cost
from memtune.settings import Settings
from memtune.training import Progress, Report, TrialConfig, measure_seconds_per_token
from memtune.values import Value

CLOSE_PERCENT, CLOSE_POINTS = 2.0, 1.0
"""Differences of perplexity, relative, and of accuracy, in points, that other seeds make as well."""


class RowState(StrEnum):
    """Whether a row of a table has figures of ours; the row's trial has a `TrialState` as well."""

    TRAINED = "trained"
    NOT_RUN = "not run"
    FAILED = "failed"


class ReproducedRow(Value):
    """A row of a table: published values and ours. Figures are perplexities, or accuracies in per cent."""

    table: str
    name: str
    objective: Objective
    state: RowState
    published_valid: int | float | None
    published_test: int | float | None
    published_parameters: str | None
    valid: float | None = None
    test: float | None = None
    test_interval: tuple[float, float] | None = None
    """The 95 % interval of the mean test value over seeds; None without an interval."""
    difference: float | None = None
    """Ours against the published value, of the test split where both are known: per cent of a perplexity,
    points of an accuracy."""
    parameters: int | None = None
    """Of the model that was trained."""
    has_published_size: bool | None = None
    """Whether the model of the paper's scale has the published number of parameters; None without one."""
    computed_parameters: int | None = None
    """Of the model of the paper's scale, by the formula of its family; None without a published number."""
    tokens: int | None = None
    best_tokens: int | None = None
    """Tokens at the best validation, whose weights read the test split."""
    tokens_per_second: float | None = None
    cpu_hours: float | None = None
    run_id: str | None = None
    corpus: str | None = None
    corpus_digest: str | None = None
    configuration: dict[str, Any] | None = None
    """Of the trained model: every setting, the seed included."""
    trained_with: dict[str, str] = Field(default_factory=dict)
    """Versions and machine of the last process that trained it."""
    reason: str = ""
    """Why the values differ, or why the row was not run."""


@dataclass(frozen=True)
class RowHooks:
    """What is called while a row is trained: a few times a second, and at each report."""

    on_progress: Callable[[PublishedRow, TrialConfig, Progress], None] = lambda row, trial, progress: None
    on_report: Callable[[PublishedRow, TrialConfig, Report], None] = lambda row, trial, report: None


@dataclass
class CoreHours:
    """The core hours that trainings may still take, by their estimates."""

    left: float = inf


def reproduce_table(
    table: PublishedTable,
    scale: ScaleName,
    settings: Settings,
    *,
    rows: Collection[str] | None = None,
    device: str = "cpu",
    name: str = "table",
    hooks: RowHooks = RowHooks(),
    core_hours: CoreHours | None = None,
) -> list[ReproducedRow]:
    """Train the rows that a scale covers, one after the other, and return every row of the table.

    `rows` names those that are trained; the others have figures where they are trained already. A trained row
    is not trained again, and its test split is not read again; an interrupted one continues. Models of the
    scale "tiny" are not offered to the registry. Trials are recorded under `name` and the row's number. With
    `core_hours`, a training starts only if it is estimated to end within what the trainings before it leave;
    a row that does not says how much it needs. Raises ConfigurationError for a scale that the table does not
    have, and CorpusError that names the import command where the corpus is missing.
    """
    opened = _open_corpus(table, scale, settings)
    run = _TableRun(table, scale, settings, device, hooks, core_hours or CoreHours(), rows)
    all_rows: list[ReproducedRow] = []
    for number, row in enumerate(table.rows):
        file = table.make_trial(row, scale)
        size = is_printed = None
        if row.parameters is not None:
            size = table.count_parameters(row, len(opened.vocabulary))
            is_printed = has_printed_size(size, row.parameters)
        found = ReproducedRow(
            table=table.name,
            name=row.name,
            objective=table.figure or file.trial.task.objective,
            state=RowState.NOT_RUN,
            published_valid=row.valid,
            published_test=row.test,
            published_parameters=row.parameters,
            has_published_size=is_printed,
            computed_parameters=size,
            reason=f"not in the rows of scale {scale}",
        )
        if table.covers(row, scale):
            label = f"{name}_{number}_{scale}" if row.trial is None else f"{row.trial}_{scale}"
            found = run.train_row(found, row, file, label)
        all_rows.append(found)
    return all_rows if scale == "tiny" or table.solved is None else _gate(all_rows, table.solved)


def estimate_table(
    table: PublishedTable,
    scale: ScaleName,
    settings: Settings,
    *,
    rows: Collection[str] | None = None,
    device: str = "cpu",
) -> dict[str, float]:
    """Core hours of the trainings that the rows of a scale still need, by row; measured in short trainings.

    The other trainings of a row are taken to cost what the first one does. `rows` names those to estimate.
    Raises the errors of `reproduce_table`.
    """
    _open_corpus(table, scale, settings)
    run = _TableRun(table, scale, settings, device, RowHooks(), CoreHours(), rows)
    return {
        row.name: run.estimate_row(table.make_trial(row, scale))
        for row in table.rows
        if table.covers(row, scale) and (rows is None or row.name in rows)
    }


def _open_corpus(table: PublishedTable, scale: ScaleName, settings: Settings) -> Corpus:
    if scale not in table.scales:
        raise ConfigurationError(
            f"table {table.name} has no rows at scale {scale}; use --scale {' or '.join(table.scales)}"
        )
    try:
        return open_or_draw_corpus(table.corpus, settings.corpus_store)
    except CorpusError as error:
        raise CorpusError(
            f"table {table.name} needs the corpus {table.corpus}: {error}; "
            f"text: {table.text_source}; import it with: {table.import_command}"
        ) from None


def _gate(rows: Sequence[ReproducedRow], solved: float) -> list[ReproducedRow]:
    """The rows, with the reason that none counts where none has learned the task."""
    best = max((row for row in rows if row.valid is not None), key=lambda row: row.valid or 0, default=None)
    if best is None or best.valid is None or best.valid >= solved:
        return list(rows)
    reason = f"learned by no row that is trained: at best {best.valid:.1f} % in validation ({best.name})"
    return [
        row if row.valid is None else row.model_copy(update={"reason": f"{reason}; {row.reason}"})
        for row in rows
    ]


class _NotRunError(MemtuneError):
    """A training that a row needs does not start."""


@dataclass
class _TableRun:
    table: PublishedTable
    scale: ScaleName
    settings: Settings
    device: str
    hooks: RowHooks
    core_hours: CoreHours
    chosen: Collection[str] | None
    """The rows that are trained; None for all."""

    def train_row(
        self, found: ReproducedRow, row: PublishedRow, file: TrialFile, label: str
    ) -> ReproducedRow:
        """Train a row under its rates and seeds, and read the test split of each; a failure is its state."""
        terms = self.table.scales[self.scale]
        seconds: list[float] = []

        def train(own: TrialFile) -> TrainResult:
            trained = self._train(row, own, label)
            seconds.append(trained.curve[-1].cpu_seconds)
            return trained

        try:
            files = self._list_files(file)
            corpora = [open_or_draw_corpus(own.corpus, self.settings.corpus_store) for own in files]
            by_corpus = [train_at_best_rate(own, terms.rates, terms.seeds, train) for own in files]
        except _NotRunError as error:
            return found.model_copy(update={"reason": str(error)})
        except MemtuneError as error:
            return found.model_copy(update={"state": RowState.FAILED, "reason": str(error)})
        for _, trained in (pair for pairs in by_corpus for pair in pairs):
            if trained.best is None or trained.best.cost is None:
                reason = f"no finite validation: {trained.curve[-1].end}"
                return found.model_copy(update={"state": RowState.FAILED, "reason": reason})
        found = found.model_copy(update={"cpu_hours": sum(seconds) / 3600})
        return self._describe(found, row, by_corpus, corpora[0])

    def estimate_row(self, file: TrialFile) -> float:
        """Core hours of what is left of a row's trainings, as if all were like the first."""
        terms = self.table.scales[self.scale]
        hours = 0.0
        for own in self._list_files(file):
            corpus = open_or_draw_corpus(own.corpus, self.settings.corpus_store)
            curve = open_checkpoints(own.trial, corpus, self.settings).read_curve()
            hours += self._estimate_hours(own, corpus, curve)
        return hours * (max(1, len(terms.rates)) + terms.seeds - 1)

    def _list_files(self, file: TrialFile) -> list[TrialFile]:
        """The trial of a row on each corpus of its figures."""
        names = self.table.scales[self.scale].corpora or (file.corpus,)
        return [file.model_copy(update={"corpus": name}) for name in names]

    def _train(self, row: PublishedRow, own: TrialFile, label: str) -> TrainResult:
        """Train a row under one rate and seed, or continue it; raises _NotRunError before it starts."""
        corpus = open_or_draw_corpus(own.corpus, self.settings.corpus_store)
        before = open_checkpoints(own.trial, corpus, self.settings).read_curve()
        is_finished = bool(before) and before[-1].is_finished
        if self.chosen is not None and row.name not in self.chosen and not is_finished:
            unit = own.trial.task.prediction_unit
            so_far = f"; {before[-1].tokens:,} {unit} are trained" if before else ""
            raise _NotRunError(f"not among the chosen rows{so_far}")
        is_limited = self.core_hours.left < inf
        estimated = self._estimate_hours(own, corpus, before) if is_limited else 0.0
        left = max(0.0, self.core_hours.left)
        if estimated > left:
            raise _NotRunError(f"about {estimated:.2g} core hours, where {left:.2g} are left")
        trained = train_trial(
            own,
            label,
            device=self.device,
            settings=self.settings,
            on_progress=lambda progress: self.hooks.on_progress(row, own.trial, progress),
            on_report=lambda report: self.hooks.on_report(row, own.trial, report),
            registers=self.scale != "tiny" and not self.table.scales[self.scale].rates,
        )
        spent = trained.curve[-1].cpu_seconds - (before[-1].cpu_seconds if before else 0.0)
        self.core_hours.left -= spent / 3600
        return trained

    def _estimate_hours(self, own: TrialFile, corpus: Corpus, curve: Sequence[Report]) -> float:
        """Core hours of what is left of a training."""
        if own.trial.training is None or (curve and curve[-1].is_finished):
            return 0.0
        task = own.trial.task.open(corpus, own.trial.protocol)
        missing = own.trial.count_tokens(lambda: task.epoch_tokens) - (curve[-1].tokens if curve else 0)
        return missing * measure_seconds_per_token(own.trial, corpus, self.device) / 3600

    def _describe(
        self,
        found: ReproducedRow,
        row: PublishedRow,
        by_corpus: Sequence[Sequence[tuple[TrialFile, TrainResult]]],
        corpus: Corpus,
    ) -> ReproducedRow:
        """The figures of a row's trainings: means over corpora and seeds; the rest is of the first one.

        Accuracies are in per cent, as papers print them.
        """
        objective = found.objective
        pairs = [pair for seeds in by_corpus for pair in seeds]
        bests = [trained.best.read_cost(objective) for _, trained in pairs if trained.best]
        costs = [cost for cost in bests if cost is not None]
        valid = objective.scale * fmean(map(objective.compute_figure, costs))
        tests = [
            [read_test_figure(trained, objective, self.settings, self.device) for _, trained in seeds]
            for seeds in by_corpus
        ]
        test, interval = _average_tests(
            objective, [[figure and objective.scale * figure for _, figure in seeds] for seeds in tests]
        )
        file, trained = pairs[0]
        last = trained.curve[-1]
        ours, published = (valid, row.valid) if test is None or row.test is None else (test, row.test)
        paper, difference = self.table.scales.get("paper"), None
        settings = max(1, len(paper.corpora)) if paper else 1  # over which the published value is a mean
        if published is not None and len(by_corpus) == settings:
            difference = objective.compute_difference(ours, published)
        if published is not None and difference is None:
            mean = f"the published value is a mean over {settings} settings"
            reason = "; ".join(filter(None, [mean, row.reason]))
        else:
            reason = _explain(objective, difference, row, *_find_departure(file, self.table, self.scale))
        if getattr(file.trial.task, "pretrained_vectors", False) and corpus.vectors is None:
            reason = f"without the vectors that --vectors imports; {reason}"
        if last.has_diverged:
            reason = f"diverged after {last.tokens:,} {trained.unit}, the best figures before that; {reason}"
        checkpoint = open_checkpoints(file.trial, corpus, self.settings).read()
        return found.model_copy(
            update={
                "state": RowState.TRAINED,
                "valid": valid,
                "test": test,
                "test_interval": interval,
                "difference": difference,
                "parameters": file.trial.parameter_count(len(corpus.vocabulary)),
                "tokens": last.tokens,
                "best_tokens": trained.best.tokens if trained.best else None,
                "tokens_per_second": last.tokens_per_second,
                "run_id": tests[0][0][0],
                "corpus": corpus.name,
                "corpus_digest": corpus.digest,
                "configuration": file.trial.model_dump(mode="json"),
                "trained_with": checkpoint.record.versions,
                "reason": reason,
            }
        )


def _find_departure(file: TrialFile, table: PublishedTable, scale: ScaleName) -> tuple[str, ScaleName]:
    """How a training departs from the paper, and its scale: that of the paper for a model that counts."""
    if not file.trial.model.is_trained_by_gradient:
        return "", "paper"
    return table.scales[scale].note, scale


def _explain(
    objective: Objective, difference: float | None, row: PublishedRow, note: str, scale: ScaleName
) -> str:
    """Why ours differs: what the scale departs in, or what is known of the row."""
    if scale == "tiny":
        return note
    if difference is None:
        return "; ".join(filter(None, ["no published value", row.reason]))
    if abs(difference) <= (CLOSE_PERCENT if objective.is_ratio else CLOSE_POINTS):
        return "reproduced"
    if (difference > 0) == (objective.direction == "higher") and not row.reason:
        return "; ".join(filter(None, ["better than published", note]))
    return "; ".join(filter(None, [row.reason, note])) or "not explained"


def _average_tests(
    objective: Objective, tests: Sequence[Sequence[float | None]]
) -> tuple[float | None, tuple[float, float] | None]:
    """The mean of test figures by corpus and seed, and its 95 % interval over the seeds.

    None where a corpus has no test split, and without an interval.
    """
    known = [[figure for figure in seeds if figure is not None] for seeds in tests]
    if any(len(seeds) < len(tests[0]) for seeds in known):
        return None, None
    estimate = estimate_cost([fmean(seed) for seed in zip(*known, strict=True)])
    if estimate.low is None or estimate.high is None:
        return estimate.cost, None
    most = inf if objective.is_ratio else float(objective.scale)
    return estimate.cost, (max(0.0, estimate.low), min(most, estimate.high))
