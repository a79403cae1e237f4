"""Completion in the shell: names of this home, quickly, and words that bash splits."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer

from memtune.cli.command_line import app
from memtune.cli.shell_completion import complete_corpus, complete_model, complete_study, join_words_of_bash
from memtune.settings import Settings
from memtune.tracking import Recorder
from memtune.tracking.mlflow_connection import connect
from memtune.trial_state import TrialState

PROGRAM = "import sys; sys.argv = ['memtune']; from memtune.cli import main; main()"


@pytest.fixture
def home(settings: Settings) -> Settings:
    """A home with a corpus, a study with one trial, and a registered model with an alias."""
    folder = Path(settings.studies_folder) / "layers-0123abcd"
    folder.mkdir(parents=True)
    (folder / "study.json").write_text("{}")
    with Recorder(settings.tracking_uri, "tiny") as recorder:
        recorder.start_study("layers-0123abcd", "layers", {})
        recorder.start_trial("a", "lstm #0", {}, {"number": "0"})
        recorder.finish_trial("a", TrialState.COMPLETE)
    client = connect(settings.tracking_uri)
    client.create_registered_model("tiny")
    client.create_model_version("tiny", "runs:/none/model", run_id=None)
    client.set_registered_model_alias("tiny", "champion", "1")
    return settings


def test_corpora_studies_models_and_trials_of_the_home_are_completed(home: Settings) -> None:
    assert complete_corpus("t") == ["tiny"]
    assert complete_corpus("tiny+") == ["tiny+tiny"]
    assert complete_study("lay") == ["layers-0123abcd"]
    assert complete_model("models:/") == ["models:/tiny@champion"]
    assert complete_model("layers") == ["layers-0123abcd#0"]
    assert complete_corpus("x") == complete_study("x") == complete_model("x") == []


NEW_NAMES = {("corpus", "import")}
"""Commands whose corpus does not exist yet."""


def list_named_parameters(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The parameters of all commands that name a corpus or a study of the home."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from list_named_parameters(command, (*path, name))
        elif (*path, name) not in NEW_NAMES:
            yield from (((*path, name), own) for own in command.params if own.name in ("corpus", "study"))


def test_every_command_completes_the_names_of_corpora_and_studies(home: Settings) -> None:
    root: Any = typer.main.get_command(app)
    found = list(list_named_parameters(root))
    without = [
        (command, parameter.name)
        for command, parameter in found
        if not parameter.shell_complete(click.Context(root), "")
    ]
    assert len(found) > 15
    assert without == []


def test_a_home_without_records_completes_nothing_and_is_not_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MEMTUNE_STORE", "MEMTUNE_STUDIES", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MEMTUNE_HOME", str(tmp_path / "missing"))
    assert complete_corpus("") == complete_study("") == complete_model("") == []
    assert not (tmp_path / "missing").exists()
    (tmp_path / "missing").mkdir()
    (tmp_path / "missing" / "mlflow.db").write_text("no database")
    assert complete_model("") == []
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    monkeypatch.setenv("MEMTUNE_STORE", "s3://bucket/corpora")
    assert complete_model("") == complete_corpus("") == []


def complete(*words: str) -> tuple[list[str], str]:
    """What bash offers after these words, the last of which is under the cursor, and the imported modules."""
    environment = {
        **os.environ,
        "_MEMTUNE_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    command = [sys.executable, "-X", "importtime", "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout.split(), done.stderr


OFFERED = [
    (["memtune", "compare", "--corpus", "ti"], ["tiny"]),
    (["memtune", "compare", "--corpus", "=", "ti"], ["tiny"]),
    (["memtune", "study", "show", "lay"], ["layers-0123abcd"]),
    (["memtune", "evaluate", "mod"], ["models:/tiny@champion"]),
    (["memtune", "evaluate", "models", ":", "/ti"], ["/tiny@champion"]),
    (["memtune", "evaluate", "models", ":", "/tiny", "@", "ch"], ["champion"]),
]


@pytest.mark.cluster
def test_bash_gets_the_rest_of_a_name_without_slow_imports(home: Settings) -> None:
    for words, offered in OFFERED:
        found, imported = complete(*words)
        assert found == offered
        for slow in ("mlflow", "torch", "pyarrow", "optuna", "ray"):
            assert f" {slow}\n" not in imported


def test_words_that_follow_a_model_stay_words() -> None:
    words = ["memtune", "evaluate", "models", ":", "/a", "@", "b", "--split", "=", "te"]
    joined, at, left_out = join_words_of_bash(words, 9)
    assert joined == ["memtune", "evaluate", "models:/a@b", "--split", "te"]
    assert (at, left_out) == (4, 0)
