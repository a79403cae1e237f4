"""The live display of a study: one line per event in a pipe, a table on a terminal."""

from io import StringIO
from math import log

import pytest
from rich.console import Console

from memtune.models import LSTMConfig, RecurrentMemoryConfig
from memtune.reports.live_display import LiveDisplay, describe_trial, format_key_parameters
from memtune.search import Outcome, Proposal
from memtune.studies.director import Trial
from memtune.studies.seed_repeats import TrialNames
from memtune.training import Report, TrialConfig
from memtune.trial_state import StopReason, TrialEnd, TrialState
from memtune.values import parse


def make_report(tokens: int, perplexity: float) -> Report:
    return Report(
        tokens=tokens,
        epoch=1.0,
        train_loss=2.0,
        train_perplexity=7.4,
        valid_loss=log(perplexity),
        valid_perplexity=perplexity,
        gradient_norm=1.0,
        learning_rate=1.0,
        tokens_per_second=12345.0,
        seconds=1.0,
        peak_memory_bytes=1,
        end=None,
    )


@pytest.fixture
def trial() -> Trial:
    configuration = {"model": {"family": "lstm", "width": 24}, "training": {"tokens": 900}}
    config = parse(TrialConfig, configuration, "trial")
    return Trial(Proposal(7, {}, configuration, "identity"), config, TrialState.RUNNING)


def render(trial: Trial, *, terminal: bool, changes: int = 1) -> str:
    console = Console(file=StringIO(), force_terminal=terminal, width=160, color_system=None)
    with LiveDisplay(console, "Does it show?", trial_budget=4, ideal=12.5) as display:
        for _ in range(changes):
            display(trial)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_without_a_terminal_each_event_is_one_line(trial: Trial) -> None:
    trial.reports.append(make_report(300, 42.5))
    lines = render(trial, terminal=False).splitlines()
    assert len(lines) == 1
    for part in ("trial   7", "running", "lstm width=24", "300 tokens", "42.50 validation perplexity"):
        assert part in lines[0]


def test_a_repeat_is_shown_under_the_name_of_its_trial(trial: Trial) -> None:
    original = Outcome(3, "", trial.proposal.configuration, TrialState.COMPLETE, 1.0)
    trial.config = trial.config.model_copy(update={"seed": 2})
    trial.remarks.append("resumes")
    for terminal in (False, True):
        console = Console(file=StringIO(), force_terminal=terminal, width=160, color_system=None)
        with LiveDisplay(console, "Again", trial_budget=4, names=TrialNames([original])) as display:
            display(trial)
        assert isinstance(console.file, StringIO)
        assert console.file.getvalue().count("3 seed 2") >= 2


def test_an_output_layer_other_than_the_softmax_is_shown() -> None:
    output = {"kind": "class_factored", "classes": 90}
    config = parse(LSTMConfig, {"width": 24, "output": output}, "model")
    assert format_key_parameters(config).endswith("dropout=0.0 output=class_factored classes=90")


def test_searched_fields_of_task_and_training_are_shown_once() -> None:
    configuration = {
        "model": {"family": "lstmn", "width": 8, "output": {"kind": "none"}},
        "task": {"kind": "inference", "fusion": "deep"},
        "training": {"tokens": 900, "optimiser": {"kind": "adam", "learning_rate": 0.00316227}},
    }
    searched = ["model.family", "model.width", "task.fusion", "training.optimiser.learning_rate", "model.x"]
    text = describe_trial(parse(TrialConfig, configuration, "trial"), searched)
    assert text.endswith("fusion=deep learning_rate=0.00316")
    assert text.count("width=") == 1
    assert "fusion" not in describe_trial(parse(TrialConfig, configuration, "trial"))


def test_layers_below_and_above_the_memory_are_shown_as_configured() -> None:
    config = parse(RecurrentMemoryConfig, {"width": 8, "layers": 1, "layers_above": 2}, "model")
    assert "layers=1 layers_above=2" in format_key_parameters(config)


def test_an_unchanged_trial_is_printed_once(trial: Trial) -> None:
    assert len(render(trial, terminal=False, changes=3).splitlines()) == 1


def test_the_reason_of_a_stopped_trial_is_printed(trial: Trial) -> None:
    trial.state = TrialState.STOPPED
    trial.end = TrialEnd(reason=StopReason.EARLY_STOPPING, detail="successive halving at 300 tokens")
    assert "successive halving at 300 tokens" in render(trial, terminal=False)


def test_the_table_on_a_terminal_has_the_ideal_and_the_number_of_ended_trials(trial: Trial) -> None:
    trial.reports.append(make_report(300, 42.5))
    text = render(trial, terminal=True)
    for part in ("Does it show?", "42.50", "12,345", "0 of 4 trials ended", "ideal perplexity 12.50"):
        assert part in text
