"""`memtune search`: a dry run, options, and what is printed at the end of a driver."""

import functools
import itertools
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from memtune import api
from memtune.cli import command_line as cli
from memtune.settings import Settings
from memtune.studies.budgets import budget_monitor
from memtune.studies.executor import InProcessExecutor
from tests.presence import require
from tests.unit.cli.invocation import read_error, read_output
from tests.unit.studies.test_interrupted_studies import lengthen_trials

pytestmark = pytest.mark.usefixtures("without_report")


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


@pytest.mark.parametrize("share", ["some", "fitt", ""])
def test_a_share_of_a_gpu_is_a_number_or_fit(share: str, study_file: Path) -> None:
    refused = CliRunner().invoke(cli.app, ["search", str(study_file), "--gpus-per-trial", share])
    assert refused.exit_code == 2
    assert "is neither a number of GPUs" in " ".join(refused.output.replace("│", " ").split())


def test_a_dry_run_shows_the_study_and_five_samples_and_starts_nothing(
    settings: Settings, study_file: Path
) -> None:
    done = CliRunner().invoke(cli.app, ["search", str(study_file), "--dry-run", "--trials", "3"])
    assert done.exit_code == 0, done.output
    assert "layers-" in done.stdout
    assert "Does a second layer help?" in done.stdout
    assert "3 trials of infinitely many configurations, 900 tokens each" in done.stdout
    assert "{" not in done.stdout
    assert done.stdout.count("learning_rate=") == 5
    assert re.search(r"about [\d.e-]+ core hours on this machine.*3 trainings of", done.stdout, re.DOTALL)
    assert not Path(settings.studies_folder).exists()


def test_a_dry_run_shows_budgets_repeats_time_money_and_the_ranges_of_a_family(
    settings: Settings, study_file: Path
) -> None:
    study_file.write_text(
        study_file.read_text()
        + "tokens = 1_000_000\n[repeats]\nbest = 2\nseeds = 3\n[prices]\ncpu_hour = 0.04\n"
        + "[families.lstm.training]\noptimiser.learning_rate = { float = [0.2, 0.3] }\n"
    )
    done = CliRunner().invoke(cli.app, ["search", str(study_file), "--dry-run", "--time-budget", "2h"])
    assert done.exit_code == 0, done.output
    shown = " ".join(done.stdout.split())
    assert "budget: tokens = 1,000,000, time = 7,200 s" in shown
    assert "repeats: the best 2 configurations, 3 seeds each" in shown
    assert "lstm alone: training.optimiser.learning_rate.float = [0.2, 0.3]" in shown
    assert re.search(r"8 trainings of [\d.]+ core seconds.*; \d+m \d\ds with \d+ at once and \S+ EUR", shown)


def test_a_dry_run_has_the_hours_of_the_fewest_and_of_the_most_seeds_until_decided(
    settings: Settings, study_file: Path
) -> None:
    """Four trials, and from 3 to 12 seeds of each of two widths."""
    terms = '[repeats]\nuntil = "decided"\nmax_seeds = 15\n'
    study_file.write_text('compare = "model.width"\n' + study_file.read_text() + terms)
    shown = " ".join(read_output("search", str(study_file), "--dry-run").split())
    low, high = require(re.search(r"about (\S+) to (\S+) core hours.* 10 to 28 trainings of", shown)).groups()
    assert float(high) / float(low) == pytest.approx(2.8, rel=0.1)


def test_a_dry_run_marks_the_samples_that_the_study_refuses(settings: Settings, study_file: Path) -> None:
    study_file.write_text(study_file.read_text() + "max_parameters = 700\n")
    command = ["search", str(study_file), "--dry-run"]
    checked = json.loads(read_output(*command, "--json"))
    widths = [sample["model"]["width"] for sample in checked["samples"]]
    assert [reason is not None for reason in checked["refusals"]] == [width == 8 for width in widths]
    assert {*widths} == {4, 8}
    assert read_output(*command).count("more than") == widths.count(8)


def test_a_missing_gpu_is_an_error_before_anything_starts(settings: Settings, study_file: Path) -> None:
    assert "--gpus-per-trial 0" in read_error("search", str(study_file), "--gpus-per-trial", "1")
    assert not Path(settings.studies_folder).exists()
