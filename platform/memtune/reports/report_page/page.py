"""The report of a study or of a corpus as one HTML file that needs nothing else.

Texts of users reach the page in three ways, and none of them can become markup or a program: Jinja escapes
what it inserts, embedded JSON has no "<", and charts take texts as data only. The page's own policy
(Content-Security-Policy) forbids every request, and every script but the two whose digests it names.
"""

import base64
import os
import shlex
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import jinja2
import vl_convert
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from memtune.corpora.store.node_cache import resolve_cache_folder
from memtune.number_format import format_amount, format_count
from memtune.objective import PredictionUnit
from memtune.reports.experiment_views import format_accuracy
from memtune.reports.marks import DARK_COLOURS, Mark, assign_marks
from memtune.reports.report_page.chart_parts import MarkScales, StudyChart, make_config
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
from memtune.reports.study_tables import NO_IMPORTANCE
from memtune.reports.text_console import make_json_data
from memtune.results.study.study_leaderboard import StudyLeaderboard
from memtune.results.study.study_report import CorpusReport, ShellCommand, StudyReport
from memtune.storage.digests import hash_bytes
from memtune.tracking.runs.run_tags import COLOURS
from memtune.values import digest

FOLDER = Path(__file__).parent
SNIPPET = "window.vegaEmbed = vegaEmbed;"


class ChartSection(NamedTuple):
    """Charts under one heading."""

    title: str
    charts: tuple[StudyChart, ...]


def list_alternatives(report: StudyReport | CorpusReport) -> list[str]:
    """The alternatives of the trials of a study, or of all studies of a corpus, by name."""
    if isinstance(report, StudyReport):
        return sorted({trial.alternative for trial in report.detail.trials})
    studies = [study for label in report.labels for study in label.studies]
    return sorted({name for study in studies for name in list_alternatives(study)})


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
    scales = MarkScales(list_alternatives(report))
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


@dataclass(frozen=True)
class PageContent:
    """What a page shows in addition to the values of its report."""

    title: str
    subject: str
    """The name of the study or the corpus."""
    alternatives: tuple[str, ...]
    """That the reader may switch off: of a study, or of all studies of a corpus."""
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
            alternatives=tuple(list_alternatives(report)),
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
        names = ", ".join(f"{entry.name} after {entry.tokens:,} {unit}" for entry in early)
        found[0] = f"Equal budgets of {tokens:,} {unit}. Stopped improving or diverged before: {names}."
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


@cache
def load_vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as a script that an HTML page can hold.

    vl-convert bundles them in about 2 s, so the cache (MEMTUNE_CACHE) keeps the result. Without a writable
    cache each process bundles them again.
    """
    file = resolve_cache_folder() / "vega" / f"{digest(version('vl-convert-python'), SNIPPET)[:16]}.js"
    with suppress(OSError):
        if _is_own(file):
            return file.read_text(encoding="utf-8")
    bundle = str(vl_convert.javascript_bundle(SNIPPET))
    # An HTML parser ends a script at this text anywhere; within a JavaScript text both are equal.
    bundle = bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_suffix(f".{os.getpid()}")
        temporary.write_text(bundle, encoding="utf-8")
        temporary.chmod(0o644)
        temporary.replace(file)
    return bundle


def _is_own(file: Path) -> bool:
    """Whether nobody else can have written a file: a cache may be shared, and pages run what it holds."""
    state = file.lstat()
    return stat.S_ISREG(state.st_mode) and state.st_uid == os.getuid() and not state.st_mode & 0o022


def render_page(report: StudyReport | CorpusReport, content: PageContent | None = None) -> str:
    """The HTML of the report of a study, or of a corpus over all its studies.

    `content` is the report's `describe_page`, where the caller has it already.
    """
    name = "study_page.html.jinja" if isinstance(report, StudyReport) else "corpus_page.html.jinja"
    template, content = _open_templates().get_template(name), content or describe_page(report)
    charts = {chart.name: chart.to_spec("container") for chart in content.charts}
    vega, script = load_vega(), (FOLDER / "report_page.js").read_text(encoding="utf-8")
    return template.render(
        report=report,
        content=content,
        marks={name: _draw_mark(mark) for name, mark in assign_marks(content.alternatives).items()},
        style=Markup((FOLDER / "report_page.css").read_text(encoding="utf-8")),
        colours=list(zip(COLOURS, DARK_COLOURS, strict=True)),
        charts=embed_json({"config": make_config(has_legend=False), "charts": charts}),
        values=embed_json(report),
        vega=Markup(vega),
        script=Markup(script),
        digests=" ".join(f"'sha256-{digest_script(text)}'" for text in (vega, script)),
    )


def embed_json(data: object) -> Markup:
    """JSON that no HTML parser takes for markup; values that are not JSON, such as infinity, become null."""
    return htmlsafe_json_dumps(make_json_data(data), separators=(",", ":"), allow_nan=False)


def digest_script(text: str) -> str:
    """The digest of a script as a Content-Security-Policy names it."""
    return base64.b64encode(bytes.fromhex(hash_bytes(text.encode()))).decode()


@cache
def _open_templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["figure"] = lambda figure, objective: (
        "" if figure is None else f"{objective.scale * figure:,.3f}{objective.unit}"
    )
    environment.filters["count_of"] = format_count
    environment.filters["count"] = lambda number: "" if number is None else f"{number:,.0f}"
    environment.filters["amount"] = lambda number: "" if number is None else format_amount(number, 3)
    environment.filters["probe"] = format_accuracy
    environment.filters["percent"] = lambda share: "" if share is None else f"{100 * share:,.1f} %"
    return environment


def _draw_mark(mark: Mark) -> Markup:
    place = COLOURS.index(mark.colour)
    return Markup(
        '<svg class="mark" viewBox="-1.15 -1.15 2.3 2.3" aria-hidden="true">'
        '<path d="{}" fill="var(--mark-{})"/></svg>'
    ).format(mark.path, place)
