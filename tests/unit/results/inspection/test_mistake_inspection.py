"""Shared mistakes and McNemar's test, against counts and probabilities computed here."""

from math import comb

import pytest

from memtune.results.question_answers import (
    compare_answers,
    compare_pairs,
    find_shared_mistakes,
)
from tests.unit.results.test_error_overlap import ask_one, make_answers


def compute_p(first: int, second: int) -> float:
    """Twice the probability of at most min(first, second) heads in first + second throws of a coin."""
    throws = first + second
    return min(1.0, 2 * sum(comb(throws, heads) for heads in range(min(first, second) + 1)) / 2**throws)


@pytest.mark.parametrize(
    ("first", "second", "wins", "losses"),
    [
        ("+++++++-", "-------+", 7, 1),
        ("++++++--", "--++++--", 2, 0),
        ("+-+-", "-+-+", 2, 2),
        ("++", "++", 0, 0),
    ],
)
def test_p_is_the_binomial_probability_of_the_questions_that_one_model_wins(
    first: str, second: str, wins: int, losses: int
) -> None:
    test = compare_answers("a", "b", {"a": make_answers(first), "b": make_answers(second)})
    assert (test.first_only, test.second_only) == (wins, losses)
    assert test.p == pytest.approx(compute_p(wins, losses))


def test_questions_that_are_not_asked_or_tied_do_not_enter_the_test() -> None:
    tied = make_answers("++?+")
    tied.nats_QC[0] = [1.0, 1.0]
    test = compare_answers("a", "b", {"a": tied, "b": make_answers("----")})
    assert (test.first_only, test.second_only, test.ties) == (2, 0, 1)


def test_models_are_named_by_their_family_and_have_totals() -> None:
    found = find_shared_mistakes(
        [
            ask_one("models:/m/1", "lstm", make_answers("+--+-")),
            ask_one("models:/m/2", "stack_lstm", make_answers("+-+-+")),
            ask_one("models:/m/3", "lstm", make_answers("+-++-")),
        ]
    )
    first, third = "lstm (models:/m/1)", "lstm (models:/m/3)"
    assert [(model.name, model.mistakes) for model in found.models] == [
        (first, 3),
        ("stack_lstm", 2),
        (third, 2),
    ]
    assert {region.models: region.mistakes for region in found.regions} == {
        (first, "stack_lstm", third): 1,
        (first, third): 1,
        (first,): 1,
        ("stack_lstm",): 1,
    }
    assert (found.questions, found.correct_for_all) == (5, 1)
    assert [(test.first, test.second) for test in found.tests] == [
        (first, "stack_lstm"),
        (first, third),
        ("stack_lstm", third),
    ]


def test_p_values_of_three_pairs_are_corrected_for_their_number() -> None:
    """Ten questions won by one model alone have p = 0.002; the smallest of three counts three times."""
    answers = {
        "a": make_answers("++++++++++"),
        "b": make_answers("----------"),
        "c": make_answers("+++++++++-"),
    }
    found = {(test.first, test.second): test.p for test in compare_pairs(answers)}
    assert found["a", "b"] == pytest.approx(3 * compute_p(10, 0))
    assert found["b", "c"] == pytest.approx(2 * compute_p(9, 0))
    assert found["a", "c"] == 1.0
