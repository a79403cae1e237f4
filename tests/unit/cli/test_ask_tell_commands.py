"""`memtune study ask` and `tell`: a program trains the trials that the study proposes."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memtune.cli import command_line as cli
from memtune.settings import Settings

EARLY_STOPPING = '\n[early_stopping]\nkind = "successive_halving"\ngrace = 300\nfactor = 2\n'


@pytest.fixture
def study(study_file: Path, settings: Settings) -> Path:
    study_file.write_text(study_file.read_text() + EARLY_STOPPING)
    return study_file


def read_json(*arguments: object) -> Any:
    """What `memtune study ... --json` prints; the command must succeed."""
    done = CliRunner().invoke(cli.app, ["study", *map(str, arguments), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def read_error(*arguments: object) -> str:
    """The error of `memtune study ...`; the command must fail."""
    done = CliRunner().invoke(cli.app, ["study", *map(str, arguments)])
    assert done.exit_code != 0, done.output
    return " ".join(f"{done.output} {done.exception}".split())


def test_a_program_drives_a_study_over_the_command_line(study: Path) -> None:
    first, second = read_json("ask", study), read_json("ask", study)
    told = read_json("tell", study, "--number", first["number"], "--tokens", 300, "--value", 2.5)
    assert (told["state"], told["end"]) == ("running", None)
    waiting = {trial["number"]: trial["curve"] for trial in read_json("ask", study, "--open")}
    assert waiting == {first["number"]: {"300": 2.5}, second["number"]: {}}
    ended = read_json("tell", study, "--number", second["number"], "--tokens", 300, "--value", 3.5)
    assert (ended["state"], ended["end"]["reason"]) == ("stopped", "early_stopping")
    done = read_json(
        "tell", study, "--number", first["number"], "--tokens", 900, "--value", 2.0, "--complete"
    )
    assert done["state"] == "complete"
    assert read_json("ask", study, "--open") == []


def test_a_program_chooses_a_configuration_and_reports_its_failure(study: Path, tmp_path: Path) -> None:
    chosen = tmp_path / "chosen.toml"
    chosen.write_text("[model]\nlayers = 2\n[training.optimiser]\nlearning_rate = 0.5\n")
    trial = read_json("ask", study, "--configuration", chosen)
    assert trial["configuration"]["model"]["layers"] == 2
    assert trial["configuration"]["training"]["optimiser"]["learning_rate"] == 0.5
    failed = read_json("tell", study, "--number", trial["number"], "--failed", "no memory [left]")
    assert (failed["state"], failed["end"]["detail"]) == ("failed", "no memory [left]")


def test_wrong_calls_are_answered_with_what_is_missing(study: Path) -> None:
    assert "needs --value, or --failed with the reason" in read_error("tell", study, "--number", 0)
    value = ("--tokens", 300, "--value", 2.0)
    both = ("--complete", "--failed", "no memory left")
    assert "leave out --complete or --failed" in read_error("tell", study, "--number", 0, *both)
    assert "has begun; start it with: memtune study ask" in read_error("tell", study, "--number", 7, *value)
    read_json("ask", study)
    assert "has started no trial 7" in read_error("tell", study, "--number", 7, *value)
    assert "a value needs the tokens it was measured at" in read_error(
        "tell", study, "--number", 0, "--value", 2.0
    )
