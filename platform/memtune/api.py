"""The functions of `import memtune` that show their progress: studies, trainings and imports of texts.

A study is the driver with Ray as its executor, the live display, and the registry.
"""

import logging
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from math import inf
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from rich.console import Console

from memtune.arguments import check_type
from memtune.gc_pause import pause_gc
from memtune.reports.live.live_view import LineDisplay, format_progress, format_report
from memtune.reports.text_console import TextConsole
from memtune.settings import Settings
from memtune.values import parse

if TYPE_CHECKING:
    from memtune.corpora import CorpusStore, Division, ImportOptions, ImportResult, Source, VectorFile
    from memtune.experiments.judgement import Judgement
    from memtune.experiments.probe_run import ModelSource
    from memtune.experiments.single_trial import TrainResult, TrialFile, TrialSource
    from memtune.results.fingerprints import Fingerprint
    from memtune.results.study.study_detail import SearchResult
    from memtune.results.study.study_view import StudyView
    from memtune.studies.definition.resolved_study import ResolvedStudy
    from memtune.studies.definition.study_loader import StudySource
    from memtune.studies.executor import Executor
    from memtune.studies.study_run import Conclusion, StudyResult
    from memtune.tracking import Recorder
    from memtune.training import Progress, Report

log = logging.getLogger(__name__)

MEGABYTE = 1_000_000
FIRST_LINE_SECONDS = 10.0
"""From here on the speed of a training is not that of its first batches."""
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
    study: "StudySource",
    overrides: Mapping[str, Any] | None = None,
    *,
    resume: bool = False,
    reuse: bool = True,
    address: str | None = None,
    settings: Settings | None = None,
    progress: bool = True,
    console: Console | None = None,
    executor: "Executor | None" = None,
) -> "SearchResult":
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
    `resume` is not set, or when another driver runs it. Ctrl-C, or the stop button of a notebook, leaves the
    open trials with a checkpoint, and then raises KeyboardInterrupt.
    """
    check_type("resume", resume, bool, "True or False")
    check_type("reuse", reuse, bool, "True or False")
    result = search_study(
        study,
        overrides,
        resume=resume,
        reuse=reuse,
        address=address,
        settings=settings,
        console=_choose_console(console, progress=progress),
        executor=executor,
    )
    if result.stop_signal == signal.SIGINT:
        raise KeyboardInterrupt(
            f"study {result.id} stopped with {result.describe_open()} open; to resume it: run_search(..., "
            "resume=True)"
        )
    return result


def search_study(
    study: "StudySource",
    overrides: Mapping[str, Any] | None,
    *,
    resume: bool,
    reuse: bool,
    address: str | None,
    console: Console,
    settings: Settings | None = None,
    executor: "Executor | None" = None,
) -> "SearchResult":
    """As `run_search`, but a study that Ctrl-C has stopped is returned as well."""
    with pause_gc():
        # Imported here, as below: torch and Ray load for seconds, which an import of a text does not need.
        from memtune.ray_backend.ray_executor import RayExecutor
        from memtune.reports.live.live_display import LiveDisplay
        from memtune.results.study.study_detail import SearchResult
        from memtune.studies.definition.begun_studies import find_begun
        from memtune.studies.definition.study_loader import open_study
        from memtune.studies.executor import Executor
        from memtune.studies.study_check import check_study
        from memtune.studies.study_run import StudyHooks, run_study

    check_type("executor", executor, (Executor, NoneType), "an executor, such as InProcessExecutor()")
    settings = Settings.resolve(settings)
    path, opened = open_study(study, overrides)
    resolved = check_study(path, opened, settings, address)
    resolved = find_begun(resolved) if resume else resolved

    conclude = partial(_conclude, console.print)
    watch = partial(LiveDisplay, console, start_seconds=time.monotonic())
    hooks = StudyHooks((watch,), conclude, console.print)

    def run(resume: bool) -> "StudyResult":
        runs_trials = executor or RayExecutor(address, console.print)
        return run_study(resolved, runs_trials, hooks, resume=resume, reuse=reuse)

    def notify(message: str) -> None:
        console.print(message, soft_wrap=True)  # a path that can be copied

    return SearchResult(**vars(_resume_after_losses(run, resume, notify)))


def train(
    trial: "TrialSource",
    overrides: Mapping[str, Any] | None = None,
    *,
    device: str = "cpu",
    settings: Settings | None = None,
    progress: bool = True,
    console: Console | None = None,
    on_progress: "Callable[[Progress], None] | None" = None,
    on_report: "Callable[[Report], None] | None" = None,
) -> "TrainResult":
    """Train a configuration, from its last checkpoint when there is one.

    `trial` is a TOML file, the name of a packaged trial, or a mapping with the content of a file; `overrides`
    replace its fields by dotted name. Each report is a line of the terminal, of the output of a notebook's
    cell, or of `console`; a pipe gets a line with the time left first, where reports are far apart. Without
    `progress` nothing is printed.

    `on_progress` is called a few times a second, `on_report` at each milestone. The configuration is
    registered when its mean over the seeds of all such trainings is the best of its label or of its family.
    Raises a MemtuneError before training when something that the file names is missing.
    """
    with pause_gc():
        from memtune.experiments.single_trial import open_trial, train_trial

    for callback, function in {"on_progress": on_progress, "on_report": on_report}.items():
        kinds: Any = (Callable, NoneType)  # mypy takes Callable for no type
        check_type(callback, function, kinds, "a function of one argument, or None")
    output = _choose_console(console, progress=progress)
    known = Settings.resolve(settings)
    name, file = open_trial(trial, overrides)
    unit = file.trial.task.prediction_unit
    with _explain_interrupt(), LineDisplay(output) as display:
        # A pipe gets one line before the first report, which may take an hour.
        line_at = inf if display.is_shown_in_place else time.monotonic() + FIRST_LINE_SECONDS

        def show(now: "Progress") -> None:
            nonlocal line_at
            line = format_progress(now, unit)
            display.replace(line)
            if time.monotonic() > line_at:
                line_at = inf
                display.add_line(line)
            if on_progress:
                on_progress(now)

        def tell(report: "Report") -> None:
            nonlocal line_at
            line_at = inf
            display.add_line(format_report(report, unit))
            if on_report:
                on_report(report)

        trained = train_trial(
            file,
            name,
            device=device,
            settings=known,
            on_progress=show,
            on_report=tell,
        )
        if trained.initial_tokens == trained.curve[-1].tokens:
            display.add_line(f"{name} was already trained to its end, {trained.initial_tokens:,} {unit}")
        return trained


def judge(
    baseline: "TrialSource",
    candidate: "TrialSource",
    *,
    indifference: float = 0.005,
    max_seeds: int = 30,
    device: str = "cpu",
    trust_code: bool = False,
    settings: Settings | None = None,
    progress: bool = True,
    console: Console | None = None,
) -> "Judgement":
    """Whether a candidate is better than a baseline: both train under equal seeds until that is decided.

    Each is a TOML file of a trial, the name of a packaged trial, a mapping with the content of a file, or the
    name of a trial or of a registered model, whose source `trust_code` consents to execute. Versions of a
    family's file are two trials that list one version each. Trainings continue from their checkpoints. Raises
    StudyError where the two do not compare.
    """
    with pause_gc():
        from memtune.experiments.judgement import judge_configurations, open_judged
        from memtune.experiments.single_trial import train_trial
        from memtune.studies.definition.study_terms import Repeats

    check_type("trust_code", trust_code, bool, "True or False")
    output = _choose_console(console, progress=progress)
    known = Settings.resolve(settings)
    asked = {"until": "decided", "indifference": indifference, "max_seeds": max_seeds}
    terms: Repeats = parse(Repeats, asked, "judge")
    opened = [open_judged(source, known, trust_code=trust_code) for source in (baseline, candidate)]
    with _explain_interrupt(), LineDisplay(output) as display:

        def train_seed(file: "TrialFile", name: str) -> "TrainResult":
            title, unit = f"{name} seed {file.trial.seed}", file.trial.task.prediction_unit
            trained = train_trial(
                file,
                name,
                device=device,
                settings=known,
                on_progress=lambda now: display.replace(f"{title}: {format_progress(now, unit)}"),
                registers=False,
            )
            display.add_line(f"{title}: {format_report(trained.best or trained.curve[-1], unit)}")
            return trained

        return judge_configurations(opened[0], opened[1], terms, known, train_seed)


def probe(
    model: "ModelSource",
    probes: str = "recall",
    terms: Mapping[str, Any] | None = None,
    *,
    device: str = "cpu",
    settings: Settings | None = None,
    progress: bool = True,
    console: Console | None = None,
) -> "Fingerprint":
    """Train a model on the probes of a set, or on one, and return its fingerprint.

    `model` is a family, a published mixer such as "gla", a TOML file with the table [model], its content as a
    mapping with `models` and `model`, or that table alone.
    `terms` has `parameters`, `epochs`, `batch_size`, `rates`, `seeds` and the `settings` of the rows. Each
    training is a line of the terminal, of the output of a notebook's cell, or of `console`; without
    `progress` nothing is printed. A trained model is not trained again.
    """
    with pause_gc():
        from memtune.experiments.probe_run import take_fingerprint
        from memtune.results.fingerprints import ProbeTerms

    known = parse(ProbeTerms, dict(terms or {}), "the terms of the probes")
    output = _choose_console(console, progress=progress)
    with _explain_interrupt(), LineDisplay(output) as display:
        return take_fingerprint(
            model,
            probes,
            known,
            device=device,
            settings=settings,
            notify=display.add_line,
            on_progress=lambda title, now: display.replace(f"{title}: {format_progress(now, 'examples')}"),
        )


def import_corpus(
    name: str,
    sources: "Mapping[str, Source] | Division",
    store: "str | Path | CorpusStore | None" = None,
    options: "ImportOptions | None" = None,
    *,
    licence: str | None = None,
    ideal: Mapping[str, float] | None = None,
    vectors: "VectorFile | None" = None,
    replace: bool = False,
    cache: Path | None = None,
    progress: bool = True,
    console: Console | None = None,
) -> "ImportResult":
    """Import the splits "train", "valid" and "test" as corpus `name`.

    `store` is by default that of the environment's settings. What is read and the warnings are shown on the
    terminal, in the output of a notebook's cell, or on `console`; without `progress` nothing is printed.

    Only the training split determines the vocabulary unless `options.vocabulary` is "all". A corpus with
    annotations may have some of the splits only. A Division divides one file or data set. If the name exists,
    equal content changes nothing, and different content raises CorpusError unless `replace` is true.
    `licence` (a note) and `ideal` (the exact ideal perplexity per split) are stored in the manifest.
    `vectors` are stored for the words of the vocabulary. Raises CorpusError for texts that cannot be read and
    StorageError for a store that cannot be written; the store then keeps its previous content.
    """
    from memtune.corpora import import_corpus as import_silently

    expected = "True or False; a callback is an argument of memtune.corpora.import_corpus"
    check_type("progress", progress, bool, expected)
    output = _choose_console(console, progress=progress)
    with LineDisplay(output) as display:

        def show(done: int, total: int | None, split: str) -> None:
            of = f" of {total / MEGABYTE:,.1f}" if total else ""
            display.replace(f"{name}: {split}, {done / MEGABYTE:,.1f}{of} MB read")

        imported = import_silently(
            name,
            sources,
            store,
            options,
            licence=licence,
            ideal=ideal,
            vectors=vectors,
            replace=replace,
            cache=cache,
            progress=show,
        )
        for warning in imported.warnings:
            display.add_line(f"warning: {warning}")
        splits = imported.manifest.splits.items()
        sizes = ", ".join(f"{split} {summary.tokens:,}" for split, summary in splits)
        stored = "already in the store" if imported.unchanged else "imported"
        display.add_line(f"{imported.manifest.name}: {stored}, tokens: {sizes}")
    return imported


def _choose_console(console: Console | None, *, progress: bool) -> Console:
    check_type("progress", progress, bool, "True or False")
    if console is not None:
        check_type("console", console, Console, "a rich.console.Console; progress=False prints nothing")
    return console or TextConsole(quiet=not progress)


@contextmanager
def _explain_interrupt() -> Iterator[None]:
    """Say in a KeyboardInterrupt, of Ctrl-C or of a notebook's stop button, how the trainings continue."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped; the same call continues from the last checkpoint") from None


def _resume_after_losses(
    run: "Callable[[bool], StudyResult]", resume: bool, notify: Callable[[str], object]
) -> "StudyResult":
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


def _conclude(
    notify: Callable[[str], object], study: "ResolvedStudy", recorder: "Recorder"
) -> "Conclusion | None":
    """Conclude the study, and store its report with its run."""
    from memtune.results.study.study_view import StudyView
    from memtune.results.study_conclusion import conclude_study
    from memtune.search import StudyReader

    view = StudyView(StudyReader(study.settings.study_database).read(study.id), study.settings, study.corpus)
    conclusion = conclude_study(study, view, recorder, notify)
    if conclusion is not None:
        _record_report(study, view, recorder)
    return conclusion


def _record_report(study: "ResolvedStudy", view: "StudyView", recorder: "Recorder") -> None:
    """Record the report's page and its main figures as SVG, by the names of their files."""
    # Altair loads for half a second, and only a study that ends needs it.
    from memtune.reports.report_page.page import describe_page, render_page
    from memtune.reports.report_page.result_figures import draw_chart
    from memtune.results.study.study_report import make_study_report

    try:
        report = make_study_report(view)
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
