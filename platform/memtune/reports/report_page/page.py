"""The report of a study or of a corpus as one HTML file that needs nothing else.

Texts of users reach the page in three ways, and none of them can become markup or a program: Jinja escapes
what it inserts, embedded JSON has no "<", and charts take texts as data only. The page's own policy
(Content-Security-Policy) forbids every request, and every script but the two whose digests it names.
"""

import base64
import os
import stat
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

import jinja2
import vl_convert
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from memtune.corpora.store.node_cache import resolve_cache_folder
from memtune.number_format import format_amount
from memtune.reports.experiment_views import format_accuracy
from memtune.reports.marks import COLOURS, DARK_COLOURS, Mark, assign_marks
from memtune.reports.report_page.chart_parts import make_config
from memtune.reports.report_page.page_content import PageContent, describe_page
from memtune.reports.text_console import make_json_data
from memtune.results.study.study_leaderboard import name_by_alternative
from memtune.results.study.study_report import CorpusReport, StudyReport
from memtune.storage.digests import hash_bytes
from memtune.values import digest

FOLDER = Path(__file__).parent
SNIPPET = "window.vegaEmbed = vegaEmbed;"


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
    """The page of a report; `content` is the report's `describe_page`, where the caller has it already."""
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
    environment.filters["count"] = lambda number: "" if number is None else f"{number:,.0f}"
    environment.filters["amount"] = lambda number: "" if number is None else format_amount(number, 3)
    environment.filters["by_alternative"] = name_by_alternative
    environment.filters["probe"] = format_accuracy
    environment.filters["percent"] = lambda share: "" if share is None else f"{100 * share:,.1f} %"
    return environment


def _draw_mark(mark: Mark) -> Markup:
    """A mark as a small picture within a line of text."""
    place = COLOURS.index(mark.colour)
    return Markup(
        '<svg class="mark" viewBox="-1.15 -1.15 2.3 2.3" aria-hidden="true">'
        '<path d="{}" fill="var(--mark-{})"/></svg>'
    ).format(mark.path, place)
