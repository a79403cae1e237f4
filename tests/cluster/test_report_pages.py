"""The report of a study in a browser without a network: answer, charts, themes, a phone, print."""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from memtune.reports.report_page.page import describe_page, render_page
from memtune.results.study.study_report import StudyReport, report_corpus
from memtune.settings import Settings
from tests.reported_study import HOSTILE_QUESTION

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="no browser"),
]

PHONE_PIXELS = 390
PROBE = """
<script>
  const frame = document.getElementById("page");
  const listOverlapping = svg => {
    const texts = [...svg.querySelectorAll("text")].filter(text => text.textContent.trim());
    const boxes = texts.map(text => text.getBoundingClientRect());
    const meet = (a, b) =>
      Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
      Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
    return texts.flatMap((text, i) => {
      const others = texts.slice(0, i).filter((_, j) => meet(boxes[i], boxes[j]));
      return others.map(other => [other.textContent, text.textContent]);
    });
  };
  frame.addEventListener("load", () => {
    const look = () => {
      const page = frame.contentDocument, root = page.documentElement;
      if (!root.dataset.drawn) return setTimeout(look, 100);
      document.title = JSON.stringify({
        drawn: root.dataset.drawn,
        overflow: root.scrollWidth - root.clientWidth,
        paper: getComputedStyle(page.body).backgroundColor,
        ink: getComputedStyle(page.body).color,
        overlapping: [...page.querySelectorAll("svg")].flatMap(listOverlapping),
      });
    };
    look();
  });
</script>"""

Browse = Callable[..., "tuple[str, str]"]


@pytest.fixture(scope="module")
def file(report: StudyReport, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "report.html"
    path.write_text(render_page(report))
    return path


@pytest.fixture(scope="module")
def browse(tmp_path_factory: pytest.TempPathFactory) -> Browse:
    """A function that opens a file without a network: (the drawn page, what the browser logged)."""

    def open_file(path: Path, *options: str) -> tuple[str, str]:
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=60000"]
        # Every name but that of files fails to resolve, and files may read each other's elements.
        command += ["--host-resolver-rules=MAP * ~NOTFOUND", "--allow-file-access-from-files"]
        command += ["--enable-logging=stderr", f"--user-data-dir={tmp_path_factory.mktemp('browser')}"]
        done = subprocess.run(
            [*command, *options, f"file://{path}"], capture_output=True, text=True, check=True, timeout=300
        )
        return done.stdout, done.stderr

    return open_file


def read_text(page: str) -> str:
    """The text of a page, without its programs and the markup of its charts."""
    without = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", without).split())


def list_messages(log: str) -> list[str]:
    """What the page wrote to the console."""
    return [line for line in log.splitlines() if ":CONSOLE" in line]


def probe(browse: Browse, file: Path, folder: Path, width: int, *options: str) -> str:
    """The state of a drawn page in a frame of this width, as JSON: a headless window is never narrower."""
    frame = folder / f"frame{width}.html"
    style = f"width:{width}px;height:900px;border:0"
    frame.write_text(f'<iframe id="page" src="file://{file}" style="{style}"></iframe>{PROBE}')
    page, _ = browse(frame, "--dump-dom", *options)
    (found,) = re.findall(r"<title>(.*?)</title>", page)
    return str(found)


def test_the_page_answers_and_draws_every_chart_without_an_error(
    browse: Browse, file: Path, report: StudyReport
) -> None:
    page, log = browse(file, "--dump-dom", "--window-size=1600,1000")
    charts = describe_page(report).charts
    assert list_messages(log) == []
    assert f'data-drawn="{len(charts)}"' in page
    assert page.count('class="plot vega-embed') == len(charts)
    assert page.count("<svg") >= len(charts)
    text = read_text(page)
    assert report.verdict is not None
    assert report.verdict.headline in text
    for heading in (
        "Answer",
        "Leaderboard",
        "Learning curves",
        "Best so far",
        "Parameters",
        "Cost and savings",
    ):
        assert heading in text
    for entry in report.leaderboard.entries:
        assert f"{entry.figure:,.3f}" in text


def test_the_question_of_a_study_runs_no_program(browse: Browse, file: Path) -> None:
    page, log = browse(file, "--dump-dom")
    assert list_messages(log) == []
    emptied = re.sub(r"(<script\b[^>]*>).*?</script>", r"\1", page, flags=re.DOTALL)
    assert emptied.count("<script") == 4
    assert "<img" not in emptied
    assert HOSTILE_QUESTION.replace("<", "&lt;").replace(">", "&gt;") in page


@pytest.mark.parametrize("width", [1600, 1000, PHONE_PIXELS])
def test_the_page_never_scrolls_sideways(browse: Browse, file: Path, tmp_path: Path, width: int) -> None:
    assert '"overflow":0' in probe(browse, file, tmp_path, width, "--window-size=1700,1000")


@pytest.mark.parametrize("width", [1600, 1000, PHONE_PIXELS])
def test_no_label_of_a_chart_covers_another(browse: Browse, file: Path, tmp_path: Path, width: int) -> None:
    assert '"overlapping":[]' in probe(browse, file, tmp_path, width, "--window-size=1700,1000")


def test_the_page_is_light_or_dark_as_the_reader_prefers(browse: Browse, file: Path, tmp_path: Path) -> None:
    light = probe(browse, file, tmp_path, 1000, "--blink-settings=preferredColorScheme=1")
    dark = probe(browse, file, tmp_path, 1000, "--blink-settings=preferredColorScheme=0")
    assert '"paper":"rgb(255, 255, 255)"' in light
    assert '"paper":"rgb(20, 23, 27)"' in dark
    assert '"ink":"rgb(232, 234, 237)"' in dark


def test_the_page_prints(browse: Browse, file: Path, tmp_path: Path) -> None:
    printed = tmp_path / "report.pdf"
    browse(file, f"--print-to-pdf={printed}", "--no-pdf-header-footer")
    assert printed.read_bytes().startswith(b"%PDF")
    assert printed.stat().st_size > 50_000


def test_the_report_of_a_corpus_is_drawn_too(browse: Browse, home: Settings, tmp_path: Path) -> None:
    found, path = report_corpus("tiny", home), tmp_path / "corpus.html"
    path.write_text(render_page(found))
    page, log = browse(path, "--dump-dom")
    assert list_messages(log) == []
    assert f'data-drawn="{len(describe_page(found).charts)}"' in page
    assert "models:/tiny@champion" in read_text(page)
