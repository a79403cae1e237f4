"""One configuration without Ray: trained, recorded, registered, and resumed after an interruption."""

from concurrent.futures import Future, ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from memtune.api import train
from memtune.errors import ConfigurationError, StorageError, StudyError
from memtune.experiments.single_trial import TrainResult, load_trial
from memtune.reports.text_console import TextConsole
from memtune.results import registration
from memtune.results.comparison import compare, find_champions
from memtune.results.model_evaluation import evaluate
from memtune.settings import Settings
from memtune.storage.folder import Folder
from memtune.tasks import CacheGrid, ContinuousCache
from memtune.tracking import Registration
from memtune.training import Report
from tests.cluster.poll import poll_until

TRIAL = """corpus = "tiny"

[model]
family = "lstm"
width = 6

[training]
tokens = 900
report_every = 300
"""


NGRAMS = """corpus = "tiny"

[model]
family = "kneser_ney"
order = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(TRIAL)
    return path


def test_an_interrupted_training_resumes_and_has_the_results_of_an_undisturbed_one(
    file: Path, settings: Settings
) -> None:
    whole = train(file, {"seed": 3}, settings=settings)

    def press_ctrl_c(report: Report) -> None:
        raise KeyboardInterrupt

    file.write_text(TRIAL + "clip_norm = 4.0\n")
    undisturbed = train(file, {"seed": 3}, settings=settings)
    file.write_text(TRIAL + "clip_norm = 3.0\n")
    with pytest.raises(KeyboardInterrupt):
        train(file, {"seed": 3}, settings=settings, on_report=press_ctrl_c)
    (killed,) = [row for row in compare("tiny", settings=settings).rows if row.state == "interrupted"]
    assert killed.tokens == whole.curve[0].tokens
    resumed = train(file, {"seed": 3}, settings=settings)
    assert [r.tokens for r in resumed.curve] == [r.tokens for r in undisturbed.curve]
    assert {row.state for row in compare("tiny", settings=settings).rows} == {"complete"}


def test_what_killed_trainings_left_is_deleted(file: Path, settings: Settings) -> None:
    train(file, settings=settings)
    (index,) = Path(settings.studies_folder).rglob("latest.json")
    kept = {*index.parent.iterdir()}
    (index.parent / "000000099999-ab").mkdir()
    (index.parent / "latest.json.0a.partial").touch()
    train(file, settings=settings)
    assert {*index.parent.iterdir()} == kept


def test_leftovers_that_cannot_be_deleted_leave_the_result(
    file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    train(file, settings=settings)
    (index,) = Path(settings.studies_folder).rglob("latest.json")
    (index.parent / "000000099999-ab").mkdir()

    def refuse(folder: Folder) -> None:
        raise StorageError(f"cannot delete {folder}")

    monkeypatch.setattr(Folder, "delete", refuse)
    assert train(file, settings=settings).best
    assert "files of killed workers remain: cannot delete" in caplog.text


def test_a_second_training_at_once_waits_and_takes_over_the_result(
    file: Path, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """Two would delete each other's checkpoints and record one trial as two runs."""
    started = list[Future[TrainResult]]()
    with ThreadPoolExecutor(1) as others:

        def start_another(report: Report) -> None:
            if not started:
                started.append(others.submit(train, file, settings=settings, progress=False))
                waits = "waiting for the end of another training"
                poll_until(lambda: waits in caplog.text, "the second training")

        first = train(file, settings=settings, on_report=start_another)
        second = started[0].result()
    assert second.initial_tokens == first.curve[-1].tokens
    assert second.curve == first.curve


def test_a_seed_that_ends_during_a_registration_is_part_of_the_registered_mean(
    file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    register = registration.register_trial_model

    def register_late(*arguments: Any) -> Registration:
        monkeypatch.setattr(registration, "register_trial_model", register)
        train(file, {"seed": 1}, settings=settings)
        return register(*arguments)

    monkeypatch.setattr(registration, "register_trial_model", register_late)
    train(file, {"seed": 0}, settings=settings)
    assert [champion.seeds for champion in find_champions(settings=settings)] == [2]


def test_test_figures_are_recorded_with_the_version(file: Path, settings: Settings) -> None:
    train(file, settings=settings)
    first = evaluate("models:/tiny@champion", "test", settings=settings)
    again = evaluate("models:/tiny@champion", "test", settings=settings)
    assert first.metrics == again.metrics
    from memtune.tracking.mlflow_connection import connect

    (champion,) = find_champions("tiny", settings)
    client = connect(settings.tracking_uri)
    tags = client.get_model_version("tiny", str(champion.version)).tags
    assert float(tags["test_perplexity"]) == first.metrics.perplexity
    history = client.get_metric_history(champion.run_id, "test_perplexity")
    assert [metric.value for metric in history] == [first.metrics.perplexity]


def test_figures_under_a_cache_are_recorded_apart(file: Path, settings: Settings) -> None:
    train(file, settings=settings)
    uri, cache = "models:/tiny@champion", ContinuousCache(size=20, flatness=0.5, weight=0.25)
    plain = evaluate(uri, "test", settings=settings)
    with_cache = evaluate(uri, "test", cache=cache, settings=settings)
    assert with_cache.cache == cache
    assert with_cache.metrics.perplexity != plain.metrics.perplexity
    from memtune.tracking.mlflow_connection import connect

    (champion,) = find_champions("tiny", settings)
    tags = connect(settings.tracking_uri).get_model_version("tiny", str(champion.version)).tags
    assert float(tags["test_perplexity"]) == plain.metrics.perplexity
    assert float(tags["test_cache_20_0.5_0.25_perplexity"]) == with_cache.metrics.perplexity
    metrics = connect(settings.tracking_uri).get_run(champion.run_id).data.metrics
    assert metrics["test_cache_20_0.5_0.25_perplexity"] == with_cache.metrics.perplexity


def test_a_cache_is_tuned_on_validation_whatever_the_split(file: Path, settings: Settings) -> None:
    train(file, settings=settings)
    grid = CacheGrid(size=20, flatnesses=(0.0, 1.0), weights=(0.0, 0.3))
    found, valid = (
        evaluate("models:/tiny@champion", split, cache=grid, settings=settings) for split in ("test", "valid")
    )
    assert found.cache == valid.cache
    for flatness in grid.flatnesses:
        for weight in grid.weights:
            other = ContinuousCache(size=20, flatness=flatness, weight=weight)
            tried = evaluate("models:/tiny@champion", cache=other, settings=settings)
            assert tried.metrics.loss >= valid.metrics.loss - 1e-12


def test_an_n_gram_model_is_trained_recorded_registered_and_evaluated_like_a_network(
    file: Path, settings: Settings
) -> None:
    train(file, settings=settings)
    file.write_text(NGRAMS)
    trained = train(file, settings=settings)
    assert trained.registration is not None
    assert trained.registration.champion is not None
    assert trained.best is not None
    found = evaluate("models:/tiny@champion", settings=settings)
    assert found.metrics.perplexity == pytest.approx(trained.best.valid_perplexity, rel=1e-9)
    first, second = compare("tiny", settings=settings).rows
    assert (first.family, second.family) == ("kneser_ney", "lstm")
    assert (first.tokens, first.state) == (trained.best.tokens, "complete")
    again = train(file, settings=settings)
    assert again.curve == trained.curve


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ("width = 6", "widht = 6", ConfigurationError, 'did you mean "width"'),
        ('family = "lstm"', 'family = "lstmm"', ConfigurationError, "lstmm"),
        ("tokens = 900", "tokens = 900\nepochs = 1", ConfigurationError, "exactly one of them"),
        ("[model]", "[model", StudyError, "is not TOML"),
        ('corpus = "tiny"', 'corpus = "tiny"\nspaces = ["lstm"]', StudyError, "run: memtune search"),
    ],
)
def test_an_error_in_a_trial_file_names_the_file(
    file: Path, old: str, new: str, error: type[Exception], message: str
) -> None:
    file.write_text(TRIAL.replace(old, new))
    with pytest.raises(error) as caught:
        load_trial(file)
    assert message in str(caught.value)
    assert file.name in str(caught.value)


def test_a_pipe_learns_the_time_left_before_the_first_report_of_a_long_training(
    file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memtune.training.training_loop.PROGRESS_SECONDS", 0.0)
    for seconds, lines in ((0.0, 1), (600.0, 0)):
        monkeypatch.setattr("memtune.api.FIRST_LINE_SECONDS", seconds)
        printed = StringIO()
        train(file, {"seed": lines}, settings=settings, console=TextConsole(file=printed))
        told = ["s left" in line for line in printed.getvalue().splitlines()]
        assert told == [True] * lines + [False] * 3


def test_a_dropout_that_drops_nothing_is_named(
    file: Path, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    train(file, {"model.dropout": 0.1}, settings=settings)
    assert "small: dropout = 0.1 has no effect, because one layer has nothing between layers" in caplog.text
    caplog.clear()
    train(file, {"model.dropout": 0.1, "model.dropout_placement": "after"}, settings=settings)
    assert "has no effect" not in caplog.text
