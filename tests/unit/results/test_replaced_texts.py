"""Results of two texts under one corpus name: only those of one text compare."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memtune.api import run_search
from memtune.cli.command_line import app
from memtune.corpora import ImportOptions, TextFile, import_corpus, open_corpus
from memtune.errors import CorpusError
from memtune.reports.report_page.page import render_page
from memtune.results.comparison import compare, compare_tokenisations
from memtune.results.model_evaluation import evaluate
from memtune.results.study.study_catalogue import study_cost
from memtune.results.study.study_detail import show_study
from memtune.results.study.study_report import report_corpus, report_study
from memtune.settings import Settings
from memtune.studies.executor import InProcessExecutor
from memtune.tracking import count_test_accesses
from tests.conftest import SENTENCES, SPACE_TOML, STUDY_TOML, open_home
from tests.presence import require
from tests.unit.cli.invocation import TRIAL, read_output
from tests.unit.reports.parsed_page import Page

pytestmark = pytest.mark.usefixtures("without_report")

OLD = "\n".join(map(" ".join, SENTENCES * 20))
NEW = "\n".join(f"word{number % 37} word{number % 11} word{number % 5}" for number in range(60))
"""With more words, and harder to predict."""
LIMITED = STUDY_TOML.replace("tokens = 900", "epochs = 3").replace("report_every = 300\n", "")
LIMITED += "\n[champion]\nmax_parameters = 700\n"
"""On the old text, models of width 4 are within the limits; on the new one none is."""
LOST = 'The store does not have the text that the trials read as "tiny", so that sizes are unknown.'


def put_text(settings: Settings, name: str, text: str, tokens: str = "words") -> None:
    file = settings.home / "text.txt"
    file.write_text(f"{text}\n")
    sources = dict.fromkeys(("train", "valid", "test"), TextFile(file))
    import_corpus(name, sources, settings.corpus_store, ImportOptions(tokens=tokens), replace=True)


def train_on(settings: Settings, text: str, study: str) -> None:
    """A trial without a study and a study of two trials, on a text named "tiny"."""
    put_text(settings, "tiny", text)
    (settings.home / "trial.toml").write_text(TRIAL)
    read_output("train", str(settings.home / "trial.toml"))
    (settings.home / "space.toml").write_text(SPACE_TOML)
    (settings.home / f"{study}.toml").write_text(LIMITED.replace("trials = 4", "trials = 2"))
    run_search(settings.home / f"{study}.toml", settings=settings, executor=InProcessExecutor())


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Iterator[Settings]:
    """The home of two texts; tests only read it."""
    with open_home(tmp_path_factory.mktemp("replaced"), empty_store) as settings:
        train_on(settings, OLD, "old")
        train_on(settings, NEW, "new")
        yield settings


def test_trials_of_the_text_in_the_store_are_ranked_and_the_others_are_counted(home: Settings) -> None:
    found, digest = compare("tiny", settings=home), open_corpus("tiny", home.corpus_store).digest
    assert {row.study.partition("-")[0] for row in found.rows} == {"alone", "new"}
    assert all(digest.startswith(row.corpus_digest) for row in found.rows)
    assert len(found.rows) == 3
    assert require(found.best).place == 1
    shown = CliRunner().invoke(app, ["compare", "--corpus", "tiny", "--json"])
    assert '3 trials that read another text named "tiny" are left out' in shown.stderr
    assert "3 trials that read another text" in found._repr_html_()


def test_a_damaged_corpus_is_named_where_its_text_is_not_used(
    home: Settings, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    store = tmp_path / "corpora"
    shutil.copytree(home.corpus_store, store)
    (store / "tiny" / "manifest.json").write_text("{")
    found = show_study("new", home.model_copy(update={"corpus_store": str(store)}))
    assert LOST in require(found.verdict).caveats
    assert "corpus tiny is not used: " in caplog.text
    assert "tiny/manifest.json" in caplog.text


def test_the_trials_of_a_study_of_another_text_are_ranked_on_it(home: Settings) -> None:
    found = compare("tiny", study="old", settings=home)
    assert {row.study.partition("-")[0] for row in found.rows} == {"old"}
    assert found.text_remark == 'the trials read another text named "tiny" than the store has'
    assert found.champion is None


def test_a_model_is_evaluated_where_the_store_has_its_text_under_any_name(home: Settings) -> None:
    with pytest.raises(CorpusError, match="under another name, or under this one with --replace"):
        evaluate("old#0", settings=home)
    put_text(home, "former", OLD)
    best = compare("tiny", study="old", settings=home).rows[0]
    assert evaluate(best.run_id, settings=home).metrics.perplexity == pytest.approx(best.figure)


def test_reading_the_test_split_of_another_corpus_is_no_access_to_the_own_one(home: Settings) -> None:
    put_text(home, "former", OLD)
    before = count_test_accesses(home.tracking_uri, "tiny")
    evaluate("new#0", "test", corpus="former", settings=home)
    assert count_test_accesses(home.tracking_uri, "tiny") == before


def test_corpora_compare_by_trials_of_their_present_text(home: Settings) -> None:
    put_text(home, "letters", NEW, "characters")
    (home.home / "letters.toml").write_text(TRIAL.replace('"tiny"', '"letters"'))
    read_output("train", str(home.home / "letters.toml"))
    assert {row.corpus for row in compare_tokenisations(("tiny", "letters"), settings=home)} == {
        "tiny",
        "letters",
    }


def test_a_study_of_another_text_has_no_sizes_of_it_and_says_so(home: Settings) -> None:
    detail = show_study("old", home)
    assert {trial.sizes for trial in detail.trials} == {None}
    assert detail.summary.champion_rule == (
        "the best value, because no sizes are known for [champion] max_parameters = 700"
    )
    assert LOST in require(detail.verdict).caveats
    assert LOST in " ".join(read_output("study", "show", "old").split())
    with pytest.raises(CorpusError, match=r'the text of corpus "tiny" that study old-\w+ read is not in the'):
        study_cost("old", home)
    assert "its text is not in the store any more" in Page(render_page(report_study("old", home))).list("td")
    present = show_study("new", home)
    assert all(trial.sizes for trial in present.trials)
    assert LOST not in require(present.verdict).caveats


def test_the_report_of_a_corpus_joins_the_studies_of_one_text_and_names_the_others(home: Settings) -> None:
    report = report_corpus("tiny", home)
    (label,) = report.labels
    assert [study.detail.summary.name for study in label.studies] == ["new"]
    assert report.digest == open_corpus("tiny", home.corpus_store).digest
    assert {name.partition("-")[0] for name in report.other_texts} == {"old"}
    notes = " ".join(Page(render_page(report)).list("p"))
    assert f"Studies that read another text of this name are left out: {report.other_texts[0]}." in notes
