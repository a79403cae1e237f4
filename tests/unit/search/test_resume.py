"""A resumed study is the same as an uninterrupted one."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from optuna.trial import TrialState

from memtune.search import StoredTrial
from memtune.search.early_stopping import Action, SuccessiveHalving, SuccessiveHalvingConfig
from memtune.trial_state import StopReason, TrialEnd

STOPPED = TrialEnd(reason=StopReason.EARLY_STOPPING)

TRIALS = 9


def compute_value(configuration: dict, tokens: int) -> float:
    """An analytic learning curve."""
    model = configuration["model"]
    quality = model.get("memory_size", 3 * model.get("layers", 0))
    return 100.0 + abs(quality - 7) + 100.0 / tokens


def drive(proposals, trials: int = TRIALS) -> None:
    """Run trials one after another, unfinished ones first, with halving, like a driver with one worker."""
    rule = SuccessiveHalving(SuccessiveHalvingConfig(grace=10), trial_tokens=100)
    rule.replay(proposals.list_outcomes())
    waiting = proposals.list_unfinished()
    while waiting or len(proposals.list_outcomes()) < trials:
        proposal = waiting.pop(0) if waiting else proposals.ask()
        if proposal is None:
            return
        train(proposals, rule, proposal)


def train(proposals, rule, proposal) -> None:
    """Train from the start, like a worker without a checkpoint; repeated reports change nothing."""
    for tokens in (10, 30, 100):
        reported = compute_value(proposal.configuration, tokens)
        if rule.decide(proposal.number, "", tokens, reported).action is Action.STOP:
            return proposals.stop(proposal.number, STOPPED, tokens, reported)
        proposals.report(proposal.number, tokens, reported)
    return proposals.complete(proposal.number, reported)


def list_results(proposals) -> list[StoredTrial]:
    """All fields except the numbers, because a kill may skip a number."""
    return [replace(found, number=0) for found in proposals.list_outcomes()]


KINDS = {"random": 6, "qmc": 6, "tpe": TRIALS, "gp": TRIALS, "nsga2": 16}
"""Trials after which a sampler has learned something; NSGA-II learns by generations."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_study_reopened_before_each_trial_proposes_the_same(open_study, tmp_path, kind):
    whole, again = f"journal://{tmp_path}/whole", f"journal://{tmp_path}/again"
    drive(open_study(kind=kind, url=whole), KINDS[kind])
    for trials in range(1, KINDS[kind] + 1):
        drive(open_study(kind=kind, url=again), trials)
    assert list_results(open_study(url=again)) == list_results(open_study(url=whole))
    assert len(list_results(open_study(url=whole))) == KINDS[kind]


def test_a_driver_killed_while_a_sampler_stores_its_state_proposes_the_same(open_study, tmp_path):
    """The kills are after each write of the ask that begins a generation."""
    whole = tmp_path / "whole"
    proposals = open_study(kind="nsga2", url=f"journal://{whole}")
    drive(proposals, 12)
    before = len(whole.read_bytes().splitlines())
    expected = proposals.ask()
    for url in cut_journal(whole, before):
        reopened = open_study(kind="nsga2", url=url)
        (again,) = reopened.list_unfinished() or [reopened.ask()]
        assert again.configuration == expected.configuration


@pytest.mark.parametrize("space", ["continuous", "four points"])
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0.0, 1.0))
def test_a_driver_killed_at_any_write_ends_with_the_same_trials(open_study, tmp_path, space, share):
    """A kill truncates the journal anywhere, also within a line."""
    whole = tmp_path / "whole"
    if not whole.exists():
        drive(open_study(space, "tpe", url=f"journal://{whole}"))
    journal = whole.read_bytes()
    killed = Path(tmp_path / "killed")
    killed.write_bytes(journal[: int(share * len(journal))])
    drive(open_study(space, "tpe", url=f"journal://{killed}"))
    resumed = open_study(space, "tpe", url=f"journal://{killed}")
    assert list_results(resumed) == list_results(open_study(space, "tpe", url=f"journal://{whole}"))
    assert resumed.list_unfinished() == []


def cut_journal(journal: Path, before: int) -> list[str]:
    """Copies of a journal, each truncated after one of the writes that follow the first `before`."""
    lines = journal.read_bytes().splitlines(keepends=True)
    urls = []
    for count in range(before + 1, len(lines) + 1):
        cut = journal.with_name(f"killed after {count}")
        cut.write_bytes(b"".join(lines[:count]))
        urls.append(f"journal://{cut}")
    return urls


@pytest.mark.parametrize(("method", "state"), [("stop", "stopped"), ("pause", "paused")])
def test_a_kill_while_a_trial_is_being_stopped_or_paused_leaves_it_so(open_study, tmp_path, method, state):
    journal = tmp_path / "study"
    proposals = open_study(url=f"journal://{journal}")
    number = proposals.ask().number
    before = len(journal.read_bytes().splitlines())
    getattr(proposals, method)(number, STOPPED, 100, 5.0)
    found = [open_study(url=url).list_outcomes() for url in cut_journal(journal, before)]
    assert len(found) > 1
    assert all(outcomes == proposals.list_outcomes() for outcomes in found)
    assert proposals.list_outcomes()[0].state == state


@pytest.mark.parametrize("why", ["duplicate", "refused"])
def test_a_kill_while_a_sample_is_being_rejected_leaves_none_running(
    open_study, read_optuna_trials, tmp_path, why
):
    journal = tmp_path / "study"
    rules = {"identify": lambda found: "one"} if why == "duplicate" else {"refuse": lambda found: "no"}
    proposals = open_study(url=f"journal://{journal}", **rules)
    if why == "duplicate":
        proposals.complete(proposals.ask().number, 1.0)
    before = len(journal.read_bytes().splitlines())
    assert proposals.ask() is None
    for url in cut_journal(journal, before)[:25]:
        reopened = open_study(url=url, **rules)
        assert not [trial for trial in read_optuna_trials(url) if trial.state is TrialState.RUNNING]
        assert len(reopened.list_outcomes()) == len(proposals.list_outcomes())


def test_a_kill_while_an_untried_point_is_proposed_proposes_it_again(
    open_study, read_optuna_trials, tmp_path
):
    def refuse(configuration):
        return None if 0.5 < configuration["optimiser"]["learning_rate"] < 0.505 else "refused"

    journal = tmp_path / "study"
    proposal = open_study(url=f"journal://{journal}", refuse=refuse).ask()
    writes = len(journal.read_bytes().splitlines())
    for url in cut_journal(journal, writes - 12):
        reopened = open_study(url=url, refuse=refuse)
        (again,) = reopened.list_unfinished() or [reopened.ask()]
        assert again.configuration == proposal.configuration
        assert [trial.state for trial in read_optuna_trials(url)].count(TrialState.RUNNING) == 1
        assert TrialState.WAITING not in [trial.state for trial in read_optuna_trials(url)]


def read_proposals(outcomes):
    return [(each.number, each.identity, each.configuration, each.parameters) for each in outcomes]


def test_unfinished_trials_are_returned_as_they_were_proposed(open_study):
    proposals = open_study()
    asked = [proposals.ask() for _ in range(3)]
    proposals.report(asked[0].number, 10, 5.0)
    reopened = open_study()
    assert read_proposals(reopened.list_unfinished()) == read_proposals(asked)
    assert reopened.list_outcomes()[0].curve == {10: 5.0}


def test_another_seed_proposes_something_else(open_study, tmp_path):
    first = open_study(seed=0, url=f"journal://{tmp_path}/a").ask()
    second = open_study(seed=1, url=f"journal://{tmp_path}/b").ask()
    assert first.configuration != second.configuration


def test_proposals_asked_at_once_differ(open_study):
    proposals = open_study(kind="tpe")
    drive(proposals)
    asked = [proposals.ask() for _ in range(4)]
    assert len({proposal.identity for proposal in asked}) == 4


def test_a_paused_trial_is_unfinished_again_once_it_is_resumed(open_study):
    proposals = open_study()
    asked = proposals.ask()
    proposals.pause(asked.number, STOPPED, 100, 5.0)
    reopened = open_study()
    assert reopened.list_unfinished() == []
    (paused,) = reopened.list_outcomes()
    assert read_proposals([paused]) == read_proposals([asked])
    assert (paused.state.value, paused.end) == ("paused", STOPPED)
    reopened.resume(asked.number)
    again = open_study()
    assert read_proposals(again.list_unfinished()) == read_proposals([asked])
    assert again.list_outcomes()[0].end is None
