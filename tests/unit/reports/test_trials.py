"""Tables of trials say what tells them apart, and which family came first."""

from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table

from memtune.reports.trials import family_table, leaderboard_table, sample_table, spread_table
from memtune.search import Outcome
from memtune.tracking import Row
from memtune.training import TrialConfig


def text(table: Table, width: int = 200) -> str:
    console = Console(file=StringIO(), width=width)
    console.print(table)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def row(study: str = "s-0123abcd", **model: Any) -> Row:
    return Row(
        name="lstm #0",
        family="lstm",
        study=study,
        trial="t",
        run_id="r",
        state="finished",
        reason="budget",
        protocol="sentence",
        corpus_digest="d",
        parameters={"model.family": "lstm"} | {f"model.{name}": value for name, value in model.items()},
        parameter_count=100,
        tokens=1000,
        objective="perplexity",
        figure=12.0,
    )


def outcome(number: int, family: str, losses: list[float]) -> Outcome:
    configuration = {"model": {"family": family, "width": 4}, "training": {"tokens": 900}}
    curve = {300 * (place + 1): loss for place, loss in enumerate(losses)}
    return Outcome(number, str(number), configuration, "complete", curve=curve)


def test_trials_that_differ_in_a_lesser_parameter_are_told_apart_by_it() -> None:
    tied = text(leaderboard_table([row(tie_output=True), row(tie_output=False)], None, "title"))
    assert "tie_output=True" in tied
    alike = text(leaderboard_table([row(tie_output=True), row(tie_output=True)], None, "title"))
    assert "tie_output" not in alike


def test_trials_that_differ_in_their_output_layer_are_told_apart_by_it() -> None:
    rows = [row(**{"output.kind": "softmax"}), row(**{"output.kind": "adaptive", "output.factor": 2})]
    shown = text(leaderboard_table(rows, None, "title"))
    assert "output=adaptive output.factor=2" in shown


def test_trials_whose_tasks_differ_are_told_apart_by_it() -> None:
    rows = [
        row().model_copy(
            update={"parameters": {"model.family": "lstm", "task.kind": "inference", "task.fusion": fusion}}
        )
        for fusion in ("none", "deep")
    ]
    shown = text(leaderboard_table(rows, None, "title"))
    assert "fusion=none" in shown
    assert "fusion=deep" in shown
    assert "kind=" not in shown


def trained(learning_rate: float, **others: Any) -> Row:
    return row().model_copy(
        update={
            "parameters": {
                "model.family": "lstm",
                "training.optimiser.learning_rate": learning_rate,
                "training.tokens": 900,
                **others,
            }
        }
    )


def test_trials_that_differ_in_how_they_are_trained_are_told_apart_by_it() -> None:
    shown = text(leaderboard_table([trained(0.5), trained(0.031622)], None, "title"))
    assert "learning_rate=0.5" in shown
    assert "learning_rate=0.0316" in shown
    budgets = [trained(0.5), trained(0.5, **{"training.tokens": 1800})]
    assert "tokens=" not in text(leaderboard_table(budgets, None, "title"))


def test_what_another_family_lacks_or_only_searches_is_not_repeated_in_every_row() -> None:
    lstm = row(recurrent_dropout=0.0, width=8)
    scrn = {"model.family": "scrn", "model.recurrent_dropout": 0, "model.width": 8}
    other = row().model_copy(update={"family": "scrn", "parameters": scrn})
    shown = text(leaderboard_table([lstm, lstm, other], None, "title"))
    assert "recurrent_dropout" not in shown


def test_a_trial_that_its_study_stopped_is_stopped_as_it_was_live() -> None:
    stopped = row().model_copy(update={"reason": "successive halving at 300 tokens"})
    shown = text(leaderboard_table([stopped], None, "title"))
    assert "stopped" in shown
    assert "finished" not in shown
    late = row().model_copy(update={"reason": "the study's time was up"})
    assert "stopped: the study's time was up" in text(leaderboard_table([late], None, "title"))
    ended = row().model_copy(update={"reason": "no improvement in 3 reports"})
    assert "finished: no improvement" in text(leaderboard_table([ended], None, "title"))


def test_every_table_of_a_study_shows_what_it_searches() -> None:
    searched = ("model.width", "training.optimiser.learning_rate")
    found = [outcome(0, "lstm", [2.0])]
    config = TrialConfig.model_validate(found[0].configuration)
    for table in (
        family_table(found, 10, "Which?", searched),
        spread_table(found, found, searched),
        sample_table([config], 10, searched),
    ):
        assert "lstm width=4 layers=1 dropout=0.0 learning_rate=1" in text(table)


def test_a_hundred_columns_hold_whole_words_and_numbers() -> None:
    model = {"family": "recurrent_memory", "width": 64, "layers": 1, "layers_above": 2, "memory_size": 15}
    memory = row(study="grammar_memories-0123abcd", **model).model_copy(
        update={
            "name": "recurrent_memory #12",
            "family": "recurrent_memory",
            "reason": "successive halving at 60,000 tokens",
            "parameter_count": 12_345_678,
            "tokens": 1_234_567,
        }
    )
    shown = text(leaderboard_table([memory, row()], 12.3, "title"), 100)
    whole = ["recurrent_memory #12", "grammar_memories-0123abcd", "layers_above=2", "12,345,678", "1,234,567"]
    for part in (*whole, "perplexity", "stopped", "ideal perplexity 12.300"):
        assert part in shown


def test_the_study_is_named_where_there_are_several() -> None:
    assert "other-0123abcd" in text(leaderboard_table([row(), row(study="other-0123abcd")], None, "title"))
    assert "s-0123abcd" not in text(leaderboard_table([row(), row()], None, "title"))


def test_the_best_trial_of_each_family_answers_the_question_best_family_first() -> None:
    outcomes = [
        outcome(0, "lstm", [2.0, 1.5]),
        outcome(1, "rnn", [1.0, 3.0]),
        outcome(2, "lstm", [1.25]),
        outcome(3, "scrn", []),
    ]
    lines = [line for line in text(family_table(outcomes, 10, "Which?")).splitlines() if "#" in line]
    assert ["rnn" in lines[0], "#1" in lines[0], "2.718" in lines[0]] == [True, True, True]
    assert ["lstm" in lines[1], "#2" in lines[1], "3.490" in lines[1]] == [True, True, True]
    assert len(lines) == 2
