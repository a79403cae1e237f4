"""Trainings and imports of Python print plain lines in a pipe, and nothing when asked for silence."""

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

import memtune
from memtune.corpora import TextFile
from memtune.errors import ArgumentError
from memtune.reports.live.live_view import LineDisplay
from memtune.reports.text_console import TextConsole
from memtune.settings import Settings
from tests.conftest import SENTENCES

TRIAL = {
    "corpus": "tiny",
    "model": {"family": "lstm", "width": 4},
    "training": {"tokens": 600, "report_every": 300},
}
SPLITS = dict.fromkeys(("train", "valid", "test"), SENTENCES)


@pytest.fixture
def pipe() -> StringIO:
    return StringIO()


def test_a_training_prints_a_line_for_each_report(pipe: StringIO, settings: Settings) -> None:
    trained = memtune.train(TRIAL, settings=settings, console=TextConsole(file=pipe))
    lines = pipe.getvalue().splitlines()
    assert len(lines) == len(trained.curve) == 2
    assert all("validation perplexity" in line for line in lines)


OTHER_TRIAL = {**TRIAL, "model": {"family": "rnn", "width": 4}}
TRAININGS: dict[str, Callable[[], object]] = {
    "train": lambda: memtune.train(TRIAL),
    "judge": lambda: memtune.judge(TRIAL, OTHER_TRIAL),
    "probe": lambda: memtune.probe("lstm", "parity", {"settings": {"rows": 64}}),
}


@pytest.mark.parametrize("function", TRAININGS)
@pytest.mark.usefixtures("settings")
def test_an_interrupted_training_says_how_it_continues(
    function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LineDisplay, "replace", stop)
    monkeypatch.setattr(LineDisplay, "add_line", stop)
    with pytest.raises(KeyboardInterrupt, match="the same call continues from the last checkpoint"):
        TRAININGS[function]()


def test_a_training_that_had_ended_is_said_to_have(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = memtune.train(TRIAL, settings=settings)
    capsys.readouterr()
    memtune.train(TRIAL, settings=settings)
    expected = f"lstm was already trained to its end, {trained.curve[-1].tokens} tokens\n"
    assert capsys.readouterr().out == expected


def test_a_training_without_progress_prints_nothing(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    memtune.train(TRIAL, settings=settings, progress=False)
    assert capsys.readouterr().out == ""


def test_an_import_prints_the_tokens_of_its_splits(pipe: StringIO, settings: Settings) -> None:
    for expected in ("x: imported, tokens: train 17", "x: already in the store, tokens: train 17"):
        memtune.import_corpus("x", SPLITS, settings.corpus_store, console=TextConsole(file=pipe))
        assert pipe.getvalue().splitlines()[-1].startswith(expected)


def test_an_import_prints_the_warnings_of_its_text(
    pipe: StringIO, settings: Settings, tmp_path: Path
) -> None:
    path = tmp_path / "text.txt"
    path.write_text("the dog sees a cat\n" * 20)
    files = dict.fromkeys(SPLITS, TextFile(path))
    imported = memtune.import_corpus("x", files, settings.corpus_store, console=TextConsole(file=pipe))
    assert imported.warnings
    lines = pipe.getvalue().splitlines()
    assert lines[:-1] == [f"warning: {warning}" for warning in imported.warnings]


def test_a_terminal_shows_what_is_read(pipe: StringIO, settings: Settings) -> None:
    terminal = TextConsole(file=pipe, force_terminal=True, width=100)
    memtune.import_corpus("x", SPLITS, settings.corpus_store, console=terminal)
    assert "MB read" in pipe.getvalue()


def test_a_callback_in_place_of_progress_is_refused(settings: Settings) -> None:
    with pytest.raises(ArgumentError, match="progress must be True or False"):
        memtune.import_corpus("x", SPLITS, settings.corpus_store, progress=print)  # type: ignore[arg-type]
