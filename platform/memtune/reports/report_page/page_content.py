"""What the pages of reports show, prepared for their templates: sections, tables, sentences."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from memtune.objective import PredictionUnit
from memtune.reports.report_page.chart_parts import MarkScales, StudyChart
from memtune.reports.report_page.parameter_charts import (
    draw_importance,
    draw_parallel_coordinates,
    draw_slices,
)
from memtune.reports.report_page.trade_off_charts import draw_hypervolume, draw_trade_offs
from memtune.reports.report_page.trial_charts import (
    draw_best_of,
    draw_learning_curves,
    draw_progress,
    draw_seeds,
)
from memtune.results.study.study_leaderboard import StudyLeaderboard, name_by_alternative
from memtune.results.study.study_report import CorpusReport, ShellCommand, StudyReport
from memtune.search import MIN_IMPORTANCE_TRIALS, MIN_PARAMETER_TRIALS


class ChartSection(NamedTuple):
    """Charts under one heading."""

    title: str
    charts: tuple[StudyChart, ...]


def list_alternatives(report: StudyReport) -> list[str]:
    """The alternatives of the study's trials, by name."""
    return sorted({trial.alternative for trial in report.detail.trials})


def list_families(report: CorpusReport) -> list[str]:
    """The families of all studies of a corpus, by name."""
    studies = [study for label in report.labels for study in label.studies]
    return sorted({trial.family for study in studies for trial in study.detail.trials})


def list_sections(report: StudyReport) -> dict[str, ChartSection]:
    """The sections that have a chart, by the names of their elements."""
    detail, leaderboard, ideal = report.detail, report.leaderboard, report.ideal
    objective, scales = detail.summary.objective, MarkScales(list_alternatives(report))
    best = detail.best.number if detail.best else -1
    best_of = draw_best_of(report.verdict.efforts if report.verdict else (), objective, scales)
    drawn: list[tuple[str, str, Sequence[StudyChart | None]]] = [
        ("seeds", "Leaderboard", [draw_seeds(leaderboard, objective, ideal, best, scales)]),
        (
            "trade-offs",
            "At what size and cost",
            [*draw_trade_offs(leaderboard, objective, ideal, best, scales), draw_hypervolume(detail)],
        ),
        ("curves", "Learning curves", [draw_learning_curves(detail, ideal, scales)]),
        ("progress", "Best so far", [*draw_progress(detail, ideal, scales), best_of]),
        (
            "parameters",
            "Parameters",
            [
                draw_parallel_coordinates(detail, scales),
                draw_importance(detail),
                *draw_slices(detail, scales),
            ],
        ),
    ]
    return _keep_drawn(drawn)


def _keep_drawn(sections: Iterable[tuple[str, str, Sequence[StudyChart | None]]]) -> dict[str, ChartSection]:
    found = {key: ChartSection(title, tuple(filter(None, charts))) for key, title, charts in sections}
    return {key: section for key, section in found.items() if section.charts}


def list_corpus_sections(report: CorpusReport) -> dict[str, ChartSection]:
    """A section for each label of a corpus with a configuration of full length."""
    scales = MarkScales(list_families(report))
    found = []
    for place, label in enumerate(report.labels):
        ideal = report.ideal if label.objective.has_ideal else None
        charts = (
            draw_seeds(label.leaderboard, label.objective, ideal, 1, scales),
            *draw_trade_offs(label.leaderboard, label.objective, ideal, 1, scales),
        )
        named = [chart and replace(chart, name=f"{chart.name}_{place}") for chart in charts]
        found.append((f"label-{place}", f"Protocol {label.label}", named))
    return _keep_drawn(found)


NO_IMPORTANCE = (
    f"No importance of parameters: it needs {MIN_IMPORTANCE_TRIALS} trials with a validation, and two "
    f"parameters that {MIN_PARAMETER_TRIALS} of them have."
)


@dataclass(frozen=True)
class PageContent:
    """What a page shows in addition to the values of its report."""

    title: str
    subject: str
    """The name of the study or the corpus."""
    alternatives: tuple[str, ...]
    """That the reader may switch off: of a study, or the families of a corpus."""
    sections: dict[str, ChartSection]
    """By the names of their elements."""
    equality_of: tuple[tuple[str, ...], ...]
    """For each leaderboard: whether configurations compare at equal tokens and sizes, in sentences."""
    commands: tuple[ShellCommand, ...]
    """What repeats or opens the results."""
    importance_note: str = ""
    """Why a study has no importance of parameters."""

    @property
    def charts(self) -> list[StudyChart]:
        """All charts in the order of the page."""
        return [chart for section in self.sections.values() for chart in section.charts]


def describe_page(report: StudyReport | CorpusReport) -> PageContent:
    """The content of the page of a study or of a corpus."""
    if isinstance(report, CorpusReport):
        return PageContent(
            title=f"Which model is best for {report.corpus}?",
            subject=report.corpus,
            alternatives=tuple(list_families(report)),
            sections=list_corpus_sections(report),
            equality_of=tuple(describe_equality(label.leaderboard, label.unit) for label in report.labels),
            commands=tuple(
                ShellCommand(purpose=purpose, command=command) for purpose, command in _list_commands(report)
            ),
        )
    summary = report.detail.summary
    return PageContent(
        title=summary.question or f"Study {summary.name}",
        subject=summary.name,
        alternatives=tuple(list_alternatives(report)),
        sections=list_sections(report),
        equality_of=(describe_equality(report.leaderboard, summary.unit),),
        commands=report.provenance.commands,
        importance_note="" if report.detail.importance else NO_IMPORTANCE,
    )


def describe_equality(leaderboard: StudyLeaderboard, unit: PredictionUnit) -> tuple[str, ...]:
    """Sentences that say at which equal or unequal amounts the configurations compare."""
    entries = [entry for entry in leaderboard.entries if not entry.is_counted]
    counted = [entry for entry in leaderboard.entries if entry.is_counted]
    if not entries:
        return ()
    found = []
    fewest, tokens = min(entry.tokens for entry in entries), max(entry.tokens for entry in entries)
    early = leaderboard.ended_early
    seen = f"{tokens:,}" if fewest == tokens else f"{fewest:,} to {tokens:,}"
    found.append(f"Equal budgets: every trained configuration has seen {seen} {unit}.")
    if early:
        names = ", ".join(f"{name_by_alternative(entry)} after {entry.tokens:,} {unit}" for entry in early)
        found[0] = f"Equal budgets of {tokens:,} {unit}. Ended by themselves before: {names}."
    if counted:
        families = ", ".join(sorted({entry.family for entry in counted}))
        found.append(f"Models that count ({families}) have read {counted[0].tokens:,} {unit} once.")
    sizes = [
        found.describe() for found in leaderboard.trade_offs if found.quantity in ("parameters", "state")
    ]
    if sizes:
        found.append(f"Sizes: {'; '.join(sizes)}.")
    return tuple(found)


def _list_commands(report: CorpusReport) -> Iterator[tuple[str, str]]:
    corpus = shlex.quote(report.corpus)
    for label in report.labels:
        if label.champion:
            name = f"models:/{label.champion.corpus}@{label.champion.alias}"
            yield f"evaluate the champion of {label.label}", f"memtune evaluate {shlex.quote(name)}"
    yield "compare all trials", f"memtune compare --corpus {corpus}"
    for study in chain.from_iterable(label.studies for label in report.labels):
        summary = study.detail.summary
        yield f"report of {summary.name}", f"memtune report {shlex.quote(summary.id)} --out report.html"
    yield "write this report", f"memtune report --corpus {corpus} --out report.html"
