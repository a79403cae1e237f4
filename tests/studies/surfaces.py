"""Drawn studies through the real commands, and what each surface says of them."""

import html
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import torch
from typer.testing import CliRunner

from memtune import api
from memtune.cli import command_line as cli
from memtune.cli import search_commands, study_commands
from memtune.cli.terminal import out
from memtune.corpora import ImportOptions, import_corpus, open_corpus
from memtune.reports.report_page.page import render_page
from memtune.reports.text_console import make_json_data
from memtune.results import study_conclusion
from memtune.results.comparison import rank_rows
from memtune.results.study.alternative_comparison import select_compared
from memtune.results.study.study_report import StudyReport, make_study_report
from memtune.results.study.study_view import StudyView, open_view
from memtune.settings import Settings
from memtune.toml_text import format_toml
from memtune.tracking import LeaderboardRow, Registration, read_leaderboard
from memtune.tracking.mlflow_connection import connect
from memtune.training import TrialConfig
from tests.contracts.test_tasks import TEXT, make_labelled_example
from tests.presence import require
from tests.studies.drawn_studies import DrawnStudy, write_spaces
from tests.studies.simulated_training import DriverKilledError, SimulatedWorkers

CORPUS = "asked"
MAX_DRIVERS = 10


@dataclass(frozen=True)
class Surfaces:
    """What each surface says of one study."""

    drawn: DrawnStudy
    terminal: str
    """The output of the last driver."""
    shown: str
    """`memtune study show`."""
    report: dict[str, Any]
    """`memtune report --json`, which holds `memtune study show --json`."""
    page: str
    """The text of the report's page."""
    tags: dict[str, str]
    """Of the study's run in MLflow."""
    rows: list[LeaderboardRow]
    """`memtune compare --study`; empty until `add_rows`, because MLflow reads those of all studies."""
    listed: str
    """`memtune study list`."""
    configs: dict[str, TrialConfig]
    """By identity."""

    @property
    def detail(self) -> dict[str, Any]:
        """The study in detail."""
        return dict(self.report["detail"])


def prepare_home(settings: Settings) -> None:
    """The corpus and the spaces of drawn studies."""
    examples = [make_labelled_example(index, words) for index, words in enumerate(TEXT)]
    splits = {"train": examples, "valid": examples[:21], "test": examples[21:30]}
    import_corpus(CORPUS, splits, settings.corpus_store, ImportOptions(vocabulary="all"))
    write_spaces(settings.home)


def run(drawn: DrawnStudy, home: Settings, *, is_thorough: bool) -> Surfaces:
    """Run a study in a study database of its own; what each surface says of it, but those of all studies.

    A thorough run registers models and draws figures, which takes most of the time of a simulated study.
    """
    database = f"journal://{home.home}/{drawn.name}.log"  # a journal is read whole, with all its studies
    with patch.dict(os.environ, {"MEMTUNE_PROPOSALS": database}):
        settings = Settings.from_environment()
        printed = _run_drivers(drawn, settings, is_thorough=is_thorough)
        return _read_surfaces(drawn, printed, settings, is_thorough=is_thorough)


def _run_drivers(drawn: DrawnStudy, settings: Settings, *, is_thorough: bool) -> str:
    """Run a study to its end, through all drivers; return the output of the last one."""
    path = settings.home / f"{drawn.name}.toml"
    path.write_text(format_toml(drawn.document))
    corpus = open_corpus(CORPUS, settings.corpus_store)
    workers = SimulatedWorkers(drawn.truth, corpus, workers=drawn.workers, ends=list(drawn.ends))
    options: list[str] = []
    with _simulate(workers, is_thorough=is_thorough):
        for _ in range(MAX_DRIVERS):
            try:
                done = CliRunner().invoke(cli.app, ["search", str(path), *options])
            except DriverKilledError:
                options = ["--resume"]
                continue
            if done.exception is not None and not isinstance(done.exception, SystemExit):
                raise done.exception
            if done.exit_code == 0:
                return done.output
            assert "to resume:" in done.output, done.output
            options = ["--resume"]
    raise AssertionError(f"{drawn.name} does not end after {MAX_DRIVERS} drivers")


@contextmanager
def _simulate(workers: SimulatedWorkers, *, is_thorough: bool) -> Iterator[None]:
    """Let `memtune search` train on simulated workers, on their clock."""
    conclude = study_conclusion.conclude_study

    def store_and_conclude(study: Any, view: StudyView, *others: Any) -> Any:
        if view.ranking is not None:
            workers.store_results(study.checkpoint_root, _list_needed(view), with_models=is_thorough)
        return conclude(study, view, *others)

    with ExitStack() as stack:
        stack.enter_context(patch("memtune.ray_backend.ray_executor.RayExecutor", lambda *arguments: workers))
        stack.enter_context(patch.object(study_conclusion, "conclude_study", store_and_conclude))
        stack.enter_context(patch("memtune.studies.budgets.time", workers.clock))
        # The workers train nothing, so a study may ask for bfloat16 on every processor.
        stack.enter_context(patch.object(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}))
        if not is_thorough:
            kept = Registration(champion=None, reason="nothing is registered")
            stack.enter_context(patch.object(study_conclusion, "_register", lambda *arguments: kept))
            stack.enter_context(patch("memtune.tracking.link_corpus", lambda *arguments, **options: None))
            stack.enter_context(patch.object(search_commands, "print_pages", lambda *arguments: None))
            stack.enter_context(patch.object(api, "_record_report", lambda *arguments: None))
        yield


def _list_needed(view: StudyView) -> list[str]:
    """The trials whose weights and validation items a conclusion may read, by identity."""
    ranking = require(view.ranking)
    found = [*view.find_bests(lambda trial: trial.family), *view.find_bests()]
    for each in (ranking, require(view.eligible)):
        found += select_compared(each)
    return list({each.best.identity for each in found})


def _read_surfaces(drawn: DrawnStudy, terminal: str, settings: Settings, *, is_thorough: bool) -> Surfaces:
    view = open_view(drawn.name, settings)
    report = make_study_report(view)
    values = make_json_data(report)
    with out.capture() as capture:
        study_commands._print_detail(view, report.detail)
    if is_thorough:
        _check_commands(report, values, capture.get())
    return Surfaces(
        drawn,
        terminal=_flatten(terminal),
        shown=_flatten(capture.get()),
        report=values,
        page=_render(report, has_charts=is_thorough),
        tags=_read_tags(settings, view.id),
        rows=[],
        listed=_flatten(_invoke("study", "list")),
        configs={trial.identity: trial.config for trial in view.trials},
    )


def _check_commands(report: StudyReport, values: dict[str, Any], shown: str) -> None:
    """The commands print what the functions behind them have."""
    study, own = report.detail.summary.id, json.loads(json.dumps(values))
    assert _flatten(_invoke("study", "show", study)) == _flatten(shown)
    assert json.loads(_invoke("study", "show", study, "--json")) == own["detail"]
    printed = json.loads(_invoke("report", study, "--json"))
    assert {**printed, "written": ""} == {**own, "written": ""}


def add_rows(found: Sequence[Surfaces], home: Settings) -> list[Surfaces]:
    """The studies with their rows in MLflow."""
    rows = read_leaderboard(home.tracking_uri, CORPUS)
    own = [[row for row in rows if row.study == each.detail["summary"]["id"]] for each in found]
    return [
        replace(each, rows=rank_rows(known) if known else []) for each, known in zip(found, own, strict=True)
    ]


def _invoke(*arguments: str) -> str:
    done = CliRunner().invoke(cli.app, list(arguments))
    if done.exception is not None:
        raise done.exception
    return done.stdout


def _render(report: StudyReport, *, has_charts: bool) -> str:
    """The text of the page; without charts none is drawn, and their program is not embedded."""
    with ExitStack() as stack:
        if not has_charts:
            module = "memtune.reports.report_page"
            stack.enter_context(patch(f"{module}.page.list_sections", lambda report: {}))
            stack.enter_context(patch(f"{module}.page.load_vega", lambda: ""))
        page = render_page(report)
    body = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    return _flatten(html.unescape(re.sub(r"<[^>]+>", " ", body)))


def _read_tags(settings: Settings, study: str) -> dict[str, str]:
    client = connect(settings.tracking_uri)
    experiment = require(client.get_experiment_by_name(CORPUS))
    condition = f"tags.`memtune.study` = '{study}' AND tags.`memtune.role` = 'study'"
    (run,) = client.search_runs([experiment.experiment_id], condition)
    return dict(run.data.tags)


def _flatten(text: str) -> str:
    return " ".join(text.split())
