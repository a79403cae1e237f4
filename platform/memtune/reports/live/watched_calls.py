"""Trainings and imports of Python that print their progress: one line in place, or lines in a pipe."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from memtune.arguments import check_type
from memtune.reports.learning_curves import draw_trial_figures
from memtune.reports.live.live_view import LiveView
from memtune.reports.text_console import TextConsole
from memtune.settings import Settings
from memtune.values import parse

if TYPE_CHECKING:
    from memtune.corpora import CorpusStore, Division, ImportOptions, ImportResult, Source, VectorFile
    from memtune.experiments.judgement import Judgement
    from memtune.experiments.probe_run import ModelSource
    from memtune.experiments.single_trial import TrainResult, TrialFile, TrialSource
    from memtune.results.fingerprints import Fingerprint
    from memtune.training import Progress, Report

MEGABYTE = 1_000_000


class LineDisplay(LiveView):
    """One line that is replaced on a terminal and in a notebook. A pipe gets `add_line` alone."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._line = Text()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._line

    def replace(self, line: str) -> None:
        """Show a line in place of the one before."""
        self._line = Text(line)
        self.refresh()


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
    cell, or of `console`; without `progress` nothing is printed.

    `on_progress` is called a few times a second, `on_report` at each milestone. The model is registered when
    it is the best of its label or of its family. Raises a MemtuneError before training when something that
    the file names is missing.
    """
    # Imported here: torch loads for seconds.
    from memtune.experiments.single_trial import open_trial, train_trial

    output = _choose_console(console, progress=progress)
    known = Settings.resolve(settings)
    name, file = open_trial(trial, overrides)
    unit = file.trial.task.prediction_unit
    with LineDisplay(output) as display:

        def show(now: "Progress") -> None:
            display.replace(format_progress(now, unit))
            if on_progress:
                on_progress(now)

        def tell(report: "Report") -> None:
            display.add_line(format_report(report, unit))
            if on_report:
                on_report(report)

        return train_trial(
            file,
            name,
            device=device,
            settings=known,
            on_progress=show,
            on_report=tell,
            draw_figures=draw_trial_figures,
        )


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
    from memtune.experiments.judgement import judge_configurations, open_judged
    from memtune.experiments.single_trial import train_trial
    from memtune.studies.definition.study_terms import Repeats

    output = _choose_console(console, progress=progress)
    known = Settings.resolve(settings)
    asked = {"until": "decided", "indifference": indifference, "max_seeds": max_seeds}
    terms: Repeats = parse(Repeats, asked, "judge")
    opened = [open_judged(source, known, trust_code=trust_code) for source in (baseline, candidate)]
    with LineDisplay(output) as display:

        def train_seed(file: "TrialFile", name: str) -> "TrainResult":
            title, unit = f"{name} seed {file.trial.seed}", file.trial.task.prediction_unit
            trained = train_trial(
                file,
                name,
                device=device,
                settings=known,
                on_progress=lambda now: display.replace(f"{title}: {format_progress(now, unit)}"),
                draw_figures=draw_trial_figures,
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

    `model` is a family, a published mixer such as "gla", a TOML file with the table [model], or that table.
    `terms` has `parameters`, `epochs`, `batch_size`, `rates`, `seeds` and the `settings` of the rows. Each
    training is a line of the terminal, of the output of a notebook's cell, or of `console`; without
    `progress` nothing is printed. A trained model is not trained again.
    """
    # Imported here: torch loads for seconds.
    from memtune.experiments.probe_run import take_fingerprint
    from memtune.results.fingerprints import ProbeTerms

    known = parse(ProbeTerms, dict(terms or {}), "the terms of the probes")
    with LineDisplay(_choose_console(console, progress=progress)) as display:
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

    `store` is by default that of the environment's settings. What is read is shown on the terminal, in the
    output of a notebook's cell, or on `console`; without `progress` nothing is printed.

    Only the training split determines the vocabulary unless `options.vocabulary` is "all". A corpus with
    annotations may have some of the splits only. A Division divides one file into the splits. If the name
    exists, equal content changes nothing, and different content raises CorpusError unless `replace` is true.
    `licence` (a note) and `ideal` (the exact ideal perplexity per split) are stored in the manifest.
    `vectors` are stored for the words of the vocabulary. Raises CorpusError for texts that cannot be read and
    StorageError for a store that cannot be written; the store then keeps its previous content.
    """
    from memtune.corpora import import_corpus as import_silently

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
        splits = imported.manifest.splits.items()
        sizes = ", ".join(f"{split} {summary.tokens:,}" for split, summary in splits)
        stored = "already in the store" if imported.unchanged else "imported"
        display.add_line(f"{imported.manifest.name}: {stored}, tokens: {sizes}")
    return imported


def _choose_console(console: Console | None, *, progress: bool) -> Console:
    check_type("progress", progress, bool, "True or False; a callback is an argument of memtune.corpora")
    if console is not None:
        check_type("console", console, Console, "a rich.console.Console; progress=False prints nothing")
    return console or TextConsole(quiet=not progress)


def format_progress(now: "Progress", unit: str) -> str:
    """The state of a training between two reports in a line."""
    speed = f"{now.tokens_per_second:,.0f} {unit}/s"
    return f"{now.tokens:,} {unit}, {speed}, loss {now.loss:.3f}, {now.seconds_left:,.0f} s left"


def format_report(report: "Report", unit: str) -> str:
    """One line for a report: perplexities, or losses and accuracy for a classifier."""
    words = unit == "tokens"
    figures = [("train", report.train_perplexity if words else report.train_loss)]
    figures += [("validation", report.valid_perplexity if words else report.valid_loss)]
    name = "perplexity" if words else "loss"
    parts = [f"{split} {name} {value:.3f}" for split, value in figures if value is not None]
    parts += ["diverged"] if report.valid_loss is None else []
    parts += [] if report.valid_accuracy is None else [f"accuracy {100 * report.valid_accuracy:.2f} %"]
    parts.append(f"{report.tokens_per_second:,.0f} {unit}/s")
    return f"epoch {report.epoch:.2f}, {report.tokens:,} {unit}: {', '.join(parts)}"
