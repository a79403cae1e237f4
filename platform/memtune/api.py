"""Studies as one call: the driver with Ray as its executor, the live display, and the registry."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rich.console import Console

from memtune.arguments import check_type
from memtune.ray_backend.ray_executor import RayExecutor
from memtune.reports.learning_curves import draw_trial_figures
from memtune.reports.live.live_display import LiveDisplay
from memtune.reports.text_console import TextConsole
from memtune.results.study.study_detail import SearchResult
from memtune.results.study.study_view import StudyView
from memtune.results.study_conclusion import conclude_study
from memtune.search import StudyReader
from memtune.settings import Settings
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.studies.definition.study_loader import StudySource, open_study
from memtune.studies.executor import Executor
from memtune.studies.study_check import check_study
from memtune.studies.study_run import Conclusion, StudyHooks, StudyResult, run_study
from memtune.tracking import Recorder

log = logging.getLogger(__name__)

REPORT_FILE, FIGURE_FOLDER = "report.html", "figures"
"""Among the artifacts of a study's run."""
RECORDED_FIGURES = (
    "leaderboard",
    "validation_by_parameters",
    "learning_curves",
    "best_so_far_by_tokens",
    "parallel_coordinates",
    "importance",
)
"""Each figure delays the end of a study by a tenth of a second; the report draws the others."""


def run_search(
    study: StudySource,
    overrides: Mapping[str, Any] | None = None,
    *,
    resume: bool = False,
    reuse: bool = True,
    address: str | None = None,
    settings: Settings | None = None,
    progress: bool = True,
    console: Console | None = None,
    executor: Executor | None = None,
) -> SearchResult:
    """Run a study, or resume it, and register its best model.

    `study` is a TOML file or the name of a packaged study, a mapping with the content of a file, or a Study.
    A study without a file has a `name`, and its paths start at the working folder.

    With `reuse`, configurations that another study of the same home has trained are not trained again, unless
    this study measures their speed.
    `overrides` replace fields of the study by dotted name. `address` is a Ray
    cluster's; without it (and without RAY_ADDRESS) a private Ray instance runs on this machine. `executor`
    runs the trials instead of Ray. Progress goes to the terminal, to the output of a notebook's cell, or to
    `console`; without `progress` nowhere.

    Raises a MemtuneError before anything starts when the study cannot run; StudyError when it has begun and
    `resume` is not set, or when another driver runs it.
    """
    settings = Settings.resolve(settings)
    if console is not None:
        check_type("console", console, Console, "a rich.console.Console; progress=False prints nothing")
    path, opened = open_study(study, overrides)
    resolved = check_study(path, opened, settings, address)
    resolved = resolved.find_begun() if resume else resolved
    output = console or TextConsole(quiet=not progress)

    conclude = partial(_conclude, output.print)
    hooks = StudyHooks((partial(LiveDisplay, output),), conclude, output.print, draw_trial_figures)

    def run(resume: bool) -> StudyResult:
        runs_trials = executor or RayExecutor(address, output.print)
        return run_study(path, resolved, runs_trials, hooks, resume=resume, reuse=reuse)

    def notify(message: str) -> None:
        output.print(message, soft_wrap=True)  # a path that can be copied

    return SearchResult(**vars(_resume_after_losses(run, resume, notify)))


def _resume_after_losses(
    run: Callable[[bool], StudyResult], resume: bool, notify: Callable[[str], object]
) -> StudyResult:
    """Run a study; resume it whenever its private Ray instance has died, unless no trial progressed since."""
    before, result = None, run(resume)
    while loss := result.executor_loss:
        progress = [result.outcomes, result.repeats]
        if not loss.can_restart or progress == before:
            end = "it also died before, and no trial has reported since; " if loss.can_restart else ""
            notify(f"{loss}; {end}the study stays open")
            break
        notify(f"{loss}; the study resumes on a new instance")
        before, result = progress, run(True)
    return result


def _conclude(notify: Callable[[str], object], study: ResolvedStudy, recorder: Recorder) -> Conclusion | None:
    """Conclude the study, and store its report with its run."""
    view = StudyView(StudyReader(study.settings.study_database).read(study.id), study.settings, study.corpus)
    conclusion = conclude_study(study, view, recorder, notify)
    if conclusion is not None:
        _record_report(study, view, recorder)
    return conclusion


def _record_report(study: ResolvedStudy, view: StudyView, recorder: Recorder) -> None:
    """Record the report's page and its main figures as SVG, by the names of their files."""
    # Imported here: Altair loads for half a second, and only a study that ends needs it.
    from memtune.reports.report_page.page import describe_page, render_page
    from memtune.reports.report_page.result_figures import draw_chart
    from memtune.results.study.study_report import make_report

    try:
        report = make_report(view)
        content = describe_page(report)
        figures = {
            f"{FIGURE_FOLDER}/{chart.name}.svg": draw_chart(chart, content.subject).svg
            for chart in content.charts
            if chart.name in RECORDED_FIGURES
        }
        recorder.log_files(None, {REPORT_FILE: render_page(report, content), **figures})
    except Exception as error:
        # Whatever a page or a chart raises: the study has its result, and its run has yet to end.
        log.warning(
            "the report of study %s is not recorded: %s: %s; it is written later by: memtune report %s",
            study.id,
            type(error).__name__,
            error,
            study.id,
        )
