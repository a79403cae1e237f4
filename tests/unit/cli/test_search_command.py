"""What memtune search prints at the end of a driver."""

import functools
import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from memtune import api
from memtune.cli import command_line as cli
from memtune.settings import Settings
from memtune.studies.budgets import budget_monitor
from memtune.studies.executor import InProcessExecutor
from tests.unit.studies.test_interrupted_studies import lengthen_trials


def test_a_driver_whose_budget_is_spent_counts_the_trials_that_earlier_drivers_left_open(
    study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengthen_trials(study_file)
    study_file.write_text(study_file.read_text().replace("[budget]", '[budget]\ntime = "30s"'))
    seconds = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: float(next(seconds)))  # a second for each training step
    monkeypatch.setattr(budget_monitor, "time", clock)
    monkeypatch.setattr(api, "run_search", functools.partial(api.run_search, executor=InProcessExecutor()))
    for options in ([], ["--resume"]):
        done = CliRunner().invoke(cli.app, ["search", str(study_file), *options])
        assert "; 1 trial open; to continue, raise it under [budget]" in " ".join(done.output.split())
