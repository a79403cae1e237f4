"""Homes that earlier versions wrote, each packed in tests/homes under the day of its version.

Each has the corpus "grammar" (300 sentences of the embedded grammar), a study "tiny" of four ended trials,
one repeat and an open trial, a champion that has read the test split once, and, where the version had them, a
study "removed" with a sampler and a rule that were removed later. A release adds its own.
"""

import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from memtune.api import run_search
from memtune.errors import MemtuneError
from memtune.experiments.ask_tell import open_ask_tell
from memtune.experiments.judgement import open_judged
from memtune.reports.report_page.page import render_page
from memtune.results.comparison import compare, find_champions
from memtune.results.model_evaluation import evaluate
from memtune.results.study.study_catalogue import list_studies
from memtune.results.study.study_detail import show_study
from memtune.results.study.study_report import make_study_report
from memtune.results.study.study_view import open_view
from memtune.search import StudyReader
from memtune.settings import Settings
from memtune.studies.definition.study_loader import load_study, resolve_study
from memtune.studies.executor import InProcessExecutor
from memtune.studies.study_check import dry_run
from memtune.training.trial_config import identify
from memtune.trial_state import TrialState
from tests.conftest import open_home

PACKED = Path(__file__).parents[2] / "homes"


@dataclass(frozen=True)
class EarlierHome:
    """A packed home, and what its version showed."""

    day: str
    tokens: int
    """Of the trials of "tiny"."""
    stopped: tuple[str, ...]
    reason: str
    """The beginning of the reason of the stopped trials, in "tiny" or "removed"."""
    can_resume: bool = False


HOMES = (
    EarlierHome("2026-11-21", 14_117, ("#2", "#3"), "successive halving at 1,000 tokens"),
    EarlierHome("2026-11-23", 20_169, (), "PASHA: rank 2 of 2"),
    EarlierHome("2026-11-25", 15_152, ("#2", "#3"), "successive halving: rank 3 of 3", can_resume=True),
)


@pytest.fixture(params=HOMES, ids=lambda home: home.day)
def home(request: pytest.FixtureRequest) -> EarlierHome:
    found: EarlierHome = request.param
    return found


@pytest.fixture
def settings(home: EarlierHome, tmp_path: Path) -> Iterator[Settings]:
    with open_home(tmp_path) as opened, tarfile.open(PACKED / f"{home.day}.tar.xz") as packed:
        packed.extractall(opened.home, filter="data")
        yield opened


def write_study_file(settings: Settings, study: str, folder: Path) -> Path:
    """The file of a stored study: the terms that its version wrote into it."""
    (stored,) = Path(settings.studies_folder).glob(f"{study}-*/study.json")
    terms = json.loads(stored.read_text())
    early_stopping = terms.get("early_stopping", {"kind": "successive_halving"})
    file = folder / f"{study}.toml"
    file.write_text(
        f'question = "{terms["question"]}"\ncorpus = "grammar"\nspaces = ["lstm", "rnn"]\n'
        "[model]\nwidth = 4\nlayers = 1\ndropout = 0.0\ntie_output = false\n"
        "[training]\ntokens = 4000\nreport_every = 1000\nclip_norm = 5.0\n"
        'schedule = { kind = "constant" }\n'
        'optimiser = { kind = "adamw", learning_rate = { float = [3e-3, 3e-2], log = true } }\n'
        '[protocol]\nkind = "sentence"\nbatch_size = 16\n'
        f'[sampler]\nkind = "{terms["sampler"]["kind"]}"\nseed = 3\nstartup_trials = 4\n'
        f'[early_stopping]\nkind = "{early_stopping["kind"]}"\n'
        "[repeats]\nbest = 1\nseeds = 2\n[budget]\ntrials = 5\n"
    )
    return file


def test_an_earlier_home_reads_as_it_was(
    home: EarlierHome, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    tiny = next(study for study in list_studies(settings) if study.name == "tiny")
    assert tiny.tokens == home.tokens
    assert tiny.trials["open"] == 1
    shown = {trial.reference: trial for trial in show_study("tiny", settings).trials}
    assert {name for name, trial in shown.items() if trial.state is TrialState.STOPPED} == {*home.stopped}
    reasons = [
        trial.reason for view in list_studies(settings) for trial in show_study(view.id, settings).trials
    ]
    assert any(reason.startswith(home.reason) for reason in reasons)

    rows = [row for row in compare("grammar", settings=settings).rows if row.study == tiny.id]
    assert sum(row.state is TrialState.STOPPED for row in rows) == len(home.stopped)
    assert sum(row.state is TrialState.COMPLETE for row in rows) == 5 - len(home.stopped)
    assert render_page(make_study_report(open_view("tiny", settings)))

    (champion,) = find_champions(settings=settings)
    assert champion.uri == "models:/grammar/1"
    assert compare("grammar", settings=settings).test_accesses == 1
    evaluated = evaluate(f"{tiny.id}#1", settings=settings)
    assert evaluated.metrics.perplexity == pytest.approx(218.998, rel=1e-5)  # as the version printed it
    stopped = open_judged(f"{tiny.id}#2", settings, trust_code=False).file  # whose weights are removed
    assert stopped.trial.model.family in ("lstm", "rnn")
    registered = evaluate("models:/grammar@champion", settings=settings)
    assert registered.metrics.perplexity == pytest.approx(209.885, rel=1e-5)
    assert not caplog.records


def test_stored_trials_keep_their_identity(home: EarlierHome, settings: Settings) -> None:
    """The identity follows from the stored configuration, in the version whose studies can be resumed."""
    view = open_view("tiny", settings)
    assert view.corpus is not None
    now = [outcome.config.identity(view.corpus.digest) == outcome.identity for outcome in view.stored.trials]
    assert all(now) if home.can_resume else not any(now)
    for record in Path(settings.studies_folder).glob("*/checkpoints/*/*/learner.json"):
        stored = json.loads(record.read_text())["record"]
        assert identify(stored["config"], stored["corpus_digest"]) == stored["identity"]


def test_a_study_resumes_or_says_why_not(home: EarlierHome, settings: Settings, tmp_path: Path) -> None:
    file = write_study_file(settings, "tiny", tmp_path)
    before = StudyReader(settings.study_database).list_ids()

    def resume() -> list[TrialState]:
        result = run_search(
            file, resume=True, settings=settings, executor=InProcessExecutor(), progress=False
        )
        assert result.is_recorded
        return [outcome.state for outcome in result.outcomes]

    if home.can_resume:
        assert resume().count(TrialState.COMPLETE) == 3
        assert open_view("tiny", settings).stored.trials
    else:
        with pytest.raises(MemtuneError, match=r"of an earlier version of memtune.*warm_start = \"tiny-"):
            resume()
    assert StudyReader(settings.study_database).list_ids() == before


def test_ask_and_tell_continue_a_study_or_say_why_not(
    home: EarlierHome, settings: Settings, tmp_path: Path
) -> None:
    file = write_study_file(settings, "tiny", tmp_path)
    resolved = resolve_study(file, load_study(file), settings)

    def read_home() -> list[object]:
        terms = sorted(Path(settings.studies_folder).glob("*/study.json"))
        return [
            *StudyReader(settings.study_database).list_ids(),
            *[(path, path.read_text()) for path in terms],
        ]

    before = read_home()
    if home.can_resume:
        with open_ask_tell(resolved) as session:
            (open_trial,) = session.list_open()
            assert session.tell(open_trial.number, 1000, 5.5).state is TrialState.RUNNING
    else:
        with (
            pytest.raises(MemtuneError, match=r"of an earlier version of memtune.*warm_start = \"tiny-"),
            open_ask_tell(resolved),
        ):
            pass
        assert read_home() == before


def test_removed_kinds_are_named_with_what_replaces_them(settings: Settings, tmp_path: Path) -> None:
    if not list(Path(settings.studies_folder).glob("removed-*")):
        pytest.skip("its version had no such kinds")
    assert show_study("removed", settings).trials
    with pytest.raises(MemtuneError, match=r"sampler.kind = \w+: it was removed.*warm_start"):
        dry_run(write_study_file(settings, "removed", tmp_path), settings=settings)
