"""Tables of trials say what tells them apart, and which family came first."""

from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table

from memtune.reports.trials import family_table, leaderboard_table
from memtune.search import Outcome
from memtune.tracking import Row


def text(table: Table) -> str:
    console = Console(file=StringIO(), width=200)
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
        parameters={"model.family": "lstm", **{f"model.{name}": value for name, value in model.items()}},
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
    assert "output.kind=adaptive output.factor=2" in shown


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


def test_the_study_is_a_column_where_there_are_several() -> None:
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
