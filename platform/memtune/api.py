"""Studies as one call: the driver with Ray as its executor, the live display, and the registry."""

from pathlib import Path
from typing import Any

from rich.console import Console

from memtune.ray_backend.ray_executor import RayExecutor
from memtune.reports.learning_curves import draw_trial_figures
from memtune.reports.live_display import LiveDisplay
from memtune.reports.text_console import TextConsole
from memtune.results.study_conclusion import conclude_study
from memtune.settings import Settings
from memtune.studies.executor import Executor
from memtune.studies.study import load_study
from memtune.studies.study_run import StudyHooks, StudyResult, TrialPhase, check_study, run_study

__all__ = ["run_search"]


def run_search(
    path: str | Path,
    overrides: dict[str, Any] | None = None,
    *,
    resume: bool = False,
    reuse: bool = True,
    address: str | None = None,
    settings: Settings | None = None,
    console: Console | None = None,
    executor: Executor | None = None,
) -> StudyResult:
    """Run a study, or resume it, and register its best model.

    With `reuse`, configurations that another study of the same home has trained are not trained again.
    `overrides` replace fields of the study's file by dotted name. `address` is a Ray
    cluster's; without it (and without RAY_ADDRESS) a private Ray instance runs on this machine. `executor`
    runs the trials instead of Ray. Progress goes to `console`.

    Raises a MemtuneError before anything starts when the study cannot run; StudyError when it has begun and
    `resume` is not set, or when another driver runs it.
    """
    path, settings = Path(path), settings or Settings.from_environment()
    resolved = check_study(path, load_study(path, overrides), settings, address)
    output = console or TextConsole(quiet=True)

    def watch(phase: TrialPhase) -> LiveDisplay:
        return LiveDisplay(
            output,
            phase.title,
            phase.max_trials,
            phase.ideal_perplexity,
            phase.searched_fields,
            phase.names,
        )

    hooks = StudyHooks(watch, conclude_study, output.print, draw_trial_figures)
    return run_study(path, resolved, executor or RayExecutor(address), hooks, resume=resume, reuse=reuse)
