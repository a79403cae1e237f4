"""The report of a study or of a corpus as one HTML file that needs nothing else.

Texts of users reach the page in three ways, and none of them can become markup or a program: Jinja escapes
what it inserts, embedded JSON has no "<", and charts take texts as data only. The page's own policy
(Content-Security-Policy) forbids every request, and every script but the two whose digests it names.
"""

import base64
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from memtune.objective import Objective
from memtune.reports.family_marks import COLOURS, DARK_COLOURS, FamilyMark, assign_marks
from memtune.reports.json_values import replace_non_finite
from memtune.reports.report_page.chart_parts import make_config
from memtune.reports.report_page.page_content import PageContent, describe_page
from memtune.reports.report_page.vega_bundle import load_vega
from memtune.results.study.study_report import CorpusReport, StudyReport
from memtune.storage.digests import hash_bytes

__all__ = ["embed_json", "render_page"]

FOLDER = Path(__file__).parent
NON_JSON = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""Characters that could end a script element or begin another one, as JSON writes them within a text."""


def render_page(report: StudyReport | CorpusReport, content: PageContent | None = None) -> str:
    """The HTML of the report of a study, or of a corpus over all its studies.

    `content` is the report's `describe_page`, where the caller has it already.
    """
    template = "study_page.html.jinja" if isinstance(report, StudyReport) else "corpus_page.html.jinja"
    content = content or describe_page(report)
    charts = {chart.name: chart.to_spec("container") for chart in content.charts}
    vega, script = load_vega(), (FOLDER / "report_page.js").read_text(encoding="utf-8")
    return (
        _open_templates()
        .get_template(template)
        .render(
            report=report,
            content=content,
            marks={family: _draw_mark(mark) for family, mark in assign_marks(content.families).items()},
            style=Markup((FOLDER / "report_page.css").read_text(encoding="utf-8")),
            colours=list(zip(COLOURS, DARK_COLOURS, strict=True)),
            charts=embed_json({"config": make_config(has_legend=False), "charts": charts}),
            values=embed_json(report.model_dump(mode="json")),
            vega=Markup(vega),
            script=Markup(script),
            digests=" ".join(f"'sha256-{digest_script(text)}'" for text in (vega, script)),
        )
    )


def embed_json(data: Mapping[str, Any]) -> Markup:
    """JSON that no HTML parser takes for markup; values that are not JSON, such as infinity, become null."""
    text = json.dumps(replace_non_finite(data), separators=(",", ":"), allow_nan=False)
    for character, escape in NON_JSON.items():
        text = text.replace(character, escape)
    return Markup(text)


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
    environment.filters["figure"] = format_figure_value
    environment.filters["count"] = lambda number: "" if number is None else f"{number:,.0f}"
    environment.filters["amount"] = format_amount
    environment.filters["percent"] = lambda share: "" if share is None else f"{100 * share:,.1f} %"
    return environment


def format_figure_value(figure: float | None, objective: Objective) -> str:
    """A perplexity or an accuracy as tables show it."""
    if figure is None:
        return ""
    return f"{objective.scale * figure:,.3f}{objective.unit}"


def format_amount(number: float | None) -> str:
    """Hours, money or a margin with three significant digits; whole numbers from 100 on."""
    if number is None:
        return ""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def _draw_mark(mark: FamilyMark) -> Markup:
    """A family's mark as a small picture within a line of text."""
    place = COLOURS.index(mark.colour)
    return Markup(
        '<svg class="mark" viewBox="-1.15 -1.15 2.3 2.3" aria-hidden="true">'
        '<path d="{}" fill="var(--mark-{})"/></svg>'
    ).format(mark.path, place)
