"""The live display of a study: one line per event in a pipe, a table on a terminal."""

import gc
import time
import weakref
from dataclasses import replace
from io import StringIO
from math import log

import pytest
from rich.console import Console

from memtune.models import LSTMConfig
from memtune.models.families.recurrent_memory import RecurrentMemoryConfig
from memtune.reports.live.live_display import LiveDisplay, Pace, PaceMeter
from memtune.reports.live.live_view import render_as_html
from memtune.results.study.study_leaderboard import describe_model, describe_settings
from memtune.search import StoredTrial
from memtune.studies.director import DirectedTrial
from memtune.studies.seed_repeats import TrialNames
from memtune.studies.study_run import TrialPhase
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
def trial() -> DirectedTrial:
    configuration = {"model": {"family": "lstm", "width": 24}, "training": {"tokens": 900}}
    config = parse(TrialConfig, configuration, "trial")
    return DirectedTrial(
        StoredTrial(7, "identity", configuration, TrialState.RUNNING), config, TrialState.RUNNING
    )


def render(trial: DirectedTrial, *, terminal: bool, changes: int = 1) -> str:
    console = Console(file=StringIO(), force_terminal=terminal, width=160, color_system=None)
    with LiveDisplay(console, TrialPhase("Does it show?", max_trials=4, ideal_perplexity=12.5)) as display:
        for _ in range(changes):
            display(trial)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def make_trial(number: int, state: TrialState, *perplexities: float) -> DirectedTrial:
    """A trial that has reported these perplexities, every 300 tokens."""
    configuration = {"model": {"family": "lstm", "width": 24}, "training": {"tokens": 900}, "seed": number}
    config = parse(TrialConfig, configuration, "trial")
    reports = [make_report(300 * (place + 1), value) for place, value in enumerate(perplexities)]
    return DirectedTrial(StoredTrial(number, str(number), configuration, state), config, state, reports)


def draw(trials: list[DirectedTrial], width: int, height: int) -> list[str]:
    """The lines of a display of these trials, out of 200, on a terminal."""
    console = Console(file=StringIO(), force_terminal=True, width=width, height=height, color_system=None)
    display = LiveDisplay(console, TrialPhase("Does it fit? " * 20, max_trials=200, ideal_perplexity=12.5))
    for trial in trials:
        display(trial)
    console.print(display)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), [(100, 30), (80, 24), (60, 15), (100, 8), (300, 80)])
@pytest.mark.parametrize("number", [1, 10, 200])
def test_the_progress_stays_on_the_terminal(width: int, height: int, number: int) -> None:
    trials = [make_trial(place, TrialState.COMPLETE, 90.0 - place / 10) for place in range(number)]
    running = [make_trial(1000 + place, TrialState.RUNNING, 50.0) for place in range(number)]
    lines = draw(trials + running, width, height)
    assert len(lines) < height
    assert f"{number} of 200 trials ended, {number} running" in " ".join(lines).replace("  ", " ")


def test_the_best_ended_trial_is_shown_however_many_run() -> None:
    running = [make_trial(place, TrialState.RUNNING, 50.0) for place in range(100)]
    lines = draw([make_trial(100, TrialState.COMPLETE, 40.0), *running], 100, 24)
    assert any("complete" in line and "40.00" in line for line in lines)
    assert any("and 84 more" in line for line in lines)


def test_the_display_of_a_long_study_keeps_the_best_ended_trials() -> None:
    console = Console(file=StringIO(), width=160)
    display = LiveDisplay(console, TrialPhase("How long?", max_trials=200))
    trials = [make_trial(number, TrialState.COMPLETE, 90.0 - number % 60) for number in range(100)]
    kept = [weakref.ref(trial) for trial in trials]
    while trials:
        display(trials.pop())
    gc.collect()
    assert sum(trial() is not None for trial in kept) == 20
    assert isinstance(console.file, StringIO)
    assert (
        "100 of 200 trials ended, best trial so far 31.00 (#59)" in console.file.getvalue().splitlines()[-1]
    )


def test_an_ended_trial_is_printed_once_however_often_its_end_is_seen() -> None:
    console = Console(file=StringIO(), width=160)
    display = LiveDisplay(console, TrialPhase("Does it repeat?", max_trials=200))
    trials = [make_trial(number, TrialState.COMPLETE, 50.0 + number) for number in range(30)]
    for trial in [*trials, *trials]:
        display(trial)
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue().count("width=24") == 30


def test_only_configurations_are_cut_on_a_narrow_terminal() -> None:
    lines = draw([make_trial(0, TrialState.COMPLETE, 123.45)], 60, 24)
    assert "best so far" in lines[1]
    (row,) = [line for line in lines if "complete" in line and "123.45" in line]
    assert row.rstrip().endswith("…")


def test_a_failed_trial_is_never_the_best() -> None:
    lines = draw([make_trial(0, TrialState.FAILED, 10.0), make_trial(1, TrialState.COMPLETE, 40.0)], 100, 24)
    assert any("best trial so far 40.00 (#1)" in line for line in lines)


def test_trials_of_earlier_runs_count() -> None:
    console = Console(file=StringIO(), width=160)
    configuration = {"model": {"family": "lstm", "width": 24}, "training": {"tokens": 900}}
    earlier = StoredTrial(3, "", configuration, TrialState.COMPLETE, log(30), {900: log(30)})
    display = LiveDisplay(console, TrialPhase("Again", max_trials=5, earlier=[earlier]))
    display(make_trial(4, TrialState.COMPLETE, 40.0))
    assert isinstance(console.file, StringIO)
    assert "2 of 5 trials ended, best trial so far 30.00 (#3)" in console.file.getvalue()


def test_the_configuration_is_printed_with_the_first_event_of_a_trial_only() -> None:
    console = Console(file=StringIO(), width=160)
    with LiveDisplay(console, TrialPhase("Does it repeat?", max_trials=4)) as display:
        for perplexities in ([], [50.0], [50.0, 40.0]):
            display(make_trial(0, TrialState.RUNNING, *perplexities))
    assert isinstance(console.file, StringIO)
    lines = console.file.getvalue().splitlines()
    assert [("width=24" in line, "best so far" in line) for line in lines] == [
        (True, False),
        (False, True),
        (False, True),
    ]


def test_the_time_left_is_unknown_before_a_trial_has_ended() -> None:
    assert not any("left" in line for line in draw([make_trial(0, TrialState.RUNNING, 50.0)], 100, 24))


def test_a_time_budget_limits_the_time_left() -> None:
    console = Console(file=StringIO(), force_terminal=True, width=100, height=24, color_system=None)
    console.print(LiveDisplay(console, TrialPhase("How long?", 4, find_seconds_left=lambda: 65.0)))
    assert isinstance(console.file, StringIO)
    assert "about 1m 05s left of the budget" in console.file.getvalue()


@pytest.mark.parametrize(("follows", "left"), [(False, "left at"), (True, "left before the repeats at")])
def test_the_time_left_of_a_search_says_that_repeats_follow(
    monkeypatch: pytest.MonkeyPatch, follows: bool, left: str
) -> None:
    monkeypatch.setattr(PaceMeter, "estimate", lambda *_: Pace(65.0, 1234.0, 500.0))
    console = Console(file=StringIO(), width=160)
    with LiveDisplay(console, TrialPhase("How long?", 4, has_repeats_after=follows)) as display:
        display(make_trial(0, TrialState.COMPLETE, 50.0))
    assert isinstance(console.file, StringIO)
    assert f"about 1m 05s {left} 1,234 tokens/s and 500 tokens per trial" in console.file.getvalue()


def test_the_time_of_a_round_of_repeats_counts_from_the_start_of_the_study() -> None:
    console = Console(file=StringIO(), force_terminal=True, width=100, height=24, color_system=None)
    console.print(LiveDisplay(console, TrialPhase("Repeats", 4), start_seconds=time.monotonic() - 65))
    assert isinstance(console.file, StringIO)
    assert "1m 05s" in console.file.getvalue()


def test_without_a_terminal_each_event_is_one_line(trial: DirectedTrial) -> None:
    trial.reports.append(make_report(300, 42.5))
    lines = render(trial, terminal=False).splitlines()
    assert len(lines) == 1
    for part in ("trial   7", "running", "width=24", "300 tokens", "42.50 validation perplexity"):
        assert part in lines[0]


def test_a_repeat_is_shown_under_the_name_of_its_trial_and_counted_as_a_repeat(trial: DirectedTrial) -> None:
    original = StoredTrial(3, "", trial.proposal.configuration, TrialState.COMPLETE, 1.0)
    trial.config = trial.config.model_copy(update={"seed": 2})
    trial.remarks.append("resumes")
    for terminal in (False, True):
        console = Console(file=StringIO(), force_terminal=terminal, width=160, color_system=None)
        phase = TrialPhase("Again", max_trials=4, names=TrialNames([original]), noun="repeat")
        with LiveDisplay(console, phase) as display:
            display(trial)
            display(replace(trial, state=TrialState.COMPLETE))
        assert isinstance(console.file, StringIO)
        shown = console.file.getvalue()
        assert shown.count("3 seed 2") >= 2
        assert "1 of 4 repeats ended" in shown


def test_an_output_layer_other_than_the_softmax_is_shown() -> None:
    output = {"kind": "class_factored", "classes": 90}
    config = parse(LSTMConfig, {"width": 24, "output": output}, "model")
    assert describe_model(config).endswith("dropout=0.0 output=class_factored classes=90")


def test_a_number_of_the_model_is_shown_with_three_digits() -> None:
    config = parse(LSTMConfig, {"width": 24, "dropout": 0.7167114501408332}, "model")
    assert describe_model(config).endswith("dropout=0.717")


def test_searched_fields_of_task_and_training_are_shown_once() -> None:
    configuration = {
        "model": {"family": "lstmn", "width": 8, "output": {"kind": "none"}},
        "task": {"kind": "inference", "fusion": "deep"},
        "training": {"tokens": 900, "optimiser": {"kind": "adam", "learning_rate": 0.00316227}},
    }
    searched = ["model.family", "model.width", "task.fusion", "training.optimiser.learning_rate", "model.x"]
    text = describe_settings(parse(TrialConfig, configuration, "trial"), searched)
    assert text == "lstmn width=8 fusion=deep learning_rate=0.00316"
    assert "fusion" not in describe_settings(parse(TrialConfig, configuration, "trial"), [])


def test_the_family_leads_the_configuration_where_it_is_searched(trial: DirectedTrial) -> None:
    assert describe_settings(trial.config, ["model.family", "model.width"]) == "lstm width=24"
    assert describe_settings(trial.config, ["model.width"]) == "width=24"


def test_layers_below_and_above_the_memory_are_shown_as_configured() -> None:
    config = parse(RecurrentMemoryConfig, {"width": 8, "layers": 1, "layers_above": 2}, "model")
    assert "layers=1 layers_above=2" in describe_model(config)


def test_an_unchanged_trial_is_printed_once(trial: DirectedTrial) -> None:
    assert len(render(trial, terminal=False, changes=3).splitlines()) == 1


def test_the_reason_of_a_stopped_trial_is_printed(trial: DirectedTrial) -> None:
    trial.state = TrialState.STOPPED
    trial.end = TrialEnd(reason=StopReason.EARLY_STOPPING, detail="successive halving at 300 tokens")
    assert "successive halving at 300 tokens" in render(trial, terminal=False)


def test_the_table_on_a_terminal_has_the_ideal_and_the_number_of_ended_trials(trial: DirectedTrial) -> None:
    trial.reports.append(make_report(300, 42.5))
    text = render(trial, terminal=True)
    for part in ("Does it show?", "42.50", "12,345", "0 of 4 trials ended", "ideal 12.50"):
        assert part in text


def test_a_notebook_shows_the_table_as_html_with_escaped_texts(trial: DirectedTrial) -> None:
    console = Console(file=StringIO(), force_jupyter=False, quiet=True)
    display = LiveDisplay(
        console, TrialPhase("<script>alert(1)</script> [red]", max_trials=4, ideal_perplexity=12.5)
    )
    display(trial)
    page = render_as_html(display)
    assert page.startswith("<pre")
    assert "&lt;script&gt;alert(1)&lt;/script&gt; [red]" in page
    assert "<script" not in page
    assert "0 of 4 trials ended, 1 running, ideal 12.50" in page
